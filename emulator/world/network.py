"""How long a transfer takes. The world asks a `Network`; which one decides whether transfers share bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np
import simpy

from emulator.world.fleet import Leg
from emulator.world.overtime import OverTime


class Network(Protocol):
    """Carries bytes over a route. Events of arrivals have the value True."""

    def transfer(self, route: Sequence[Leg], size_bytes: int) -> simpy.Event:
        """An event that happens when the last byte has arrived."""

    def start(self, route: Sequence[Leg], size_bytes: int) -> Transfer:
        """The same for a transfer that may be stopped on its way."""

    def peak_bps(self, leg: Leg) -> float:
        """The highest bandwidth that a leg ever has."""


@dataclass(frozen=True)
class Transfer:
    """A transfer on its way. ``stop`` takes it off its links, at most once, and returns the bytes that it has sent so far."""

    arrived: simpy.Event
    stop: Callable[[], int]


class DedicatedNetwork:
    """Every transfer has every link to itself: its latency plus the bits over the narrowest link."""

    def __init__(self, env: simpy.Environment, rng: np.random.Generator) -> None:
        self._env = env
        self._rng = rng

    def transfer(self, route: Sequence[Leg], size_bytes: int) -> simpy.Event:
        """See `Network.transfer`."""
        narrowest_bps = min(leg.bandwidth_bps for leg in route)
        return self._env.timeout(latency_s(route, self._rng) + 8 * size_bytes / narrowest_bps, True)

    def start(self, route: Sequence[Leg], size_bytes: int) -> Transfer:
        """See `Network.start`."""
        began_s, narrowest_bps = self._env.now, min(leg.bandwidth_bps for leg in route)
        return Transfer(
            self.transfer(route, size_bytes),
            lambda: min(size_bytes, int(narrowest_bps * (self._env.now - began_s) / 8)),
        )

    def peak_bps(self, leg: Leg) -> float:
        """See `Network.peak_bps`."""
        return leg.bandwidth_bps


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
