"""Flows and the links that they share: the state behind `emulator.world.sharing`, and the arithmetic of fair shares."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable

import simpy

from emulator.world.overtime import OverTime

SLACK = 1e-9  # relative: what a sum of rates may exceed a bandwidth by rounding alone
NOTHING_BITS = 0.01  # equal flows end together: what rounding sets apart by less than this is one instant


class Flow:
    """A transfer on its way. ``done`` happens when its last byte has left; `SharedNetwork.stop` takes it off the links.

    It may stand for ``count`` transfers that are alike and start together: each has a link of its own of ``own_bps``, beside the
    ``links`` that all of them cross. Then ``ended`` is called at once in place of ``done``. ``factor`` and ``round_trip_s`` give
    its weight against others.
    """

    __slots__ = (
        "bundle",
        "count",
        "done",
        "ended",
        "ends_at",
        "factor",
        "links",
        "number",
        "own_bps",
        "round_trip_s",
        "size_bits",
    )

    def __init__(
        self,
        number: int,
        links: tuple[Link, ...],
        size_bits: float,
        done: simpy.Event,
        count: int = 1,
        own_bps: float = math.inf,
        ended: Callable[[], None] | None = None,
        factor: float = 1.0,
        round_trip_s: float = 0.0,
    ) -> None:
        self.number = number
        self.links = links
        self.size_bits = size_bits
        self.bundle: Bundle | None = None
        self.ends_at = 0.0  # on the bundle's virtual clock
        self.done = done
        self.count = count
        self.own_bps = own_bps
        self.ended = ended
        self.factor = factor
        self.round_trip_s = round_trip_s

    @property
    def stuck(self) -> bool:
        """Whether it waits for ever, for a link that is dead."""
        return any(link.dead for link in self.links)


class Link:
    """One direction of a link: who crosses it, and what they could use at most."""

    __slots__ = (
        "bundles",
        "capacity",
        "coming",
        "constant",
        "crossing",
        "dead",
        "demand_bps",
        "flows",
        "lone",
        "name",
        "rate_bps",
        "was_narrow",
        "watched",
    )

    def __init__(self, name: str, capacity: OverTime | float) -> None:
        self.name = name
        self.capacity = capacity
        self.constant = isinstance(capacity, float | int)
        self.lone: LoneFlow | None = None  # the one flow on it, where it is alone on all its links
        self.rate_bps = 0.0  # its bandwidth now
        self.dead = False  # it carries nothing, and never will again
        self.flows: dict[Flow, None] = {}
        self.crossing = 0  # the transfers that these flows stand for
        self.coming = 0  # flows of this instant that are not taken in yet
        self.bundles: dict[Bundle, None] = {}
        self.demand_bps = 0.0  # the sum over flows of what each could use alone
        self.was_narrow = False  # when rates were last worked out
        self.watched = False  # whether its next change of bandwidth is scheduled

    @property
    def free(self) -> bool:
        """Whether a flow that comes now would be alone on it, at a bandwidth that does not change."""
        return not self.flows and not self.coming and self.lone is None and self.constant

    @property
    def narrow(self) -> bool:
        """Whether it cannot carry all of its flows at their full speed."""
        return self.crossing > 1 and self.demand_bps > self.rate_bps * (1 + SLACK)


class LoneFlow:
    """A flow that is alone on all its links, from ``start_s`` on; when its last byte has left, ``after`` says when it arrives.

    ``joined`` says that somebody came to one of them, so that it arrives later than was foreseen.
    """

    __slots__ = ("after", "arrived", "factor", "joined", "links", "rate_bps", "round_trip_s", "size_bits", "start_s")

    def __init__(
        self,
        links: tuple[Link, ...],
        size_bits: float,
        rate_bps: float,
        start_s: float,
        after: Callable[[float], float],
        arrived: simpy.Event,
        factor: float,
        round_trip_s: float,
    ) -> None:
        self.links = links
        self.size_bits = size_bits
        self.rate_bps = rate_bps
        self.start_s = start_s
        self.after = after
        self.arrived = arrived
        self.factor = factor
        self.round_trip_s = round_trip_s
        self.joined = False

    def leave(self) -> None:
        """Frees its links."""
        for link in self.links:
            if link.lone is self:
                link.lone = None


class Bundle:
    """Flows of equal rate. ``served_bits`` is the virtual clock: what each member was sent since the bundle began."""

    __slots__ = (
        "cap_bps",
        "heap",
        "key",
        "links",
        "number",
        "rate_bps",
        "served_bits",
        "size",
        "updated_s",
        "version",
        "weight",
    )

    def __init__(
        self,
        number: int,
        key: tuple[object, ...],
        links: tuple[Link, ...],
        cap_bps: float,
        weight: float,
        now: float,
    ) -> None:
        self.number = number
        self.key = key
        self.links = links  # those with others on them
        self.cap_bps = cap_bps
        self.weight = weight  # of each member
        self.heap: list[tuple[float, int, Flow]] = []
        self.size = 0  # transfers
        self.rate_bps = 0.0  # of each of them
        self.served_bits = 0.0
        self.updated_s = now
        self.version = 0

    def advance(self, now: float) -> None:
        """Sets the virtual clock to this instant."""
        self.served_bits += self.rate_bps * (now - self.updated_s)
        self.updated_s = now


def connected(start: Link, seen: set[Bundle]) -> list[Bundle]:
    """The bundles that are connected with a link by narrow links, except those ``seen`` before; these are added to it."""
    component: list[Bundle] = []
    waiting = [b for b in start.bundles if b not in seen]
    seen.update(waiting)
    while waiting:
        bundle = waiting.pop()
        component.append(bundle)
        for link in bundle.links:
            if link.narrow:
                fresh = [b for b in link.bundles if b not in seen]
                seen.update(fresh)
                waiting += fresh
    return component


def max_min(bundles: Iterable[Bundle]) -> dict[Bundle, float]:
    """Max-min fair rates by progressive filling: all rates rise together until a link is full or a flow is at its own limit.

    They rise in proportion to the flows' weights. The bundles must be all those that are connected by narrow links.
    """
    rates: dict[Bundle, float] = {}
    order = {bundle: i for i, bundle in enumerate(bundles)}
    left = {link: link.rate_bps for b in order for link in b.links if link.narrow}
    weights = dict.fromkeys(left, 0.0)  # of all flows that still rise
    counts = dict.fromkeys(left, 0)  # bundles of them
    for bundle in order:
        for link in bundle.links:
            if link in counts:
                weights[link] += bundle.size * bundle.weight
                counts[link] += 1
    # The next to be at its own limit is the last.
    rising = sorted(order, key=lambda b: b.cap_bps / b.weight, reverse=True)
    levels = [(left[link] / weights[link], i, counts[link], link) for i, link in enumerate(left)]
    heapq.heapify(levels)
    places = {link: i for _, i, _, link in levels}
    while len(rates) < len(order):
        while levels and levels[0][2] != counts[levels[0][3]]:
            heapq.heappop(levels)  # of an earlier count
        level = max(0.0, levels[0][0]) if levels else math.inf
        frozen: list[Bundle] = []
        while rising and (rising[-1] in rates or rising[-1].cap_bps <= level * rising[-1].weight):
            bundle = rising.pop()
            if bundle not in rates:
                frozen.append(bundle)
        if not frozen:
            frozen = [b for b in levels[0][3].bundles if b not in rates]
        changed: dict[Link, None] = {}
        for bundle in sorted(frozen, key=order.__getitem__):
            rate_bps = rates[bundle] = min(bundle.cap_bps, level * bundle.weight)
            for link in bundle.links:
                if link in left:
                    left[link] -= rate_bps * bundle.size
                    weights[link] -= bundle.size * bundle.weight
                    counts[link] -= 1
                    changed[link] = None
        for link in changed:
            if counts[link]:
                heapq.heappush(levels, (left[link] / weights[link], places[link], counts[link], link))
    return rates
