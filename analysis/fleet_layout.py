"""Where everybody of a fleet stands in a picture: the tree of servers, clients below it, and arcs for links beside it.

Of a large fleet as much is placed as a picture can show: some servers, evenly chosen, each with some of its clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from analysis.fleets import CLOUD, FleetTables

MOST_CLIENTS = 300
MOST_HOMES = 60  # servers right above clients
RUN = 6  # neighbours among them that are chosen together
MOST_LINKS = 300  # beside the tree
ARC_POINTS = 16

T = TypeVar("T")


@dataclass(frozen=True)
class Spot:
    """Where one of a fleet stands: ``row`` is its row in its table (-1: the cloud), ``level`` counts from the cloud down."""

    name: str
    row: int
    x: float
    level: int
    above: str  # the server right above; "" above the cloud


@dataclass(frozen=True)
class Arc:
    """What joins two nodes beside the tree, by its row in the table of links or among handovers, as a line through points."""

    row: int
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Layout:
    """A fleet in places: ``x`` from 0 to ``width``, the cloud at level 0. ``left_out`` says what has no place; "" where all have.

    ``levels`` names the tiers of each level; the last one has the clients.
    """

    servers: dict[str, Spot]
    clients: list[Spot]
    arcs: list[Arc]  # links beside the tree
    handovers: list[Arc]  # between servers
    levels: list[str]
    width: float
    left_out: str

    @property
    def deepest(self) -> int:
        """The level of the clients."""
        return len(self.levels) - 1


def lay_out(fleet: FleetTables) -> Layout:
    """Places a fleet: clients side by side, servers above the middle of what is below them."""
    names, parents = fleet.servers.get("name", ()), fleet.servers.get("parent", ())
    chosen = _chosen(fleet.clients["parent"], bool(fleet.links))
    parent = dict(zip(names, parents, strict=True))
    needed = {CLOUD}
    for home in dict.fromkeys(fleet.clients["parent"][number] for number in chosen):
        while home not in needed:
            needed.add(home)
            home = parent[home]
    depth = {CLOUD: 0}
    for name, above in parent.items():  # parents come before their children
        if name in needed:
            depth[name] = depth[above] + 1
    across, width = _places({n: parent[n] for n in depth if n != CLOUD}, [fleet.clients["parent"][n] for n in chosen])
    rows = {name: row for row, name in enumerate(names)}
    servers = {
        name: Spot(name, rows.get(name, -1), across[name], level, parent.get(name, "")) for name, level in depth.items()
    }
    deepest = max(depth.values()) + 1
    clients = []
    for place, number in enumerate(chosen):
        home = fleet.clients["parent"][number]
        clients.append(Spot(fleet.clients["name"][number], number, across[f"{home}/{place}"], deepest, home))
    tiers = {CLOUD: CLOUD, **dict(zip(names, fleet.servers.get("tier", ()), strict=True))}
    levels = [", ".join(dict.fromkeys(tiers[n] for n, at in depth.items() if at == level)) for level in range(deepest)]
    ends = list(zip(fleet.links.get("a", ()), fleet.links.get("b", ()), strict=True))
    arcs = _arcs(ends, {**servers, **{client.name: client for client in clients}}, width, 0.12)
    handovers = _arcs(list(fleet.handovers()), servers, width, 0.3)
    counts = (
        (len(fleet.clients["name"]) - len(clients), len(fleet.clients["name"]), "clients"),
        (len(names) - len(servers) + 1, len(names), "servers"),
        (len(fleet.links.get("a", ())) - len(arcs), len(fleet.links.get("a", ())), "links beside the tree"),
    )
    missing = [f"{left:,} of {of:,} {what}" for left, of, what in counts if left]
    return Layout(
        servers,
        clients,
        arcs,
        handovers,
        [*levels, "client"],
        width,
        f"Not drawn: {', '.join(missing)}" if missing else "",
    )


def _chosen(homes: Sequence[str], beside: bool) -> list[int]:
    """Which clients are shown: of some homes, evenly chosen, as many as fit, and no more of one than of another that has more.

    Where there are links beside the tree, homes are chosen in runs of neighbours: these are often joined.
    """
    by_home: dict[str, list[int]] = {}
    for number, home in enumerate(homes):
        by_home.setdefault(home, []).append(number)
    size, names = RUN if beside else 1, list(by_home)
    if len(names) > MOST_HOMES:
        starts = _evenly(range(0, len(names), size), MOST_HOMES // size)
        names = [name for start in starts for name in names[start : start + size]]
    shown = [by_home[name] for name in names]
    largest, most = max(map(len, shown)), 1
    while most < largest and sum(min(len(clients), most + 1) for clients in shown) <= MOST_CLIENTS:
        most += 1
    return sorted(number for clients in shown for number in _evenly(clients, most))


def _evenly(items: Sequence[T], count: int) -> Sequence[T]:
    return items if len(items) <= count else [items[(2 * i + 1) * len(items) // (2 * count)] for i in range(count)]


def _places(parent: Mapping[str, str], homes: Sequence[str]) -> tuple[dict[str, float], float]:
    """Where everybody stands from left to right, and how wide that is."""
    below: dict[str, list[str]] = {}
    for name, above in parent.items():
        below.setdefault(above, []).append(name)
    for number, home in enumerate(homes):
        below.setdefault(home, []).append(f"{home}/{number}")
    places: dict[str, float] = {}

    def put(name: str, start: float) -> float:
        end = start
        for child in below.get(name, ()):
            if child in parent:
                end = put(child, end)
            else:
                places[child] = end + 0.5
                end += 1
        end = max(end, start + 1)
        places[name] = (start + end) / 2
        return end

    return places, put(CLOUD, 0.0)


def _arcs(ends: Sequence[tuple[str, str]], spots: Mapping[str, Spot], width: float, least: float) -> list[Arc]:
    """Arcs between pairs whose ends have places. They bend downwards, by ``least`` or more: names stand above servers."""
    placed = [(row, spots[a], spots[b]) for row, (a, b) in enumerate(ends) if a in spots and b in spots]
    found = []
    for row, a, b in _evenly(placed, MOST_LINKS):
        bend = least + 0.33 * abs(a.x - b.x) / width
        steps = [i / (ARC_POINTS - 1) for i in range(ARC_POINTS)]
        x = tuple(a.x + (b.x - a.x) * t for t in steps)
        y = tuple(-(a.level + (b.level - a.level) * t) - bend * 4 * t * (1 - t) for t in steps)
        found.append(Arc(row, x, y))
    return found
