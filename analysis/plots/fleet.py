"""A fleet as a picture: the tree of its servers, the clients below them, links beside the tree, devices and bandwidths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.fleet_layout import Spot, lay_out
from analysis.fleets import FleetTables
from analysis.plots.groups import LABEL_COLOURS
from analysis.plots.style import PAGE_INCHES, blank, check_path, legend_below, save, settle, style, title_above
from emulator.units import RATE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES, BESIDE, SERVERS, HANDOVERS = "#999999", "#D55E00", "#333333", "#0072B2"
LETTER_INCHES = 0.06  # about what a letter of a name takes
TIER_INCHES = 0.9
MANY_SERVERS = 30  # whose lines are as wide as they come; those of more are narrower
MOST_DEVICES = 10  # that a legend names


def plot(fleet: FleetTables, path: Path | str | None = None, title: str | None = None) -> Figure:
    """Draws a fleet, the cloud on top. Of a large one some servers and clients are drawn, and the picture says how many are not.

    Lines are wider where there is more bandwidth upwards. With a ``path`` the figure is also written there (PNG, SVG or PDF);
    raises `InputError` where that is no good.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D

    if path is not None:
        check_path(path)
    layout = lay_out(fleet)
    deepest, servers = layout.deepest, layout.servers
    colours = colours_of(fleet)
    with style():
        figure = blank(PAGE_INCHES, TIER_INCHES * (deepest + 1) + 0.4)
        axes = figure.subplots()

        def lines(spots: Sequence[Spot], ups: Sequence[str], thin: float) -> None:
            ends = [((s.x, -s.level), (servers[s.above].x, -servers[s.above].level)) for s in spots]
            widths = [line_width(ups[s.row] if ups else "") * thin for s in spots]
            axes.add_collection(LineCollection(ends, linewidths=widths, colors=LINES, zorder=1))

        linked = [spot for spot in servers.values() if spot.above]
        lines(linked, fleet.servers.get("up", ()), min(1.0, MANY_SERVERS / max(len(linked), 1)))
        lines(layout.clients, fleet.clients.get("up", ()), 0.5)
        if layout.arcs:
            widths = [line_width(fleet.links["bandwidth"][arc.row]) for arc in layout.arcs]
            points = [list(zip(arc.x, arc.y, strict=True)) for arc in layout.arcs]
            axes.add_collection(LineCollection(points, linewidths=widths, colors=BESIDE, alpha=0.8, zorder=1.5))
        counts_of = list(fleet.handovers().values())
        if layout.handovers:
            widths = [0.8 + 0.5 * math.log10(counts_of[arc.row]) for arc in layout.handovers]
            points = [list(zip(arc.x, arc.y, strict=True)) for arc in layout.handovers]
            axes.add_collection(
                LineCollection(points, linewidths=widths, colors=HANDOVERS, linestyles="dashed", zorder=1.5)
            )
        size = 16 if len(layout.clients) < 200 else 4
        dots = [colours[fleet.clients["device"][client.row]] for client in layout.clients]
        axes.scatter([c.x for c in layout.clients], [-deepest] * len(dots), s=size, c=dots, linewidths=0, zorder=2)
        for level in range(deepest):
            here = [spot for spot in servers.values() if spot.level == level]
            axes.plot([s.x for s in here], [-level] * len(here), "s", color=SERVERS, markersize=5, zorder=3)
            if names_fit(here, layout.width, PAGE_INCHES):
                for spot in here:
                    box = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"}
                    place: Any = (spot.x, -level)
                    axes.annotate(spot.name, place, (0, 5), textcoords="offset points", ha="center", size=6, bbox=box)
        axes.set_yticks([-level for level in range(deepest + 1)], layout.levels)
        axes.set_ylim(-deepest - 0.3 - 0.2 * any(min(arc.y) < -deepest for arc in layout.arcs), 0.45)
        axes.set_xlim(-0.02 * layout.width, 1.02 * layout.width)
        axes.set_xticks([])
        axes.grid(visible=False)
        axes.tick_params(axis="y", length=0)
        axes.spines[:].set_visible(False)
        counts, more = devices_of(fleet)
        handles = [Line2D([], [], linestyle="", marker="o", color=colours[device]) for device in counts]
        labels = [f"{device} ({count:,})" for device, count in counts.items()]
        if layout.arcs:
            handles.append(Line2D([], [], color=BESIDE))
            labels.append(f"link beside the tree ({len(fleet.links['a']):,})")
        if layout.handovers:
            handles.append(Line2D([], [], color=HANDOVERS, linestyle="dashed"))
            labels.append(f"handovers ({sum(counts_of):,})")
        legend_below(figure, handles, labels, ". ".join(filter(None, (layout.left_out, more))))
        if title:
            title_above(figure, title)
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def colours_of(fleet: FleetTables) -> dict[str, str]:
    """A colour for each kind of device of the clients."""
    devices = dict.fromkeys(fleet.clients["device"])
    return {device: LABEL_COLOURS[number % len(LABEL_COLOURS)] for number, device in enumerate(devices)}


def devices_of(fleet: FleetTables) -> tuple[dict[str, int], str]:
    """How many clients have each kind of device, for as many kinds as a legend names, and a word on further ones."""
    counts: dict[str, int] = {}
    for device in fleet.clients["device"]:
        counts[device] = counts.get(device, 0) + 1
    left = len(counts) - MOST_DEVICES
    return dict(
        itertools.islice(counts.items(), MOST_DEVICES)
    ), f"And {left} further kinds of devices" if left > 0 else ""


def names_fit(servers: Sequence[Spot], width: float, inches: float) -> bool:
    """Whether the names of servers of a level fit side by side in a picture so many inches wide."""
    places = sorted(spot.x for spot in servers)
    nearest = min((b - a for a, b in itertools.pairwise(places)), default=math.inf)
    return nearest / width * inches > LETTER_INCHES * max(len(spot.name) for spot in servers)


def line_width(rate: str) -> float:
    """The width of a line by its bandwidth, in points: 0.6 more for each power of ten above 1 Mbit/s."""
    if not rate:
        return 0.6
    return 0.6 + 0.6 * min(max(math.log10(RATE.parse(rate) / 1e6), 0.0), 5.0)
