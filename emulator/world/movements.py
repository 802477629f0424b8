"""Where clients are that move, at any instant: made from a scenario, asked by the world and by whoever shows a fleet."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from emulator.contracts.world import Ground
from emulator.errors import InputError
from emulator.rng import stream
from emulator.scenario.movement_schema import Movement
from emulator.scenario.roster import Numbers, Roster, roster_of
from emulator.scenario.topology_schema import Topology
from emulator.world.moving import KEY

_LOOKED_AT = 1000  # stays that are made to find one that is behind another server, or behind any


class Whereabouts:
    """Behind which server a client is over time, "" where none is in reach. Stays are made when they are asked for."""

    def __init__(self, home: str, stays: Iterable[tuple[float, str]]) -> None:
        self._home = home
        self._more: Iterator[tuple[float, str]] = iter(stays)
        self._since_s: list[float] = [0.0]
        self._servers: list[str] = [home]

    def at(self, instant_s: float) -> str:
        """The server at an instant; "" where none is in reach."""
        return self._servers[self._place(instant_s)]

    def latest(self, instant_s: float) -> str:
        """The last server up to an instant; before there was any, the one at home: nobody knows which it will be."""
        place = self._place(instant_s)
        return next((name for name in reversed(self._servers[: place + 1]) if name), self._home)

    def next_change(self, instant_s: float) -> float:
        """When it moves next; infinity where it does not."""
        place = self._place(instant_s)
        return self._since_s[place + 1] if place + 1 < len(self._since_s) else math.inf

    def next_in_reach(self, instant_s: float) -> float:
        """When a server is in reach, now where one is; infinity where none is any more, or not for many moves."""
        if self.at(instant_s):
            return instant_s
        return next((s for s in self._changes(instant_s) if self.at(s)), math.inf)

    def _changes(self, instant_s: float) -> Iterator[float]:
        for _ in range(_LOOKED_AT):
            instant_s = self.next_change(instant_s)
            if instant_s == math.inf:
                return
            yield instant_s

    def _place(self, instant_s: float) -> int:
        """The place of the stay at an instant; the one after it is known then, where there is one."""
        same = 0  # stays in a row that lead nowhere else
        while self._since_s[-1] <= instant_s and same < _LOOKED_AT:
            stay = next(self._more, None)
            if stay is None:
                break
            since_s, server = stay
            if since_s == 0:
                self._servers[0] = server
            elif server == self._servers[-1]:
                same += 1
            else:
                same = 0
                self._since_s.append(since_s)
                self._servers.append(server)
        return bisect_right(self._since_s, instant_s) - 1


@dataclass(frozen=True)
class Movements:
    """Who moves, and what a handover does. ``paths``: by client number."""

    paths: Mapping[int, Whereabouts] = field(default_factory=dict)
    how: Movement | None = None

    def server(self, client: int, home: str, instant_s: float) -> str:
        """Behind which server a client is, whose home is known; "" where none is in reach."""
        path = self.paths.get(client)
        return home if path is None else path.at(instant_s)

    def latest(self, client: int, home: str, instant_s: float) -> str:
        """Behind which server a client is or was last (at home, if it was behind none so far)."""
        path = self.paths.get(client)
        return home if path is None else path.latest(instant_s)

    def homes(self, roster: Roster, instant_s: float) -> Numbers:
        """For each client the place in the roster's servers of the one that it is behind, or was last."""
        places = {server.name: place for place, server in enumerate(roster.servers)}
        found = roster.home_of.copy()
        for client, path in self.paths.items():
            found[client] = places[path.latest(instant_s)]
        return found


def ground_of(topology: Topology) -> Ground:
    """Who may move, and between which servers."""
    roster = roster_of(topology)
    places = {server.name: (server.x, server.y) for server in roster.servers if not np.isnan(server.x + server.y)}
    if "x" in roster.columns and "y" in roster.columns:
        both = zip(roster.names, roster.columns["x"].tolist(), roster.columns["y"].tolist(), strict=True)
        places |= {name: (x, y) for name, x, y in both if not math.isnan(x + y)}
    homes = [roster.servers[place].name for place in roster.home_of.tolist()]
    return Ground(roster.names, homes, roster.tiers, places, roster.neighbours)


def movements(topology: Topology, seed: int) -> Movements:
    """Who moves in a topology. Raises `InputError` where a file cannot be read, or a client never has a server in reach."""
    how = topology.movement
    if how is None:
        return Movements()
    ground = ground_of(topology)
    stays = how.path(ground, partial(stream, seed, "movement"))
    paths = {client: Whereabouts(ground.homes[client], each) for client, each in sorted(stays.items())}
    lost = [ground.clients[client] for client, path in paths.items() if path.next_in_reach(0.0) == math.inf]
    if lost:
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        few = f"{', '.join(itertools.islice(lost, 3))}{more}"
        raise InputError(f"{few}: no server is ever in reach; let them stay, or place a server near them", KEY)
    return Movements(paths, how)
