"""A table of means over a grid, each cell shaded by its value: for example accuracy by group rounds and local epochs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from analysis.drops import DROP
from analysis.figures import heading, save_all, selected, shown
from analysis.plots.style import (
    COLUMN_INCHES,
    PAGE_INCHES,
    blank,
    check_path,
    note_below,
    save,
    settle,
    style,
    title_above,
)
from analysis.quantities import AXES, Unit, axis_in
from analysis.studies import TO_TARGET, StudyResults, summarise
from analysis.tables import AT_BUDGET, LAST_ROUNDS, TO_TARGET_PRICED
from emulator.contracts.files import figures
from emulator.errors import InputError
from emulator.measures import ACCURACY
from emulator.priced import CARBON, MONEY
from emulator.study.names import text_of
from emulator.study.schema import FigureParams, column_named

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL_INCHES = (0.62, 0.42)  # the least that two lines of text need
LINE_INCHES = 0.13  # and a third
DARKEST = 0.72  # of the scale of blues, so that black text stays legible on most of it

_SECONDS, _COST, _BYTES = AXES["time"].units, AXES["cost"].units, AXES["bytes"].units
_PERCENT = (Unit("%", 0.01),)
QUANTITIES: dict[str, tuple[str, str, tuple[Unit, ...]]] = {
    "final-accuracy": ("final_accuracy", "Final accuracy", _PERCENT),
    "best-accuracy": ("best_accuracy", "Best accuracy", _PERCENT),
    "accuracy-last-rounds": (LAST_ROUNDS, "Accuracy over the last rounds", _PERCENT),
    "accuracy-at-budget": (AT_BUDGET, "Accuracy at the budget", _PERCENT),
    "accuracy-drop": (DROP, "Final accuracy lost against the baseline", _PERCENT),
    "time": ("time_s", "Emulated time", _SECONDS),
    "bytes": ("bytes_total", "Data over all links", _BYTES),
    "cost": ("cost_s", "Cost", _COST),
    "energy": ("energy_j", "Energy of the clients", AXES["energy"].units),
    "money": (MONEY, "Money", AXES["money"].units),
    "carbon": (CARBON, AXES["carbon"].title, AXES["carbon"].units),
    "group-size": ("group_size", "Clients of a group, mean", (Unit("", 1.0),)),
    "group-cov": ("group_cov", "CoV of a group, mean", (Unit("", 1.0),)),
    "intra-cs": ("intra_cs", "Intra-CS as printed in S1", (Unit("", 1.0),)),
    "inter-cs": ("inter_cs", "Inter-CS as printed in S1", (Unit("", 1.0),)),
    "vts": ("vts", "Likeness of sets to the virtual target (VTS)", (Unit("", 1.0),)),
    "accuracy-clusters": ("accuracy_clusters", "Accuracy, mean over clusters", _PERCENT),
    "accuracy-clients": ("accuracy_clients", "Accuracy, mean over clients", _PERCENT),
    "clusters": ("clusters", "Clusters", (Unit("", 1.0),)),
    "adjusted-rand": ("adjusted_rand", "Adjusted Rand index of the clusters", (Unit("", 1.0),)),
    "clustering-rounds": ("clustering_rounds", "Rounds to the final clusters", (Unit("", 1.0),)),
    "weights-kept": ("weights_kept", "Weights that count for stability", _PERCENT),
    "rounds-to-target": ("round_to_target", "Rounds to {target}", (Unit("", 1.0),)),
    "time-to-target": ("time_to_target_s", "Emulated time to {target}", _SECONDS),
    "bytes-to-target": ("bytes_to_target", "Data to {target}", _BYTES),
    "cost-to-target": ("cost_to_target_s", "Cost to {target}", _COST),
    "energy-to-target": ("energy_to_target_j", "Energy to {target}", AXES["energy"].units),
    "money-to-target": (TO_TARGET_PRICED[MONEY], "Money to {target}", AXES["money"].units),
    "carbon-to-target": (TO_TARGET_PRICED[CARBON], "CO2 to {target}", AXES["carbon"].units),
}
Quantity = Literal[
    "final-accuracy", "best-accuracy", "accuracy-last-rounds", "accuracy-at-budget", "accuracy-drop",
    "time", "bytes", "cost", "energy", "money", "carbon",
    "group-size", "group-cov", "intra-cs", "inter-cs", "vts",
    "accuracy-clusters", "accuracy-clients", "clusters", "adjusted-rand", "clustering-rounds", "weights-kept",
    "rounds-to-target", "time-to-target", "bytes-to-target", "cost-to-target", "energy-to-target",
    "money-to-target", "carbon-to-target",
]  # fmt: skip


class GridTable(FigureParams):
    """Options of ``grid-table``."""

    rows: str | None = Field(None, description="something varied; by default the first that is not named elsewhere")
    columns: str | None = Field(None, description="something varied; by default the next")
    panels: str | None = Field(None, description="something varied; a table for each of its values")
    value: Quantity = Field("final-accuracy", description="what the cells say")

    def named_columns(self) -> Iterator[tuple[str, str]]:
        """The names in ``rows``, ``columns``, ``panels`` and ``where``."""
        for key in ("rows", "columns", "panels"):
            if getattr(self, key) is not None:
                yield key, getattr(self, key)
        yield from super().named_columns()

    def told_apart(self, columns: Sequence[str]) -> list[str]:
        """Rows, columns and panels, as far as there are."""
        return [c for c in self.places(columns) if c]

    def wrong(self, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Names of nothing varied, and seeds, over which the cells are means."""
        yield from super().wrong(columns)
        for key in ("rows", "columns", "panels"):
            if getattr(self, key) == "seed":
                yield key, "cells are means over the seeds; name something else that the study varies"

    def places(self, columns: Sequence[str]) -> tuple[str, str, str]:
        """The columns of the results behind rows, columns and panels; empty where there is none."""
        named = [column_named(name, columns) for _, name in self.named_columns()]
        free = iter([c for c in columns if c not in named])
        rows, across = (column_named(n, columns) if n else next(free, "") for n in (self.rows, self.columns))
        return rows, across, column_named(self.panels, columns) if self.panels else ""


