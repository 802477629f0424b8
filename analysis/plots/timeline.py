"""The time line (Gantt chart) of a round: what every client and every link between edge and cloud does, and when."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from analysis import activity
from analysis.figures import SeriesFigure, save_all, series_of
from analysis.plots.style import (
    PAGE_INCHES,
    PART_COLOURS,
    blank,
    check_path,
    legend_below,
    round_ticks,
    save,
    settle,
    style,
    title_above,
)
from analysis.quantities import AXES
from analysis.runs import Run
from analysis.series import Given, Series, as_series
from analysis.studies import StudyResults
from emulator.contracts.files import figures
from emulator.errors import InputError
from emulator.ledger import BROKEN, CLOUD_EDGE, EDGE_CLOUD, EVALUATION, TRANSFER

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LANE_INCHES = 0.145  # room for a line of text
MOST_CLIENTS = 40
MOST_LINKS = 10
# A lane is the device above its link: where the parts of a client stand in it, from its middle, and how high they are.
DEVICE, LINK = (-0.42, 0.5), (0.08, 0.34)
WHOLE = (-0.42, 0.84)
_DEVICE_KINDS = ("compute", "group operation")
CUT_OFF = "#333333"


@dataclass(frozen=True, eq=False)
class Round:
    """One round as it is drawn. ``clients`` and ``links`` are the lanes; ``spans`` and ``transfers`` what happened in them."""

    number: int
    start_s: float
    end_s: float
    clients: tuple[int, ...]  # in the order of the lanes
    groups: tuple[int, ...]  # of each of them
    all_clients: int
    links: tuple[str, ...]  # edges, whose links to the cloud are meant
    all_links: int
    spans: pd.DataFrame  # see `analysis.activity.client_spans`
    transfers: pd.DataFrame  # edge, kind (up or down), start_s, end_s, broken


class Timeline(SeriesFigure):
    """Options of ``timeline``."""

    round: int = Field(1, ge=0, description="the round to show; 0 is what comes before the first")
    clients: int = Field(MOST_CLIENTS, ge=1, le=1000, description="the most clients to show, in all panels together")


@figures.register("timeline", Timeline)
def timeline(results: StudyResults, paths: Sequence[Path], params: Timeline) -> None:
    """The time line (Gantt chart) of a round: what every client and link does, and when."""
    chosen = series_of(results, params)
    save_all(plot(chosen, params.round, params.clients, title=params.title or None), paths)


def look_at(run: Run, number: int = 1, most: int = MOST_CLIENTS, only: Collection[int] | None = None) -> Round:
    """What happened in a round, with at most so many clients, or with those in ``only`` that took part.

    Of more clients, those are kept that stand evenly between the first and the last to finish, these two included. Raises
    `InputError` where the run has no such round, or no ledger.
    """
    import pandas as pd

    everything = run.ledger[(run.ledger["round"] == number) & (run.ledger["kind"] != EVALUATION)]
    spans = activity.client_spans(run)
    spans = spans[spans["round"] == number]
    if spans.empty:
        last = int(run.ledger["round"].max())
        raise InputError(
            f"no client did anything in round {number} of the run in '{run.folder}'; its last round is {last}"
        )
    finished = spans.groupby("client")["end_s"].max().sort_values(kind="stable")
    shown = finished.index[np.unique(np.linspace(0, len(finished) - 1, min(most, len(finished))).round().astype(int))]
    if only is not None:
        shown = finished.index[finished.index.isin(list(only))]
    group = spans.groupby("client")["group"].max()
    lanes = sorted((int(group[c]), int(c)) for c in shown)
    hops = everything[everything["kind"] == TRANSFER]
    parts = []
    for hop, column, part in ((EDGE_CLOUD, "who", "up"), (CLOUD_EDGE, "peer", "down")):
        rows = hops[hops["hop"] == hop]
        parts.append(rows.assign(edge=rows[column].astype(str), part=part))
    transfers = pd.concat(parts, ignore_index=True)[["edge", "part", "start_s", "end_s", "status"]]
    edges = sorted(set(transfers["edge"]), key=lambda name: int(name.removeprefix("edge-")))
    return Round(
        number,
        float(everything["start_s"].min()),
        float(everything["end_s"].max()),
        tuple(c for _, c in lanes),
        tuple(g for g, _ in lanes),
        len(finished),
        tuple(edges[:MOST_LINKS]),
        len(edges),
        spans[spans["client"].isin(list(shown))],
        transfers[transfers["edge"].isin(edges[:MOST_LINKS])].assign(broken=transfers["status"] == BROKEN),
    )


def plot(
    given: Sequence[Given],
    round: int = 1,  # noqa: A002
    clients: int = MOST_CLIENTS,
    path: Path | str | None = None,
    title: str | None = None,
) -> Figure:
    """Draws a round of each series of run folders (or runs) over one scale of time, of several seeds the first.

    A lane is a client: above what its device does, below what its link does; pale where it waits. Lanes of a group stand
    together. Links between edges and the cloud come first. What was cut off on the way has a dark edge. ``clients`` is the most
    that are shown in all panels together; a note says what was left out. With a ``path`` the figure is also written there (PNG,
    SVG or PDF). Raises `InputError` as `analysis.series.as_series` and `look_at`, and where the path is no good.
    """
    if path is not None:
        check_path(path)
    series = as_series(given)
    rounds = [look_at(each.first, round, max(1, clients // len(series))) for each in series]
    unit = AXES["time"].unit(max(r.end_s - r.start_s for r in rounds))
    with style():
        lanes = [len(r.links) + len(r.clients) for r in rounds]
        heights = [LANE_INCHES * (n + 1) + 0.2 for n in lanes]
        figure = blank(PAGE_INCHES, sum(heights) + 0.3)
        boxes = figure.subplots(len(rounds), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
        for each, drawn, box in zip(series, rounds, boxes, strict=True):
            fill(box, drawn, unit.size)
            if len(series) > 1 or each.note:
                box.set_title(each.title, fontsize="medium")
        longest = max(r.end_s - r.start_s for r in rounds) / unit.size
        boxes[-1].set_xlim(0, longest or 1.0)
        boxes[-1].set_xlabel(f"Time since round {round} began ({unit.name})")
        boxes[-1].xaxis.set_major_locator(round_ticks())
        if title:
            title_above(figure, title)
        legend(figure, rounds, series)
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def fill(box: Axes, drawn: Round, unit_s: float) -> None:
    """Draws a round's time line into a panel, in units of ``unit_s`` seconds."""
    lanes = len(drawn.links) + len(drawn.clients)
    length = (drawn.end_s - drawn.start_s) / unit_s
    place = {client: len(drawn.links) + i for i, client in enumerate(drawn.clients)}
    for group in dict.fromkeys(drawn.groups):
        own = [place[c] for c, g in zip(drawn.clients, drawn.groups, strict=True) if g == group]
        if own[-1] + 1 < lanes:
            box.axhline(own[-1] + 0.5, color="#888888", linewidth=0.5)
        if group >= 0:
            at = (own[0] + own[-1]) / 2
            box.annotate(
                f"group {group}", (1, at), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                va="center", annotation_clip=False,
            )  # fmt: skip
    _rectangles(
        box, np.zeros(len(place)), np.full(len(place), length), np.array(list(place.values())), WHOLE, "waiting"
    )
    edges = {edge: lane for lane, edge in enumerate(drawn.links)}
    for part, where in (("down", DEVICE), ("up", LINK)):
        rows = drawn.transfers[drawn.transfers["part"] == part]
        _draw(box, rows, rows["edge"].map(edges).to_numpy(dtype=float), where, part, drawn.start_s, unit_s)
    for part in activity.KINDS:
        rows = drawn.spans[drawn.spans["kind"] == part]
        where = DEVICE if part in _DEVICE_KINDS else LINK
        _draw(box, rows, rows["client"].map(place).to_numpy(dtype=float), where, part, drawn.start_s, unit_s)
    if drawn.links:
        box.axhline(len(drawn.links) - 0.5, color="black", linewidth=0.7)
    box.set_yticks(
        range(lanes), [*(f"{edge} – cloud" for edge in drawn.links), *(f"client-{c}" for c in drawn.clients)]
    )
    box.set_ylim(lanes - 0.4, -0.6)
    box.grid(visible=False, axis="y")
    box.tick_params(axis="y", length=0)


