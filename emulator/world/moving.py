"""How clients move between servers: as a file says, from neighbour to neighbour by chance, or over a plain.

Each plug-in is a function ``(ground, rng_of, params)`` that gives the stays of every client that moves. Those by chance have no
end; they are made when the clock gets there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.world import Ground, RngOf, Stays, movements
from emulator.errors import InputError, suggestion
from emulator.registry import Params, Scale
from emulator.scenario.fleet_table import read_moves
from emulator.scenario.server_tree import CLOUD, read, refuse
from emulator.units import PositiveSeconds, Seconds
from emulator.world.faults import SomeClients

KEY = "topology.movement.path"
_SHORTEST_S = 1e-6  # of a stay: a shorter one counts as passing by

Metres = Annotated[float, Field(gt=0, le=1e8)]
Speed = Annotated[float, Field(gt=0, le=1e6)]


class TraceParams(Params):
    """Associations from a file."""

    moves: str = Field(
        description="a file (CSV, YAML, Parquet) with columns client, time and parent: from when on a client is behind a "
        "server; an empty parent: none is in reach"
    )
    repeat: PositiveSeconds | None = Field(
        None, description="starts over after so long; without it clients stay where they were last"
    )


@movements.register("trace", TraceParams)
def trace(ground: Ground, rng_of: RngOf, params: TraceParams) -> dict[int, Stays]:
    """Trace: clients move as a file says; those that it does not name stay."""
    key = f"{KEY}.moves"
    table = read(read_moves, params.moves, key)
    numbers = {name: number for number, name in enumerate(ground.clients)}
    servers = [name for names in ground.tiers.values() for name in names]
    known, problems = {*servers, ""}, list[str]()
    stays: dict[int, list[tuple[float, str]]] = {}
    for row, (client, parent) in enumerate(zip(table.texts["client"], table.texts["parent"], strict=True)):
        instant_s = float(table.numbers["time"][row])
        if client not in numbers:
            tip = suggestion(client[:40], ground.clients) if len(ground.clients) <= 1000 else "'hfl fleet' lists them"
            problems.append(f"{table.place(row, 'client')}: there is no client '{client[:40]}'; {tip}")
            continue
        if parent not in known:
            problems.append(
                f"{table.place(row, 'parent')}: there is no server '{parent[:40]}'; {suggestion(parent[:40], servers)}"
            )
        own = stays.setdefault(numbers[client], [])
        if own and instant_s <= own[-1][0]:
            problems.append(
                f"{table.place(row, 'time')}: '{client}' has a row at {own[-1][0]:g} s before it; the times of a client go up"
            )
        elif params.repeat is not None and instant_s >= params.repeat:
            problems.append(
                f"{table.place(row, 'time')}: the file starts over after {params.repeat:g} s ('repeat'), before this row"
            )
        else:
            own.append((instant_s, parent))
    refuse(problems, key)
    if params.repeat is None:
        return dict(stays.items())
    return {c: _again_and_again(own, ground.homes[c], params.repeat) for c, own in stays.items()}


def _again_and_again(stays: Sequence[tuple[float, str]], home: str, period_s: float) -> Stays:
    """Stays that start over, from the client's home where they do not begin at once."""
    whole = list(stays) if stays[0][0] == 0 else [(0.0, home), *stays]
    now_s = -1.0
    for turn in itertools.count():
        for start_s, server in whole:
            now_s = max(turn * period_s + start_s, math.nextafter(now_s, math.inf))  # sums are rounded
            yield now_s, server


class MarkovParams(SomeClients):
    """How long clients stay, and which servers are neighbours."""

    stay: PositiveSeconds = Field(description="mean time behind a server, exponentially distributed")
    neighbours: Literal["ring", "line", "all", "links"] = Field(
        "ring",
        description="between which servers of its tier a client moves: those beside each other, the first and the last too "
        "('ring') or not ('line'); any two; or those that topology.links.direct joins",
    )

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """Clients that there are not, or nowhere to go."""
        yield from super().problems(scale)
        yield from _nowhere_to_go(scale)
        if self.neighbours == "links" and not scale.neighbourhoods:
            yield "neighbours", "no servers are joined; join them with topology.links.direct, or say 'ring'"


