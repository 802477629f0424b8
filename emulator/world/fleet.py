"""The fleet: who there is, on which device, and over which links one reaches another.

Nodes are named ``cloud``, ``edge-3``, ``client-17``. Each client has one home: its edge, or the cloud where there are no
edges. Blocks of neighbouring client numbers share an edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from devices.profile import DeviceProfile, find_profile
from emulator import ledger
from emulator.rng import stream
from emulator.scenario.schema import Imperfect, Jitter, MeasuredDevices, Topology
from emulator.world.mixes import assign_from_mix
from emulator.world.sites import place

CLOUD = "cloud"

Numbers = npt.NDArray[np.int64]  # of clients


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
    and ``round_trip_s`` its way there and back: one for all, or one for each.
    """

    def __init__(
        self, fleet: Fleet, pattern: Pattern, clients: Numbers, own_bps: float | npt.NDArray[np.float64]
    ) -> None:
        self.pattern = pattern
        self.clients = clients
        self.own_bps = own_bps
        self.latency_s: float | npt.NDArray[np.float64] | None = None
        if all(leg.jitter is None for leg in pattern.route):
            self.latency_s = sum(max(0.0, leg.latency_s) for leg in pattern.route)
        self.round_trip_s: float | npt.NDArray[np.float64] = round_trip_s(pattern.route)
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
        self.blocks = topology.clients_of_edges()
        self.client_names = [client_name(c) for c in range(topology.clients)]
        self.edge_names = [edge_name(e) for e in range(topology.edges)]
        self._home_of = np.repeat(np.arange(len(self.blocks)), [len(block) for block in self.blocks])
        self._patterns: dict[tuple[str, int, bool], Pattern] = {}
        self._routes: dict[tuple[str, ...], tuple[Leg, ...]] = {}
        self._number = {n: c for c, n in enumerate(self.client_names)}
        self._access_bps: npt.NDArray[np.float64] | None = None  # by client, where a mix gives it
        if isinstance(topology.devices, MeasuredDevices):
            self.client_devices, access_bps = assign_from_mix(topology.devices, topology.clients, seed)
            self._access_bps = None if access_bps is None else np.array(access_bps)
        else:
            names = assign_devices(topology.devices, topology.clients, seed)
            self.client_devices = [find_profile(n) for n in names]
        edges = [edge_name(e) for e in range(topology.edges)]
        latencies = topology.links.latencies
        self.sites = None if latencies is None else place(latencies, CLOUD, edges, seed)
        self._edge_device = find_profile(topology.edge_device)
        self._cloud_device = find_profile(topology.cloud_device)

    def home(self, client: int) -> str:
        """The name of the server right above a client."""
        return edge_name(int(self._home_of[client])) if self.topology.edges else CLOUD

    def device(self, node: str) -> DeviceProfile:
        """The device profile of a node."""
        if node in self._number:
            return self.client_devices[self._number[node]]
        return self._cloud_device if node == CLOUD else self._edge_device

    def number(self, node: str) -> int | None:
        """The number of a client by its name; None where it is no client."""
        return self._number.get(node)

    def route(self, sender: str, receiver: str, *servers: str) -> tuple[Leg, ...]:
        """The links that a transfer crosses. A transfer flows through all of them at once (servers cut through).

        ``servers`` are those through which clients at its ends are reached, in order; without them, their own edges. A
        transfer between a client and an edge goes straight to that edge, whether it is the client's own or not.
        The same nodes always get the same object, so that whoever works with routes may note what it finds out.
        """
        key = (sender, receiver, *servers)
        known = self._routes.get(key)
        if known is None:
            known = self._routes[key] = self._find_route(sender, receiver, servers)
        return known

    def parts(self, server: str, clients: Numbers) -> list[Numbers]:
        """The places in ``clients`` of those that a server reaches over the same links (the cloud, each through its edge)."""
        homes = self._home_of[clients]
        if server != CLOUD or np.logical_and.reduce(homes == homes[0]):
            return [np.arange(len(clients))]
        order = np.argsort(homes, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(homes[order])) + 1)

    def client_routes(self, server: str, clients: Numbers, up: bool) -> ClientRoutes:
        """The routes between a server and one of its `parts`, up or down."""
        key = (server, int(self._home_of[clients[0]]) if server == CLOUD else -1, up)
        pattern = self._patterns.get(key)
        if pattern is None:
            one = self.client_names[int(clients[0])]
            route = self._find_route(one, server, ()) if up else self._find_route(server, one, ())
            pattern = self._patterns[key] = Pattern(route, up)
        if self._access_bps is None:
            return ClientRoutes(self, pattern, clients, pattern.route[pattern.own].bandwidth_bps)
        return ClientRoutes(self, pattern, clients, self._access_bps[clients] * (1 - self.topology.links.access.loss))

    def _find_route(self, sender: str, receiver: str, servers: tuple[str, ...]) -> tuple[Leg, ...]:
        from_client, to_client = sender in self._number, receiver in self._number
        if from_client and to_client:
            here, there = servers or (self.home(self._number[sender]), self.home(self._number[receiver]))
            return self._between_clients(sender, receiver, here, there)
        if from_client:
            (home,) = servers or (receiver if receiver != CLOUD else self.home(self._number[sender]),)
            up = self._access_up(sender, home, home, ledger.CLIENT_SERVER)
            return up if receiver == home else (*up, *self._backhaul_up(home))
        if to_client:
            (home,) = servers or (sender if sender != CLOUD else self.home(self._number[receiver]),)
            down = self._access_down(home, receiver, ledger.SERVER_CLIENT)
            return down if sender == home else (*self._backhaul_down(home), *down)
        return self._backhaul_up(sender) if receiver == CLOUD else self._backhaul_down(receiver)

    def _between_clients(self, sender: str, receiver: str, here: str, there: str) -> tuple[Leg, ...]:
        peer = self.topology.links.peer
        if peer is not None:
            # Each client has one radio for its peers: what it sends and what it receives share it, each on its own.
            far_s = None if here == there else self._between_sites_s(here, there)
            out = _leg(f"{sender}/peer-out", sender, receiver, ledger.CLIENT_CLIENT, peer.bandwidth, peer, far_s)
            return out, Leg(f"{receiver}/peer-in", sender, receiver, "", peer.bandwidth * (1 - peer.loss), 0.0)
        # Through the edge an exchange is still one exchange between two clients: it is booked once, on its first leg.
        up = self._access_up(sender, here, receiver, ledger.CLIENT_CLIENT)
        down = self._access_down(there, receiver, "")
        middle = () if here == there else (*self._backhaul_up(here), *self._backhaul_down(there))
        return (*up, *middle, *down)

    def _access_up(self, client: str, home: str, receiver: str, hop: str) -> tuple[Leg, ...]:
        access, cell = self.topology.links.access, self.topology.links.cell
        own = _leg(f"{client}/up", client, receiver, hop, self._bandwidth_bps(client, access.up), access)
        return (own,) if cell is None else (own, Leg(f"{home}/cell-up", client, home, "", cell.up, 0.0))

    def _access_down(self, home: str, client: str, hop: str) -> tuple[Leg, ...]:
        access, cell = self.topology.links.access, self.topology.links.cell
        own = _leg(f"{client}/down", home, client, hop, self._bandwidth_bps(client, access.down), access)
        return (own,) if cell is None else (Leg(f"{home}/cell-down", home, client, "", cell.down, 0.0), own)

    def _bandwidth_bps(self, client: str, otherwise: float) -> float:
        """A client's access bandwidth by the mix of devices, where that gives one."""
        return otherwise if self._access_bps is None else float(self._access_bps[self._number[client]])

    def _between_sites_s(self, sender: str, receiver: str) -> float | None:
        """Seconds between the sites of two servers, one way; None where they are at none."""
        return None if self.sites is None else self.sites.latency_s(sender, receiver)

    def _backhaul_up(self, edge: str) -> tuple[Leg, ...]:
        backhaul, port = self.topology.links.backhaul, self.topology.links.cloud
        far_s = self._between_sites_s(edge, CLOUD)
        own = _leg(f"{edge}/up", edge, CLOUD, ledger.EDGE_CLOUD, backhaul.up, backhaul, far_s)
        return (own,) if port is None else (own, Leg(f"{CLOUD}/in", edge, CLOUD, "", port.up, 0.0))

    def _backhaul_down(self, edge: str) -> tuple[Leg, ...]:
        backhaul, port = self.topology.links.backhaul, self.topology.links.cloud
        far_s = self._between_sites_s(CLOUD, edge)
        own = _leg(f"{edge}/down", CLOUD, edge, ledger.CLOUD_EDGE, backhaul.down, backhaul, far_s)
        return (own,) if port is None else (Leg(f"{CLOUD}/out", CLOUD, edge, "", port.down, 0.0), own)


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


def assign_devices(shares: dict[str, float], clients: int, seed: int) -> list[str]:
    """A device for each client: counts by largest remainder, dealt out at random."""
    exact = {name: share * clients for name, share in shares.items()}
    counts = {name: int(value + 1e-9) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda n: (counts[n] - exact[n], n))
    for name in by_remainder[: clients - sum(counts.values())]:
        counts[name] += 1
    names = [name for name in sorted(counts) for _ in range(counts[name])]
    order = stream(seed, "devices").permutation(clients)
    return [names[i] for i in order]
