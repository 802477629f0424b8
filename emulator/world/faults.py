"""Faults that a scenario injects. A fault says who is out of order and when; the world does the rest.

Each plug-in is a function ``(fleet, rng_of, params)`` that returns a `FaultEffect`; ``rng_of(target)`` is a random stream of the
target's own, so that what happens to one does not depend on the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.world import FaultEffect, FleetSize, RngOf, faults
from emulator.errors import suggestion
from emulator.registry import Params, Scale
from emulator.units import PositiveSeconds, Seconds
from emulator.world.overtime import Spells, by_chance, merge_intervals

Number = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]


class When(Params):
    """At given times, or by chance again and again."""

    at: tuple[Seconds, ...] | None = Field(
        None, strict=False, min_length=1, description="emulated times at which it begins"
    )
    every: PositiveSeconds | None = Field(
        None, description="mean time between two of them at one place, exponentially distributed"
    )
    lasts: PositiveSeconds | None = Field(None, description="how long it lasts; without it, to the end of the run")

    @model_validator(mode="after")
    def _either(self) -> When:
        if (self.at is None) == (self.every is None):
            raise PydanticCustomError("when", "give either 'at' (times) or 'every' (a mean time between faults)")
        if self.every is not None and self.lasts is None:
            raise PydanticCustomError("when", "a fault that comes again and again needs 'lasts'")
        return self

    def spells(self, rng: np.random.Generator) -> Iterable[tuple[float, float]]:
        """Pairs of start and end in emulated seconds."""
        lasts_s = math.inf if self.lasts is None else self.lasts
        if self.at is not None:
            return merge_intervals((start, start + lasts_s) for start in self.at)
        assert self.every is not None
        return by_chance(rng, self.every, lasts_s)


class SomeClients(Params):
    """Which clients."""

    clients: tuple[Number, ...] | Share = Field(
        1.0, description="numbers of clients, or the share of all that is drawn"
    )

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """Clients that there are not."""
        yield from _missing("clients", self.clients, scale.clients)

    def chosen(self, count: int, rng: np.random.Generator) -> Sequence[int]:
        """The numbers of those concerned."""
        if isinstance(self.clients, tuple):
            return self.clients
        picked = rng.choice(count, max(1, int(self.clients * count + 0.5)), replace=False)
        return sorted(int(c) for c in picked)


class OfClients(SomeClients, When):
    """Which clients, and when."""


class OfEdges(When):
    """Which edges, and when."""

    edges: tuple[Number, ...] | None = Field(None, strict=False, description="numbers of edges; without it, all")
    tier: str = Field("edge", description="which tier of servers, where there are others than edges")

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """Edges that there are not."""
        if self.tier != "edge" and not scale.servers_of(self.tier):
            yield "tier", f"there are no servers of tier '{self.tier}'; {suggestion(self.tier, scale.tiers, 'tiers')}"
        elif not scale.servers_of(self.tier):
            yield "", "there are no edges in this topology"
        else:
            yield from _missing("edges", self.edges, scale.servers_of(self.tier))

    def chosen(self, fleet: FleetSize) -> Sequence[str]:
        """The names of those concerned."""
        names = fleet.server_names[self.tier]
        return names if self.edges is None else [names[e] for e in self.edges]


class EdgeOutageParams(OfEdges):
    """Which edges, when, and what their clients do meanwhile."""

    clients: Literal["wait", "move"] = Field(
        "wait", description="what the clients of the edge do: wait for it, or move to the next edge that is up"
    )

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """Edges that there are not, or none to which clients could move."""
        yield from super().problems(scale)
        there = scale.servers_of(self.tier)
        every = self.at is not None and (self.edges is None or len(set(self.edges)) == there)
        if self.clients == "move" and there and (every or there == 1):
            yield "clients", "there is no edge to move to: all are down at the same time; say 'wait'"


class BackhaulOutageParams(OfEdges):
    """Which edges lose their way to the cloud, when, and what becomes of transfers under way."""

    work: Literal["lost", "paused"] = Field("paused", description="what becomes of transfers that are under way")


class SlowDownParams(OfClients):
    """Which clients, when, and how slow they become."""

    factor: Annotated[float, Field(gt=1, le=1e9)] = Field(description="how many times longer everything takes them")


@faults.register("client-crash", OfClients)
def client_crash(fleet: FleetSize, rng_of: RngOf, params: OfClients) -> FaultEffect:
    """Client crash: a client is down, and what it had under way is lost."""
    names = [fleet.client_names[c] for c in params.chosen(fleet.clients, rng_of("choice"))]
    return FaultEffect(nodes={n: Spells(params.spells(rng_of(n))) for n in names})


@faults.register("edge-outage", EdgeOutageParams)
def edge_outage(fleet: FleetSize, rng_of: RngOf, params: EdgeOutageParams) -> FaultEffect:
    """Edge outage: an edge server is down, and what it held of the round is lost; its clients wait or move."""
    names = params.chosen(fleet)
    return FaultEffect(nodes={n: Spells(params.spells(rng_of(n))) for n in names}, moves=params.clients == "move")


@faults.register("backhaul-outage", BackhaulOutageParams)
def backhaul_outage(fleet: FleetSize, rng_of: RngOf, params: BackhaulOutageParams) -> FaultEffect:
    """Backhaul outage: the link between an edge and the cloud carries nothing; transfers under way wait or are lost."""
    names = params.chosen(fleet)
    return FaultEffect(
        links={n: Spells(params.spells(rng_of(n))) for n in names}, breaks_transfers=params.work == "lost"
    )


@faults.register("slow-down", SlowDownParams)
def slow_down(fleet: FleetSize, rng_of: RngOf, params: SlowDownParams) -> FaultEffect:
    """Slow-down: a client's device computes several times slower (a straggler)."""
    clients = params.chosen(fleet.clients, rng_of("choice"))
    return FaultEffect(
        speeds={c: Spells(params.spells(rng_of(fleet.client_names[c])), 1 / params.factor) for c in clients}
    )


def _missing(key: str, numbers: object, count: int) -> Iterable[tuple[str, str]]:
    if isinstance(numbers, tuple):
        for number in numbers:
            if number >= count:
                yield key, f"there is no number {number}; they go from 0 to {count - 1}"
