"""Forming groups: what servers ask for, groups at edges or under the cloud, what that is charged; and who of a group is there."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import simpy

from emulator.contracts.grouping import Formation, Sampling
from emulator.errors import HflError
from emulator.grouping.diagnostics import Grouping, diagnose
from emulator.grouping.view import ClientView, Counts, Floats, group_view
from emulator.ledger import Tag
from emulator.methods.estimators import Enquiry
from emulator.methods.session import NOBODY_LEFT, Models, Session
from emulator.methods.slots import ANY_EDGE, GroupSlots
from emulator.methods.training import Group
from emulator.rng import stream
from emulator.world.fleet import CLOUD, Fleet, Numbers
from emulator.world.world import Steps

# How often somebody may come back without a round that can begin: so many times, and so many more for each client.
RETURNS = 100_000
RETURNS_A_CLIENT = 100


def form_groups(
    fleet: Fleet,
    label_counts: Counts,
    formation: Formation,
    aggregator: str,
    seed: int,
    t: int,
    estimates: Floats | None = None,
    clusters: np.ndarray | None = None,
) -> list[Group]:
    """The groups of all clients (``label_counts`` [n, m]) before round ``t``; ``aggregator`` as in `GroupSlots`.

    ``clusters`` [n]: clients of different clusters never come together.
    """
    blocks = [np.arange(len(label_counts))] if aggregator == ANY_EDGE else fleet.blocks_at(aggregator)
    cluster_of = np.zeros(len(label_counts), dtype=np.int64) if clusters is None else clusters
    blocks = [block[cluster_of[block] == c] for block in blocks for c in np.unique(cluster_of[block])]
    groups: list[Group] = []
    everybody = label_counts.sum(axis=0)
    for place, block in enumerate(blocks):
        if 0 < len(block) < formation.smallest and fleet.topology.movement is not None:
            members = tuple(block.tolist())  # so few are there now
            server = _server(fleet, aggregator, len(groups), members)
            groups.append(Group(len(groups), server, members, int(cluster_of[members[0]])))
            continue
        here = label_counts[block]
        known = None if estimates is None else estimates[block]
        view = ClientView(here, here.sum(axis=1), estimates=known, fleet_counts=everybody)
        found = formation(view, stream(seed, "formation", place, t))
        kinds = getattr(found, "kinds", None)
        for rows in found:
            members = tuple(block[rows].tolist())
            server = _server(fleet, aggregator, len(groups), members)
            kindred = () if kinds is None else tuple(kinds[rows].tolist())
            groups.append(Group(len(groups), server, members, int(cluster_of[members[0]]), kindred))
    return groups


def _server(fleet: Fleet, aggregator: str, number: int, members: Sequence[int]) -> str:
    """Who serves a group: the edge of its members, the edges in turn, or the cloud."""
    if aggregator == ANY_EDGE:
        return fleet.edge_names[number % len(fleet.edge_names)]
    return fleet.at_tier(members[0], aggregator)


def grouping_of(
    groups: Sequence[Group], label_counts: Counts, sampling: Sampling | None, t: int, estimates: Floats | None = None
) -> Grouping:
    """The diagnostics of groups that are sampled by a rule (all alike, where there is none) from round ``t`` on."""
    members = [g.members for g in groups]
    log_weights = np.zeros(len(groups)) if sampling is None else sampling(group_view(label_counts, members))
    return diagnose(t, [g.aggregator for g in groups], members, label_counts, log_weights, estimates)


def charge_formation(
    session: Session, formation: Formation, groups: Sequence[Group], t: int, estimates: Floats | None = None
) -> Steps:
    """Lets every aggregator compute as long as forming its groups takes, side by side.

    What it takes is the rule's own count (see `emulator.grouping.formation`). Label counts do not change, so forming
    groups anew asks the clients for nothing.
    """
    flops = formation.plugin.facts.flops
    if flops is None:
        return
    known = session.lab.clients.label_counts if estimates is None else estimates
    clients: Counter[str] = Counter()
    for group in groups:
        clients[group.aggregator] += len(group.members)
    formed = Counter(group.aggregator for group in groups)
    tag = Tag("formation", t)
    yield session.env.all_of(
        [
            session.world.serve(place, flops(clients[place], known.shape[1], formed[place], formation.params), tag)
            for place in clients
        ]
    )


def enquiry(session: Session, params: GroupSlots) -> Enquiry:
    """Who learns of the clients' data, and the size of the untrained model on its way to them."""
    fleet, workload = session.world.fleet_now(), session.world.workload
    tier = CLOUD if params.aggregator == ANY_EDGE else params.aggregator
    servers = fleet.servers_at(tier)
    return Enquiry(servers, 0 if params.initial_model == "seed" else workload.model_bytes)


