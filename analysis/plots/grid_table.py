"""A table of means over a grid, each cell shaded by its value: for example accuracy by group rounds and local epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis.plots.style import COLUMN_INCHES, PAGE_INCHES, check_path, note_below, save, settle, style, title_above
from emulator.errors import InputError

CELL_INCHES = (0.62, 0.42)  # the least that two lines of text need
LINE_INCHES = 0.13  # and a third
DARKEST = 0.72  # of the scale of blues, so that black text stays legible on most of it


@dataclass(frozen=True, eq=False)
class Grid:
    """Means by row and column, with half the widths of their intervals; nan where there is nothing. In display units.

    ``remarks`` are texts for a third line of a cell, mostly empty.
    """

    means: np.ndarray
    halves: np.ndarray
    remarks: np.ndarray

    @staticmethod
    def empty(rows: int, columns: int) -> Grid:
        """A grid without a single value."""
        shape = (rows, columns)
        return Grid(np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, "", dtype=object))


def plot(
    by_panel: Mapping[str, Grid],
    rows: Sequence[str],
    columns: Sequence[str],
    titles: tuple[str, str],
    quantity: str,
    path: Path | str | None = None,
    title: str | None = None,
    note: str = "",
) -> Figure:
    """Draws a table for each panel, side by side; all share one scale of shades, dark where the value is high.

    ``rows`` and ``columns`` are the labels of the cells, ``titles`` what they are labels of, ``quantity`` what is shown, with
    its unit. A cell says the mean and, under it, half of the interval and its remark; the ``note`` stands below the whole.

    Raises `InputError` if there is nothing to show or the path is no good.
    """
    known = np.concatenate([grid.means[np.isfinite(grid.means)] for grid in by_panel.values()])
    if not known.size:
        raise InputError("there is nothing to show in the table")
    if path is not None:
        check_path(path)
    digits = _digits(known)
    with style():
        remarks = any(grid.remarks.any() for grid in by_panel.values())
        size = (CELL_INCHES[0] * len(columns), (CELL_INCHES[1] + remarks * LINE_INCHES) * len(rows))
        figure, boxes = _panels(len(by_panel), size, max(len(r) for r in rows))
        for i, (box, (panel, grid)) in enumerate(zip(boxes, by_panel.items(), strict=True)):
            _fill(box, grid, (float(known.min()), float(known.max())), digits)
            box.set_xticks(range(len(columns)), columns)
            box.set_yticks(range(len(rows)), rows)
            box.set_xlabel(titles[1])
            if panel:
                box.set_title(panel)
            if i == 0 or box.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                box.set_ylabel(titles[0])
        title_above(figure, "\n".join(t for t in (title, quantity) if t))
        if note:
            note_below(figure, note)
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _panels(count: int, size: tuple[float, float], label: int) -> tuple[Figure, list[Axes]]:
    """Panels whose cells take at least ``size`` (inches), side by side as far as a page allows."""
    wanted = 0.5 + 0.06 * label + size[0]
    across = max(1, min(count, int(PAGE_INCHES // wanted)))
    down = math.ceil(count / across)
    width = COLUMN_INCHES if across * wanted <= COLUMN_INCHES else min(PAGE_INCHES, max(across * wanted, COLUMN_INCHES))
    figure = Figure(figsize=(width, down * (0.75 + size[1])), layout="constrained")
    FigureCanvasAgg(figure)
    boxes = [box for row in figure.subplots(down, across, squeeze=False) for box in row]
    for unused in boxes[count:]:
        unused.remove()
    return figure, boxes[:count]


def _fill(box: Axes, grid: Grid, span: tuple[float, float], digits: int) -> None:
    low, high = span
    shades = np.where(np.isfinite(grid.means), grid.means - low, 0.0) * (DARKEST / (high - low) if high > low else 0.0)
    colours = matplotlib.colormaps["Blues"](shades)
    colours[~np.isfinite(grid.means)] = (0.93, 0.93, 0.93, 1.0)
    box.imshow(colours, aspect="auto", interpolation="nearest")
    box.grid(visible=False)
    box.tick_params(length=0)
    for spine in box.spines.values():
        spine.set_visible(False)
    # White lines between the cells.
    for at in np.arange(0.5, grid.means.shape[1] - 1):
        box.axvline(at, color="white", linewidth=1.5)
    for at in np.arange(0.5, grid.means.shape[0] - 1):
        box.axhline(at, color="white", linewidth=1.5)
    for (row, column), mean in np.ndenumerate(grid.means):
        half = grid.halves[row, column]
        text = "–" if not math.isfinite(mean) else f"{mean:.{digits}f}"
        text += f"\n± {half:.{digits}f}" if math.isfinite(mean) and math.isfinite(half) else ""
        text += f"\n{remark}" if (remark := grid.remarks[row, column]) else ""
        colour = "white" if math.isfinite(mean) and shades[row, column] > 0.6 else "black"
        box.text(column, row, text, ha="center", va="center", color=colour, linespacing=1.1)


def _digits(values: np.ndarray) -> int:
    """Digits after the point: some three significant ones for the largest value."""
    largest = float(np.abs(values).max())
    return 0 if largest >= 1000 else 1 if largest >= 10 else 2 if largest >= 1 else 3