@movements.register("markov", MarkovParams)
def markov(ground: Ground, rng_of: RngOf, params: MarkovParams) -> dict[int, Stays]:
    """Markov: a client stays behind a server for a while, and moves on to one of its neighbours at random."""
    near = {name: _near(names, name, params, ground) for names in ground.tiers.values() for name in names}
    for client in params.chosen(len(ground.clients), rng_of("choice")):
        home = ground.homes[client]
        if not near[home]:
            who = f"{ground.clients[client]} is behind '{home}', which has no neighbours"
            raise InputError(f"{who}; join it with topology.links.direct, or leave the client out", KEY)
    chosen = params.chosen(len(ground.clients), rng_of("choice"))
    return {c: _wander(near, ground.homes[c], rng_of(ground.clients[c]), params.stay) for c in chosen}


def _near(names: Sequence[str], name: str, params: MarkovParams, ground: Ground) -> list[str]:
    place, count = names.index(name), len(names)
    if params.neighbours == "all":
        return [other for other in names if other != name]
    if params.neighbours == "links":
        return [other for other in ground.neighbours.get(name, ()) if other in names]
    beside = (place - 1, place + 1)
    if params.neighbours == "ring":
        return list(dict.fromkeys(names[n % count] for n in beside if n % count != place))
    return [names[n] for n in beside if 0 <= n < count]


def _wander(near: Mapping[str, Sequence[str]], server: str, rng: np.random.Generator, stay_s: float) -> Stays:
    now_s = 0.0
    while True:
        now_s += max(_SHORTEST_S, float(rng.exponential(stay_s)))
        server = near[server][int(rng.integers(len(near[server])))]
        yield now_s, server


class WaypointParams(SomeClients):
    """The plain, how fast clients are, and how far servers reach."""

    width: Metres = Field(description="of the plain, in metres from x = 0")
    height: Metres = Field(description="of the plain, in metres from y = 0")
    slowest: Speed = Field(1.0, description="metres a second; each way has a speed of its own")
    fastest: Speed = Field(2.0, description="metres a second")
    pause: Seconds = Field(0.0, description="how long a client stands still at each waypoint")
    reach: Metres | None = Field(
        None, description="metres from a server beyond which it serves nobody; without it the nearest always does"
    )

    @model_validator(mode="after")
    def _in_order(self) -> WaypointParams:
        if self.slowest > self.fastest:
            raise PydanticCustomError("speed", "'slowest' must not be greater than 'fastest'")
        return self

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """Clients that there are not, or nowhere to go."""
        yield from super().problems(scale)
        if self.reach is None:
            yield from _nowhere_to_go(scale)


@movements.register("waypoint", WaypointParams)
def waypoint(ground: Ground, rng_of: RngOf, params: WaypointParams) -> dict[int, Stays]:
    """Waypoint: clients walk over a plain to points drawn at random, each served by the nearest server of its tier.

    A client begins where its row says, else anywhere. Servers whose rows say no place stand in the middle of equal fields. The
    random-waypoint model is that of Johnson and Maltz, "Dynamic Source Routing in Ad Hoc Wireless Networks", 1996.
    """
    corner = np.array([params.width, params.height])
    sites = {peers: _sites(peers, ground, params) for peers in {tuple(names) for names in ground.tiers.values()}}
    found: dict[int, Stays] = {}
    for client in params.chosen(len(ground.clients), rng_of("choice")):
        name, peers = ground.clients[client], tuple(ground.peers(client))
        rng = rng_of(name)
        start = np.array(ground.places[name]) if name in ground.places else rng.uniform(0.0, corner)
        found[client] = _stays(_walk(start, corner, rng, params), peers, sites[peers], params.reach)
    return found


