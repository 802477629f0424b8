"""The command that runs a scenario for real on this host: testbed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from emulator.cli.app import (
    AXES,
    PluginOption,
    SetOption,
    app,
    err,
    import_plugins,
    out,
    stated_name,
)
from emulator.errors import InputError
from emulator.measures import Measure
from emulator.scenario.load import check, read, sharing

if TYPE_CHECKING:
    from emulator.scenario import Loaded


@app.command("testbed")
def run_on_testbed(
    name: Annotated[
        str | None,
        typer.Argument(metavar="SCENARIO", help="A YAML file, a ready scenario or a preset (hfl list)."),
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Run folder. (default: runs/NAME-SEED-testbed)")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Replaces the scenario's seed.")] = None,
    changes: SetOption = None,
    user_space: Annotated[
        bool,
        typer.Option(
            "--user-space",
            help="Shape links and devices without the kernel's help. (default: where there is no root, or no Linux)",
        ),
    ] = False,
    in_turn: Annotated[
        bool,
        typer.Option("--in-turn", help="Devices compute one after another, where they are too many for this host."),
    ] = False,
    at_most: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1, help="How long the run may last. (default: 1800)")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another run in the same folder.")] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove what a run has left that was killed; nothing else.")
    ] = False,
    plugin: PluginOption = None,
) -> None:
    """Run a scenario for real on this host: a process for each node, shaped links, measured seconds and bytes."""
    if clean:
        from emulator.testbed.leftovers import clean as remove

        if name is not None:
            raise InputError("--clean runs nothing; leave the scenario out")
        gone = remove()
        for line in gone:
            out.print(f"removed: {escape(line)}")
        if not gone:
            out.print("nothing was left")
        return
    if name is None:
        raise InputError("name a scenario, or say --clean")
    import_plugins(plugin)
    document = read(name, [*sharing(name, changes or []), *([f"seed={seed}"] if seed is not None else [])])
    loaded = check(document)
    _run(loaded, out_dir, stated_name(document), None if not user_space else False, in_turn, at_most, overwrite)


def _run(
    loaded: Loaded,
    out_dir: Path | None,
    name: str,
    kernel: bool | None,
    in_turn: bool,
    at_most_s: float | None,
    overwrite: bool,
) -> None:
    from emulator.cli.progress import RunProgress
    from emulator.testbed.run import AT_MOST_S, How, execute, prepare

    scenario = loaded.scenario
    folder = out_dir or Path("runs") / f"{name}-{scenario.seed}-testbed"
    prepare(folder, scenario, overwrite)
    how = How(kernel, in_turn, AT_MOST_S if at_most_s is None else at_most_s)
    label, measure = scenario.label, scenario.objective.measures[0]
    with RunProgress(err, label, scenario.stop, measure) as progress:
        try:
            summary = execute(loaded, folder, how, progress.watcher, lambda line: err.print(escape(line)))
        except KeyboardInterrupt:
            err.print(f"{label}: interrupted; everything is taken down")
            raise typer.Exit(130) from None
    _tell(label, summary, folder)
    if scenario.output.plot:
        from analysis.plots import cost_accuracy
        from analysis.runs import load_run

        cost_accuracy.plot([load_run(folder)], axes=AXES, path=folder / measure.picture)


def _tell(label: str, summary: dict[str, Any], folder: Path) -> None:
    from analysis.quantities import bytes_text, time_text

    final, measure, told = summary["final"], Measure.from_json(summary.get("measure")), summary["testbed"]
    said = told["emulation"]
    learned = f"{measure.called} {measure.brief(final[measure.name])} after {summary['rounds']} rounds"
    took = f"{time_text(final['time_s'])} measured ({time_text(said['seconds'])} emulated)"
    sent = f"{bytes_text(final['bytes_total'])} ({bytes_text(said['bytes'])} emulated)"
    out.print(f"{label}: {learned} (stopped by {summary['stopped_by']}), {took}, {sent} -> {escape(str(folder))}")
    if told["brought_by_control_channel"]:
        count = told["brought_by_control_channel"]
        out.print(f"{label}: {count} models came over the control channel, whose nodes had lost them")
