"""The kinds of figures that a study can ask for: their options, and how they are drawn from its results.

A kind registers itself here, or in a module of the user's own, with options that derive from
`emulator.study.schema.FigureParams`. It is called with the results and the paths to draw to. Nothing here imports matplotlib
or pandas at its top: checking a study reads this file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from analysis.quantities import AXES, Unit
from analysis.studies import TO_TARGET, StudyResults, each_run, summarise
from emulator.errors import InputError
from emulator.registry import figures
from emulator.study.names import short_names, text_of
from emulator.study.schema import FigureParams, Share, Texts, column_named, one_or_more, same_value

if TYPE_CHECKING:
    import pandas as pd

AxisName = Literal["cost", "time", "bytes", "round"]


class CostAccuracy(FigureParams):
    """Options of ``cost-accuracy``."""

    x: Annotated[tuple[AxisName, ...], BeforeValidator(one_or_more), Field(min_length=1)] = Field(
        ("cost",), description="what accuracy is drawn against: one, or a list with a panel for each"
    )
    by: Texts = Field((), description="what the lines are; by default everything varied that is not in 'panels'")
    panels: str | None = Field(None, description="something varied; a panel for each of its values")
    band: Literal["interval", "range", "none"] = Field(
        "interval", description="around each line: the 95 % interval of the mean, or the lowest to the highest seed"
    )
    target: Share | None = Field(None, description="an accuracy (a share) to mark; by default the study's")

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
        return _line_columns(self.by, self.panels, self.where, columns)

    def wrong(self, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
        """As of every figure; and panels are either axes or values."""
        yield from super().wrong(columns)
        if self.panels is not None and len(self.x) > 1:
            yield "panels", "give a single 'x' beside 'panels', or leave 'panels' out"


def _line_columns(by: Sequence[str], panels: str | None, where: Iterable[str], columns: Sequence[str]) -> list[str]:
    """The columns that ``by`` names, or all that neither panels nor ``where`` do."""
    if by:
        return [column_named(name, columns) for name in by]
    taken = {column_named(name, columns) for name in (*([panels] if panels else []), *where)}
    return [c for c in columns if c not in taken]


@figures.register("cost-accuracy", CostAccuracy)
def cost_accuracy(results: StudyResults, paths: Sequence[Path], params: CostAccuracy) -> None:
    """Accuracy against cost, time, bytes or rounds: a line for each variant, with a band over seeds."""
    from analysis.plots.cost_accuracy import plot_means
    from analysis.plots.style import save

    panel = None if params.panels is None else column_named(params.panels, results.columns)
    lines = params.line_columns(results.columns)
    by_panel: dict[str, dict[str, list[pd.DataFrame]]] = {}
    for run in each_run(selected(results, params)):
        title = "" if panel is None else _named(results, [panel], run)
        by_panel.setdefault(title, {}).setdefault(_label(results, lines, run), []).append(run)
    target = results.target if params.target is None else params.target
    figure = plot_means(by_panel, params.x, None, params.title or None, target, params.band)
    for path in paths:
        save(figure, path)


_SECONDS, _COST, _BYTES = AXES["time"].units, AXES["cost"].units, AXES["bytes"].units
_PERCENT = (Unit("%", 0.01),)
QUANTITIES: dict[str, tuple[str, str, tuple[Unit, ...]]] = {
    "final-accuracy": ("final_accuracy", "Final accuracy", _PERCENT),
    "best-accuracy": ("best_accuracy", "Best accuracy", _PERCENT),
    "time": ("time_s", "Emulated time", _SECONDS),
    "bytes": ("bytes_total", "Data over all links", _BYTES),
    "cost": ("cost_s", "Cost", _COST),
    "group-size": ("group_size", "Clients of a group, mean", (Unit("", 1.0),)),
    "group-cov": ("group_cov", "CoV of a group, mean", (Unit("", 1.0),)),
    "intra-cs": ("intra_cs", "Intra-CS as printed in S1", (Unit("", 1.0),)),
    "inter-cs": ("inter_cs", "Inter-CS as printed in S1", (Unit("", 1.0),)),
    "vts": ("vts", "Likeness of sets to the virtual target (VTS)", (Unit("", 1.0),)),
    "rounds-to-target": ("round_to_target", "Rounds to {target}", (Unit("", 1.0),)),
    "time-to-target": ("time_to_target_s", "Emulated time to {target}", _SECONDS),
    "bytes-to-target": ("bytes_to_target", "Data to {target}", _BYTES),
    "cost-to-target": ("cost_to_target_s", "Cost to {target}", _COST),
}
Quantity = Literal[
    "final-accuracy", "best-accuracy", "time", "bytes", "cost", "group-size", "group-cov", "intra-cs", "inter-cs", "vts",
    "rounds-to-target", "time-to-target", "bytes-to-target", "cost-to-target",
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
    from analysis.plots.grid_table import Grid, plot
    from analysis.plots.style import save

    column, title, units = QUANTITIES[params.value]
    to_target = column in TO_TARGET
    if to_target and results.target is None:
        raise InputError(f"'{params.value}' needs a 'target' of the study", "value")
    chosen = StudyResults(
        results.folder, results.name, results.columns, results.target, selected(results, params), results.missing
    )
    summary = summarise(chosen)
    places = params.places(results.columns)
    labels = [list(dict.fromkeys(summary[c])) if c else [None] for c in places]
    largest = float(summary[f"{column}_mean"].max())
    unit = next((u for u in reversed(units) if largest >= 2 * u.size), units[0])
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
        grids["" if not places[2] else _shown(results, places[2], panel)] = grid
    quantity = title.format(target=f"{100 * (results.target or 0):.4g} %")
    figure = plot(
        grids,
        [text_of(v) if places[0] else "" for v in labels[0]],
        [text_of(v) if places[1] else "" for v in labels[1]],
        (_heading(results, places[0]), _heading(results, places[1])),
        f"{quantity} ({unit.name})" if unit.name else quantity,
        title=params.title or None,
        note=_grid_note(sorted(set(summary["seeds"])), to_target),
    )
    for path in paths:
        save(figure, path)


class ToTarget(FigureParams):
    """Options of ``to-target``."""

    targets: Annotated[tuple[Share, ...], Field(min_length=1)] = Field(description="accuracies (shares) to reach")
    value: AxisName = Field("bytes", description="what reaching them took")
    by: Texts = Field((), description="what the bars are; by default everything varied that is not in 'panels'")
    panels: str | None = Field(None, description="something varied; a panel for each of its values")

    def named_columns(self) -> Iterator[tuple[str, str]]:
        """The names in ``by``, ``panels`` and ``where``."""
        yield from (("by", name) for name in self.by)
        yield from (("panels", name) for name in [self.panels] if name is not None)
        yield from super().named_columns()

    def told_apart(self, columns: Sequence[str]) -> list[str]:
        """The bars' columns and the panels'."""
        panels = [] if self.panels is None else [column_named(self.panels, columns)]
        return [*panels, *self.line_columns(columns)]

    def line_columns(self, columns: Sequence[str]) -> list[str]:
        """The columns whose values make a bar."""
        return _line_columns(self.by, self.panels, self.where, columns)


@figures.register("to-target", ToTarget)
def to_target(results: StudyResults, paths: Sequence[Path], params: ToTarget) -> None:
    """What reaching accuracies took, in bytes, time, cost or rounds: bars on a logarithmic axis (S5 Fig. 6)."""
    from analysis.plots.style import save
    from analysis.plots.to_target import plot

    panel = None if params.panels is None else column_named(params.panels, results.columns)
    lines, column = params.line_columns(results.columns), AXES[params.value].column
    by_panel: dict[str, dict[str, list[list[float]]]] = {}
    for run in each_run(selected(results, params)):
        title = "" if panel is None else _named(results, [panel], run)
        line = by_panel.setdefault(title, {}).setdefault(_label(results, lines, run), [[] for _ in params.targets])
        for taken, target in zip(line, params.targets, strict=True):
            reached = run[run["accuracy"] >= target]
            taken.append(float(reached[column].iloc[0]) if len(reached) else math.nan)
    figure = plot(by_panel, params.targets, params.value, None, params.title or None)
    for path in paths:
        save(figure, path)


class Topology(FigureParams):
    """Options of ``topology``."""

    panels: str | None = Field(None, description="something varied; a panel for each of its values")

    def named_columns(self) -> Iterator[tuple[str, str]]:
        """The names in ``panels`` and ``where``."""
        yield from (("panels", name) for name in [self.panels] if name is not None)
        yield from super().named_columns()


@figures.register("topology", Topology)
def topology(results: StudyResults, paths: Sequence[Path], params: Topology) -> None:
    """Headers and their members, of the first run of each panel that has headers (S5 Fig. 5)."""
    from analysis.plots.style import save
    from analysis.plots.topology import plot, read_topology

    panel = None if params.panels is None else column_named(params.panels, results.columns)
    drawn: dict[str, pd.DataFrame] = {}
    for run in each_run(selected(results, params)):
        name = "" if panel is None else _named(results, [panel], run)
        folder = results.folder / str(run["run"].iloc[0])
        if name not in drawn and (folder / "topology.csv").is_file():
            drawn[name] = read_topology(folder)
    if not drawn:
        raise InputError("no complete run of these has headers, as those of hfldd have", "where")
    figure = plot(drawn, None, params.title or None)
    for path in paths:
        save(figure, path)


def _grid_note(seeds: Sequence[int], to_target: bool) -> str:
    if seeds[-1] == 1:
        return ""
    many = f"{seeds[0]} seeds" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    note = f"Mean of {many} ± half of the 95 % interval (Student's t)."
    return f"{note} Over the seeds that reached it, where not all did." if to_target else note


def selected(results: StudyResults, params: FigureParams) -> pd.DataFrame:
    """The rows of the results that a figure draws; raises `InputError` if there are none."""
    table = results.table
    for name, wanted in params.where.items():
        column = column_named(name, results.columns)
        table = table[[same_value(wanted, value) for value in table[column]]]
    if table.empty:
        raise InputError("no complete run is of these values", "where")
    return table


def _label(results: StudyResults, columns: Sequence[str], run: pd.DataFrame) -> str:
    """What the legend calls a line: variants and methods by their names, values with what they are values of."""
    return _named(results, columns, run) or str(run["method"].iloc[0])


def _named(results: StudyResults, columns: Sequence[str], run: pd.DataFrame) -> str:
    return ", ".join(_shown(results, column, run[column].iloc[0]) for column in columns)


def _shown(results: StudyResults, column: str, value: Any) -> str:
    return text_of(value) if column in ("variant", "method") else f"{_short(results, column)} = {text_of(value)}"


def _heading(results: StudyResults, column: str) -> str:
    """What stands beside rows or columns; names of variants and methods explain themselves."""
    return "" if column in ("", "variant", "method") else _short(results, column)


def _short(results: StudyResults, column: str) -> str:
    return short_names(results.columns).get(column, column).replace("_", " ")
