"""The Pareto front over methods: which of them nobody beats in accuracy without paying more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from analysis.figures import SeriesFigure, save_all, series_of
from analysis.plots.cost_accuracy import AxisName
from analysis.plots.style import (
    check_path,
    legend_below,
    log_x,
    look,
    panels,
    round_ticks,
    save,
    settle,
    style,
    title_above,
)
from analysis.quantities import Axis, axis_in, axis_named
from analysis.runs import Run, check_trained, measure_of
from analysis.seeds import mean_and_interval
from analysis.series import Given, as_series
from analysis.studies import StudyResults
from emulator.contracts.files import figures
from emulator.errors import InputError
from emulator.measures import Measure
from emulator.study.schema import one_or_more

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FRONT: dict[str, Any] = {"color": "#777777", "linewidth": 1.2, "linestyle": (0, (4, 2))}
FAR_APART = 30.0  # costs whose largest is so many times the smallest stand on a logarithmic axis


@dataclass(frozen=True)
class Point:
    """One method: what it took (SI units) and its accuracy (a share), each the mean over seeds with half of its 95 % interval."""

    label: str
    x: float
    x_half: float
    accuracy: float
    accuracy_half: float
    front: bool = False


class Pareto(SeriesFigure):
    """Options of ``pareto``."""

    x: Annotated[tuple[AxisName, ...], BeforeValidator(one_or_more), Field(min_length=1)] = Field(
        ("time", "cost", "bytes", "energy"),
        description="what accuracy is set against: one, or a list with a panel for each",
    )
    at: Literal["final", "best"] = Field(
        "final", description="the last evaluation, or the first one that reached the run's best accuracy"
    )


@figures.register("pareto", Pareto)
def pareto(results: StudyResults, paths: Sequence[Path], params: Pareto) -> None:
    """Accuracy of each method against what it took, and the Pareto front: methods that no other beats in both."""
    save_all(plot(series_of(results, params), params.x, params.at, title=params.title or None), paths)


def points(given: Sequence[Given], axis: str, at: str = "final") -> list[Point]:
    """What is drawn against one axis.

    A point is on the front where no other takes at most as much, is at least as accurate, and is better in one of them. Raises
    `InputError` as `plot`.
    """
    if at not in ("final", "best"):
        raise InputError(f"a method stands at its 'final' or its 'best' accuracy, not at '{at}'")
    found, every = [], as_series(given)
    column, measure = axis_named(axis).column, measure_of(run for series in every for run in series.runs)
    for series in every:
        check_trained(series.runs)
        for run in series.runs:
            axis_named(axis).check_known(run.metrics, f"'{series.label}'")
        rows = [_row(run, at) for run in series.runs]
        x, x_half = mean_and_interval(
            [float(run.metrics[column].iloc[k]) for run, k in zip(series.runs, rows, strict=True)]
        )
        y, y_half = mean_and_interval([float(run.judged.iloc[k]) for run, k in zip(series.runs, rows, strict=True)])
        found.append(Point(series.label, x, x_half, y, y_half))
    sign = measure.sign
    return [
        Point(p.label, p.x, p.x_half, p.accuracy, p.accuracy_half, not any(_beats(o, p, sign) for o in found))
        for p in found
    ]


def _row(run: Run, at: str) -> int:
    return len(run.metrics) - 1 if at == "final" else int((run.measure.sign * run.judged.to_numpy()).argmax())


def _beats(other: Point, point: Point, sign: float) -> bool:
    gain = sign * (other.accuracy - point.accuracy)
    return other.x <= point.x and gain >= 0 and (other.x < point.x or gain > 0)


def plot(
    given: Sequence[Given],
    axes: Sequence[str] = ("time", "cost", "bytes", "energy"),
    at: str = "final",
    path: Path | str | None = None,
    title: str | None = None,
) -> Figure:
    """Draws a panel for each of ``axes``: a point for each series of run folders (or runs), with its 95 % intervals over seeds.

    Points on the front are full and joined by a line; the others are hollow. ``at`` is ``final`` or ``best``. Where the points
    lie far apart, the x axis is logarithmic. With a ``path`` the figure is also written there (PNG, SVG or PDF). Raises
    `InputError` as `analysis.series.as_series`, where a run has no accuracies, an axis is unknown, or the path is no good.
    """
    from matplotlib.lines import Line2D

    if not axes:
        raise InputError("give at least one axis to draw against")
    if path is not None:
        check_path(path)
    series = as_series(given)
    measure = measure_of(run for each in series for run in each.runs)
    found = {axis: points(series, axis, at) for axis in axes}
    with style():
        figure, boxes = panels(len(axes))
        for i, (box, (axis, each)) in enumerate(zip(boxes, found.items(), strict=True)):
            _fill(box, axis_in(axis, [run.metrics for one in series for run in one.runs]), each, measure)
            if i == 0 or box.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                box.set_ylabel(measure.axis(f"{at.capitalize()} {measure.called}"))
        if title:
            title_above(figure, title)
        handles: list[Artist] = [
            Line2D([], [], linestyle="", marker=look(i).marker, color=look(i).colour, markersize=6)
            for i in range(len(series))
        ]
        handles += [Line2D([], [], **FRONT), _hollow()]
        several = any(len(each.runs) > 1 for each in series)
        note = "Mean over seeds; bars: its 95 % interval (Student's t)." if several else ""
        legend_below(figure, handles, [*(each.label for each in series), "Pareto front", "not on the front"], note)
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _hollow() -> Artist:
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="", marker="o", color="#666666", markerfacecolor="white", markersize=6)


def _fill(box: Axes, axis: Axis, found: Sequence[Point], measure: Measure) -> None:
    times = measure.factor
    ends = [p.x + (p.x_half if math.isfinite(p.x_half) else 0.0) for p in found]
    unit = axis.unit(max(ends))
    front = sorted((p for p in found if p.front), key=lambda p: p.x)
    # A step: between two points nothing better is known than the cheaper one.
    box.step(
        [p.x / unit.size for p in front],
        [times * p.accuracy for p in front],
        where="post",
        zorder=1,
        **FRONT,
    )
    for i, p in enumerate(found):
        x_half = p.x_half / unit.size if math.isfinite(p.x_half) else None
        y_half = times * p.accuracy_half if math.isfinite(p.accuracy_half) else None
        box.errorbar(
            [p.x / unit.size], [times * p.accuracy], xerr=x_half, yerr=y_half, fmt=look(i).marker, color=look(i).colour,
            markersize=6, markerfacecolor=look(i).colour if p.front else "white", elinewidth=0.8, capsize=2, label=p.label,
        )  # fmt: skip
    smallest, largest = min(p.x for p in found), max(p.x for p in found)
    box.set_xlabel(axis.label(unit))
    if smallest > 0 and largest > FAR_APART * smallest:
        log_x(box, smallest / unit.size, max(ends) / unit.size)
    else:
        box.set_xlim(0, 1.08 * max(ends) / unit.size or 1.0)
        box.xaxis.set_major_locator(round_ticks(whole=not axis.units))
    _measured(box, found, measure)


def _measured(box: Axes, found: Sequence[Point], measure: Measure) -> None:
    halves = [p.accuracy_half if math.isfinite(p.accuracy_half) else 0.0 for p in found]
    low = min(measure.factor * (p.accuracy - half) for p, half in zip(found, halves, strict=True))
    high = max(measure.factor * (p.accuracy + half) for p, half in zip(found, halves, strict=True))
    if measure.share:
        margin = max(1.0, 0.08 * (high - low))
        box.set_ylim(max(0.0, low - margin), min(101.0, high + margin))
    else:
        margin = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
        box.set_ylim(low - margin, high + margin)
    box.yaxis.set_major_locator(round_ticks())
