"""The command for many runs: study."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from emulator import yamlfile
from emulator.cli.app import (
    AddressOption,
    BackendOption,
    DeviceOption,
    MemoOption,
    NoMemoOption,
    PluginOption,
    SetOption,
    app,
    backend_joined,
    err,
    go_on_with,
    import_plugins,
    out,
    stated_name,
    with_device,
)
from emulator.cluster import Backend
from emulator.contracts.files import FigureChoice
from emulator.errors import HflError, InputError
from emulator.scenario.load import find
from emulator.study.load import LoadedStudy, bundled, check
from emulator.yamlfile import Path_

if TYPE_CHECKING:
    from analysis.studies import StudyResults


@app.command()
def study(
    name: Annotated[str, typer.Argument(metavar="STUDY", help="A study file, or the name of a bundled study.")],
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Study folder. (default: studies/NAME)")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time. (default: the number of cores; on GPUs, one)")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Training processes of each run. (default: what the jobs leave)")
    ] = None,
    changes: SetOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, list the runs, and do nothing.")
    ] = False,
    plot_only: Annotated[
        bool, typer.Option("--plot-only", help="Write tables and figures of the runs that are complete.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace runs of other scenarios in the same folder.")
    ] = False,
    memo: MemoOption = None,
    no_memo: NoMemoOption = False,
    device: DeviceOption = None,
    backend: BackendOption = "local",
    address: AddressOption = None,
    plugin: PluginOption = None,
) -> None:
    """Run all runs of a study, replay them in other worlds, and write tables and figures; go on where it was cut off."""
    import_plugins(plugin)
    document = yamlfile.load(find(name, bundled(), "study"))
    folder = out_dir or Path("studies") / stated_name(document)
    if not overwrite:
        go_on_with(folder)
    loaded = check(document, with_device(changes, device))
    if dry_run:
        _list(loaded, folder)
        return
    from emulator.learning.memo import default_path
    from emulator.study.tuning import settled

    remembered = None if no_memo else memo or default_path()
    failed: dict[str, str] = {}
    unanswered: dict[str, str] = {}
    if plot_only:
        loaded = _look_again(loaded, folder)
    elif loaded.runs:
        with backend_joined(backend, address, None):
            failed = run_study(loaded, folder, remembered, jobs, workers, overwrite, backend)
        loaded = settled(loaded, folder)
    _show_choices(loaded, folder)
    if any(run.name not in failed for run in loaded.runs):
        _results(loaded, folder)
    if loaded.worlds:
        from emulator.cli import replaying

        if not plot_only:
            unanswered = replaying.replay_worlds(loaded, folder, remembered, jobs, workers)
        replaying.show_worlds(loaded, folder)
    if failed:
        listed = "\n".join(f"  {run}: {message}" for run, message in failed.items())
        what = "failed or were not begun" if loaded.tuning else "failed"
        raise HflError(f"{len(failed)} of {len(loaded.tuning) + len(loaded.runs)} runs {what}\n{listed}")
    if unanswered:
        replaying.complain(unanswered, (len(loaded.sources) or len(loaded.runs)) * len(loaded.worlds))


def run_study(
    loaded: LoadedStudy,
    folder: Path,
    memo: Path | None,
    jobs: int | None,
    workers: int | None,
    overwrite: bool,
    backend: Backend,
) -> dict[str, str]:
    """Does what is left to do; returns why runs failed, by name."""
    from emulator.cli.study_progress import StudyProgress
    from emulator.study.runner import StudyWatcher, run_left

    if backend == "ray":
        from emulator.study.ray_runner import run_all
    else:
        from emulator.study.runner import run_all

    @contextlib.contextmanager
    def show(left: int, done: int) -> Iterator[StudyWatcher]:
        if done:
            out.print(f"{done} of {left + done} runs are complete already")
        with StudyProgress(err, loaded.study.name, left, done) as progress:
            yield progress.watcher

    try:
        return run_left(
            loaded, folder, show, lambda runs, watcher: run_all(runs, folder, memo, jobs, workers, watcher), overwrite
        )
    except KeyboardInterrupt:
        err.print(f"interrupted; the same command goes on from {escape(str(folder))}")
        raise typer.Exit(130) from None


def _look_again(loaded: LoadedStudy, folder: Path) -> LoadedStudy:
    """Makes sure that the runs in a study's folder are those of the file as it is now; returns it with what was tuned."""
    from emulator.study.folder import INDEX, prepare_all, write_index
    from emulator.study.tuning import settled

    if not (folder / INDEX).is_file():
        raise InputError(f"there is no study in {folder} yet; run it first, without --plot-only")
    prepare_all(folder, loaded.tuning)
    loaded = settled(loaded, folder)
    prepare_all(folder, loaded.ready)
    whatif = None
    if loaded.worlds:
        from emulator.study.results import index_of, plan

        whatif = index_of(loaded, plan(loaded, folder), folder)
    write_index(folder, loaded, whatif)
    return loaded


