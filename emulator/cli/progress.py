"""How a run is getting on: a live line on a terminal or in a notebook, a plain line now and then elsewhere."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from analysis.quantities import bytes_text, cost_text, time_text
from emulator.measures import ACCURACY, Measure
from emulator.methods.session import Metrics
from emulator.run import Watcher
from emulator.scenario.schema import Stop
from emulator.standing import SPENT

PLAIN_EVERY_S = 5.0
NOTEBOOK_EVERY_S = 0.2


class NotebookLine:
    """A line of plain text below a cell of a notebook that changes in its place, and needs no widgets."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._text = ""
        self._shown = 0.0

    def show(self, text: str) -> None:
        """Replaces the text, unless it was replaced a moment ago; `settle` then shows it."""
        self._text = text
        if time.monotonic() - self._shown >= NOTEBOOK_EVERY_S:
            self.settle()

    def settle(self) -> None:
        """Shows the latest text."""
        from IPython.display import display

        self._shown, data = time.monotonic(), {"text/plain": self._text}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(data, raw=True)


class RunProgress:
    """Shows one run while it lasts. Use as a context manager and hand `watcher` to the run."""

    def __init__(self, console: Console, label: str, stop: Stop, measure: Measure = ACCURACY) -> None:
        self._console = console
        self._label = label
        self._stop = stop
        self._measure = measure
        self._reached: float | None = None
        self._shown = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._line: NotebookLine | None = None

    @property
    def watcher(self) -> Watcher:
        """What the run is to call."""
        return Watcher(self._on_round, self._on_trained)

    def __enter__(self) -> RunProgress:
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[state]}"),
                TextColumn("{task.fields[wave]}"), TimeRemainingColumn(compact=True), console=self._console, transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task(self._label, total=1.0, state="reading data", wave="")
            self._bar.start()
        elif self._console.is_jupyter:
            self._line = NotebookLine()
            self._line.show(f"{self._label}: started")
        else:
            self._console.print(f"{self._label}: started")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._line is not None:
            self._line.settle()

    def _on_round(self, round: int, metrics: Metrics) -> None:  # noqa: A002
        self._reached = metrics.get(self._measure.name, self._reached)  # nan in a run without training
        text = self._describe(round, metrics)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=share_done(self._stop, metrics), state=text, wave="")
        elif self._line is not None:
            self._line.show(f"{self._label}: {text} ({share_done(self._stop, metrics):.0%} done)")
        elif time.monotonic() - self._shown >= PLAIN_EVERY_S:
            self._shown = time.monotonic()
            self._console.print(f"{self._label}: {text} ({share_done(self._stop, metrics):.0%} done)")

    def _on_trained(self, done: int, waiting: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, wave=f"training {done}/{waiting}")

    def _describe(self, round: int, metrics: Metrics) -> str:  # noqa: A002
        reached, measure = self._reached, self._measure
        learned = "" if reached is None or math.isnan(reached) else f"{measure.called} {measure.brief(reached)}, "
        return (
            f"round {round}, {learned}{time_text(metrics['time_s'])}, "
            f"{bytes_text(metrics['bytes_total'])}, {cost_text(metrics['cost_s'])}"
        )


def share_done(stop: Stop, metrics: Metrics) -> float:
    """How far a run is towards the first of its limits (an accuracy gives no measure of how far)."""
    pairs = [(SPENT[name], limit) for name, limit in ({"rounds": stop.rounds} | stop.budget).items()]
    return min(1.0, max((metrics[key] / limit for key, limit in pairs if limit), default=0.0))
