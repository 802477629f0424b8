"""Who is there now, who serves whom, and when somebody is back: what methods ask the world before they ask for work."""

from __future__ import annotations

import math
from collections.abc import Sequence

import simpy

from emulator.world.disturbances import Disturbances
from emulator.world.fleet import CLOUD, Fleet, Numbers
from emulator.world.handovers import Handovers
from emulator.world.movements import Movements
from emulator.world.simpy_internals import happens_at


class Presence:
    """Who is there of a fleet. Clients may be away, servers down, and clients may move from one server to another."""

    def __init__(self, env: simpy.Environment, fleet: Fleet, disturbances: Disturbances, movements: Movements) -> None:
        self.env = env
        self.fleet = fleet
        self.movements = movements
        self.handovers = Handovers(env, fleet, movements)
        self._disturbances = disturbances

    @property
    def now(self) -> float:
        """Emulated seconds since the start."""
        return float(self.env.now)

    @property
    def all_present(self) -> bool:
        """Whether nobody is ever away from its server, so that nobody needs to ask."""
        return not self._disturbances.any and not self.movements.paths

    def is_up(self, node: str) -> bool:
        """Whether a node works now (it may sleep)."""
        return self._disturbances.up(node, self.now)

    def present(self, clients: Sequence[int], server: str = CLOUD) -> list[int]:
        """Those of these clients that a server can reach now: online, behind it, and it is up (for the cloud, their edge is)."""
        if self.all_present:
            return list(clients)
        if not self.is_up(server):
            return []
        names, everywhere = self.fleet.client_names, server != CLOUD
        return [
            c
            for c in clients
            if self._disturbances.awake(names[c], self.now)
            and (everywhere or self.connected(self.home(c)))
            and (c not in self.movements.paths or (self.serves(server, c) and not self.handovers.under_way(c)))
        ]

    def serves(self, server: str, client: int) -> bool:
        """Whether a client is now behind a server, above it or right below it, or behind one whose work that server does."""
        here = self.movements.server(client, self.fleet.home(client), self.now)
        return bool(here) and any(self.server(name) == server for name in self.fleet.path(here))

    def can_hand_on(self, client: str, server: str) -> bool:
        """Whether a client, by its name, is up and can still send to others of a group that a server serves."""
        number, how = self.fleet.number(client), self.movements.how
        stays = how is None or how.transfers != "lost" or number not in self.movements.paths
        return self.is_up(client) and (stays or (number is not None and self.serves(server, number)))

    def connected(self, server: str | None) -> bool:
        """Whether there is such a server, and what it exchanges with the cloud is not lost now."""
        if server is None:
            return False
        way = self.fleet.path(server)[:-1]
        above = all(self._disturbances.up(name, self.now) for name in way[1:])
        return above and not any(self._disturbances.cut_off(name, self.now) for name in way)

    def home(self, client: int) -> str | None:
        """The server right above a client now; None while that is down and its clients wait, or none is in reach."""
        here = self.movements.server(client, self.fleet.home(client), self.now)
        return self.server(here) if here else None

    def server(self, edge: str) -> str | None:
        """Who does an edge's work now: the edge itself; the next one that is up, where its clients move; otherwise None."""
        if edge == CLOUD or self._disturbances.up(edge, self.now):
            return edge
        if edge not in self._disturbances.moving:
            return None
        names = self.fleet.peers_of(edge)
        own = names.index(edge)
        others = (*names[own + 1 :], *names[:own])
        return next((n for n in others if self._disturbances.up(n, self.now)), None)

    def fleet_now(self) -> Fleet:
        """The fleet as it stands now: each client behind the server that it is behind, or was last."""
        if not self.movements.paths:
            return self.fleet
        return self.fleet.standing(self.movements.homes(self.fleet.roster, self.now))

    def placement(self, tier: str) -> Numbers:
        """For each client which server of a tier it is below now (a place in the roster's servers), or was last; -1: none."""
        roster = self.fleet.roster
        return roster.at_tier(tier, self.movements.homes(roster, self.now) if self.movements.paths else None)

    def was_up(self, node: str, since: float) -> bool:
        """Whether a node has been up from an instant until now."""
        return self._disturbances.was_up(node, since, self.now)

    def until_back(self, client: int) -> simpy.Event | None:
        """Happens when a client is online and has a server in reach, at once where that is so; None where it never is again."""
        return self._at(self._back_s(client))

    def is_gone(self, client: int) -> bool:
        """Whether a client is away and never comes back."""
        return self._back_s(client) == math.inf

    def _back_s(self, client: int) -> float:
        back_s, path = self.now, self.movements.paths.get(client)
        while True:
            online_s = self._disturbances.back(self.fleet.client_names[client], back_s)
            if path is None or online_s == math.inf:
                return online_s
            back_s = path.next_in_reach(online_s)
            if back_s in (online_s, math.inf):
                return back_s

    def until_return(self) -> simpy.Event | None:
        """Happens when the next of those who are away comes back, or the next client moves; None where nobody ever does."""
        return self.handovers.or_next(self._at(min(self._disturbances.next_return(self.now), self.handovers.next_s)))

    def until_way(self, client: int) -> simpy.Event | None:
        """Happens when the next of the servers or links is back that a client needs and that are out; None where none is."""
        way = self.fleet.path(self.movements.latest(client, self.fleet.home(client), self.now))
        servers = {s for e in way for s in (self.fleet.peers_of(e) if e in self._disturbances.moving else (e,))}
        return self._at(min(self._disturbances.next_way(s, self.now) for s in servers))

    def _at(self, instant_s: float) -> simpy.Event | None:
        return None if instant_s == math.inf else happens_at(self.env, max(instant_s, self.now))
