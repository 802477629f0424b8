"""The tree of clusters of a run: when clusters are split and merged, how large they are, and what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from analysis.cluster_history import Node, final_clusters, tree, true_clusters
from analysis.figures import SeriesFigure, save_all, series_of
from analysis.plots.groups import LABEL_COLOURS
from analysis.plots.style import (
    FONT_POINTS,
    PAGE_INCHES,
    blank,
    check_path,
    legend_below,
    measure_x,
    note_below,
    save,
    settle,
    style,
    title_above,
)
from analysis.quantities import axis_named
from analysis.runs import Run
from analysis.series import Given, as_series
from analysis.studies import StudyResults
from emulator.contracts.files import figures
from emulator.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLIENT_INCHES = 0.13  # height of a client, as far as a panel of these heights allows
PANEL_INCHES = (1.5, 4.6)
GAP = 0.9  # between clusters, in clients; of many clients more
JOINT = 0.035  # width of a joint, as a share of the axis
SIZE_INCHES, SPLIT_INCHES = 0.3, 0.6  # room that a size and the words at a split take in a band
NAMED = 12  # more sizes or splits than this times the panel's inches are not written down


@dataclass(frozen=True, eq=False)
class Tree:
    """What one panel shows: nodes with the lower end of their bands, and the kind of each client that colours it."""

    label: str
    nodes: tuple[Node, ...]
    bottoms: np.ndarray  # [nodes], in clients
    kinds: np.ndarray  # [clients], numbered from 0
    truly: bool  # kinds are the true clusters, not the final ones
    end: tuple[float, float]  # the last round, and seconds

    @property
    def top(self) -> float:
        """The upper end of the highest band."""
        return max(float(b) + len(n.members) for b, n in zip(self.bottoms, self.nodes, strict=True))

    @cached_property
    def ways(self) -> dict[tuple[int, int], list[int]]:
        """The clients that go from one node to another, by the places of both."""
        found: dict[tuple[int, int], list[int]] = {}
        latest: dict[int, int] = {}
        for place, node in enumerate(self.nodes):
            for client in node.members:
                if client in latest:
                    found.setdefault((latest[client], place), []).append(client)
                latest[client] = place
        return found

    @cached_property
    def ranks(self) -> np.ndarray:
        """The order of the kinds in a band [kinds]: those whose clients are mostly further down are further down."""
        below, count = np.zeros(len(self.kinds)), np.zeros(len(self.kinds))
        for node, bottom in zip(self.nodes, self.bottoms, strict=True):
            below[list(node.members)] += bottom + len(node.members) / 2
            count[list(node.members)] += 1
        mean = below / np.maximum(count, 1)
        height = [mean[self.kinds == kind].mean() for kind in range(self.kinds.max() + 1)]
        return np.argsort(np.argsort(height, kind="stable"))


class ClustersFigure(SeriesFigure):
    """Options of ``clusters``."""

    x: Literal["round", "time"] = Field("round", description="what the tree is drawn against")


@figures.register("clusters", ClustersFigure)
def clusters(results: StudyResults, paths: Sequence[Path], params: ClustersFigure) -> None:
    """The tree of clusters: bands as high as clusters have clients, splits and merges, coloured by the true clusters."""
    save_all(plot(series_of(results, params), params.x, title=params.title or None), paths)


def plot(given: Sequence[Given], x: str = "round", path: Path | str | None = None, title: str | None = None) -> Figure:
    """Draws the tree of clusters of run folders (or runs, or series), a panel for each; of several seeds the first.

    A cluster is a band from the round (or the time, ``x``) in which it came to be until it was split or merged. The band is as
    high as the cluster has clients, and its stripes are the true clusters of its members, or where these are not known the
    clusters in which they end. With a ``path`` the figure is also written there (PNG, SVG or PDF).

    Raises `InputError` as `analysis.series.as_series`, where a run has made no clusters, or the path is no good.
    """
    if x not in ("round", "time"):
        raise InputError(f"a tree is drawn against 'round' or 'time', not '{x[:60]}'", "x")
    if path is not None:
        check_path(path)
    trees = [_tree(each.first, each.title) for each in as_series(given)]
    low, high = PANEL_INCHES
    heights = [min(high, max(low, 0.55 + CLIENT_INCHES * each.top)) for each in trees]
    with style():
        figure = blank(PAGE_INCHES, sum(heights))
        boxes = figure.subplots(len(trees), 1, squeeze=False, height_ratios=heights)[:, 0]
        for each, box, height in zip(trees, boxes, heights, strict=True):
            _draw(box, each, x, height, len(_layers(trees)) > 1)
            if len(trees) > 1:
                box.set_title(each.label)
        if title:
            title_above(figure, title)
        _explain(figure, trees)
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _tree(run: Run, label: str) -> Tree:
    nodes = tree(run)
    truth, final = true_clusters(run), final_clusters(run)
    given = final if truth is None else truth
    members = {client for node in nodes for client in node.members}
    chosen = any(node.reason == "choice" for node in nodes)  # where not everybody need be in a cluster
    if len(given) < len(final) or (len(members) < len(given) and not chosen):
        raise InputError(f"the run in '{run.folder}' has clusters of {len(members)} clients, and knows {len(given)}")
    kinds = np.unique(given, return_inverse=True)[1]
    last = run.metrics.iloc[-1]
    end = (float(last["round"]), float(last["time_s"]))
    return Tree(label, tuple(nodes), _bottoms(nodes, kinds), kinds, truth is not None, end)


def _bottoms(nodes: Sequence[Node], kinds: np.ndarray) -> np.ndarray:
    """Where bands begin, so that no two that live at one time lie on each other, and children lie beside their parents.

    Clients stand in the order of their ways through the tree; a band is centred at its members. Clusters that clients choose
    again and again (IFCA) stay in their own lanes.
    """
    gap = max(GAP, 0.04 * len(kinds))
    sizes = np.array([len(node.members) for node in nodes], dtype=float)
    numbers = np.array([node.cluster for node in nodes])
    if any(node.reason == "choice" for node in nodes):
        tallest = [sizes[numbers == number].max() for number in range(numbers.max() + 1)]
        lanes = np.concatenate([[0.0], np.cumsum(np.array(tallest) + gap)])
        return np.asarray(lanes[numbers])
    # Of the halves of a cluster the one with the kinds of lower numbers is below.
    ways: list[list[tuple[float, int]]] = [[] for _ in kinds]
    for place, node in enumerate(nodes):
        for client in node.members:
            ways[client].append((float(kinds[list(node.members)].mean()), place))
    first = {
        way[-1]: min(w for w in ways if w[-1] == way[-1]) for way in ways
    }  # a leaf stands where its first client does
    order = sorted(range(len(ways)), key=lambda c: (first[ways[c][-1]], ways[c], kinds[c]))
    at, here = np.zeros(len(ways)), 0.0
    for before, client in zip([order[0], *order], order, strict=False):
        here += gap if ways[before][-1] != ways[client][-1] else 0.0
        at[client] = here
        here += 1.0
    wanted = np.array([at[list(n.members)].mean() + 0.5 for n in nodes]) - sizes / 2
    bottoms = np.full(len(nodes), -np.inf)
    for place in sorted(range(len(nodes)), key=lambda p: wanted[p] + sizes[p] / 2):
        own = nodes[place]
        below = [
            bottoms[p] + sizes[p] + gap
            for p, other in enumerate(nodes)
            if bottoms[p] > -np.inf and other.born < own.ended and own.born < other.ended
        ]
        bottoms[place] = max([wanted[place], *below])
    return np.asarray(bottoms - bottoms.min())


def _draw(box: Axes, each: Tree, x: str, inches: float, layered: bool) -> None:
    """Bands, joints between them, sizes, and by what clusters were split."""
    which = 0 if x == "round" else 1
    axis = axis_named(x)
    unit = axis.unit(each.end[which])
    measure_x(box, axis, unit, each.end[which] / unit.size)
    right = box.get_xlim()[1]
    spans = [(node.born[which] / unit.size, node.ended[which] / unit.size) for node in each.nodes]
    half = [min(JOINT * right, 0.8 * (b - a)) / 2 for a, b in spans]
    split = {old for old, new in each.ways if _split_by(each, new, layered)}
    for place, (node, (start, end)) in enumerate(zip(each.nodes, spans, strict=True)):
        a = start + (half[place] if any(place == w for _, w in each.ways) else 0.0)
        b = end - (half[place] if any(place == v for v, _ in each.ways) else 0.0)
        for kind, (low, high) in _stripes(each, place).items():
            box.fill_between([a, b], low, high, color=_colour(kind), linewidth=0.3, zorder=2)
        room = (b - a) / right * PAGE_INCHES - (SPLIT_INCHES if place in split else 0.0)
        if node.members and len(each.nodes) <= NAMED * inches and room > SIZE_INCHES:
            _name(box, str(len(node.members)), a, _middle(each, place), "left")
    for (old, new), clients in each.ways.items():
        if each.nodes[old].members and each.nodes[new].members:
            _joint(box, each, old, new, clients, (spans[old][1] - half[old], spans[new][0] + half[new]))
    if len(each.nodes) <= NAMED * inches:
        _name_splits(box, each, spans, half, layered)
    box.set_ylim(-0.5, each.top + 0.5)
    box.set_yticks([])
    box.spines["left"].set_visible(False)
    box.grid(visible=False, axis="y")
    box.set_ylabel(f"{len(each.kinds)} clients")


def _stripes(each: Tree, place: int) -> dict[int, tuple[float, float]]:
    """The lower and upper end of each kind of client in a band."""
    kinds, counts = np.unique(each.kinds[list(each.nodes[place].members)], return_counts=True)
    upwards = np.argsort(each.ranks[kinds])
    kinds, counts = kinds[upwards], counts[upwards]
    tops = each.bottoms[place] + np.cumsum(counts)
    return {int(k): (float(t - n), float(t)) for k, n, t in zip(kinds, counts, tops, strict=True)}


def _joint(box: Axes, each: Tree, old: int, new: int, clients: Sequence[int], ends: tuple[float, float]) -> None:
    """Ribbons from one band to another, one for each kind of client that goes this way."""
    x = np.linspace(*ends, 24)
    bend = 0.5 - 0.5 * np.cos(np.pi * np.linspace(0, 1, 24))
    for kind in np.unique(each.kinds[list(clients)]).tolist():
        count = int((each.kinds[list(clients)] == kind).sum())
        left, arrive = _slot(each, old, new, kind, leaving=True), _slot(each, old, new, kind, leaving=False)
        low = left + bend * (arrive - left)
        box.fill_between(x, low, low + count, color=_colour(kind), linewidth=0.3, zorder=1.8)


def _slot(each: Tree, old: int, new: int, kind: int, leaving: bool) -> float:
    """Where a ribbon begins in its old stripe, or ends in its new one: those from or to lower bands are lower."""
    own, (low, _) = (old if leaving else new), _stripes(each, old if leaving else new)[kind]
    beside = [
        (each.bottoms[w if leaving else v], (v, w), [c for c in clients if each.kinds[c] == kind])
        for (v, w), clients in each.ways.items()
        if (v if leaving else w) == own
    ]
    mine = (each.bottoms[new if leaving else old], (old, new))
    return low + sum(len(clients) for bottom, pair, clients in beside if (bottom, pair) < mine)


def _name_splits(
    box: Axes, each: Tree, spans: Sequence[tuple[float, float]], half: Sequence[float], layered: bool
) -> None:
    """Says at the end of each band that was split which client was the reference, and if ``layered`` by which layer."""
    for old in dict.fromkeys(old for old, _ in each.ways):
        text = _split_by(each, min(new for before, new in each.ways if before == old), layered)
        if text:
            _name(box, text, spans[old][1] - half[old], _middle(each, old), "right")


def _split_by(each: Tree, new: int, with_layer: bool) -> str:
    """How a node was split off."""
    node, lines = each.nodes[new], []
    if with_layer and node.layer:
        lines.append("all layers" if node.layer == "all" else f"layer {node.layer}")
    if node.reference is not None:
        lines.append(f"ref. {node.reference}")
    if node.reason == "misplaced":
        lines.append("misplaced")
    return "\n".join(lines)


def _middle(each: Tree, place: int) -> float:
    return float(each.bottoms[place]) + len(each.nodes[place].members) / 2


def _name(box: Axes, text: str, x: float, y: float, side: Literal["left", "right"]) -> None:
    back = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "boxstyle": "round,pad=0.15"}
    shift = (3 if side == "left" else -3, 0)
    box.annotate(
        text, (x, y), shift, textcoords="offset points", ha=side, va="center", bbox=back, linespacing=1.0, zorder=4,
        fontsize=FONT_POINTS,
    )  # fmt: skip


def _layers(trees: Sequence[Tree]) -> set[str]:
    return {node.layer for each in trees for node in each.nodes if node.layer}


def _colour(kind: int) -> str:
    return LABEL_COLOURS[kind % len(LABEL_COLOURS)]


def _explain(figure: Figure, trees: Sequence[Tree]) -> None:
    """The legend: what colours are, and what all splits have in common."""
    from matplotlib.patches import Patch

    layers = _layers(trees)
    note = "Numbers: clients of a cluster"
    if any(node.reference is not None for each in trees for node in each.nodes):
        note += "; ref.: the client with which the others were compared"
    if len(layers) == 1:
        name = next(iter(layers))
        note += f"; all splits by {'all parameters' if name == 'all' else f'layer {name}'}"
    truly = all(each.truly for each in trees)
    kinds = max(int(each.kinds.max()) + 1 for each in trees)
    if truly and kinds <= len(LABEL_COLOURS):
        legend_below(
            figure,
            [Patch(color=_colour(k)) for k in range(kinds)],
            [f"true cluster {k}" for k in range(kinds)],
            f"{note}.",
        )
    else:
        colours = "the true clusters" if truly else "the clusters in which clients end"
        note_below(figure, f"{note}. Colours: {colours}.")