def _sites(names: Sequence[str], ground: Ground, params: WaypointParams) -> np.ndarray:
    """Where the servers of a tier stand [n, 2]: as their rows say, or all in the middle of equal fields of the plain."""
    lacking = [name for name in names if name not in ground.places]
    if lacking and len(lacking) < len(names) and names[0] != CLOUD:
        raise InputError(f"server '{lacking[0]}' has no x and y, and others have; say it for all or for none", KEY)
    if lacking:
        columns = math.ceil(math.sqrt(len(names) * params.width / params.height) - 1e-9)
        columns = min(len(names), max(1, columns))
        rows = math.ceil(len(names) / columns)
        place = np.arange(len(names))
        x = (place % columns + 0.5) * params.width / columns
        return np.column_stack([x, (place // columns + 0.5) * params.height / rows])
    found = np.array([ground.places[name] for name in names])
    if params.reach is not None:
        nearest = np.clip(found, 0.0, [params.width, params.height])
        if not (np.hypot(*(found - nearest).T) < params.reach).any():
            raise InputError(
                f"no server is within {params.reach:g} m of the plain, so no client ever has one in reach", KEY
            )
    return found


def _walk(
    at: np.ndarray, corner: np.ndarray, rng: np.random.Generator, params: WaypointParams
) -> Iterator[tuple[float, float, np.ndarray, np.ndarray]]:
    """The legs of a walk without end: from when to when (s), from where (m), and the velocity (m/s)."""
    now_s = 0.0
    while True:
        goal, speed = rng.uniform(0.0, corner), float(rng.uniform(params.slowest, params.fastest))
        lasts_s = float(np.hypot(*(goal - at))) / speed
        if lasts_s > 0:
            yield now_s, now_s + lasts_s, at, (goal - at) / lasts_s
        now_s, at = now_s + lasts_s, goal
        if params.pause:
            yield now_s, now_s + params.pause, at, np.zeros(2)
            now_s += params.pause


def _stays(
    walk: Iterable[tuple[float, float, np.ndarray, np.ndarray]],
    names: Sequence[str],
    sites: np.ndarray,
    reach: float | None,
) -> Stays:
    """Behind which server a walk is from when on; "" where none is in reach."""
    latest, latest_s = None, -math.inf
    for begin_s, end_s, at, velocity in walk:
        lasts_s = end_s - begin_s
        for (start_s, site), (until_s, _) in itertools.pairwise(
            [*_nearest(at, velocity, lasts_s, sites), (lasts_s, 0)]
        ):
            for since_s, name in _reached(at - sites[site], velocity, start_s, until_s, names[site], reach):
                if name != latest:
                    latest, latest_s = name, max(begin_s + since_s, latest_s + _SHORTEST_S)
                    yield latest_s, name


def _nearest(at: np.ndarray, velocity: np.ndarray, lasts_s: float, sites: np.ndarray) -> Iterator[tuple[float, int]]:
    """Which site is nearest from when on while somebody walks straight on.

    The square of the distance to a site is a parabola in time, the same for all sites but for a straight line: the nearest
    site is where the lower envelope of these lines is.
    """
    away = at - sites
    heights, slopes = (away**2).sum(axis=1), 2 * away @ velocity
    now_s, site = 0.0, int(np.lexsort((slopes, heights))[0])
    while True:
        yield now_s, site
        steeper = np.flatnonzero(slopes < slopes[site] - 1e-12)
        if not len(steeper):
            return
        crossings = (heights[steeper] - heights[site]) / (slopes[site] - slopes[steeper])
        first = np.lexsort((slopes[steeper], crossings))[0]
        now_s, site = max(now_s, float(crossings[first])), int(steeper[first])
        if now_s >= lasts_s:
            return


def _reached(
    away: np.ndarray, velocity: np.ndarray, start_s: float, until_s: float, name: str, reach: float | None
) -> Iterator[tuple[float, str]]:
    """When somebody who walks straight on, ``away`` from a site at second 0, is in its reach (its name) and when not ("")."""
    if reach is None:
        yield start_s, name
        return
    square, slope, rest = float(velocity @ velocity), float(away @ velocity), float(away @ away) - reach**2
    roots: list[float] = []
    if square > 0 and (inner := slope**2 - square * rest) > 0:
        roots = [(-slope - math.sqrt(inner)) / square, (-slope + math.sqrt(inner)) / square]
    marks = [start_s, *(root for root in roots if start_s < root < until_s)]
    for since_s, until in itertools.pairwise([*marks, until_s]):
        middle = (since_s + until) / 2
        yield since_s, name if square * middle**2 + 2 * slope * middle + rest <= 0 else ""


def _nowhere_to_go(scale: Scale) -> Iterator[tuple[str, str]]:
    if all(len(sizes) < 2 for tier, sizes in scale.tiers.items()):
        yield "", "there is one server for all clients, and nowhere to move to; give topology.edges 2 or more"
