"""The command that applies a price list to finished runs: prices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.app import PluginOption, app, import_plugins, out
from emulator.files import write_text


@app.command()
def prices(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs, or that hold some.")
    ],
    given: Annotated[
        str, typer.Option("--list", metavar="FILE", help="A price list (YAML), or the name of a bundled one.")
    ],
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the table as CSV too.")] = None,
    plugin: PluginOption = None,
) -> None:
    """Apply a price list to finished runs: what they cost in money, and the CO2 of their clients' energy.

    Every command that reads the runs afterwards knows both.
    """
    import_plugins(plugin)
    from analysis import tables
    from analysis.folders import run_folders
    from analysis.runs import load_runs
    from emulator.pricing import price
    from emulator.scenario.prices import read_list

    document, places = read_list(given), run_folders(folders)
    for place in places:
        price(place, document)
    charges = tables.charges(load_runs(places))
    out.print(tables.charges_as_text(charges), markup=False)
    if csv is not None:
        write_text(csv, charges.to_csv(index=False, lineterminator="\n"))
