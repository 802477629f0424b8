"""How a study is getting on: on a terminal a bar for the whole and a line for each run under way, elsewhere plain lines.

In a notebook it is one line that changes in its place.
"""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from emulator.cli.progress import NotebookLine, share_done
from emulator.methods.session import Metrics
from emulator.study.load import Planned
from emulator.study.runner import StudyWatcher

ESTIMATE_OVER_S = 600.0  # runs of a study differ in length, so that only a long past foretells anything


class StudyProgress:
    """Shows a study while it lasts. Use as a context manager and hand `watcher` to the runner."""

    def __init__(self, console: Console, name: str, left: int, done: int) -> None:
        self._console = console
        self._name = name
        self._left = left  # runs to be done now
        self._done = done  # runs that were complete at the start
        self._ended = self._failed = 0
        self._shares: dict[str, float] = {}
        self._reached: dict[str, str] = {}
        self._tasks: dict[str, TaskID] = {}
        self._warnings: set[str] = set()
        self._bar: Progress | None = None
        self._whole: TaskID | None = None
        self._line: NotebookLine | None = None

    @property
    def watcher(self) -> StudyWatcher:
        """What the runner is to call."""
        return StudyWatcher(self._on_start, self._on_round, self._on_warning, self._on_end)

    def __enter__(self) -> StudyProgress:
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[state]}"),
                TimeRemainingColumn(compact=True), console=self._console, transient=True,
                speed_estimate_period=ESTIMATE_OVER_S,
            )  # fmt: skip
            self._whole = self._bar.add_task(escape(self._name), total=float(self._left), state=self._state())
            self._bar.start()
        elif self._console.is_jupyter:
            self._line = NotebookLine()
            self._line.show(f"{self._name}: {self._state()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._line is not None:
            self._line.settle()

    def _on_start(self, run: Planned) -> None:
        if self._bar is not None:
            self._tasks[run.name] = self._bar.add_task(f"  {escape(run.name)}", total=1.0, state="starting")

    def _on_round(self, run: Planned, round: int, metrics: Metrics) -> None:  # noqa: A002
        self._shares[run.name] = share_done(run.loaded.scenario.stop, metrics)
        measure = run.loaded.scenario.objective.measures[0]
        if measure.name in metrics:
            self._reached[run.name] = f", {measure.called} {measure.text(metrics[measure.name])}"
        if self._bar is not None:
            state = f"round {round}{self._reached.get(run.name, '')}"
            self._bar.update(self._tasks[run.name], completed=self._shares[run.name], state=state)
        self._update()

    def _on_warning(self, run: Planned, text: str) -> None:
        if text not in self._warnings:  # the same of every run
            self._warnings.add(text)
            self._console.print(f"{escape(run.name)}: {escape(text)}")

    def _on_end(self, run: Planned, error: str) -> None:
        self._shares.pop(run.name, None)
        self._ended += 1
        self._failed += bool(error)
        if self._line is None:
            count = f"{self._done + self._ended}/{self._done + self._left}"
            self._console.print(f"{count}  {escape(run.name)}: {'[red]failed[/]' if error else 'complete'}")
        if self._bar is not None:
            self._bar.remove_task(self._tasks.pop(run.name))
        self._update()

    def _update(self) -> None:
        done = self._ended + sum(self._shares.values())
        if self._bar is not None and self._whole is not None:
            self._bar.update(self._whole, completed=done, state=self._state())
        if self._line is not None:
            self._line.show(f"{self._name}: {self._state()} ({done / self._left:.0%} done)")

    def _state(self) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._done + self._ended} of {self._done + self._left} runs{failed}"
