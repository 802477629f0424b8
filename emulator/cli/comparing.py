"""Commands about finished runs: compare."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from emulator.cli.app import AXES, PluginOption, app, err, import_plugins, out
from emulator.errors import InputError, suggestion
from emulator.files import write_text

if TYPE_CHECKING:
    from analysis.runs import Run


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders that hold some.")],
    target: Annotated[
        float | None,
        typer.Option(help="Accuracy (a share) or other measure to reach. (default: the best that all runs reach)"),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="AXES",
            help="What accuracy is drawn against: any of cost,time,bytes,energy,money,carbon,round,epsilon.",
        ),
    ] = ",".join(AXES),
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Write comparison.csv and comparison.png (or clock.csv and clock.png) here."
        ),
    ] = None,
    clock: Annotated[
        bool,
        typer.Option(
            "--clock", help="Compare the clocks of two runs: EMULATED MEASURED, or one scenario in two worlds."
        ),
    ] = False,
    form: Annotated[
        str | None, typer.Option("--format", help="With --clock: one of text, csv, markdown and latex. (default: text)")
    ] = None,
    plugin: PluginOption = None,
) -> None:
    """Compare runs: what each pays to reach an accuracy, and what it reaches on equal budgets; or their clocks."""
    import_plugins(plugin)
    if clock:
        if target is not None or by != ",".join(AXES):
            raise InputError("--clock compares seconds and bytes; it goes without --target and --by")
        show_clock(folders, form or "text", out_dir)
        return
    if form is not None:
        raise InputError("--format goes with --clock; for other tables use 'hfl table'")
    from analysis.quantities import axis_named

    axes = [a.strip() for a in by.split(",")]
    for axis in axes:
        axis_named(axis)
    show_comparison(folders, target, axes, out_dir)


def show_comparison(folders: Sequence[Path], target: float | None, axes: Sequence[str], out_dir: Path | None) -> None:
    """Prints the comparison of runs; with ``out_dir`` writes it there too."""
    from analysis import differences, tables
    from analysis.plots import cost_accuracy
    from analysis.runs import load_runs, measure_of

    runs = load_runs(folders)
    differ, left = differences.table_of(runs)
    if differ is not None:
        out.print(differ.text() + (f"\n{left}" if left else "") + "\n", markup=False)
    if not any(run.training for run in runs):
        _show_charges(runs, target, out_dir)
        return
    measure = measure_of(runs)
    if target is not None and measure.share and not 0 < target <= 1:
        raise InputError(f"--target is a share between 0 and 1, for example 0.85, not {target:g}")
    comparison = tables.compare(runs, target)
    out.print(tables.as_text(comparison, measure), markup=False)
    if out_dir is not None:
        write_text(out_dir / "comparison.csv", tables.as_csv(comparison))
        cost_accuracy.plot(runs, axes=tuple(axes), path=out_dir / "comparison.png", target=target)
        out.print(f"wrote {escape(str(out_dir / 'comparison.csv'))} and {escape(str(out_dir / 'comparison.png'))}")


def show_clock(folders: Sequence[Path], form: str, out_dir: Path | None) -> None:
    """Prints how far the clock of the first of two runs is off that of the second; with ``out_dir`` writes it there too."""
    from analysis import clock_table, printed
    from analysis.plots import clock
    from analysis.runs import load_runs

    if form not in printed.FORMATS:
        raise InputError(f"unknown format '{form[:60]}'; {suggestion(form, printed.FORMATS)}")
    errors = clock_table.of_two(load_runs(folders))
    made = clock_table.printed(errors)
    sys.stdout.write(printed.FORMATS[form](made))
    if out_dir is not None:
        write_text(out_dir / "clock.csv", made.csv())
        clock.plot(errors, path=out_dir / "clock.png")
        err.print(f"wrote {escape(str(out_dir / 'clock.csv'))} and {escape(str(out_dir / 'clock.png'))}")


def _show_charges(runs: Sequence[Run], target: float | None, out_dir: Path | None) -> None:
    """Prints what runs without training took; with ``out_dir`` writes it there too."""
    from analysis import tables

    if target is not None:
        raise InputError("--target: these runs are without training and have no accuracy")
    charges = tables.charges(runs)
    out.print(tables.charges_as_text(charges), markup=False)
    if out_dir is not None:
        write_text(out_dir / "comparison.csv", charges.to_csv(index=False, lineterminator="\n"))
        out.print(f"wrote {escape(str(out_dir / 'comparison.csv'))}; no picture: there is no accuracy to draw")
