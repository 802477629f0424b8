"""Accuracy against what it took: cost, emulated time, bytes, energy, rounds, or privacy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from analysis.figures import label_of, named, save_all, selected
from analysis.plots.style import (
    band,
    check_path,
    curve,
    legend_below,
    measure_x,
    panels,
    round_ticks,
    save,
    settle,
    style,
    title_above,
)
from analysis.quantities import Axis, axis_in
from analysis.runs import COMPLETE, Run, check_trained, measure_of, unique_labels
from analysis.seeds import BANDS, Curve, mean_curve
from analysis.series import Given, as_series
from analysis.studies import StudyResults, each_run
from emulator.contracts.files import figures
from emulator.errors import InputError
from emulator.measures import ACCURACY, Measure
from emulator.study.schema import FigureParams, Goal, Texts, column_named, one_or_more

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Lines = Mapping[str, Sequence["pd.DataFrame"]]  # by the label of a line: the metrics of its seeds

AxisName = Literal["cost", "time", "bytes", "energy", "money", "carbon", "round", "epsilon"]
# Which accuracy, its column of metrics.csv, and what the y axis calls it.
ACCURACIES = {
    "global": ("accuracy", "Test accuracy (%)"),
    "clusters": ("accuracy_clusters", "Accuracy, mean over clusters (%)"),
    "clients": ("accuracy_clients", "Accuracy, mean over clients (%)"),
}


class CostAccuracy(FigureParams):
    """Options of ``cost-accuracy``."""

    x: Annotated[tuple[AxisName, ...], BeforeValidator(one_or_more), Field(min_length=1)] = Field(
        ("cost",), description="what accuracy is drawn against: one, or a list with a panel for each"
    )
    accuracy: Literal["global", "clusters", "clients"] = Field(
        "global",
        description="on the common test set, or the mean over clusters or clients, each on data of its own distribution",
    )
    by: Texts = Field((), description="what the lines are; by default everything varied that is not in 'panels'")
    panels: str | None = Field(None, description="something varied; a panel for each of its values")
    band: Literal["interval", "range", "none"] = Field(
        "interval", description="around each line: the 95 % interval of the mean, or the lowest to the highest seed"
    )
    target: Goal | None = Field(
        None,
        description="an accuracy (a share), or other measure, to mark; by default the study's, which is a global one",
    )
    log: bool = Field(False, description="a logarithmic x axis, for lines of very different lengths")

    def named_columns(self) -> Iterator[tuple[str, str]]:
        """The names in ``by``, ``panels`` and ``where``."""
        yield from (("by", name) for name in self.by)
        yield from (("panels", name) for name in [self.panels] if name is not None)
        yield from super().named_columns()

    def told_apart(self, columns: Sequence[str]) -> list[str]:
        """The lines' columns and the panels'."""
        panels = [] if self.panels is None else [column_named(self.panels, columns)]
        return [*panels, *self.line_columns(columns)]

    def line_columns(self, columns: Sequence[str]) -> list[str]:
        """The columns whose values make a line."""
        if self.by:
            return [column_named(name, columns) for name in self.by]
        taken = {column_named(name, columns) for name in (*([self.panels] if self.panels else []), *self.where)}
        return [c for c in columns if c not in taken]

    def wrong(self, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
        """As of every figure; and panels are either axes or values."""
        yield from super().wrong(columns)
        if self.panels is not None and len(self.x) > 1:
            yield "panels", "give a single 'x' beside 'panels', or leave 'panels' out"


@figures.register("cost-accuracy", CostAccuracy)
def cost_accuracy(results: StudyResults, paths: Sequence[Path], params: CostAccuracy) -> None:
    """Accuracy against time, cost, bytes, energy, money, CO2, rounds or epsilon: a line a variant, with a band over seeds."""
    panel = None if params.panels is None else column_named(params.panels, results.columns)
    lines = params.line_columns(results.columns)
    by_panel: dict[str, dict[str, list[pd.DataFrame]]] = {}
    for run in each_run(selected(results, params)):
        title = "" if panel is None else named(results, [panel], run)
        by_panel.setdefault(title, {}).setdefault(label_of(results, lines, run), []).append(run)
    of_study = results.target if params.accuracy == "global" else None
    target = of_study if params.target is None else params.target
    figure = plot_means(
        by_panel,
        params.x,
        None,
        params.title or None,
        target,
        params.band,
        params.log,
        params.accuracy,
        results.measure,
    )
    save_all(figure, paths)


@dataclass(frozen=True)
class _Panel:
    """One panel: curves by their place among the labels of the legend, and how far its x axis goes (in SI units)."""

    axis: Axis
    curves: Mapping[int, Curve]
    largest: float
    title: str = ""
    log: bool = False

    @property
    def smallest(self) -> float:
        """Where the first curve begins on a logarithmic axis."""
        return min((float(x) for c in self.curves.values() for x in c.x[c.x > 0][:1]), default=self.largest)


def plot(
    runs: Sequence[Run],
    axes: Sequence[str] = ("cost", "time", "bytes", "round"),
    path: Path | str | None = None,
    title: str | None = None,
    target: float | None = None,
) -> Figure:
    """Draws the test accuracy of all runs against each of ``axes``, a panel each.

    ``axes`` are some of ``cost``, ``time``, ``bytes``, ``energy``, ``round``, ``money`` and ``carbon`` of runs with prices, and
    ``epsilon`` of runs with privacy.

    ``target`` is an accuracy as a share, drawn as a horizontal line. A single run has no legend unless there
    is a target. With a ``path`` the figure is also written there (PNG, SVG or PDF). Runs that did not
    complete say so in the legend.

    Raises `InputError` if there are no runs or no axes, a run has no accuracies, an axis is unknown, the target is no
    share, or the path is no good.
    """
    if not runs:
        raise InputError("give at least one run to draw")
    check_trained(runs)
    labels = [_legend_text(run, text) for run, text in zip(runs, unique_labels(runs), strict=True)]
    lines = {i: [run.metrics] for i, run in enumerate(runs)}
    measure = measure_of(runs)
    used = [axis_in(name, [run.metrics for run in runs]) for name in axes]
    drawn = [_panel(axis, lines, "none", column=measure.name, measure=measure) for axis in used]
    return _draw(drawn, labels, path, title, target, measure=measure)


def plot_series(
    given: Sequence[Given],
    axes: Sequence[str] = ("cost", "time", "bytes", "energy", "round"),
    path: Path | str | None = None,
    title: str | None = None,
    target: float | None = None,
    spread: str = "interval",
    log: bool = False,
    accuracy: str = "global",
) -> Figure:
    """Draws run folders (or runs, or series): those that differ in their seed alone as one line with a band.

    See `plot_means` for the rest. Raises `InputError` as that, and as `analysis.series.as_series`.
    """
    every = as_series(given)
    lines = {series.label: [run.metrics for run in series.runs] for series in every}
    measure = measure_of(run for series in every for run in series.runs)
    return plot_means({"": lines}, axes, path, title, target, spread, log, accuracy, measure)


def plot_means(
    by_panel: Mapping[str, Lines],
    axes: Sequence[str] = ("cost",),
    path: Path | str | None = None,
    title: str | None = None,
    target: float | None = None,
    spread: str = "interval",
    log: bool = False,
    accuracy: str = "global",
    measure: Measure = ACCURACY,
) -> Figure:
    """Draws the mean test accuracy over seeds against each of ``axes``, with a band around each line.

    ``by_panel`` maps titles of panels to their lines; a panel stands for each title and axis. ``spread`` is a key of
    `analysis.seeds.BANDS`; a note above the legend says what the band is. Panels with one axis share its scale. See
    `analysis.seeds.mean_curve` for the mean, and `plot` for the rest. With ``log`` the x axes are logarithmic; what cost nothing
    yet is then left out. ``accuracy`` is a key of `ACCURACIES`. ``measure`` stands in the place of the global accuracy.

    Raises `InputError` as `plot`, where the spread or the accuracy is unknown, and where a run has not measured that accuracy.
    """
    if not any(lines for lines in by_panel.values()):
        raise InputError("give at least one run to draw")
    if spread not in BANDS:
        raise InputError(f"unknown band '{spread}'; known: {', '.join(BANDS)}")
    if accuracy not in ACCURACIES:
        raise InputError(f"unknown accuracy '{accuracy[:60]}'; known: {', '.join(ACCURACIES)}", "accuracy")
    column, y_title = ACCURACIES[accuracy]
    if accuracy == "global":
        column, y_title = measure.name, measure.axis(f"Test {measure.called}")
    else:
        measure = ACCURACY
    _check_measured(by_panel, accuracy)
    labels = list(dict.fromkeys(label for lines in by_panel.values() for label in lines))
    numbered = {t: {labels.index(label): seeds for label, seeds in lines.items()} for t, lines in by_panel.items()}
    drawn = []
    every = [metrics for lines in by_panel.values() for seeds in lines.values() for metrics in seeds]
    for axis in (axis_in(name, every) for name in axes):
        row = [_panel(axis, lines, spread, name, log, column, measure) for name, lines in numbered.items()]
        largest = max(panel.largest for panel in row)
        drawn += [_Panel(axis, panel.curves, largest, panel.title, log) for panel in row]
    counts = {len(seeds) for lines in by_panel.values() for seeds in lines.values()}
    return _draw(drawn, labels, path, title, target, _note(counts, spread), y_title, measure)


def _check_measured(by_panel: Mapping[str, Lines], accuracy: str) -> None:
    column, _ = ACCURACIES[accuracy]
    if accuracy == "global":
        return
    for label, seeds in ((label, seeds) for lines in by_panel.values() for label, seeds in lines.items()):
        if any(column not in metrics or metrics[column].isna().any() for metrics in seeds):
            raise InputError(
                f"'{label}' has not measured the accuracy of its {accuracy}; its scenario must say 'evaluate.clusters: true', "
                "or have a method or a partition that makes clusters",
                "accuracy",
            )


def _note(counts: set[int], spread: str) -> str:
    """What lines and bands are, in the words of a caption."""
    if counts == {1}:
        return ""
    seeds = f"{counts.pop()} seeds" if len(counts) == 1 else f"{min(counts)} to {max(counts)} seeds"
    return f"Lines: mean of {seeds}." + (f" Bands: {BANDS[spread]}." if BANDS[spread] else "")


def _panel(
    axis: Axis,
    lines: Mapping[int, Sequence[pd.DataFrame]],
    spread: str,
    title: str = "",
    log: bool = False,
    column: str = "accuracy",
    measure: Measure = ACCURACY,
) -> _Panel:
    for metrics in (each for seeds in lines.values() for each in seeds):
        if metrics[column].isna().any():
            raise InputError("there is no accuracy to draw: these runs are without training")
        axis.check_known(metrics)
    curves = {number: mean_curve(seeds, axis, spread, column, measure.share) for number, seeds in lines.items()}
    return _Panel(axis, curves, max(float(c.x.max()) for c in curves.values()), title, log)


def _draw(
    drawn: Sequence[_Panel],
    labels: Sequence[str],
    path: Path | str | None,
    title: str | None,
    target: float | None,
    note: str = "",
    y_title: str = "",
    measure: Measure = ACCURACY,
) -> Figure:
    if not drawn:
        raise InputError("give at least one axis to draw against")
    level = None if target is None else measure.factor * measure.check(target)
    if path is not None:
        check_path(path)  # before the work, not after it
    with style():
        figure, boxes = panels(len(drawn))
        low, high = _range([c for panel in drawn for c in panel.curves.values()], level, measure)
        lines: dict[int, Artist] = {}
        for i, (panel, box) in enumerate(zip(drawn, boxes, strict=True)):
            if level is not None:
                lines[len(labels)] = box.axhline(level, color="#666666", linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
            lines |= _fill(box, panel, len(labels) == 1, measure.factor)
            box.set_ylim(low, high)
            box.yaxis.set_major_locator(round_ticks(whole=measure.share))
            # Panels of a row share the scale, so one label is enough.
            if i == 0 or box.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                box.set_ylabel(y_title or measure.axis(f"Test {measure.called}"))
        shown = [*labels, *([] if level is None else [f"target {level:g}" + (" %" if measure.share else "")])]
        if title:
            title_above(figure, title)
        if len(shown) > 1 or note:
            legend_below(figure, [lines[i] for i in range(len(shown))], shown, note)
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _fill(box: Axes, panel: _Panel, alone: bool, times: float) -> dict[int, Artist]:
    """Draws the curves of one panel; returns their lines by number."""
    unit = panel.axis.unit(panel.largest)
    measure_x(box, panel.axis, unit, panel.largest / unit.size, panel.smallest / unit.size if panel.log else None)
    if panel.title:
        box.set_title(panel.title)
    curves = {number: _positive(each) if panel.log else each for number, each in panel.curves.items()}
    for number, each in curves.items():
        if each.low is not None and each.high is not None:
            band(box, (each.x / unit.size).tolist(), (times * each.low).tolist(), (times * each.high).tolist(), number)
    return {
        number: curve(box, (each.x / unit.size).tolist(), (times * each.y).tolist(), number, alone)
        for number, each in curves.items()
    }


def _positive(given: Curve) -> Curve:
    """The part of a curve that a logarithmic axis can show."""
    kept = given.x > 0
    low, high = (None if part is None else part[kept] for part in (given.low, given.high))
    return Curve(given.x[kept], given.y[kept], low, high)


def _legend_text(run: Run, label: str) -> str:
    return label if run.status == COMPLETE else f"{label} [{run.status}]"


def _range(curves: Sequence[Curve], level: float | None, measure: Measure) -> tuple[float, float]:
    """The ends of the y axis: of accuracies in whole tens of per cent, from 0, unless all curves stay far above it.

    Of another measure, what it was at the start does not count where that is far from all else.
    """
    parts = [part for c in curves for part in (c.y, c.low, c.high) if part is not None]
    if not measure.share:
        return _open_range([c.y for c in curves], parts, level)
    values = [100 * float(v) for part in parts for v in (part.min(), part.max())]
    values += [] if level is None else [level]
    low = math.floor(min(values) / 10) * 10 if min(values) > max(values) / 2 else 0
    high = min(100, math.floor(max(values) / 10) * 10 + 10)
    return float(min(low, 90)), float(high)


def _open_range(lines: Sequence[np.ndarray], parts: Sequence[np.ndarray], level: float | None) -> tuple[float, float]:
    """The ends of an axis of values of any size: eight tenths of the lines, and all ``parts`` that are not far from these."""
    whole = np.concatenate(lines)
    values = np.concatenate([*parts, [] if level is None else [level]])
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    middle = np.quantile(whole[np.isfinite(whole)], (0.1, 0.9)) if np.isfinite(whole).any() else values
    room = 2 * float(middle[1] - middle[0]) or 0.1 * abs(float(middle[0])) or 1.0
    near = values[(values >= middle[0] - room) & (values <= middle[1] + room)]
    margin = 0.05 * float(near.max() - near.min()) or room / 2
    return float(near.min()) - margin, float(near.max()) + margin
