"""Who is away or out of order, and when: the availability of clients and all injected faults of a scenario, put together."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from emulator.contracts.world import FaultEffect, FleetSize
from emulator.rng import stream
from emulator.scenario.roster import roster_of
from emulator.scenario.schema import Placed
from emulator.scenario.server_tree import EDGE
from emulator.world.overtime import OverTime, Product, next_not_zero, next_zero
from emulator.world.played import DIRECTIONS, availabilities

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Disturbances:
    """What may go wrong in a run. All are 0 while somebody is away or something is out.

    ``nodes``: by name; what they do is lost when they go. ``sleepers``: by name; what they do waits until they are back
    (``links`` and ``speeds`` see to that). ``links``: factors of bandwidth by the name of the link; ``breaking`` those on which
    transfers are lost when they go out. ``speeds``: factors by client number. ``moving``: edges whose clients are served by
    another edge while they are down.
    """

    nodes: Mapping[str, OverTime] = field(default_factory=dict)
    sleepers: Mapping[str, OverTime] = field(default_factory=dict)
    links: Mapping[str, OverTime] = field(default_factory=dict)
    breaking: frozenset[str] = frozenset()
    speeds: Mapping[int, OverTime] = field(default_factory=dict)
    moving: frozenset[str] = frozenset()

    @property
    def any(self) -> bool:
        """Whether anybody is ever away, or anything ever lost."""
        return bool(self.nodes or self.sleepers or self.breaking)

    def up(self, node: str, now: float) -> bool:
        """Whether a node works. One that sleeps does: it goes on when it wakes."""
        presence = self.nodes.get(node)
        return presence is None or presence.at(now) > 0

    def awake(self, node: str, now: float) -> bool:
        """Whether a node works and does not sleep."""
        return all(p.at(now) > 0 for p in (self.nodes.get(node), self.sleepers.get(node)) if p is not None)

    def was_up(self, node: str, since: float, now: float) -> bool:
        """Whether a node has worked all the time."""
        presence = self.nodes.get(node)
        return presence is None or next_zero(presence, since) > now

    def next_loss(self, place: str, now: float) -> float:
        """When a node or link goes out next, so that what is under way there is lost; infinity where that never happens."""
        if place in self.nodes:
            return next_zero(self.nodes[place], now)
        return next_zero(self.links[place], now) if place in self.breaking else math.inf

    def cut_off(self, edge: str, now: float) -> bool:
        """Whether the link between an edge and the cloud is out, so that whatever is put on it is lost."""
        return bool(self.breaking) and any(self.links[link].at(now) == 0 for link in self._breaking_of(edge))

    def back(self, node: str, now: float) -> float:
        """When a node works and is awake (now, where it is); infinity where it never is again."""
        presences = [p for p in (self.nodes.get(node), self.sleepers.get(node)) if p is not None]
        return next_not_zero(Product(presences), now) if presences else now

    def next_return(self, now: float) -> float:
        """When the next of those who are away, or of the links that lose transfers, comes back; infinity where none does."""
        away = (n for n in (*self.nodes, *self.sleepers) if not self.awake(n, now))
        return min((*(self.back(n, now) for n in away), self._links_back(self.breaking, now)))

    def next_way(self, edge: str, now: float) -> float:
        """When an edge that is down, or its link to the cloud, is back; infinity where neither is, or where both are there."""
        link_s = self._links_back(self._breaking_of(edge), now)
        return link_s if self.up(edge, now) else min(self.back(edge, now), link_s)

    def _breaking_of(self, edge: str) -> list[str]:
        return [link for link in (f"{edge}/{way}" for way in DIRECTIONS) if link in self.breaking]

    def _links_back(self, links: Iterable[str], now: float) -> float:
        out = (self.links[link] for link in links if self.links[link].at(now) == 0)
        return min((next_not_zero(link, now) for link in out), default=math.inf)


def disturbances(scenario: Placed) -> Disturbances:
    """All that a scenario says of availability and faults. Raises `InputError` where a trace cannot be played."""
    topology = scenario.topology
    roster = roster_of(topology)
    fleet = FleetSize(len(roster.names), len(roster.tiers.get(EDGE, ())), roster.names, roster.tiers)
    found: list[FaultEffect] = [
        fault(fleet, partial(stream, scenario.seed, "fault", number)) for number, fault in enumerate(scenario.faults)
    ]
    nodes: list[tuple[str, OverTime]] = [pair for d in found for pair in d.nodes.items()]
    speeds: list[tuple[int, OverTime]] = [pair for d in found for pair in d.speeds.items()]
    links: list[tuple[str, OverTime]] = [
        (f"{edge}/{way}", spells) for d in found for edge, spells in d.links.items() for way in DIRECTIONS
    ]
    sleepers: dict[str, OverTime] = {}
    if topology.availability is not None or roster.presences:
        online = availabilities(topology, scenario.seed)
        by_name = dict(zip(roster.names, online, strict=True))
        if topology.availability is None or topology.availability.work == "lost":
            nodes += by_name.items()
        else:
            sleepers |= by_name
            speeds += enumerate(online)
            links += [(f"{name}/{way}", presence) for name, presence in by_name.items() for way in DIRECTIONS]
    return Disturbances(
        nodes=_multiplied(nodes),
        sleepers=sleepers,
        links=_multiplied(links),
        breaking=frozenset(f"{e}/{way}" for d in found if d.breaks_transfers for e in d.links for way in DIRECTIONS),
        speeds=_multiplied(speeds),
        moving=frozenset(edge for d in found if d.moves for edge in d.nodes),
    )


def _multiplied(factors: Iterable[tuple[K, OverTime]]) -> dict[K, OverTime]:
    """One value for each key: the product of all that it has."""
    by_key: dict[K, list[OverTime]] = {}
    for key, factor in factors:
        by_key.setdefault(key, []).append(factor)
    return {key: each[0] if len(each) == 1 else Product(each) for key, each in by_key.items()}
