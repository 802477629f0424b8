"""What reaching accuracies takes, as bars on a logarithmic axis: S5 Fig. 6."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from analysis.figures import SeriesFigure, label_of, named, save_all, selected
from analysis.plots.cost_accuracy import AxisName
from analysis.plots.style import check_path, legend_below, look, panels, save, settle, style, title_above
from analysis.quantities import Axis, axis_in
from analysis.studies import StudyResults, each_run
from analysis.tables import first_reach
from emulator.contracts.files import figures
from emulator.errors import InputError
from emulator.measures import ACCURACY, Measure
from emulator.study.schema import Goal, column_named

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 0.8  # of all bars of a target together
NOTE = "Bars: mean over the seeds that got there; lines: lowest to highest seed."

# By line, then by target: what it took each seed, nan where it never got there.
Taken = Mapping[str, Sequence[Sequence[float]]]


class ToTarget(SeriesFigure):
    """Options of ``to-target``."""

    targets: Annotated[tuple[Goal, ...], Field(min_length=1)] = Field(
        description="accuracies (shares), or values of another measure, to reach"
    )
    value: AxisName = Field("bytes", description="what reaching them took")
    panels: str | None = Field(None, description="something varied; a panel for each of its values")

    def named_columns(self) -> Iterator[tuple[str, str]]:
        """The names in ``by``, ``panels`` and ``where``."""
        yield from (("panels", name) for name in [self.panels] if name is not None)
        yield from super().named_columns()

    def told_apart(self, columns: Sequence[str]) -> list[str]:
        """The bars' columns and the panels'."""
        panels = [] if self.panels is None else [column_named(self.panels, columns)]
        return [*panels, *self.bar_columns(columns)]

    def bar_columns(self, columns: Sequence[str]) -> list[str]:
        """The columns whose values make a bar."""
        panel = None if self.panels is None else column_named(self.panels, columns)
        return [c for c in super().told_apart(columns) if c != panel]


@figures.register("to-target", ToTarget)
def to_target(results: StudyResults, paths: Sequence[Path], params: ToTarget) -> None:
    """What reaching accuracies took, in bytes, time, cost or rounds: bars on a logarithmic axis (S5 Fig. 6)."""
    panel = None if params.panels is None else column_named(params.panels, results.columns)
    axis = axis_in(params.value, [results.table])
    lines, column = params.bar_columns(results.columns), axis.column
    if column not in results.table:
        axis.check_known(results.table)
    by_panel: dict[str, dict[str, list[list[float]]]] = {}
    for run in each_run(selected(results, params)):
        title = "" if panel is None else named(results, [panel], run)
        line = by_panel.setdefault(title, {}).setdefault(label_of(results, lines, run), [[] for _ in params.targets])
        for taken, target in zip(line, params.targets, strict=True):
            reach = first_reach(run, target, results.measure)
            taken.append(math.nan if reach is None else float(reach.get(column, math.nan)))  # type: ignore[arg-type]
    save_all(plot(by_panel, params.targets, axis, None, params.title or None, results.measure), paths)


def plot(
    by_panel: Mapping[str, Taken],
    targets: Sequence[float],
    axis: Axis | str = "bytes",
    path: Path | str | None = None,
    title: str | None = None,
    measure: Measure = ACCURACY,
) -> Figure:
    """Draws, for each target accuracy (a share), a bar for each line: what it took on average, on a logarithmic axis.

    ``by_panel`` maps titles of panels to their lines; ``axis`` is that of what it took. Where no seed got
    there, the place of the bar says so; where only some did, the bar says how many. With a ``path`` the figure is also written
    there (PNG, SVG or PDF). Raises `InputError` if there is nothing to draw, or an argument makes no sense.
    """
    from matplotlib.patches import Patch

    if not targets or not any(by_panel.values()):
        raise InputError("give at least one run and one target to draw")
    if path is not None:
        check_path(path)
    kind = axis_in(axis, ()) if isinstance(axis, str) else axis
    labels = list(dict.fromkeys(label for lines in by_panel.values() for label in lines))
    values = [v for lines in by_panel.values() for each in lines.values() for seeds in each for v in seeds if v > 0]
    unit = kind.unit(max(values, default=1.0))
    low, high = _limits([v / unit.size for v in values])
    with style():
        figure, boxes = panels(len(by_panel))
        for i, ((name, lines), box) in enumerate(zip(by_panel.items(), boxes, strict=True)):
            for label, each in lines.items():
                _bars(box, [[v / unit.size for v in seeds] for seeds in each], labels.index(label), len(labels), low)
            _measure(box, targets, low, high, measure)
            if name:
                box.set_title(name)
            if i == 0 or box.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                box.set_ylabel(kind.label(unit))
        if title:
            title_above(figure, title)
        several = any(len(seeds) > 1 for lines in by_panel.values() for each in lines.values() for seeds in each)
        patches = [Patch(color=look(i).colour) for i in range(len(labels))]
        legend_below(figure, patches, labels, NOTE if several else "")
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """The ends of the axis: whole powers of ten around all values, with room for what stands on the bars."""
    if not values:
        return 0.1, 1.0
    low, high = math.floor(math.log10(min(values)) - 0.3), math.ceil(math.log10(max(values)) + 0.2)
    return 10.0**low, 10.0 ** max(high, low + 1)


def _bars(box: Axes, taken: Sequence[Sequence[float]], number: int, lines: int, low: float) -> None:
    width = WIDTH / lines
    for place, seeds in enumerate(taken):
        x = place + (number - (lines - 1) / 2) * width
        reached = [v for v in seeds if not math.isnan(v)]
        if not reached:
            box.text(x, 1.15 * low, "not reached", rotation=90, ha="center", va="bottom", color=look(number).colour)
            continue
        mean = statistics.mean(reached)
        box.bar([x], [mean], 0.9 * width, color=look(number).colour)
        if len(reached) > 1:
            box.vlines([x], [min(reached)], [max(reached)], color="black", linewidth=0.9)
        if len(reached) < len(seeds):
            box.text(x, 1.1 * max(reached), f"{len(reached)}/{len(seeds)}", ha="center", va="bottom")


def _measure(box: Axes, targets: Sequence[float], low: float, high: float, measure: Measure) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    box.set_yscale("log")
    box.set_ylim(low, high)
    box.yaxis.set_major_locator(LogLocator(10, numticks=12))
    box.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    box.yaxis.set_minor_formatter(NullFormatter())
    box.set_xticks(range(len(targets)), [measure.goal_text(target) for target in targets])
    box.set_xlim(-0.5, len(targets) - 0.5)
    box.grid(visible=False, axis="x")
    box.set_xlabel(f"Target {measure.called}")
