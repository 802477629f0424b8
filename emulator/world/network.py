"""How long a transfer takes. The world asks a `Network`; which one decides whether transfers share bandwidth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import numpy as np
import simpy

from emulator.world.fleet import Leg
from emulator.world.flows import Capacity


class Network(Protocol):
    """Carries bytes over a route."""

    def transfer(self, route: Sequence[Leg], size_bytes: int) -> simpy.Event:
        """An event that happens when the last byte has arrived."""


class DedicatedNetwork:
    """Every transfer has every link to itself: its latency plus the bits over the narrowest link."""

    def __init__(self, env: simpy.Environment, rng: np.random.Generator) -> None:
        self._env = env
        self._rng = rng

    def transfer(self, route: Sequence[Leg], size_bytes: int) -> simpy.Event:
        """See `Network.transfer`."""
        narrowest_bps = min(leg.bandwidth_bps for leg in route)
        return self._env.timeout(latency_s(route, self._rng) + 8 * size_bytes / narrowest_bps)


def latency_s(
    route: Sequence[Leg],
    rng: np.random.Generator,
    now: float = 0.0,
    over_time: Mapping[str, Capacity] = MappingProxyType({}),
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
