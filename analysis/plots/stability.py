"""When clients' updates settle, beside the loss: stability of each layer over rounds (S3 Fig. 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from analysis.cluster_history import layer_names, layer_title
from analysis.figures import SeriesFigure, save_all, series_of
from analysis.plots.style import (
    COLUMN_INCHES,
    PAGE_INCHES,
    PANEL_INCHES,
    band,
    blank,
    check_path,
    curve,
    legend_below,
    measure_x,
    round_ticks,
    save,
    settle,
    style,
    title_above,
)
from analysis.quantities import axis_named
from analysis.runs import Run, check_trained
from analysis.seeds import mean_and_interval
from analysis.series import Given, Series, as_series
from analysis.studies import StudyResults
from emulator.contracts.files import figures
from emulator.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOSS = 4  # the place of its line among the looks: black


@dataclass(frozen=True, eq=False)
class Over:
    """A mean over seeds by round, with half the widths of its intervals (nan for one seed)."""

    rounds: np.ndarray
    mean: np.ndarray
    half: np.ndarray


class Stability(SeriesFigure):
    """Options of ``stability``."""

    cluster: int = Field(
        0, ge=0, description="the cluster whose members are shown; 0 holds all clients until it is split"
    )


@figures.register("stability", Stability)
def stability(results: StudyResults, paths: Sequence[Path], params: Stability) -> None:
    """Stability of clients' updates by layer, and the loss, over rounds: which of them settles first."""
    save_all(plot(series_of(results, params), params.cluster, title=params.title or None), paths)


def plot(given: Sequence[Given], cluster: int = 0, path: Path | str | None = None, title: str | None = None) -> Figure:
    """Draws the stability of each layer, mean over a cluster's members, and below it the test loss, against rounds.

    Run folders (or runs, or series) that differ in their seed alone are one column of panels, with means and the 95 % interval.
    With a ``path`` the figure is also written there (PNG, SVG or PDF). Where the scenario says so, a line marks below which
    stability a layer counts as stable.

    Raises `InputError` as `analysis.series.as_series`, where a run has no stabilities of that cluster or no loss, or the path is
    no good.
    """
    if path is not None:
        check_path(path)
    series = as_series(given)
    check_trained(run for each in series for run in each.runs)
    found = [over_rounds(each, cluster) for each in series]
    losses = [_mean([run.metrics.set_index("round")["loss"] for run in each.runs]) for each in series]
    layers = list(dict.fromkeys(layer for by_layer in found for layer in by_layer))
    across = min(len(series), 3)
    down = math.ceil(len(series) / across)
    with style():
        figure = blank(COLUMN_INCHES if across == 1 else PAGE_INCHES, 1.7 * PANEL_INCHES * down)
        grid = figure.subplots(2 * down, across, squeeze=False)
        for unused in range(len(series), down * across):
            grid[2 * (unused // across), unused % across].remove()
            grid[2 * (unused // across) + 1, unused % across].remove()
        lines: dict[str, Artist] = {}
        drawn: tuple[list[Axes], list[Axes]] = ([], [])  # upper and lower panels
        for i, (each, by_layer, loss) in enumerate(zip(series, found, losses, strict=True)):
            upper, lower = grid[2 * (i // across), i % across], grid[2 * (i // across) + 1, i % across]
            lines |= _upper(upper, each.first, by_layer, layers)
            lines["loss on the common test set"] = _line(lower, loss, LOSS, alone=True)
            for box, boxes in zip((upper, lower), drawn, strict=True):
                boxes.append(box)
                measure_x(box, axis_named("round"), axis_named("round").unit(0), float(loss.rounds.max()))
                box.yaxis.set_major_locator(round_ticks())
                box.set_ylim(bottom=0)
            upper.set_xlabel("")
            if len(series) > 1:
                upper.set_title(each.label)
            if i % across == 0:
                upper.set_ylabel("Stability\n(difference of cosines)")
                lower.set_ylabel("Test loss (nats)")
        for boxes in drawn:  # panels of one quantity compare
            top = max(box.get_ylim()[1] for box in boxes)
            for box in boxes:
                box.set_ylim(0, top)
        if title:
            title_above(figure, title)
        order = [*(layer_title(layer, layers) for layer in layers), "loss on the common test set"]
        shown = [*order, *(label for label in lines if label not in order)]
        legend_below(figure, [lines[label] for label in shown], shown, _note(series))
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def over_rounds(series: Series, cluster: int = 0) -> dict[str, Over]:
    """The stability of each layer over rounds, mean over the members of a cluster and then over seeds.

    Raises `InputError` where a run knows nothing of it.
    """
    tables = []
    for run in series.runs:
        rows = run.stability
        rows = rows[(rows["cluster"] == cluster) & (rows["layer"] != "")]
        if rows.empty:
            why = "its split time does not measure it, or it ended too early"
            raise InputError(f"the run in '{run.folder}' knows no stability of cluster {cluster}: {why}")
        tables.append(rows)
    return {
        layer: _mean([rows[rows["layer"] == layer].set_index("round")["stability"] for rows in tables])
        for layer in layer_names(tables[0])
    }


def _mean(seeds: Sequence[pd.Series]) -> Over:
    """Means over the seeds in the rounds that all of them have."""
    common = sorted(set.intersection(*(set(each.index) for each in seeds)))
    pairs = [mean_and_interval([float(each[at]) for each in seeds]) for at in common]
    return Over(np.array(common), np.array([mean for mean, _ in pairs]), np.array([half for _, half in pairs]))


def _upper(box: Axes, run: Run, by_layer: dict[str, Over], layers: Sequence[str]) -> dict[str, Artist]:
    lines: dict[str, Artist] = {
        layer_title(layer, layers): _line(box, over, layers.index(layer)) for layer, over in by_layer.items()
    }
    if (limit := threshold(run)) is not None:
        who, epsilon = limit
        line = box.axhline(epsilon, color="#666666", linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
        lines[f"stable where {who} is below"] = line
    return lines


def _line(box: Axes, over: Over, index: int, alone: bool = False) -> Artist:
    index += index >= LOSS and not alone  # black is the loss
    if np.isfinite(over.half).any():
        low, high = over.mean - over.half, over.mean + over.half
        band(box, over.rounds.tolist(), np.maximum(low, 0).tolist(), high.tolist(), index)
    return curve(box, over.rounds.tolist(), over.mean.tolist(), index, alone)


def threshold(run: Run) -> tuple[str, float] | None:
    """Whose stability in a layer must be below what (S3: ε) to count as stable; None where that is not one number."""
    method = run.scenario.get("method", {})
    split_time, local = method.get("split_time", {}), method.get("local", {})
    epsilon, rate = split_time.get("epsilon"), local.get("learning_rate")
    varies = local.get("learning_rate_decay", 1.0) != 1.0 or "schedule" in local
    if varies or epsilon is None or rate is None:
        return None
    return "the mean" if split_time.get("members") == "mean" else "every member", float(epsilon) * float(rate)


def _note(series: Sequence[Series]) -> str:
    counts = {len(each.runs) for each in series}
    if counts == {1}:
        return ""
    seeds = f"{counts.pop()} seeds" if len(counts) == 1 else f"{min(counts)} to {max(counts)} seeds"
    return f"Lines: mean of {seeds}. Bands: the 95 % interval of the mean (Student's t)."
