"""Who keeps the others waiting: what each client does in a group round, from the quickest client to the slowest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis import activity
from analysis.figures import SeriesFigure, save_all, series_of
from analysis.plots.style import (
    PART_COLOURS,
    check_path,
    legend_below,
    panels,
    round_ticks,
    save,
    settle,
    style,
    title_above,
)
from analysis.series import Given, as_series
from analysis.studies import StudyResults
from emulator.contracts.files import figures

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MANY_CLIENTS = 120  # more stand without gaps between them


class Stragglers(SeriesFigure):
    """Options of ``stragglers``."""


@figures.register("stragglers", Stragglers)
def stragglers(results: StudyResults, paths: Sequence[Path], params: Stragglers) -> None:
    """What each client does in a group round, quickest to slowest: the quick wait for the slow."""
    save_all(plot(series_of(results, params), title=params.title or None), paths)


def plot(given: Sequence[Given], path: Path | str | None = None, title: str | None = None) -> Figure:
    """Draws a panel for each series of run folders (or runs); of several seeds the first is shown.

    Each client is a bar: its mean seconds in a group round by part (see `analysis.activity.stragglers`), waiting on top. So all
    members of one group reach the same height, and the slowest have the least waiting. A line marks the median of what the
    clients are busy. With a ``path`` the figure is also written there (PNG, SVG or PDF). Raises `InputError` as
    `analysis.series.as_series` and `analysis.activity.stragglers`, and where the path is no good.
    """
    from matplotlib.patches import Patch

    if path is not None:
        check_path(path)
    series = as_series(given)
    tables = [activity.stragglers(each.first) for each in series]
    parts = [p for p in activity.PARTS if any(table[activity.COLUMNS[p]].sum() > 0 for table in tables)]
    with style():
        figure, boxes = panels(len(series))
        for i, (each, table, box) in enumerate(zip(series, tables, boxes, strict=True)):
            _bars(box, table, parts)
            if len(series) > 1 or each.note:
                box.set_title(each.title, fontsize="medium")
            slowest = table.iloc[-1]
            of = f", {slowest['device']}" if slowest["device"] else ""
            times = float(slowest["own_s"]) / max(float(table["own_s"].median()), 1e-12)
            box.set_xlabel(
                f"{len(table)} clients, quickest to slowest\nslowest: client-{slowest['client']}{of}\n"
                f"busy {times:.3g} times as long as the median"
            )
            if i == 0 or box.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                box.set_ylabel("Mean of a group round (s)")
        highest = max(box.get_ylim()[1] for box in boxes)
        for box in boxes:
            box.set_ylim(0, highest)
        if title:
            title_above(figure, title)
        handles = [*(Patch(color=PART_COLOURS[part]) for part in parts), boxes[0].lines[0]]
        legend_below(figure, handles, [*(activity.TITLES[part] for part in parts), "median client, without waiting"])
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _bars(box: Axes, table: pd.DataFrame, parts: Sequence[str]) -> None:
    edges = np.arange(len(table) + 1) - 0.5
    tops = np.zeros(len(table))
    for part in parts:
        below, tops = tops, tops + table[activity.COLUMNS[part]].to_numpy(dtype=float)
        box.stairs(tops, edges, baseline=below, fill=True, facecolor=PART_COLOURS[part], edgecolor="none", label=part)
    if len(table) <= MANY_CLIENTS:
        gap = 25 / (len(table) + 15)
        box.vlines(edges[1:-1], 0, 1, transform=box.get_xaxis_transform(), color="white", linewidth=gap)
    box.axhline(float(table["own_s"].median()), color="black", linewidth=0.9, linestyle=(0, (2, 2)))
    box.set_xlim(-0.5, len(table) - 0.5)
    box.set_ylim(0, 1.02 * float(tops.max()) or 1.0)
    box.grid(visible=False, axis="x")
    box.set_xticks([])
    box.yaxis.set_major_locator(round_ticks())
