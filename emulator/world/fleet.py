"""The fleet: who there is, on which device, and over which links one reaches another.

Nodes are named ``cloud``, ``edge-3``, ``client-17``, or as the user's files name them. Each client has one home: the server right
above it. Servers form a tree below the cloud, in tiers (`emulator.scenario.roster`).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from devices.profile import DeviceProfile
from emulator import ledger
from emulator.scenario.link_schema import Imperfect, Jitter
from emulator.scenario.roster import Each, at, roster_of
from emulator.scenario.roster import Numbers as Numbers  # of clients
from emulator.scenario.server_tree import CLOUD as CLOUD
from emulator.scenario.server_tree import EDGE as EDGE
from emulator.scenario.topology_schema import Topology
from emulator.world.assignments import client_devices
from emulator.world.profiles import Profiles
from emulator.world.sites import place

if TYPE_CHECKING:
    from emulator.world.links import Alone

Floats = npt.NDArray[np.float64]


def client_name(client: int) -> str:
    """``client-17``."""
    return f"client-{client}"


def edge_name(edge: int) -> str:
    """``edge-3``."""
    return f"edge-{edge}"


@dataclass(frozen=True)
class Leg:
    """One link of a route in one direction. ``hop`` is the kind under which its bytes are booked; "" books nothing.

    ``link`` names the link and its direction; transfers whose routes have a leg of the same name share its bandwidth.
    """

    link: str
    sender: str
    receiver: str
    hop: str
    bandwidth_bps: float
    latency_s: float
    jitter: Jitter | None = None
    overhead_s: float = 0.0  # the part of the latency that is no way: a round trip does not have it twice


def round_trip_s(route: Sequence[Leg]) -> float:
    """Seconds there and back over a route, without jitter: twice its latency one way."""
    return 2 * sum(max(0.0, leg.latency_s - leg.overhead_s) for leg in route)


def ends_of(route: Sequence[Leg]) -> str:
    """Sender and receiver of a route, as one name."""
    return f"{route[0].sender}>{route[-1].receiver}"


@dataclass(frozen=True)
class OwnLegs:
    """The clients' own links in one direction: one number for all, or one for each. ``way_s`` is the latency without overhead."""

    bandwidth_bps: Each
    latency_s: Each
    way_s: Each
    jitters: Sequence[Jitter | None] | None = None


class Pattern:
    """What the routes between one server and all clients behind the same edge have in common, in one direction.

    ``route`` is that of the first of them, ``own`` the place of the client's own leg in it, ``common`` are its other legs.
    """

    def __init__(self, route: tuple[Leg, ...], up: bool) -> None:
        self.route = route
        self.own = 0 if up else -1
        self.common = route[1:] if up else route[:-1]


class ClientRoutes:
    """The routes between one server and several clients behind the same edge: the same links but for each client's own.

    ``own_bps`` is the bandwidth of the clients' own links, ``latency_s`` the latency of a transfer (None: it is drawn for each)
    and ``round_trip_s`` its way there and back: one for all, or one for each. ``jitters`` are those of the clients' own links
    where these differ in it, or in the latency beside it; None: all are like that of the pattern's route.
    """

    def __init__(self, fleet: Fleet, pattern: Pattern, clients: Numbers, own: OwnLegs) -> None:
        self.pattern = pattern
        self.clients = clients
        self.own_bps = own.bandwidth_bps
        self.jitters = own.jitters
        self.alone: dict[int, Alone] = {}  # what transfers of so many bytes take without anybody else
        route, mine = pattern.route, pattern.route[pattern.own]
        self.latency_s: Each | None = None
        common = [leg for leg in route if leg is not mine or own.jitters is None]
        if all(leg.jitter is None for leg in common) and not any(own.jitters or ()):
            self.latency_s = sum(own.latency_s if leg is mine else max(0.0, leg.latency_s) for leg in route)
        one_way = (own.way_s if leg is mine else max(0.0, leg.latency_s - leg.overhead_s) for leg in route)
        self.round_trip_s: Each = 2 * sum(one_way)
        self._fleet = fleet

    @cached_property
    def names(self) -> list[str]:
        """The names of the clients' own links."""
        ending = self.pattern.route[self.pattern.own].link.rpartition("/")[2]
        names = self._fleet.client_names
        return [f"{names[c]}/{ending}" for c in self.clients.tolist()]

    @cached_property
    def ends(self) -> list[str]:
        """Sender and receiver of every transfer, as `ends_of` names them."""
        up, server, names = self._ends()
        return [f"{name}>{server}" if up else f"{server}>{name}" for name in names]

    def _ends(self) -> tuple[bool, str, list[str]]:
        """Whether transfers go up, the server, and the clients."""
        route, up = self.pattern.route, self.pattern.own == 0
        names = [self._fleet.client_names[c] for c in self.clients.tolist()]
        return up, route[-1].receiver if up else route[0].sender, names

    def each(self) -> list[tuple[Leg, ...]]:
        """The route of every transfer."""
        up, server, names = self._ends()
        return [self._fleet.route(n, server) if up else self._fleet.route(server, n) for n in names]


