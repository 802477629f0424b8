"""Who trains how often: every client of a run by its kind of device, or how evenly several runs share the work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from analysis.figures import SeriesFigure, save_all, series_of
from analysis.participation import jain, trainings
from analysis.plots.style import (
    COLOURS,
    check_path,
    legend_below,
    look,
    panels,
    round_ticks,
    save,
    settle,
    style,
    title_above,
)
from analysis.seeds import mean_and_interval
from analysis.series import Given, Series, as_series
from analysis.studies import StudyResults
from emulator.contracts.files import figures

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MANY_CLIENTS = 120  # more stand without gaps between them
PASSED_OVER = "#E2E2E2"
OTHERS = "other devices"


class Participation(SeriesFigure):
    """Options of ``participation``."""

    order: Literal["count", "fleet"] = Field(
        "count", description="of the clients of a single run: by how often they trained, or as in the fleet"
    )


@figures.register("participation", Participation)
def participation(results: StudyResults, paths: Sequence[Path], params: Participation) -> None:
    """Who trains how often: the clients of one run by device, or how evenly several runs share the work."""
    save_all(plot(series_of(results, params), params.order, title=params.title or None), paths)


def plot(
    given: Sequence[Given], order: str = "count", path: Path | str | None = None, title: str | None = None
) -> Figure:
    """Draws how often clients trained, with Jain's fairness index.

    Of one series of run folders (or runs) each client is a bar, coloured by its kind of device; of several seeds the first is
    shown. Where the method notes whom it chooses, a pale bar on top says how often a client was passed over although it was
    there. Several series are a line each: the trainings of every client as a multiple of the mean, from the client that
    trained most often, mean over the seeds. With a ``path`` the figure is also written there (PNG, SVG or PDF). Raises
    `InputError` as `analysis.series.as_series` and `analysis.participation.trainings`, and where the path is no good.
    """
    if path is not None:
        check_path(path)
    series = as_series(given)
    with style():
        figure, [box] = panels(1)
        handles = _bars(box, series[0], order) if len(series) == 1 else _curves(box, series)
        if title:
            title_above(figure, title)
        legend_below(figure, list(handles.values()), list(handles))
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _bars(box: Axes, series: Series, order: str) -> dict[str, Artist]:
    """A bar for each client; returns what the legend shows."""
    from matplotlib.patches import Patch

    table = trainings(series.first)
    if order == "count":
        table = table.sort_values(["trainings", "device", "client"], ascending=[False, True, True])
    counts = table["trainings"].to_numpy(dtype=np.int64)
    kinds = table["device"].value_counts().index.tolist()
    shown = kinds if len(kinds) <= len(COLOURS) else kinds[: len(COLOURS) - 1]
    edges = np.arange(len(table) + 1) - 0.5
    device = table["device"].where(table["device"].isin(shown), OTHERS).to_numpy()
    handles: dict[str, Artist] = {}
    for i, kind in enumerate(dict.fromkeys([*shown, *device])):
        colour = look(i).colour
        box.stairs(
            np.where(device == kind, counts, 0), edges, fill=True, facecolor=colour, edgecolor="none", label=kind
        )
        handles[kind] = Patch(facecolor=colour)
    tops = counts
    if "passed_over" in table:
        tops = counts + table["passed_over"].to_numpy(dtype=np.int64)
        name = "passed over, although there"
        box.stairs(tops, edges, baseline=counts, fill=True, facecolor=PASSED_OVER, edgecolor="none", label=name)
        handles[name] = Patch(facecolor=PASSED_OVER)
    if len(table) <= MANY_CLIENTS:
        gap = 25 / (len(table) + 15)
        box.vlines(edges[1:-1], 0, 1, transform=box.get_xaxis_transform(), color="white", linewidth=gap)
    mean = box.axhline(float(counts.mean()), color="black", linewidth=0.9, linestyle=(0, (2, 2)))
    handles[f"mean: {counts.mean():.3g}"] = mean
    sorted_by = "most often first" if order == "count" else "as in the fleet"
    never = f"; {int((counts == 0).sum())} never trained" if (counts == 0).any() else ""
    box.set_xlabel(f"{len(table)} clients, {sorted_by}{never}\nJain's fairness index {jain(counts):.3f}")
    box.set_ylabel("Local trainings of a client")
    if series.note:
        box.set_title(series.title)
    box.set_xlim(-0.5, len(table) - 0.5)
    box.set_ylim(0, 1.02 * float(tops.max()))
    box.grid(visible=False, axis="x")
    box.set_xticks([])
    box.yaxis.set_major_locator(round_ticks(whole=True))
    return handles


def _curves(box: Axes, series: Sequence[Series]) -> dict[str, Artist]:
    """A line for each series; returns what the legend shows."""
    handles: dict[str, Artist] = {}
    for i, each in enumerate(series):
        seeds = [trainings(run)["trainings"].to_numpy(dtype=np.int64) for run in each.runs]
        fairness, half = mean_and_interval([jain(counts) for counts in seeds])
        n = max(len(counts) for counts in seeds)
        places = (np.arange(n) + 0.5) / n  # of clients from the first to the last, as a share
        sorted_ = [np.sort(counts)[::-1] / counts.mean() for counts in seeds]
        level = np.mean([of[(places * len(of)).astype(int)] for of in sorted_], axis=0)
        edges = np.linspace(0, 100, n + 1)
        stairs = box.stairs(level, edges, baseline=None, color=look(i).colour, linestyle=look(i).dash)
        interval = "" if math.isnan(half) else f" ± {half:.3f}"
        handles[f"{each.label}: J = {fairness:.3f}{interval}"] = stairs
    handles["all alike"] = box.axhline(1, color="#666666", linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
    box.set_xlabel("Clients, most often first (%)")
    box.set_ylabel("Local trainings of a client\nas a multiple of the mean")
    box.set_xlim(0, 100)
    box.set_ylim(bottom=0)
    box.yaxis.set_major_locator(round_ticks())
    return handles
