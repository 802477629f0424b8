"""Accuracy against what it took: cost, emulated time, bytes, or rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plots.style import (
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
from emulator.errors import InputError


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
    if not axes:
        raise InputError("give at least one axis to draw against")
    chosen = [axis_named(name) for name in axes]
    level = None if target is None else 100 * check_accuracy(target)
    if path is not None:
        check_path(path)  # before the work, not after it
    with style():
        figure, boxes = panels(len(chosen))
        low, high = _accuracy_range(runs, level)
        for i, (axis, box) in enumerate(zip(chosen, boxes, strict=True)):
            handles = _panel(box, runs, axis, level)
            box.set_ylim(low, high)
            box.yaxis.set_major_locator(round_ticks(whole=True))
            # Panels of a row share the scale, so one label is enough.
            if i == 0 or box.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                box.set_ylabel("Test accuracy (%)")
        labels = [_legend_text(run, text) for run, text in zip(runs, unique_labels(runs), strict=True)]
        if level is not None:
            labels.append(f"target {level:g} %")
        if title:
            title_above(figure, title)
        if len(labels) > 1:
            legend_below(figure, handles, labels)
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _panel(box: Axes, runs: Sequence[Run], axis: Axis, level: float | None) -> list[Artist]:
    """Draws all runs into one panel; returns what the legend shows."""
    largest = max(float(run.metrics[axis.column].max()) for run in runs)
    unit = axis.unit(largest)
    measure_x(box, axis, unit, largest / unit.size)
    handles: list[Artist] = []
    if level is not None:
        handles.append(box.axhline(level, color="#666666", linewidth=0.9, linestyle=(0, (2, 2)), zorder=1))
    lines: list[Artist] = []
    for i, run in enumerate(runs):
        x = (run.metrics[axis.column] / unit.size).to_list()
        y = (run.metrics["accuracy"] * 100).to_list()
        lines.append(curve(box, x, y, i, alone=len(runs) == 1))
    return lines + handles


def _legend_text(run: Run, label: str) -> str:
    return label if run.status == COMPLETE else f"{label} [{run.status}]"


def _accuracy_range(runs: Sequence[Run], level: float | None) -> tuple[float, float]:
    """The accuracies (per cent) on the y axis, in whole tens: from 0, unless all runs stay far above it."""
    values = [100 * float(v) for run in runs for v in (run.metrics["accuracy"].min(), run.metrics["accuracy"].max())]
    values += [] if level is None else [level]
    low = math.floor(min(values) / 10) * 10 if min(values) > max(values) / 2 else 0
    high = min(100, math.floor(max(values) / 10) * 10 + 10)
    return float(min(low, 90)), float(high)