def _draw(
    box: Axes,
    rows: pd.DataFrame,
    lanes: np.ndarray,
    where: tuple[float, float],
    part: str,
    start_s: float,
    unit_s: float,
) -> None:
    starts = (rows["start_s"].to_numpy(dtype=float) - start_s) / unit_s
    ends = (rows["end_s"].to_numpy(dtype=float) - start_s) / unit_s
    broken = rows["broken"].to_numpy(dtype=bool)
    for cut in (False, True):
        mine = broken == cut
        if mine.any():
            _rectangles(box, starts[mine], ends[mine], lanes[mine], where, part, cut)


def _rectangles(
    box: Axes,
    starts: np.ndarray,
    ends: np.ndarray,
    lanes: np.ndarray,
    where: tuple[float, float],
    part: str,
    cut: bool = False,
) -> None:
    """Bars from ``starts`` to ``ends`` in their lanes, all as one artist: there may be thousands."""
    from matplotlib.collections import PolyCollection

    low, high = lanes + where[0], lanes + where[0] + where[1]
    corners = np.stack([starts, low, starts, high, ends, high, ends, low], axis=1).reshape(-1, 4, 2)
    edge = {"edgecolors": CUT_OFF, "linewidths": 0.8} if cut else {"linewidths": 0}
    box.add_collection(
        PolyCollection(
            list(corners), facecolors=PART_COLOURS[part], label=part, zorder=1 if part == "waiting" else 2, **edge
        ),
        autolim=False,
    )


