"""The command about the energy of runs: energy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.app import PluginOption, app, import_plugins, out


@app.command()
def energy(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders that hold some.")],
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV: seconds and joules, in full precision.")] = False,
    plugin: PluginOption = None,
) -> None:
    """Show where the clients' energy goes: by kind of device, and by idling, computing, sending and receiving."""
    import_plugins(plugin)
    from analysis.energy import as_csv, as_text, by_device
    from analysis.runs import load_runs

    table = by_device(load_runs(folders))
    if csv:
        sys.stdout.write(as_csv(table))
    else:
        out.print(as_text(table), markup=False, end="")
