"""A fleet as a picture: the tree of its servers, the clients below them, their devices and their bandwidths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.plots.groups import LABEL_COLOURS
from analysis.plots.style import PAGE_INCHES, blank, check_path, legend_below, save, settle, style, title_above
from emulator.units import RATE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLOUD = "cloud"
LINES = "#999999"
LETTER_INCHES = 0.06  # about what a letter of a name takes
TIER_INCHES = 0.9
Columns = Mapping[str, Sequence[str]]


def plot(clients: Columns, servers: Columns, path: Path | str | None = None, title: str | None = None) -> Figure:
    """Draws a fleet from the columns of its files (`emulator.world.fleet_columns`), the cloud on top.

    Lines are wider where there is more bandwidth upwards. With a ``path`` the figure is also written there (PNG, SVG or PDF);
    raises `InputError` where that is no good.
    """
    from matplotlib.lines import Line2D

    if path is not None:
        check_path(path)
    parent = dict(zip(servers.get("name", ()), servers.get("parent", ()), strict=True))
    tier = {CLOUD: CLOUD, **dict(zip(parent, servers.get("tier", ()), strict=True))}
    depth = {CLOUD: 0}
    for name in parent:  # parents come before their children
        depth[name] = depth[parent[name]] + 1
    across = _places(parent, clients["parent"])
    deepest = max(depth.values()) + 1
    devices = list(dict.fromkeys(clients["device"]))
    with style():
        figure = blank(PAGE_INCHES, TIER_INCHES * (deepest + 1) + 0.4)
        axes = figure.subplots()
        for name, up in zip(parent, servers.get("up", ()), strict=True):
            ends = (across[name], across[parent[name]]), (-depth[name], -depth[parent[name]])
            axes.plot(*ends, color=LINES, linewidth=_width(up), zorder=1)
        ups = clients.get("up", [""] * len(clients["name"]))
        for number, (home, device, up) in enumerate(zip(clients["parent"], clients["device"], ups, strict=True)):
            x, colour = across[f"{home}/{number}"], LABEL_COLOURS[devices.index(device) % len(LABEL_COLOURS)]
            axes.plot((x, across[home]), (-deepest, -depth[home]), color=LINES, linewidth=_width(up) / 2, zorder=1)
            axes.plot([x], [-deepest], "o", color=colour, markersize=4 if len(clients["name"]) < 200 else 2, zorder=2)
        for level in range(deepest):
            here = [name for name, at in depth.items() if at == level]
            axes.plot([across[n] for n in here], [-level] * len(here), "s", color="#333333", markersize=5, zorder=3)
            if _room(here, across):
                for name in here:
                    place, box = (across[name], -level), {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"}
                    axes.annotate(name, place, (0, 5), textcoords="offset points", ha="center", size=6, bbox=box)
        rows = {
            level: ", ".join(dict.fromkeys(tier[n] for n, at in depth.items() if at == level))
            for level in range(deepest)
        }
        axes.set_yticks([-level for level in range(deepest + 1)], [*rows.values(), "client"])
        axes.set_ylim(-deepest - 0.3, 0.45)
        axes.set_xticks([])
        axes.grid(visible=False)
        axes.tick_params(axis="y", length=0)
        axes.spines[:].set_visible(False)
        handles = [
            Line2D([], [], linestyle="", marker="o", color=LABEL_COLOURS[i % len(LABEL_COLOURS)])
            for i in range(min(len(devices), 10))
        ]
        counts = [f"{device} ({clients['device'].count(device)})" for device in devices[: len(handles)]]
        more = f"and {len(devices) - len(handles)} further kinds of devices" if len(devices) > len(handles) else ""
        legend_below(figure, handles, counts, more)
        if title:
            title_above(figure, title)
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _places(parent: Mapping[str, str], homes: Sequence[str]) -> dict[str, float]:
    """Where everybody stands from left to right: clients side by side, servers above the middle of what is below them."""
    below: dict[str, list[str]] = {}
    for name, above in parent.items():
        below.setdefault(above, []).append(name)
    for number, home in enumerate(homes):
        below.setdefault(home, []).append(f"{home}/{number}")
    places: dict[str, float] = {}

    def put(name: str, start: float) -> float:
        children = below.get(name, ())
        end = start
        for child in children:
            if child in below or child in parent:
                end = put(child, end)
            else:
                places[child] = end + 0.5
                end += 1
        end = max(end, start + 1)
        places[name] = (start + end) / 2
        return end

    put(CLOUD, 0.0)
    return places


def _room(servers: Sequence[str], across: Mapping[str, float]) -> bool:
    """Whether the names of servers of a tier fit side by side."""
    places = sorted(across[name] for name in servers)
    nearest = min((b - a for a, b in itertools.pairwise(places)), default=math.inf)
    return nearest / max(across.values()) * PAGE_INCHES > LETTER_INCHES * max(map(len, servers))


def _width(up: str) -> float:
    """The width of a line by its bandwidth: one point more for each power of ten above 1 Mbit/s."""
    if not up:
        return 0.6
    rate, width = RATE.parse(up), 0.6
    while rate > 1e6 and width < 4:
        rate, width = rate / 10, width + 0.6
    return width