def legend(figure: Figure, rounds: Sequence[Round], series: Sequence[Series]) -> None:
    """Puts the legend of time lines under them: what they show, and what was left out."""
    from matplotlib.patches import Patch

    used = {part for r in rounds for part in (*r.spans["kind"], *r.transfers["part"])}
    parts = [part for part in activity.PARTS if part in used or part == activity.WAITING]
    handles = [Patch(facecolor=PART_COLOURS[part]) for part in parts]
    names = [_name(part, rounds) for part in parts]
    if any(table["broken"].any() for r in rounds for table in (r.spans, r.transfers)):
        handles.append(Patch(facecolor="white", edgecolor=CUT_OFF, linewidth=0.8))
        names.append("cut off")
    legend_below(figure, handles, names, _note(rounds, series))


def _name(part: str, rounds: Sequence[Round]) -> str:
    """On links of edges up and down are those of the edge."""
    linked = any(r.links for r in rounds)
    return {"up": "up", "down": "down"}.get(part, activity.TITLES[part]) if linked else activity.TITLES[part]


def _note(rounds: Sequence[Round], series: Sequence[Series]) -> str:
    """How to read a lane, and what was left out."""

    def listed(shown: Sequence[int], of: Sequence[int]) -> str:
        pairs = zip(series, shown, of, strict=True)
        cut = [f"{n} of {m}" + (f" ({each.label})" if len(series) > 1 else "") for each, n, m in pairs if n < m]
        return ", ".join(cut)

    clients = listed([len(r.clients) for r in rounds], [r.all_clients for r in rounds])
    links = listed([len(r.links) for r in rounds], [r.all_links for r in rounds])
    said = ["In a lane of a client: its device above, its link below."]
    said += [f"Clients shown: {clients}, evenly from the first to the last to finish."] if clients else []
    said += [f"Links to the cloud shown: {links}."] if links else []
    return " ".join(said)