@figures.register("grid-table", GridTable)
def grid_table(results: StudyResults, paths: Sequence[Path], params: GridTable) -> None:
    """A table of means over seeds by two things varied, each cell shaded by its value."""
    (column, title, units), measure = QUANTITIES[params.value], results.measure
    if measure != ACCURACY and measure.named(column) != column:
        title = title.replace("Accuracy", measure.heading).replace("accuracy", measure.called)
        units = units if measure.share else (Unit("", 1.0),)
    to_target = column in TO_TARGET
    if to_target and results.target is None:
        raise InputError(f"'{params.value}' needs a 'target' of the study", "value")
    if column == DROP and DROP not in results.table:
        raise InputError(f"'{params.value}' needs a 'baseline' of the study", "value")
    if column == AT_BUDGET and AT_BUDGET not in results.table:
        raise InputError(f"'{params.value}' needs a 'budget' of the study, or one in 'stop' of its runs", "value")
    if (name := params.value.removesuffix("-to-target")) in ("money", "carbon"):
        axis = axis_in(name, [results.table])
        axis.check_known(results.table)
        units = axis.units
    summary = summarise(replace(results, table=selected(results, params)))
    places = params.places(results.columns)
    labels = [list(dict.fromkeys(summary[c])) if c else [None] for c in places]
    largest = float(summary[f"{column}_mean"].max())
    unit = next((u for u in reversed(units) if largest >= 2 * u.size), units[0])
    most = int(summary["seeds"].max())
    grids: dict[str, Any] = {}
    for panel in labels[2]:
        grid = Grid.empty(len(labels[0]), len(labels[1]))
        for _, row in summary.iterrows():
            at = [label.index(row[c]) if c else 0 for c, label in zip(places, labels, strict=True)]
            if labels[2][at[2]] == panel:
                cell = (at[0], at[1])
                grid.means[cell] = row[f"{column}_mean"] / unit.size
                grid.halves[cell] = row[f"{column}_ci95"] / unit.size
                if to_target and 0 < row["reached"] < row["seeds"]:
                    grid.remarks[cell] = f"{row['reached']} of {row['seeds']}"
                if row["seeds"] == 1 and most > 1:
                    grid.remarks[cell] = "one seed"
                if column == "clustering_rounds" and 0 < row["clustered"] < row["seeds"]:
                    grid.remarks[cell] = f"{row['clustered']} of {row['seeds']} split"
        grids["" if not places[2] else shown(results, places[2], panel)] = grid
    quantity = title.format(target=measure.goal_text(results.target or 0))
    figure = plot(
        grids,
        [text_of(v) if places[0] else "" for v in labels[0]],
        [text_of(v) if places[1] else "" for v in labels[1]],
        (heading(results, places[0]), heading(results, places[1])),
        f"{quantity} ({unit.name})" if unit.name else quantity,
        title=params.title or None,
        note=_grid_note(sorted(set(summary["seeds"])), column),
    )
    save_all(figure, paths)


def _grid_note(seeds: Sequence[int], column: str) -> str:
    never = "Of the seeds in which a cluster was split." if column == "clustering_rounds" else ""
    if seeds[-1] == 1:
        return f"One seed: single runs, no means. {never}".rstrip()
    many = f"{seeds[0]} seeds" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    note = f"Mean of {many} ± half of the 95 % interval (Student's t). {never}".rstrip()
    return f"{note} Over the seeds that reached it, where not all did." if column in TO_TARGET else note


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
    figure = blank(width, down * (0.75 + size[1]))
    boxes = [box for row in figure.subplots(down, across, squeeze=False) for box in row]
    for unused in boxes[count:]:
        unused.remove()
    return figure, boxes[:count]


def _fill(box: Axes, grid: Grid, span: tuple[float, float], digits: int) -> None:
    import matplotlib

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
