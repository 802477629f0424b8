"""How long a transfer takes. The world asks a `Network`; which one decides whether transfers share bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt
import simpy

from emulator.contracts.world import Transport
from emulator.world.carriage import Carriage
from emulator.world.fleet import ClientRoutes, Leg, round_trip_s
from emulator.world.overtime import OverTime
from emulator.world.simpy_internals import happens_at

Instants = npt.NDArray[np.float64] | float  # seconds on the emulated clock: one for each of several, or one for all
Places = npt.NDArray[np.int64] | slice  # of transfers to or from several clients
Known = Callable[[Places, Instants], None]  # takes some places and their arrivals

EVERYONE = slice(None)


class Network(Protocol):
    """Carries bytes over a route. Events of arrivals have the value True."""

    def transfer(self, route: Sequence[Leg], size_bytes: int) -> simpy.Event:
        """An event that happens when the last byte has arrived."""

    def start(self, route: Sequence[Leg], size_bytes: int) -> Transfer:
        """The same for a transfer that may be stopped on its way."""

    def peak_bps(self, leg: Leg) -> float:
        """The highest bandwidth that a leg ever has."""

    def bandwidth_bps(self, leg: Leg) -> float:
        """The bandwidth that a leg has now, whoever shares it."""

    def transfer_all(self, routes: ClientRoutes, size_bytes: int, starts_s: Instants | None = None) -> simpy.Event:
        """The same for several transfers at once: happens when all have arrived, with the instants of the arrivals.

        They start now or, where they are `independent`, each at an instant of its own from now on.
        """

    def transfer_each(self, routes: ClientRoutes, size_bytes: int, known: Known) -> None:
        """Several transfers that start now: ``known`` is called for some of them after others, until it was called for all.

        It is called as soon as nobody can be in their way any more: no later than at the first of these arrivals.
        """

    def independent(self, routes: ClientRoutes) -> bool:
        """Whether transfers that start later would be known now to be in nobody's way, nor anybody in theirs."""

    def stuck(self) -> dict[str, int]:
        """Links by name that never carry anything again, and how many transfers wait for each."""


@dataclass(frozen=True)
class Transfer:
    """A transfer on its way. ``stop`` takes it off its links, at most once, and returns the bytes that it has sent so far."""

    arrived: simpy.Event
    stop: Callable[[], int]


