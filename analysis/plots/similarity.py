"""Which layers tell clients of different clusters apart: cosines of clients' updates as heat maps (S3 Figs. 1 and 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.cluster_history import final_clusters, layer_names, layer_title, true_clusters
from analysis.figures import SeriesFigure, save_all, series_of
from analysis.plots.style import PAGE_INCHES, blank, check_path, note_below, save, settle, style, title_above
from analysis.runs import SIMILARITY, Run
from analysis.series import Given, as_series
from analysis.studies import StudyResults
from emulator.contracts.files import figures
from emulator.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

COLOURS = "RdBu_r"  # red: alike, blue: against each other; told apart by everybody
UNKNOWN = "#DDDDDD"
MAP_INCHES = (1.0, 1.75)  # a heat map is as wide as its row allows, between these
ROOM_INCHES = (0.55, 0.75)  # at the left for names, at the right for the colour bar
BLOCKS_NAMED = 10  # more clusters than these have no numbers at the axes


@dataclass(frozen=True, eq=False)
class Maps:
    """The heat maps of one round: ``cosines`` [layers, clients, clients], nan where they are not known.

    Clients stand in the order of ``clusters`` [clients], which are the true ones or the final ones.
    """

    label: str
    layers: tuple[str, ...]
    cosines: np.ndarray
    clusters: np.ndarray
    truly: bool


@figures.register("similarity", SeriesFigure)
def similarity(results: StudyResults, paths: Sequence[Path], params: SeriesFigure) -> None:
    """Cosines of clients' updates as heat maps, a row for each recorded round and a column for each layer."""
    save_all(plot(series_of(results, params), title=params.title or None), paths)


def plot(given: Sequence[Given], path: Path | str | None = None, title: str | None = None) -> Figure:
    """Draws the heat maps of run folders (or runs, or series), a row for each recorded round; of several seeds the first.

    Clients stand side by side with those of their true cluster, or where that is not known of their final one. Clients that
    were in different clusters in that round were not compared: such cells are grey. With a ``path`` the figure is also
    written there (PNG, SVG or PDF).

    Raises `InputError` as `analysis.series.as_series`, where a run has not recorded similarities, the runs' models have
    different layers, or the path is no good.
    """
    if path is not None:
        check_path(path)
    series = as_series(given)
    rows = [row for each in series for row in maps(each.first, each.title if len(series) > 1 else "")]
    layers = rows[0].layers
    if any(row.layers != layers for row in rows):
        raise InputError("these runs have models with different layers; draw them one by one, in a study with 'where'")
    left, right = ROOM_INCHES
    side = min(MAP_INCHES[1], max(MAP_INCHES[0], (PAGE_INCHES - left - right) / len(layers)))
    with style():
        figure = blank(left + right + side * len(layers), (side + 0.12) * len(rows) + 0.45)
        grid = figure.subplots(len(rows), len(layers), squeeze=False)
        for i, (row, boxes) in enumerate(zip(rows, grid, strict=True)):
            for layer, (box, cosines) in enumerate(zip(boxes, row.cosines, strict=True)):
                image = _fill(box, cosines, row.clusters)
                if i == 0:
                    box.set_title(layer_title(layers[layer], layers), fontsize="medium")
                if i < len(rows) - 1:
                    box.tick_params(labelbottom=False)
                if layer:
                    box.tick_params(labelleft=False)
            boxes[0].set_ylabel(row.label)
        bar = figure.colorbar(image, ax=grid.ravel().tolist(), fraction=0.03, pad=0.015, ticks=[-1, -0.5, 0, 0.5, 1])
        bar.set_label("Cosine of two clients' updates")
        bar.outline.set_visible(False)
        if title:
            title_above(figure, title)
        notes = [f"Numbers: {'true' if rows[0].truly else 'final'} clusters, in whose order the clients stand."]
        if any(np.isnan(row.cosines).any() for row in rows):
            notes.append("Grey: not compared, as they were in different clusters.")
        note_below(figure, " ".join(notes))
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def maps(run: Run, label: str = "") -> list[Maps]:
    """The heat maps of a run, one for each recorded round; raises `InputError` where it has recorded none."""
    table = run.similarity
    layers = tuple(layer_names(table))
    if (table["layer"] == "").any():
        raise InputError(f"'{run.folder / SIMILARITY}' is damaged: there is a row without a layer")
    truth = true_clusters(run)
    of = final_clusters(run) if truth is None else truth
    clients = int(max(table["client"].max(), table["other"].max())) + 1
    if len(of) < clients:
        raise InputError(f"the run in '{run.folder}' has {len(of)} clients, and similarities of {clients}")
    order = np.argsort(of, kind="stable")
    found = []
    for at, rows in table.groupby("round", sort=True):
        cosines = np.full((len(layers), len(of), len(of)), np.nan)
        layer = rows["layer"].map(layers.index).to_numpy(dtype=int)
        one, other = rows["client"].to_numpy(dtype=int), rows["other"].to_numpy(dtype=int)
        cosines[layer, one, other] = cosines[layer, other, one] = rows["cosine"].to_numpy(dtype=float)
        cosines[:, np.arange(len(of)), np.arange(len(of))] = 1.0
        named = f"{label}\nround {at}" if label else f"Round {at}"
        found.append(Maps(named, layers, cosines[:, order][:, :, order], of[order], truth is not None))
    return found


def _fill(box: Axes, cosines: np.ndarray, clusters: np.ndarray) -> AxesImage:
    """One heat map, with lines between clusters and their numbers at the axes."""
    import matplotlib

    colours = matplotlib.colormaps[COLOURS].with_extremes(bad=UNKNOWN)
    image = box.imshow(np.ma.masked_invalid(cosines), cmap=colours, vmin=-1, vmax=1, interpolation="nearest")
    names, starts, sizes = np.unique(clusters, return_index=True, return_counts=True)
    for at in starts[1:] - 0.5:
        box.axvline(at, color="black", linewidth=0.6)
        box.axhline(at, color="black", linewidth=0.6)
    middles = (starts + (sizes - 1) / 2).tolist()
    ticks = [str(n) for n in names] if len(names) <= BLOCKS_NAMED else []
    box.set_xticks(middles if ticks else [], ticks)
    box.set_yticks(middles if ticks else [], ticks)
    box.tick_params(length=0)
    box.grid(visible=False)
    for spine in box.spines.values():
        spine.set_visible(False)
    return image
