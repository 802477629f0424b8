"""The what-if of a study: its replays, what they may train, and their tables and figures."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from emulator.cli.app import err, out
from emulator.errors import HflError
from emulator.files import replacing, write_text
from emulator.study.load import LoadedStudy
from emulator.study.results import WorldReplay, index_of, left_of, plan, take_trained, to_train

WORLD_CLAIMS = "whatif-claims.csv"
PLAIN_EVERY_S = 5.0


def replay_worlds(
    loaded: LoadedStudy, folder: Path, memo: Path | None, jobs: int | None, workers: int | None
) -> dict[str, str]:
    """Replays what is left to replay, and trains what may be trained; returns why there is no result of some, by name."""
    from emulator.files import held
    from emulator.study.folder import prepare_all, write_index
    from emulator.study.runner import replay_all, run_all

    assert loaded.study.whatif is not None
    with held(folder):
        replays = plan(loaded, folder)
        write_index(folder, loaded, index_of(loaded, replays, folder))
        left = left_of(replays)
        if len(left) < len(replays):
            out.print(f"{len(replays) - len(left)} of {len(replays)} replays are done already")
        try:
            with ReplayProgress(err, len(left)) as progress:
                failed = replay_all(left, memo, jobs, progress.on_end)
            if not loaded.study.whatif.train:
                return failed
            runs = to_train(left, folder)
            if runs:
                from emulator.cli.study_progress import StudyProgress

                out.print(f"{len(runs)} of {len(replays)} worlds need training, and the study allows it")
                unfinished = prepare_all(folder, runs)
                with StudyProgress(err, f"{loaded.study.name}: training", len(unfinished), 0) as shown:
                    not_trained = run_all(unfinished, folder, memo, jobs, workers, shown.watcher)
                done = [run.name for run in runs if run.name not in not_trained]
                take_trained(left, folder, done)
                names = {each.folder.relative_to(folder).as_posix(): each.name for each in left}
                failed = {name: message for name, message in failed.items() if name not in {names[d] for d in done}}
                failed |= {names[name]: message for name, message in not_trained.items()}
        except KeyboardInterrupt:
            err.print(f"interrupted; the same command goes on from {escape(str(folder))}")
            raise typer.Exit(130) from None
    return failed


def show_worlds(loaded: LoadedStudy, folder: Path) -> None:
    """Writes and prints the table of replays, and draws their figures."""
    from analysis import worlds
    from analysis.claims import table_of
    from emulator.cli.studying import draw

    assert loaded.study.whatif is not None
    results = worlds.load_worlds(folder)
    if results.table.empty:
        return
    write_text(folder / "whatif.csv", results.table.to_csv(index=False, lineterminator="\n"))
    with replacing(folder / "whatif.parquet") as aside:
        results.table.to_parquet(aside, index=False)
    out.print(worlds.as_text(results), markup=False)
    counts = {name: int(results.table[f"trainings_{name}"].sum()) for name in ("asked", "reused", "trained", "missing")}
    states = f"{counts['trained']:,} trained" + (f", {counts['missing']:,} missing" if counts["missing"] else "")
    out.print(f"trainings reused {counts['reused']:,} of {counts['asked']:,}, {states}")
    drawn: list[str] = []
    (folder / WORLD_CLAIMS).unlink(missing_ok=True)
    if results.study is not None and results.study.stated:
        claims = results.study.claims
        write_text(folder / WORLD_CLAIMS, claims.to_csv(index=False, lineterminator="\n"))
        out.print(table_of(claims, results.measure).text() + "\n", markup=False)
        drawn.append(WORLD_CLAIMS)
    if loaded.study.whatif.figures and results.study is not None:
        drawn += draw(loaded, loaded.study.whatif.figures, results.study, ("whatif", "figures"), "whatif-")
    written = ["whatif.csv", "whatif.parquet", *drawn]
    out.print(f"wrote {', '.join(escape(w) for w in written)} -> {escape(str(folder))}")


def complain(failed: dict[str, str], count: int) -> None:
    """Raises `HflError` that says which replays have no result, and why."""
    if failed:
        listed = "\n".join(f"  {name}: {message}" for name, message in failed.items())
        advice = "\nsay 'train: true' in 'whatif' to train what is missing" if "needs training" in listed else ""
        raise HflError(f"{len(failed)} of {count} replays gave no result\n{listed}{advice}")


class ReplayProgress:
    """Shows replays while they last: a bar on a terminal, elsewhere a plain line now and then."""

    def __init__(self, console: Console, left: int) -> None:
        self._console = console
        self._left = left
        self._ended = self._failed = 0
        self._shown = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> ReplayProgress:
        if self._console.is_terminal and self._left:
            self._bar = Progress(
                TextColumn("[bold]replays"), BarColumn(bar_width=20), MofNCompleteColumn(),
                TextColumn("{task.fields[state]}"), TimeRemainingColumn(compact=True), console=self._console, transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task("", total=self._left, state="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def on_end(self, replay: WorldReplay, error: str) -> None:
        """Counts a replay that is over."""
        self._ended += 1
        self._failed += bool(error)
        without = f"{self._failed} without a result" if self._failed else ""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._ended, state=without)
        elif time.monotonic() - self._shown >= PLAIN_EVERY_S or self._ended == self._left:
            self._shown = time.monotonic()
            self._console.print(f"{self._ended}/{self._left} replays{', ' if without else ''}{without}")
