"""What a scenario needs of this host: the ways between its nodes, the share of a core of each device, time and traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from emulator.scenario import Scenario
from emulator.testbed.kernel_links import FRAME_BYTES
from emulator.testbed.orders import Hop
from emulator.world.fleet import CLOUD, Fleet, Leg

PAYLOAD_BYTES = 1448  # of a full frame
QUEUE_FRAMES = 100  # in front of a link, where the scenario's transport has no queue
AT_RECEIVER = ("cell-up", "in", "peer-in")  # shared in front of whoever receives
DOWN = "down"


@dataclass(frozen=True)
class Shape:
    """How one link is shaped (see `emulator.testbed.kernel_links.Link`)."""

    rate_bps: float
    delay_s: float
    queue_packets: int


@dataclass(frozen=True)
class Plan:
    """Nodes, and the ways between them that the scenario uses.

    ``shapes`` are those of links by name; ``routes`` name links, each from its first to its last.
    """

    fleet: Fleet
    shapes: Mapping[str, Shape]
    routes: tuple[tuple[Leg, ...], ...]
    fluid: bool
    between: dict[tuple[Leg, ...], tuple[str, ...]] = field(default_factory=dict)

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes, servers first."""
        servers = [server.name for server in self.fleet.roster.servers]
        return [*dict.fromkeys((CLOUD, *servers)), *self.fleet.client_names]

    def above(self, node: str) -> str:
        """The server right above a node."""
        number = self.fleet.number(node)
        return self.fleet.home(number) if number is not None else self.fleet.path(node)[1]

    def places(self, route: Sequence[Leg]) -> list[tuple[str, str]]:
        """Between which two nodes each link of a route is; what is shared in front of a node is there before or behind it."""
        found: list[tuple[str, str]] = []
        for leg in route:
            name, _, way = leg.link.rpartition("/")
            if way == "up":
                found.append((name, self.above(name)))
            elif way == DOWN:
                found.append((self.above(name), name))
            elif way == "peer-out" or way.startswith("to-"):
                found.append((leg.sender, leg.receiver))
            else:
                found.append((name, name))
        return found

    def ends(self, route: Sequence[Leg]) -> tuple[str, str]:
        """Who sends over a route, and who receives."""
        places = self.places(route)
        return places[0][0], places[-1][1]

    def hops(self, route: Sequence[Leg], ports: Mapping[str, int]) -> tuple[Hop, ...]:
        """A route in user space: from process to process, each with the links that either end holds."""
        hops: list[tuple[str, list[str], list[str], float]] = []
        waiting: list[str] = []  # that the sender of the next hop holds
        for leg, (start, end) in zip(route, self.places(route), strict=True):
            way = leg.link.rpartition("/")[2]
            if start != end:
                hops.append((end, [*waiting, leg.link], [], leg.latency_s))
                waiting = []
            elif way in AT_RECEIVER and hops and hops[-1][0] == end:
                hops[-1][2].append(leg.link)
            else:
                waiting.append(leg.link)
        return tuple(Hop(ports[end], tuple(mine), tuple(theirs), delay) for end, mine, theirs, delay in hops)

    def names(self, route: Sequence[Leg]) -> tuple[str, ...]:
        """A route over the kernel's links: out of the sender's host, over the links, into the receiver's host."""
        sender, receiver = self.ends(route)
        return (f"out of {sender}", *(leg.link for leg in route), f"into {receiver}")

    def goodput_bps(self) -> dict[str, float]:
        """By link, the bits of payload that it lets through in user space, where there are no headers."""
        share = 1.0 if self.fluid else PAYLOAD_BYTES / FRAME_BYTES
        return {name: shape.rate_bps * share for name, shape in self.shapes.items()}


def plan_of(scenario: Scenario, fleet: Fleet) -> Plan:
    """The plan for a fleet that has been played, so that it is known who sends to whom."""
    transport = scenario.topology.transport()
    queue = transport.queue_frames or QUEUE_FRAMES
    routes = tuple(dict.fromkeys(fleet.asked))
    shapes = {leg.link: Shape(leg.bandwidth_bps, leg.latency_s, queue) for route in routes for leg in route}
    return Plan(fleet, shapes, routes, transport.payload_bytes == transport.frame_bytes)
