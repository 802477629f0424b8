"""The links of a shared network by name: their bandwidths, latencies and factors over time, and who is on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import simpy

from emulator.world.fleet import ClientRoutes, Leg, round_trip_s
from emulator.world.flows import Link
from emulator.world.network import Instants, latencies_s, latency_s
from emulator.world.overtime import OverTime, Product


class Alone(NamedTuple):
    """Transfers on which nothing but their own links bears, which never change: their size and rate on the wire, and in seconds
    their latency, their way there and back, and all that they take."""

    wire_bits: float
    own_bps: Instants
    latency_s: Instants
    round_trip_s: Instants
    takes_s: Instants


class Links:
    """Links that come to be when a route first crosses them.

    Those by name may have a bandwidth over time, in place of what routes say, and a latency that is added; ``factors`` multiply
    the bandwidth, whatever it is. ``rng`` draws jitter.
    """

    def __init__(
        self,
        env: simpy.Environment,
        rng: np.random.Generator,
        capacities: Mapping[str, OverTime],
        latencies: Mapping[str, OverTime],
        factors: Mapping[str, OverTime],
    ) -> None:
        self._env = env
        self._rng = rng
        self._capacities = capacities
        self._latencies = latencies
        self._factors = factors
        self._links: dict[str, Link] = {}
        self._routes: dict[int, tuple[Sequence[Leg], tuple[Link, ...]]] = {}

    def of(self, route: Sequence[Leg]) -> tuple[Link, ...]:
        """The links of a route."""
        known = self._routes.get(id(route))
        if known is None or known[0] is not route:
            links = tuple(dict.fromkeys(self._link(leg) for leg in route))
            known = self._routes[id(route)] = (route, links)
        return known[1]

    def _link(self, leg: Leg) -> Link:
        link = self._links.get(leg.link)
        if link is None:
            capacity = self._capacities.get(leg.link, leg.bandwidth_bps)
            if leg.link in self._factors:
                capacity = Product([capacity, self._factors[leg.link]])
            link = self._links[leg.link] = Link(leg.link, capacity)
            link.go_at(capacity if isinstance(capacity, float | int) else capacity.at(self._env.now))
        return link

    def find(self, name: str) -> Link | None:
        """A link by its name; None where no route has crossed it."""
        return self._links.get(name)

    def latency_s(self, route: Sequence[Leg]) -> float:
        """The latency of a transfer that starts now, in seconds."""
        return latency_s(route, self._rng, self._env.now, self._latencies)

    def round_trip_s(self, route: Sequence[Leg]) -> float:
        """Seconds there and back over a route now, without jitter."""
        extra_s = sum(self._latencies[leg.link].at(self._env.now) for leg in route if leg.link in self._latencies)
        return round_trip_s(route) + 2 * extra_s

    def round_trips_s(self, routes: ClientRoutes) -> Instants:
        """The same for several transfers, whose own links are `steady`."""
        common, latencies = routes.pattern.common, self._latencies
        extra_s = sum(latencies[leg.link].at(self._env.now) for leg in common if leg.link in latencies)
        return routes.round_trip_s + 2 * extra_s

    def latencies_s(self, routes: ClientRoutes) -> Instants:
        """The latencies of several transfers that start now, in seconds."""
        return latencies_s(routes, self._rng, self._env.now, self._latencies)

    def peak_bps(self, leg: Leg) -> float:
        """The highest bandwidth that a leg ever has."""
        capacity = self._capacities.get(leg.link)
        return leg.bandwidth_bps if capacity is None else capacity.peak

    def bandwidth_bps(self, leg: Leg) -> float:
        """The bandwidth that a leg has now."""
        capacity, factor = self._capacities.get(leg.link), self._factors.get(leg.link)
        now_bps = leg.bandwidth_bps if capacity is None else capacity.at(self._env.now)
        return now_bps if factor is None else now_bps * factor.at(self._env.now)

    def steady(self, names: Sequence[str]) -> bool:
        """Whether links of these names do not change over time."""
        return all(some.keys().isdisjoint(names) for some in (self._capacities, self._latencies, self._factors) if some)

    def played(self, names: Sequence[str]) -> list[OverTime]:
        """The bandwidths over time of links of these names; nothing where not all have one, or anything else changes on them."""
        if not self._capacities or self._factors or not self._latencies.keys().isdisjoint(names):
            return []
        found = [self._capacities[name] for name in names if name in self._capacities]
        return found if len(found) == len(names) else []

    def free(self, names: Sequence[str]) -> bool:
        """Whether no single flow is on links of these names."""
        links = self._links
        return links.keys().isdisjoint(names) or all(links[name].free for name in names if name in links)

    def stuck(self) -> dict[str, int]:
        """Links by name that never carry anything again, and how many transfers wait for each."""
        return {name: link.crossing for name, link in self._links.items() if link.dead and link.flows}
