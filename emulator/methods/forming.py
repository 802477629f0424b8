"""Forming groups: at each edge from its own clients, or under the cloud from everybody; and what that is charged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from emulator.grouping.diagnostics import Grouping, diagnose
from emulator.grouping.view import ClientView, Counts, Floats, group_view
from emulator.ledger import Tag
from emulator.methods.session import Session
from emulator.methods.training import Group
from emulator.registry import Chosen
from emulator.rng import stream
from emulator.world.fleet import CLOUD, Fleet
from emulator.world.world import Steps


def form_groups(
    fleet: Fleet,
    label_counts: Counts,
    formation: Chosen,
    aggregator: str,
    seed: int,
    t: int,
    estimates: Floats | None = None,
    clusters: np.ndarray | None = None,
) -> list[Group]:
    """The groups of all clients (``label_counts`` [n, m]) before round ``t``; ``aggregator`` as in `GroupSlots`.

    ``clusters`` [n]: clients of different clusters never come together.
    """
    at_edges = aggregator == "edge"
    blocks = [np.asarray(b) for b in fleet.blocks] if at_edges else [np.arange(len(label_counts))]
    cluster_of = np.zeros(len(label_counts), dtype=np.int64) if clusters is None else clusters
    blocks = [block[cluster_of[block] == c] for block in blocks for c in np.unique(cluster_of[block])]
    groups: list[Group] = []
    everybody = label_counts.sum(axis=0)
    for place, block in enumerate(blocks):
        here = label_counts[block]
        known = None if estimates is None else estimates[block]
        view = ClientView(here, here.sum(axis=1), estimates=known, fleet_counts=everybody)
        found = formation(view, stream(seed, "formation", place, t))
        for rows in found:
            members = tuple(block[rows].tolist())
            server = _server(fleet, aggregator, len(groups), members)
            groups.append(Group(len(groups), server, members, int(cluster_of[members[0]])))
    return groups


def _server(fleet: Fleet, aggregator: str, number: int, members: Sequence[int]) -> str:
    """Who serves a group: the edge of its members, the edges in turn, or the cloud."""
    if aggregator == "cloud":
        return CLOUD
    return fleet.home(members[0]) if aggregator == "edge" else fleet.edge_names[number % len(fleet.edge_names)]


def grouping_of(
    groups: Sequence[Group], label_counts: Counts, sampling: Chosen | None, t: int, estimates: Floats | None = None
) -> Grouping:
    """The diagnostics of groups that are sampled by a rule (all alike, where there is none) from round ``t`` on."""
    members = [g.members for g in groups]
    log_weights = np.zeros(len(groups)) if sampling is None else sampling(group_view(label_counts, members))
    return diagnose(t, [g.aggregator for g in groups], members, label_counts, log_weights, estimates)


def charge_formation(session: Session, formation: Chosen, groups: Sequence[Group], t: int) -> Steps:
    """Lets every aggregator compute as long as forming its groups takes, side by side.

    What it takes is the rule's own count (see `emulator.grouping.formation`). Label counts do not change, so forming
    groups anew asks the clients for nothing.
    """
    flops = formation.plugin.facts.get("flops")
    if flops is None:
        return
    classes = session.lab.clients.label_counts.shape[1]
    clients: Counter[str] = Counter()
    for group in groups:
        clients[group.aggregator] += len(group.members)
    formed = Counter(group.aggregator for group in groups)
    tag = Tag("formation", t)
    yield session.env.all_of(
        [
            session.world.serve(place, flops(clients[place], classes, formed[place], formation.params), tag)
            for place in clients
        ]
    )