def _show_choices(loaded: LoadedStudy, folder: Path) -> None:
    """Writes and prints which values tuning has chosen."""
    from analysis.tuned import table_of
    from emulator.study.names import TUNED
    from emulator.study.tuning import write_choices

    write_choices(loaded, folder)
    table = table_of(folder) if loaded.study.tune is not None else None
    if table is None:
        return
    out.print(table.text(), markup=False)
    out.print(f"wrote {TUNED}\n")


def _list(loaded: LoadedStudy, folder: Path) -> None:
    from analysis.texttable import TextTable
    from emulator.study.folder import state_of
    from emulator.study.names import short_names, text_of
    from emulator.study.tuning import settled, untuned

    if not loaded.runs:
        out.print(f"{described(loaded)}\n-> {escape(str(folder))}")
        return
    loaded = settled(loaded, folder)
    shorter, waiting = short_names(loaded.columns), untuned(loaded)
    header = ("run", *(shorter[c] for c in loaded.columns), "seed", "state")
    rows = tuple(
        (
            run.name,
            *(text_of(run.values[c]) for c in loaded.columns),
            str(run.seed),
            "waits for tuning" if run.name in waiting else state_of(folder, run),
        )
        for run in (*loaded.tuning, *loaded.runs)
    )
    out.print(TextTable(described(loaded), header, rows, (False,) * len(header)).text(), markup=False)
    out.print(f"-> {escape(str(folder))}")


def described(loaded: LoadedStudy) -> str:
    """What a study comes to: ``8 runs: 2 variants x 2 alpha x 2 seeds``."""
    from emulator.study.names import short_names

    study, shorter = loaded.study, short_names(loaded.columns)
    parts = [_count(len(study.variants), "variant")] if study.variants else []
    parts += [f"{len(values)} {shorter[key]}" for key, values in study.grid.items()]
    parts.append(_count(len(study.seeds or (0,)), "seed"))
    runs = f"{_count(len(loaded.runs), 'run')}: {' x '.join(parts)}" if loaded.runs else ""
    if study.tune is not None:
        runs += (
            f"; {_count(len(loaded.tuning), 'run')} of tuning before: {len(study.tune.values)} {study.tune.key} each"
        )
    if not loaded.worlds:
        return runs
    of = f"of {_count(len(loaded.sources), 'finished run')}" if loaded.sources else "of each"
    return f"{runs}{'; ' if runs else ''}replays {of} in {_count(len(loaded.worlds), 'world')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _results(loaded: LoadedStudy, folder: Path) -> None:
    """Writes and prints the tables, and draws the figures."""
    from analysis import studies
    from analysis.claims import table_of

    results = studies.load_study(folder)
    written = studies.write_tables(results)
    out.print(studies.as_text(results.summary, results.columns, results.measure), markup=False)
    if results.missing:
        out.print(
            f"without {_count(len(results.missing), 'run')} not complete: {escape(', '.join(results.missing[:5]))}"
        )
    if results.stated:
        out.print(table_of(results.claims, results.measure).text() + "\n", markup=False)
    drawn = draw(loaded, loaded.study.figures, results, ("figures",))
    out.print(f"wrote {', '.join(escape(w) for w in (*written, *drawn))} -> {escape(str(folder))}")


def draw(
    loaded: LoadedStudy, figures: Sequence[FigureChoice], results: StudyResults, at: Path_, prefix: str = ""
) -> list[str]:
    """Draws figures that stand ``at`` a place of a study's file; returns the names of their files."""
    from emulator.errors import ScenarioError

    drawn: list[str] = []
    for number, figure in enumerate(figures):
        files = list(figure.params.file) or [_default_file(f"{prefix}{figure.kind}", drawn)]
        try:
            figure(results, [results.folder / file for file in files])
        except InputError as error:
            path: Path_ = (*at, number, *([error.key] if error.key else []))
            raise ScenarioError((loaded.document.problem(path, error.message),)) from error
        drawn += files
    return drawn


def _default_file(kind: str, taken: list[str]) -> str:
    number = 1 + sum(file.startswith(kind) for file in taken)
    return f"{kind}.png" if number == 1 else f"{kind}-{number}.png"
