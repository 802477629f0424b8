"""How long a transfer takes. The world asks a `Network`; which one decides whether transfers share capacity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import simpy

from emulator.world.fleet import Leg


class Network(Protocol):
    """Carries bytes over a route."""

    def transfer(self, route: Sequence[Leg], size_bytes: int) -> simpy.Event:
        """An event that happens when the last byte has arrived."""


class DedicatedNetwork:
    """Every transfer has every link to itself: the sum of latencies plus the bits over the narrowest link."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env

    def transfer(self, route: Sequence[Leg], size_bytes: int) -> simpy.Event:
        """See `Network.transfer`."""
        return self._env.timeout(transfer_s(route, size_bytes))


def transfer_s(route: Sequence[Leg], size_bytes: int) -> float:
    """Seconds for so many bytes over a route that nobody else uses."""
    return sum(leg.latency_s for leg in route) + 8 * size_bytes / min(leg.bandwidth_bps for leg in route)