class DedicatedNetwork:
    """Every transfer has every link to itself: its latency plus the bits over the narrowest link."""

    def __init__(self, env: simpy.Environment, rng: np.random.Generator, carriage: Carriage | None = None) -> None:
        self._env = env
        self._rng = rng
        self._carriage = carriage or Carriage(Transport(), 0)

    def transfer(self, route: Sequence[Leg], size_bytes: int) -> simpy.Event:
        """See `Network.transfer`."""
        trip_s = round_trip_s(route)
        lasts_s = self._carriage.wire_bits(size_bytes) / self._rate_bps(route, trip_s)
        start_up_s = self._carriage.start_up_s(size_bytes, trip_s, lasts_s)
        return self._env.timeout(latency_s(route, self._rng) + lasts_s + start_up_s, True)

    def _rate_bps(self, route: Sequence[Leg], trip_s: float) -> float:
        return min(self._carriage.most_bps(trip_s), *(leg.bandwidth_bps for leg in route))

    def start(self, route: Sequence[Leg], size_bytes: int) -> Transfer:
        """See `Network.start`."""
        began_s, rate_bps = self._env.now, self._rate_bps(route, round_trip_s(route))
        if size_bytes:
            rate_bps *= 8 * size_bytes / self._carriage.wire_bits(size_bytes)
        return Transfer(
            self.transfer(route, size_bytes),
            lambda: min(size_bytes, int(rate_bps * (self._env.now - began_s) / 8)),
        )

    def peak_bps(self, leg: Leg) -> float:
        """See `Network.peak_bps`."""
        return leg.bandwidth_bps

    def bandwidth_bps(self, leg: Leg) -> float:
        """See `Network.bandwidth_bps`."""
        return leg.bandwidth_bps

    def transfer_all(self, routes: ClientRoutes, size_bytes: int, starts_s: Instants | None = None) -> simpy.Event:
        """See `Network.transfer_all`."""
        arrivals_s = self._arrivals_s(routes, size_bytes, self._env.now if starts_s is None else starts_s)
        return happens_at(self._env, last(arrivals_s), arrivals_s)

    def transfer_each(self, routes: ClientRoutes, size_bytes: int, known: Known) -> None:
        """See `Network.transfer_each`."""
        known(EVERYONE, self._arrivals_s(routes, size_bytes, self._env.now))

    def _arrivals_s(self, routes: ClientRoutes, size_bytes: int, starts_s: Instants) -> Instants:
        trip_s = routes.round_trip_s
        own_bps = np.minimum(routes.own_bps, self._carriage.most_bps(trip_s))
        common_bps = min((leg.bandwidth_bps for leg in routes.pattern.common), default=np.inf)
        lasts_s = self._carriage.wire_bits(size_bytes) / np.minimum(own_bps, common_bps)
        start_up_s = self._carriage.start_up_s(size_bytes, trip_s, lasts_s)
        return starts_s + (latencies_s(routes, self._rng) + lasts_s + start_up_s)

    def independent(self, routes: ClientRoutes) -> bool:
        """See `Network.independent`. Jitter is drawn when a transfer starts."""
        return routes.latency_s is not None

    def stuck(self) -> dict[str, int]:
        """See `Network.stuck`. Dedicated links do not change over time."""
        return {}


def latency_s(
    route: Sequence[Leg],
    rng: np.random.Generator,
    now: float = 0.0,
    over_time: Mapping[str, OverTime] = MappingProxyType({}),
) -> float:
    """The latency of one transfer over a route, jitter included: drawn anew for every leg that has it.

    ``over_time`` gives links by name a latency that is added to that of the route.
    """
    total = 0.0
    for leg in route:
        extra_s = over_time[leg.link].at(now) if leg.link in over_time else 0.0
        if leg.jitter is not None:
            scale = leg.jitter.scale
            if leg.jitter.kind == "exponential":
                extra_s += float(rng.exponential(scale))
            else:
                extra_s += float(rng.uniform(0, scale) if leg.jitter.kind == "uniform" else rng.normal(0, scale))
        total += max(0.0, leg.latency_s + extra_s)
    return total


def latencies_s(
    routes: ClientRoutes,
    rng: np.random.Generator,
    now: float = 0.0,
    over_time: Mapping[str, OverTime] = MappingProxyType({}),
) -> Instants:
    """The latencies of several transfers, each as `latency_s` gives it, drawn one after another where there is jitter."""
    route = routes.pattern.route
    if routes.latency_s is not None and not any(leg.link in over_time for leg in routes.pattern.common):
        return routes.latency_s
    if (
        routes.jitters is not None
        or isinstance(routes.round_trip_s, np.ndarray)
        or isinstance(routes.latency_s, np.ndarray)
    ):
        return np.array([latency_s(each, rng, now, over_time) for each in routes.each()])
    if routes.latency_s is None:
        return np.array([latency_s(route, rng, now, over_time) for _ in routes.clients])
    return latency_s(route, rng, now, over_time)


def at(instants_s: Instants, places: Places) -> Instants:
    """Those of several instants that stand at some places; one for all stays what it is, and that of one place is one."""
    if not isinstance(instants_s, np.ndarray):
        return instants_s
    if isinstance(places, np.ndarray) and len(places) == 1:
        return float(instants_s.item(places.item()))
    return instants_s[places]


def last(instants_s: Instants) -> float:
    """The last of several instants."""
    return float(np.maximum.reduce(instants_s)) if isinstance(instants_s, np.ndarray) else float(instants_s)
