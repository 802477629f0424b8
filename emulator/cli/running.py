"""Commands that run scenarios: run, whatif."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from emulator.cli.app import (
    AXES,
    AddressOption,
    BackendOption,
    DeviceOption,
    MemoOption,
    NoMemoOption,
    NoTrainingOption,
    PluginOption,
    ScenarioArgument,
    SetOption,
    WorkersOption,
    app,
    backend_joined,
    err,
    go_on_with,
    import_plugins,
    out,
    stated_name,
    with_device,
)
from emulator.cli.comparing import show_comparison
from emulator.cluster import Backend
from emulator.errors import InputError, suggestion
from emulator.files import slug, write_text
from emulator.measures import Measure
from emulator.scenario import Loaded
from emulator.scenario.load import check, read, sharing
from emulator.scenario.presets import presets

if TYPE_CHECKING:
    from emulator.learning.memo import Memo
    from emulator.whatif import ChangedRun


@app.command()
def run(
    name: ScenarioArgument,
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Run folder. (default: runs/NAME-SEED[-no-training])")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Replaces the scenario's seed.")] = None,
    changes: SetOption = None,
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="PRESET", help="Also run this preset in the same world and compare. Repeatable."),
    ] = None,
    no_training: NoTrainingOption = False,
    memo: MemoOption = None,
    no_memo: NoMemoOption = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another run in the same folder.")] = False,
    workers: WorkersOption = None,
    device: DeviceOption = None,
    backend: BackendOption = "local",
    address: AddressOption = None,
    plugin: PluginOption = None,
) -> None:
    """Run a scenario and write a run folder; go on with it where an earlier run was cut off."""
    import_plugins(plugin)
    shared = sharing(name, with_device(changes, device), training=not no_training)
    document = read(name, [*shared, *([f"seed={seed}"] if seed is not None else [])])
    said = document.data.get("seed") if isinstance(document.data, dict) else None
    number = said if isinstance(said, int) and 0 <= said < 2**53 else 0  # any other is refused when it is checked
    default = f"{stated_name(document)}-{number}{'-no-training' if no_training else ''}"
    folder = out_dir or Path("runs") / default
    if not overwrite:
        go_on_with(folder)
    loaded = check(document, training=not no_training)
    others = against if against else list(loaded.scenario.output.against)
    for preset in others:
        if preset not in presets():
            raise InputError(f"--against: unknown preset '{preset}'; {suggestion(preset, presets())}")
    every = [loaded, *(loaded.against(preset) for preset in others)]
    folders = [folder / slug(each.scenario.label) for each in every] if others else [folder]
    if len(set(folders)) < len(folders):
        raise InputError("the same method stands twice; --against must name other presets than the scenario's own")
    opened = _open_memo(memo, no_memo)
    with backend_joined(backend, address, workers):
        for each, place in zip(every, folders, strict=True):
            _run_one(each, place, opened, overwrite, workers, backend=backend)
    if others:
        show_comparison(folders, None, AXES, folder)


@app.command()
def whatif(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    changes: SetOption = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Run folder of the changed run. (default: RUN/whatif-…)")
    ] = None,
    memo: MemoOption = None,
    no_memo: NoMemoOption = False,
    workers: WorkersOption = None,
    device: DeviceOption = None,
    plugin: PluginOption = None,
) -> None:
    """Run a finished run again in a changed world; train only what the change makes different.

    A run without training is played again without training.
    """
    import_plugins(plugin)
    changes = with_device(changes, device)
    if not changes:
        raise InputError("say what is to change, for example --set topology.links.access.up='2 Mbit/s'")
    from analysis.folders import one_run
    from emulator.replay import describe_trained
    from emulator.whatif import open_run

    folder = one_run(folder)
    # No picture: drawing one would take as long as the answer. `hfl compare` draws both worlds.
    changed = open_run(folder).what_if(changes)
    place = out_dir or changed.folder
    summary = _run_one(changed.loaded, place, _open_memo(memo, no_memo), False, workers, changed)
    _show_side_by_side(folder, place)
    if summary is not None:
        counts = summary["trainings"]
        reused = f"trainings reused {counts['asked'] - counts['computed']} of {counts['asked']}"
        out.print(f"{reused if changed.loaded.training else 'no training'} -> {escape(str(place))}")
        if counts["computed"]:
            out.print(describe_trained(summary))


def _open_memo(path: Path | None, none: bool) -> Memo:
    from emulator.learning.memo import Memo, default_path

    return Memo(None if none else path or default_path())


def _run_one(
    loaded: Loaded,
    folder: Path,
    memo: Memo,
    overwrite: bool,
    workers: int | None,
    changed: ChangedRun | None = None,
    backend: Backend = "local",
) -> dict[str, Any] | None:
    """Runs a scenario into a folder, shows how it gets on, and draws its picture. None: it was complete already."""
    from emulator.cli.progress import RunProgress
    from emulator.replay import run_changed
    from emulator.run import execute
    from emulator.run_folder import prepare

    label = loaded.scenario.label
    summary = None
    if not prepare(folder, loaded.scenario, overwrite, loaded.training):
        out.print(f"{label}: {escape(str(folder))} holds this run already, complete")
    else:
        with RunProgress(err, label, loaded.scenario.stop, loaded.scenario.objective.measures[0]) as progress:
            try:
                if changed is None:
                    summary = execute(loaded, folder, memo, progress.watcher, max_workers=workers, backend=backend)
                else:
                    summary = run_changed(changed, folder, memo, progress.watcher, workers)
            except KeyboardInterrupt:
                err.print(f"{label}: interrupted; the same command goes on from {escape(str(folder))}")
                raise typer.Exit(130) from None
        _tell(label, summary, folder)
    picture = folder / loaded.scenario.objective.measures[0].picture
    if loaded.training and loaded.scenario.output.plot and not picture.exists():
        from analysis.plots import cost_accuracy
        from analysis.runs import load_run

        cost_accuracy.plot([load_run(folder)], axes=AXES, path=picture)
    return summary


def _tell(label: str, summary: dict[str, Any], folder: Path) -> None:
    from analysis.quantities import bytes_text, cost_text, time_text
    from emulator.methods.session import NOBODY_LEFT

    final, measure = summary["final"], Measure.from_json(summary.get("measure"))
    charged = f"{time_text(final['time_s'])} emulated, {bytes_text(final['bytes_total'])}, {cost_text(final['cost_s'])}"
    learned = f"{measure.called} {measure.brief(final[measure.name])}" if summary["training"] else "no training"
    if summary["training"] and (final.get("clusters") or 0) > 1:
        learned += f" ({final['accuracy_clusters']:.1%} in the mean over {final['clusters']:.0f} clusters)"
    at_budget = summary.get(measure.named("accuracy_at_budget"))
    if at_budget is not None and at_budget != final[measure.name]:
        learned += f" ({measure.brief(at_budget)} within the budget)"
    reached = f"{learned} after {summary['rounds']} rounds (stopped by {summary['stopped_by']})"
    out.print(f"{label}: {reached}, {charged} -> {escape(str(folder))}")
    if final["bytes_wasted"] or final["cost_wasted_s"]:
        wasted = f"{bytes_text(final['bytes_wasted'])} and {cost_text(final['cost_wasted_s'])}"
        out.print(f"{label}: of this {wasted} were for nothing: cut off on the way")
    if summary["stopped_by"] == NOBODY_LEFT:
        err.print(f"{label}: the run ended early: no client is left, and none will come back")


def _show_side_by_side(before: Path, after: Path) -> None:
    from analysis import tables
    from analysis import whatif as side
    from analysis.runs import load_run

    runs = load_run(before), load_run(after)
    if all(run.training for run in runs):
        table = side.side_by_side(*runs)
        text = side.as_text(table, runs[0].measure)
    else:
        table = tables.charges(runs, ("before", "what if"))
        text = tables.charges_as_text(table)
    write_text(after / "comparison.csv", table.to_csv(index=False, lineterminator="\n"))
    out.print(text, markup=False)
