"""Commands that hand runs on: report and export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from emulator.cli.app import PluginOption, app, import_plugins, out
from emulator.errors import InputError
from emulator.files import write_text

REPORT = "report.html"


@app.command(no_args_is_help=True)
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|STUDY|CERTIFICATE...",
            help="Run folders, folders that hold some, or the folder of one study or certificate.",
        ),
    ],
    out_file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The page. (default: report.html in the folder)")
    ] = None,
    clock: Annotated[
        bool,
        typer.Option(
            "--clock", help="Of two runs: how far the clock of the first is off. (default: if the second is measured)"
        ),
    ] = False,
    plugin: PluginOption = None,
) -> None:
    """Write one HTML page about a run, several runs, a study or a certificate: summary, curves, breakdowns, groups, scenario."""
    import_plugins(plugin)
    from analysis.report import report as page

    text = page(folders, clock)
    path = out_file or (folders[0] / REPORT if len(folders) == 1 else Path(REPORT))
    write_text(path, text)
    out.print(f"wrote {escape(str(path))}")


@app.command(no_args_is_help=True)
def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or that of a comparison.")],
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write TensorBoard event files: every metric by round.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="DIR", help="Write all tables of the run as CSV.")
    ] = None,
    plugin: PluginOption = None,
) -> None:
    """Export a run to TensorBoard or to CSV files; each run of a comparison to a folder of its own."""
    import_plugins(plugin)
    from analysis import export as exporting
    from analysis.runs import load_runs

    if tensorboard is None and csv is None:
        raise InputError("say what to export to: --tensorboard DIR, --csv DIR, or both")
    runs = load_runs([folder])
    for run in runs:
        own = Path(run.folder.name if len(runs) > 1 else "")
        if csv is not None:
            written = exporting.to_csv(run, csv / own)
            out.print(f"wrote {', '.join(escape(path.name) for path in written)} -> {escape(str(csv / own))}")
        if tensorboard is not None:
            exporting.to_tensorboard(run, tensorboard / own)
            out.print(f"wrote TensorBoard events -> {escape(str(tensorboard / own))}")
