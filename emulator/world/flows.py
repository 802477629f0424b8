"""Flows and the links that they share: the state behind `emulator.world.sharing` and `emulator.world.levels`."""

from __future__ import annotations

import heapq
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import simpy

from emulator.world.overtime import OverTime

if TYPE_CHECKING:
    from emulator.world.levels import Share

SLACK = 10**9  # by which part a sum of rates may exceed a bandwidth by rounding alone
# Weights, levels and loads are counted in parts of 2 to the power of minus so many, so that their sums are exact.
WEIGHT, LEVEL = 30, 60
LOAD = WEIGHT + LEVEL
_LARGE = 1e200
NOTHING_BITS = 0.01  # equal flows end together: what rounding sets apart by less than this is one instant


def in_parts(value: float, power: int) -> int:
    """A value that is not negative, in parts of 2 to the power of minus ``power``."""
    return int(value * 2.0**power) if value < _LARGE else int(value) << power


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
        "demand",
        "flows",
        "lone",
        "most",
        "name",
        "rate_bps",
        "room",
        "share",
        "watched",
    )

    def __init__(self, name: str, capacity: OverTime | float) -> None:
        self.name = name
        self.capacity = capacity
        self.constant = isinstance(capacity, float | int)
        self.lone: LoneFlow | None = None  # the one flow on it, where it is alone on all its links
        self.go_at(0.0)
        self.dead = False  # it carries nothing, and never will again
        self.flows: dict[Flow, None] = {}
        self.crossing = 0  # the transfers that these flows stand for
        self.coming = 0  # flows of this instant that are not taken in yet
        self.bundles: dict[Bundle, None] = {}
        self.demand = 0  # the sum over flows of what each could use alone
        self.share: Share | None = None  # of those on it, once it has been too narrow for them
        self.watched = False  # whether its next change of bandwidth is scheduled

    def go_at(self, rate_bps: float) -> None:
        """Sets its bandwidth."""
        self.rate_bps = rate_bps
        self.room = in_parts(rate_bps, LOAD)
        self.most = self.room + self.room // SLACK  # what it takes for all to go at full speed

    @property
    def free(self) -> bool:
        """Whether a flow that comes now would be alone on it, at a bandwidth that does not change."""
        return not self.flows and not self.coming and self.lone is None and self.constant

    @property
    def narrow(self) -> bool:
        """Whether it cannot carry all of its flows at their full speed."""
        return self.demand > self.most


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
    """Flows of equal rate. ``served_bits`` is the virtual clock: what each member was sent since the bundle began.

    A link ``holder`` holds them back, or nobody does. Then each goes at ``cap_bps``.
    """

    __slots__ = (
        "cap_bps",
        "cap_units",
        "heap",
        "holder",
        "key",
        "limit",
        "links",
        "mark_bits",
        "number",
        "served_bits",
        "shares",
        "size",
        "updated_s",
        "version",
        "weight",
        "weight_units",
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
        self.limit = min(cap_bps / weight, sys.float_info.max)  # the level above which it goes at its own limit
        self.cap_units, self.weight_units = in_parts(cap_bps, LOAD), in_parts(weight, WEIGHT)
        self.heap: list[tuple[float, int, Flow]] = []
        self.size = 0  # transfers
        self.holder: Share | None = None
        self.shares: list[Share] = []  # of its links
        self.mark_bits = 0.0  # the holder's clock when this one was last set
        self.served_bits = 0.0
        self.updated_s = now
        self.version = 0

    @property
    def rate_bps(self) -> float:
        """What each member is sent a second."""
        return self.cap_bps if self.holder is None else self.holder.level * self.weight

    def advance(self, now: float) -> None:
        """Sets the virtual clock to this instant."""
        holder = self.holder
        if holder is None:
            self.served_bits += self.cap_bps * (now - self.updated_s)
        else:
            holder.advance(now)
            self.served_bits += self.weight * (holder.clock_bits - self.mark_bits)
            self.mark_bits = holder.clock_bits
        self.updated_s = now

    def next_end(self) -> float:
        """When its next member ends, on the virtual clock. There must be a member."""
        while self.heap[0][2].bundle is not self or self.heap[0][0] != self.heap[0][2].ends_at:  # it was away meanwhile
            heapq.heappop(self.heap)
        return self.heap[0][0]

    def left_bits(self) -> float:
        """What is left of its next member, as of the instant to which the virtual clock was set."""
        return max(0.0, self.next_end() - self.served_bits)