def form(
    session: Session, params: GroupSlots, t: int, estimates: Floats | None, clusters: np.ndarray | None = None
) -> list[Group]:
    """Groups of all clients, each of one cluster's only, noted in the session."""
    counts = session.lab.clients.label_counts
    fleet = session.world.fleet_now()
    groups = form_groups(fleet, counts, params.formation, params.aggregator, session.seed, t, estimates, clusters)
    if not groups:
        return groups  # all clients have moved to where nobody forms groups
    session.note_groups(grouping_of(groups, counts, getattr(params, "sampling", None), t, estimates))
    if session.attack is not None:
        session.attack.formed(groups)
    return groups


class Positions:
    """Where clients were when groups were formed, for scenarios in which groups are formed anew when clients have moved."""

    def __init__(self, session: Session, params: GroupSlots) -> None:
        how = session.world.movements.how
        self._matter = how is not None and how.groups == "form" and params.aggregator not in (CLOUD, ANY_EDGE)
        self._world, self._tier = session.world, params.aggregator
        self._then: Numbers | None = None

    def note(self) -> None:
        """Takes down where clients are now."""
        self._then = self._world.placement(self._tier) if self._matter else None

    def changed(self) -> bool:
        """Whether a client is below another server now, so that groups are to be formed anew."""
        return self._then is not None and not np.array_equal(self._then, self._world.placement(self._tier))


def until_somebody(
    session: Session,
    params: GroupSlots,
    groups: Sequence[Group],
    model: Models,
    stale: Callable[[], bool] = lambda: False,
    tries: Iterator[int] | None = None,
) -> Steps:
    """Waits until there is a group that can work; returns those that can, with the members that are there. Empty: never.

    Returns None where groups are ``stale`` after some waiting: they are to be formed anew. ``tries`` counts on over such calls.
    """
    for waits in itertools.count() if tries is None else tries:
        if stale():
            return None
        ready = [g for g in (present(session, params, g) for g in groups) if g is not None]
        if ready:
            return ready
        back = next_return(session, waits, params.min_members)
        if back is None:
            session.end_early(NOBODY_LEFT, model)
            return []
        if (yield from session.wait(back, model)):
            return []


def next_return(session: Session, waits: int, least: int) -> simpy.Event | None:
    """Happens when somebody comes back; None where nobody does. ``waits`` before it were in vain: never were ``least`` there.

    Raises `HflError` where they were so many that it may go on for ever, and the run has no time at which it ends.
    """
    scenario, world = session.scenario, session.world
    if scenario.stop.time is None and waits >= RETURNS + RETURNS_A_CLIENT * scenario.topology.client_count:
        message = (
            f"after {world.now:g} emulated seconds, in round {session.rounds + 1}, no round can begin: {waits:,} times"
        )
        raise HflError(
            f"{message} somebody came back, and never were {least} members of a group there at once; "
            "lower 'method.min_members', or say with 'stop.time' how long to wait"
        )
    return world.until_return()


def present(session: Session, params: GroupSlots, group: Group) -> Group | None:
    """A group with the members that are there, at the server that does its work now; None where it cannot work."""
    world = session.world
    if world.all_present:
        return group
    server = world.server(group.aggregator)
    if server is None or not world.connected(server):
        return None
    members = world.present(group.members, server)
    if params.taking_part(len(members)) < params.min_members:
        return None
    return replace(group, aggregator=server, members=tuple(members))


def somebody(session: Session, aggregator: str, number: int, members: Sequence[int], least: int) -> Steps:
    """Waits until so many of these clients are there; returns them as a group of this number. None: never."""
    world = session.world
    for waits in itertools.count():
        server = world.server(aggregator)
        there = [] if server is None else world.present(members, server)
        if server is not None and len(there) >= least:
            return Group(number, server, tuple(there))
        back = next_return(session, waits, least)
        if back is None:
            return None
        yield back
