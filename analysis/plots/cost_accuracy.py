"""Accuracy against what it took: cost, emulated time, bytes, or rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
from analysis.quantities import Axis, axis_named, check_accuracy
from analysis.runs import COMPLETE, Run, check_trained, unique_labels
from analysis.seeds import BANDS, Curve, mean_curve
from emulator.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Lines = Mapping[str, Sequence["pd.DataFrame"]]  # by the label of a line: the metrics of its seeds


@dataclass(frozen=True)
class _Panel:
    """One panel: curves by their place among the labels of the legend, and how far its x axis goes (in SI units)."""

    axis: Axis
    curves: Mapping[int, Curve]
    largest: float
    title: str = ""


def plot(
    runs: Sequence[Run],
    axes: Sequence[str] = ("cost", "time", "bytes", "round"),
    path: Path | str | None = None,
    title: str | None = None,
    target: float | None = None,
) -> Figure:
    """Draws the test accuracy of all runs against each of ``axes``, a panel each.

    ``axes`` are some of ``cost``, ``time``, ``bytes`` and ``round``.

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
    drawn = [_panel(axis_named(name), lines, "none") for name in axes]
    return _draw(drawn, labels, path, title, target)


def plot_means(
    by_panel: Mapping[str, Lines],
    axes: Sequence[str] = ("cost",),
    path: Path | str | None = None,
    title: str | None = None,
    target: float | None = None,
    spread: str = "interval",
) -> Figure:
    """Draws the mean test accuracy over seeds against each of ``axes``, with a band around each line.

    ``by_panel`` maps titles of panels to their lines; a panel stands for each title and axis. ``spread`` is a key of
    `analysis.seeds.BANDS`; a note above the legend says what the band is. Panels with one axis share its scale. See
    `analysis.seeds.mean_curve` for the mean, and `plot` for the rest.

    Raises `InputError` as `plot`, and where the spread is unknown.
    """
    if not any(lines for lines in by_panel.values()):
        raise InputError("give at least one run to draw")
    if spread not in BANDS:
        raise InputError(f"unknown band '{spread}'; known: {', '.join(BANDS)}")
    labels = list(dict.fromkeys(label for lines in by_panel.values() for label in lines))
    numbered = {t: {labels.index(label): seeds for label, seeds in lines.items()} for t, lines in by_panel.items()}
    drawn = []
    for axis in (axis_named(name) for name in axes):
        row = [_panel(axis, lines, spread, panel_title) for panel_title, lines in numbered.items()]
        largest = max(panel.largest for panel in row)
        drawn += [_Panel(axis, panel.curves, largest, panel.title) for panel in row]
    counts = {len(seeds) for lines in by_panel.values() for seeds in lines.values()}
    return _draw(drawn, labels, path, title, target, _note(counts, spread))


def _note(counts: set[int], spread: str) -> str:
    """What lines and bands are, in the words of a caption."""
    if counts == {1}:
        return ""
    seeds = f"{counts.pop()} seeds" if len(counts) == 1 else f"{min(counts)} to {max(counts)} seeds"
    return f"Lines: mean of {seeds}." + (f" Bands: {BANDS[spread]}." if BANDS[spread] else "")


def _panel(axis: Axis, lines: Mapping[int, Sequence[pd.DataFrame]], spread: str, title: str = "") -> _Panel:
    curves = {number: mean_curve(seeds, axis, spread) for number, seeds in lines.items()}
    return _Panel(axis, curves, max(float(c.x.max()) for c in curves.values()), title)


def _draw(
    drawn: Sequence[_Panel],
    labels: Sequence[str],
    path: Path | str | None,
    title: str | None,
    target: float | None,
    note: str = "",
) -> Figure:
    if not drawn:
        raise InputError("give at least one axis to draw against")
    level = None if target is None else 100 * check_accuracy(target)
    if path is not None:
        check_path(path)  # before the work, not after it
    with style():
        figure, boxes = panels(len(drawn))
        low, high = _accuracy_range([c for panel in drawn for c in panel.curves.values()], level)
        lines: dict[int, Artist] = {}
        for i, (panel, box) in enumerate(zip(drawn, boxes, strict=True)):
            if level is not None:
                lines[len(labels)] = box.axhline(level, color="#666666", linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
            lines |= _fill(box, panel, alone=len(labels) == 1)
            box.set_ylim(low, high)
            box.yaxis.set_major_locator(round_ticks(whole=True))
            # Panels of a row share the scale, so one label is enough.
            if i == 0 or box.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                box.set_ylabel("Test accuracy (%)")
        shown = [*labels, *([] if level is None else [f"target {level:g} %"])]
        if title:
            title_above(figure, title)
        if len(shown) > 1 or note:
            legend_below(figure, [lines[i] for i in range(len(shown))], shown, note)
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _fill(box: Axes, panel: _Panel, alone: bool) -> dict[int, Artist]:
    """Draws the curves of one panel; returns their lines by number."""
    unit = panel.axis.unit(panel.largest)
    measure_x(box, panel.axis, unit, panel.largest / unit.size)
    if panel.title:
        box.set_title(panel.title)
    for number, each in panel.curves.items():
        if each.low is not None and each.high is not None:
            band(box, (each.x / unit.size).tolist(), (100 * each.low).tolist(), (100 * each.high).tolist(), number)
    return {
        number: curve(box, (each.x / unit.size).tolist(), (100 * each.y).tolist(), number, alone)
        for number, each in panel.curves.items()
    }


def _legend_text(run: Run, label: str) -> str:
    return label if run.status == COMPLETE else f"{label} [{run.status}]"


def _accuracy_range(curves: Sequence[Curve], level: float | None) -> tuple[float, float]:
    """The accuracies (per cent) on the y axis, in whole tens: from 0, unless all curves stay far above it."""
    parts = [part for c in curves for part in (c.y, c.low, c.high) if part is not None]
    values = [100 * float(v) for part in parts for v in (part.min(), part.max())]
    values += [] if level is None else [level]
    low = math.floor(min(values) / 10) * 10 if min(values) > max(values) / 2 else 0
    high = min(100, math.floor(max(values) / 10) * 10 + 10)
    return float(min(low, 90)), float(high)