class Fleet:
    """Nodes, devices and routes of a topology. Which client has which device is drawn from the scenario's seed."""

    def __init__(self, topology: Topology, seed: int) -> None:
        self.topology = topology
        self.roster = roster = roster_of(topology)
        self.client_names = list(roster.names)
        self.edge_names = roster.tiers.get(EDGE) or [s.name for s in roster.servers if s.tier != CLOUD]
        self._homes = [server.name for server in roster.servers]
        self._patterns: dict[tuple[str, int, bool], Pattern] = {}
        self._routes: dict[tuple[str, ...], tuple[Leg, ...]] = {}
        self._number = {n: c for c, n in enumerate(self.client_names)}
        self.assigned = client_devices(topology, roster, seed)
        self.client_devices, access_bps = self.assigned.profiles, self.assigned.access_bps
        # Each one's own link: one number for all, or one for each.
        left, access = 1 - roster.access.loss, roster.access
        up_bps, down_bps = (access.up_bps, access.down_bps) if access_bps is None else (access_bps, access_bps)
        self._up_bps, self._down_bps = up_bps * left, down_bps * left
        self._latency_s = access.latency_s + access.overhead_s
        latencies = topology.links.latencies
        servers = self._homes[1:]
        self.sites = None if latencies is None else place(latencies, CLOUD, servers, seed)
        known = Profiles(topology)
        self._devices = {server.name: known[server.device] for server in roster.servers}

    def standing(self, homes: Numbers) -> Fleet:
        """The same fleet with clients behind other servers: for each the place of its server in the roster."""
        found = copy(self)
        found.roster = replace(self.roster, home_of=homes)
        found._routes, found._patterns = {}, {}
        return found

    def home(self, client: int) -> str:
        """The name of the server right above a client."""
        return self._homes[int(self.roster.home_of[client])]

    def blocks_at(self, tier: str) -> list[Numbers]:
        """The clients below each server of a tier."""
        above = self.roster.at_tier(tier)
        order = np.argsort(above, kind="stable")
        found = np.split(order, np.flatnonzero(np.diff(above[order])) + 1)
        return [block for block in found if above[block[0]] >= 0]

    def at_tier(self, client: int, tier: str) -> str:
        """The name of a client's server of a tier. Raises ``ValueError`` where it has none."""
        for name in self.roster.paths[self.home(client)]:
            if self.roster.by_name[name].tier == tier:
                return name
        raise ValueError(f"{self.client_names[client]} has no server of tier '{tier}' above it")

    def servers_at(self, tier: str) -> list[str]:
        """The name of every client's server of a tier; of the cloud, where it has moved to a place below none."""
        return [self._homes[max(place, 0)] for place in self.roster.at_tier(tier).tolist()]

    def device(self, node: str) -> DeviceProfile:
        """The device profile of a node."""
        if node in self._number:
            return self.client_devices[self._number[node]]
        return self._devices[node]

    def number(self, node: str) -> int | None:
        """The number of a client by its name; None where it is no client."""
        return self._number.get(node)

    def peers_of(self, server: str) -> list[str]:
        """The servers of a server's own tier, itself among them."""
        return self.roster.tiers[self.roster.by_name[server].tier]

    def between(self, server: str, client: int) -> bool:
        """Whether a server is above the one right above a client, so that this one stands between the two."""
        return server in self.roster.paths[self.home(client)][1:]

    def path(self, server: str) -> tuple[str, ...]:
        """The way up from a server: itself, the one above it, ..., the cloud."""
        return self.roster.paths[server]

    def on_the_way(self, route: Sequence[Leg]) -> list[str]:
        """The servers that a route goes through."""
        return [name for leg in route for name in (leg.sender, leg.receiver) if name in self._devices]

    @property
    def hops(self) -> tuple[str, ...]:
        """The kinds of hops between servers that not every topology has."""
        return self.roster.hops

    def route(self, sender: str, receiver: str, *servers: str) -> tuple[Leg, ...]:
        """The links that a transfer crosses. A transfer flows through all of them at once (servers cut through).

        ``servers`` are those through which clients at its ends are reached, in order; without them, those right above them. A
        transfer between a client and a server that is not above it goes straight to that server.
        The same nodes always get the same object, so that whoever works with routes may note what it finds out.
        """
        key = (sender, receiver, *servers)
        known = self._routes.get(key)
        if known is None:
            known = self._routes[key] = self._find_route(sender, receiver, servers)
        return known

    @property
    def asked(self) -> list[tuple[Leg, ...]]:
        """All routes that somebody has asked for so far."""
        return list(self._routes.values())

    def parts(self, server: str, clients: Numbers) -> list[Numbers]:
        """The places in ``clients`` of those that a server reaches over the same links: each through what is right above it."""
        homes = self._ways_in(server, clients)
        if np.logical_and.reduce(homes == homes[0]):
            return [np.arange(len(clients))]
        order = np.argsort(homes, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(homes[order])) + 1)

    @cached_property
    def _below(self) -> dict[str, Numbers]:
        """For each server above others, by the place of a server: that place where it is below, and -1 elsewhere."""
        found: dict[str, Numbers] = {}
        for number, name in enumerate(self._homes):
            for above in self.roster.paths[name][1:]:
                found.setdefault(above, np.full(len(self._homes), -1))[number] = number
        return found

    def _ways_in(self, server: str, clients: Numbers) -> Numbers:
        """For each of some clients the place of the server through which it reaches another one; -1: that one itself."""
        below = self._below.get(server)
        return np.full(len(clients), -1) if below is None else below[self.roster.home_of[clients]]

    def client_routes(self, server: str, clients: Numbers, up: bool) -> ClientRoutes:
        """The routes between a server and one of its `parts`, up or down."""
        key = (server, int(self._ways_in(server, clients[:1])[0]), up)
        pattern = self._patterns.get(key)
        if pattern is None:
            one = self.client_names[int(clients[0])]
            route = self._find_route(one, server, ()) if up else self._find_route(server, one, ())
            pattern = self._patterns[key] = Pattern(route, up)
        own_bps, roster = self._up_bps if up else self._down_bps, self.roster
        jitters: Sequence[Jitter | None] | None = None
        if len(roster.jitters) > 1:
            jitters = [roster.jitters[c] for c in clients.tolist()]
        elif roster.jitters[0] is not None and isinstance(self._latency_s, np.ndarray):
            jitters = [roster.jitters[0]] * len(clients)
        latency_s, overhead_s = _of(self._latency_s, clients), _of(roster.access.overhead_s, clients)
        way_s = np.maximum(0.0, latency_s - overhead_s) if isinstance(latency_s, np.ndarray) else latency_s - overhead_s
        own = OwnLegs(_of(own_bps, clients), latency_s, way_s, jitters)
        return ClientRoutes(self, pattern, clients, own)

    def _find_route(self, sender: str, receiver: str, servers: tuple[str, ...]) -> tuple[Leg, ...]:
        a, b = self._number.get(sender), self._number.get(receiver)
        if a is not None and b is not None:
            here, there = servers or (self.home(a), self.home(b))
            return self._between_clients(sender, receiver, here, there)
        if a is not None:
            (home,) = servers or (self._way_in(a, receiver),)
            up = self._access_up(sender, home, home, ledger.CLIENT_SERVER)
            return (*up, *self._between_servers(home, receiver))
        if b is not None:
            (home,) = servers or (self._way_in(b, sender),)
            down = self._access_down(home, receiver, ledger.SERVER_CLIENT)
            return (*self._between_servers(sender, home), *down)
        return self._between_servers(sender, receiver)

    def _way_in(self, client: int, server: str) -> str:
        """Through which server a client reaches one: through that right above it, or straight where that is not below."""
        home = self.home(client)
        return home if server in self.roster.paths[home] else server

    def _between_servers(self, sender: str, receiver: str) -> tuple[Leg, ...]:
        """Up to the first server that is above both, and down again; or over the first direct link below that one."""
        ups, downs = self.roster.paths[sender], self.roster.paths[receiver]
        meeting = next(name for name in ups if name in downs)
        climb, descent = ups[: ups.index(meeting)], downs[: downs.index(meeting)]
        across: tuple[Leg, ...] = ()
        if self.roster.direct and climb and descent:
            steps = ((i, j) for i in range(len(climb)) for j in range(len(descent)))
            for i, j in sorted(steps, key=sum):
                if (climb[i], descent[j]) in self.roster.direct:
                    across = (self._direct_leg(climb[i], descent[j]),)
                    climb, descent = climb[:i], descent[:j]
                    break
        up = [leg for name in climb for leg in self._backhaul_up(name)]
        down = [leg for name in reversed(descent) for leg in self._backhaul_down(name)]
        return (*up, *across, *down)

    def _direct_leg(self, sender: str, receiver: str) -> Leg:
        link, of = self.roster.direct[sender, receiver], self.roster.by_name
        hop = f"{of[sender].tier}-{of[receiver].tier}" if sender in of else ledger.CLIENT_CLIENT
        return _leg(f"{sender}/to-{receiver}", sender, receiver, hop, link.bandwidth, link)

    def _between_clients(self, sender: str, receiver: str, here: str, there: str) -> tuple[Leg, ...]:
        if (sender, receiver) in self.roster.direct:
            return (self._direct_leg(sender, receiver),)
        peer = self.topology.links.peer
        if peer is not None and (peer.reach == "fleet" or here == there):
            # Each client has one radio for its peers: what it sends and what it receives share it, each on its own.
            far_s = None if here == there else self._between_sites_s(here, there)
            out = _leg(f"{sender}/peer-out", sender, receiver, ledger.CLIENT_CLIENT, peer.bandwidth, peer, far_s)
            return out, Leg(f"{receiver}/peer-in", sender, receiver, "", peer.bandwidth * (1 - peer.loss), 0.0)
        # Through the edge an exchange is still one exchange between two clients: it is booked once, on its first leg.
        up = self._access_up(sender, here, receiver, ledger.CLIENT_CLIENT)
        down = self._access_down(there, receiver, "")
        return (*up, *self._between_servers(here, there), *down)

    def _access_up(self, client: str, home: str, receiver: str, hop: str) -> tuple[Leg, ...]:
        own = self._own_leg(client, "up", client, receiver, hop, self._up_bps)
        return (own, *self._shared(home, "up", client, home))

    def _access_down(self, home: str, client: str, hop: str) -> tuple[Leg, ...]:
        own = self._own_leg(client, "down", home, client, hop, self._down_bps)
        return (*self._shared(home, "down", home, client), own)

    def _own_leg(self, client: str, way: str, sender: str, receiver: str, hop: str, bps: Each) -> Leg:
        number, roster = self._number[client], self.roster
        jitter = roster.jitters[number if len(roster.jitters) > 1 else 0]
        latency_s, overhead_s = at(self._latency_s, number), at(roster.access.overhead_s, number)
        return Leg(f"{client}/{way}", sender, receiver, hop, at(bps, number), latency_s, jitter, overhead_s)

    def _shared(self, server: str, way: str, sender: str, receiver: str) -> tuple[Leg, ...]:
        """What all share that stand right below a server: its cell."""
        cell = self.roster.by_name[server].cell
        if cell is None:
            return ()
        return (Leg(f"{server}/cell-{way}", sender, receiver, "", cell.up if way == "up" else cell.down, 0.0),)

    def _between_sites_s(self, sender: str, receiver: str) -> float | None:
        """Seconds between the sites of two servers, one way; None where they are at none."""
        return None if self.sites is None else self.sites.latency_s(sender, receiver)

    def _backhaul_up(self, name: str) -> tuple[Leg, ...]:
        server = self.roster.by_name[name]
        hop = f"{server.tier}-{self.roster.by_name[server.parent].tier}"
        far_s = self._between_sites_s(name, server.parent)
        own = _leg(f"{name}/up", name, server.parent, hop, server.link.up, server.link, far_s)
        if server.parent != CLOUD:
            return (own, *self._shared(server.parent, "up", name, server.parent))
        port = self.topology.links.cloud
        return (own,) if port is None else (own, Leg(f"{CLOUD}/in", name, CLOUD, "", port.up, 0.0))

    def _backhaul_down(self, name: str) -> tuple[Leg, ...]:
        server = self.roster.by_name[name]
        hop = f"{self.roster.by_name[server.parent].tier}-{server.tier}"
        far_s = self._between_sites_s(server.parent, name)
        own = _leg(f"{name}/down", server.parent, name, hop, server.link.down, server.link, far_s)
        if server.parent != CLOUD:
            return (*self._shared(server.parent, "down", server.parent, name), own)
        port = self.topology.links.cloud
        return (own,) if port is None else (Leg(f"{CLOUD}/out", CLOUD, name, "", port.down, 0.0), own)


def _of(values: Each, clients: Numbers) -> Each:
    return values[clients] if isinstance(values, np.ndarray) else values


def _leg(
    link: str,
    sender: str,
    receiver: str,
    hop: str,
    bandwidth_bps: float,
    kind: Imperfect,
    latency_s: float | None = None,
) -> Leg:
    """A leg with all that its kind of link has: what is lost takes bandwidth, what every transfer pays counts as latency.

    ``latency_s`` takes the place of the latency that the kind has.
    """
    every_s = (kind.latency if latency_s is None else latency_s) + kind.overhead
    return Leg(link, sender, receiver, hop, bandwidth_bps * (1 - kind.loss), every_s, kind.jitter, kind.overhead)
