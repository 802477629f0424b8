"""Grouped synchronous rounds: the time structure of FedAvg, HierFAVG and Group-FEL (S2 Alg. 1).

Clients are formed into groups, at each edge or under the cloud. In each global round the cloud samples groups and sends them
the global model; each group runs K group rounds on its own; the cloud waits for all of them and averages.

Transfers of a global round, where groups live at the edges: cloud to edge once for each edge that has a sampled group,
K times edge to members and members to edge, edge to cloud once for each sampled group. Where they live under the cloud, models
pass through the edges on their way between client and cloud, one copy for each client.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import simpy
from pydantic import Field

from emulator.grouping.aggregation import SampledGroups
from emulator.grouping.sampling import draw, log_probabilities
from emulator.grouping.view import ClientView, group_view
from emulator.learning.lab import Handle
from emulator.ledger import Tag
from emulator.methods.estimators import learn
from emulator.methods.memory import RuleMemory
from emulator.methods.session import MethodParams, Session
from emulator.methods.training import Group, GroupRound
from emulator.registry import (
    Aggregation,
    Chosen,
    Formation,
    GroupOperation,
    LocalRule,
    Sampling,
    Scale,
    Schedule,
    Training,
    methods,
)
from emulator.rng import stream
from emulator.scenario.schema import Count
from emulator.world.fleet import CLOUD
from emulator.world.world import Steps


def _default(kind: str, description: str) -> Any:
    return Field({"kind": kind}, validate_default=True, description=description)


class GroupedParams(MethodParams):
    """The slots of a grouped method."""

    aggregator: Literal["edge", "cloud"] = Field("edge", description="where groups are formed and aggregated")
    formation: Formation = Field(description="how clients become groups")
    schedule: Schedule = _default("fixed", "when groups are formed anew")
    sampling: Sampling = _default("all", "which groups train in a round")
    participation: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="share of a group's clients drawn for each global round"
    )
    group_rounds: Count = Field(1, description="group rounds in a global round (K)")
    training: Training = _default("parallel", "what happens inside a group")
    local: LocalRule = _default("sgd", "what a client does with a gradient")
    aggregation: Aggregation = _default("samples", "weights of the groups in the global model")
    group_operation: GroupOperation = _default("none", "what members pay for working in a group")
    initial_model: Literal["weights", "seed"] = Field(
        "weights", description="'seed': clients draw the initial model themselves, so the first download has no bytes"
    )

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """Groups that cannot be formed in this fleet."""
        if self.aggregator == "edge" and scale.edges == 0:
            yield "aggregator", "there are no edges; say 'cloud' or give topology.edges"
            return
        places = scale.edges if self.aggregator == "edge" else 1
        here = scale.smallest_edge if self.aggregator == "edge" else scale.clients
        smallest = self.formation.plugin.facts["smallest"](self.formation.params)
        if any(True for slot in (self.formation, self.sampling) for _ in slot.params.problems(scale)):
            return  # these say themselves what is wrong with them
        if smallest > here:
            where = "the smallest edge has" if self.aggregator == "edge" else "there are"
            yield "formation", f"groups of at least {smallest} clients, but {where} only {here}"
            return
        wanted = getattr(self.sampling.params, "groups", None) or 0
        most = places if self.formation.kind == "all" else scale.clients // smallest
        if wanted > most:
            yield "sampling", f"{wanted} groups a round, but no more than {most} can be formed"


@methods.register("grouped", GroupedParams)
def grouped(session: Session, params: GroupedParams) -> Steps:
    """Synchronous rounds over groups of clients: FedAvg, HierFAVG, Group-FEL and their relatives."""
    lab = session.lab
    model = lab.initial()
    memory = RuleMemory(lab, params.local, session.scenario.topology.clients)
    full_bytes = session.world.workload.model_bytes * memory.rule.vectors
    session.begin(model)
    needs = (*params.formation.plugin.facts["needs"], *params.sampling.plugin.facts["needs"])
    yield from learn(session, needs)
    groups: list[Group] = []
    for t in itertools.count(1):
        if not groups or params.schedule(t - 1):
            groups = form(session, params, t)
        chosen, weights = sample(session, params, groups, t)
        first_bytes = 0 if params.initial_model == "seed" and t == 1 else full_bytes
        arrivals = send_to_edges(session, chosen, first_bytes, t)
        done: list[simpy.Process] = []
        for group in chosen:
            rounds = [
                GroupRound(
                    t, k, params.local, params.group_operation, memory, full_bytes if k else first_bytes, full_bytes
                )
                for k in range(params.group_rounds)
            ]
            work = group_process(session, params.training, group, model, arrivals.get(group.aggregator), rounds)
            done.append(session.env.process(work))
        yield session.env.all_of(done)
        models: list[Handle] = [process.value for process in done]  # type: ignore[misc]
        model = memory.end_round(lab.combine(models, weights))
        if session.end_round(t, model):
            return


def form(session: Session, params: GroupedParams, t: int) -> list[Group]:
    """Groups of all clients: formed at each edge from its own clients, or under the cloud from everybody."""
    fleet, counts = session.world.fleet, session.lab.clients.label_counts
    at_edges = params.aggregator == "edge"
    blocks = [np.asarray(b) for b in fleet.blocks] if at_edges else [np.arange(len(counts))]
    groups: list[Group] = []
    for place, block in enumerate(blocks):
        view = ClientView(label_counts=counts[block], samples=counts[block].sum(axis=1))
        found = params.formation(view, stream(session.seed, "formation", place, t))
        aggregator = fleet.home(int(block[0])) if at_edges else CLOUD
        groups += [
            Group(len(groups) + i, aggregator, tuple(int(c) for c in block[rows])) for i, rows in enumerate(found)
        ]
    return groups


def sample(session: Session, params: GroupedParams, groups: Sequence[Group], t: int) -> tuple[list[Group], list[float]]:
    """The groups of this round, with the clients that take part, and their weights in the global average."""
    counts = session.lab.clients.label_counts
    view = group_view(counts, [g.members for g in groups])
    log_weights = params.sampling(view)
    everyone = params.sampling.plugin.facts.get("everyone", False)
    count = len(groups) if everyone else min(params.sampling.params.count(len(groups)), len(groups))
    picked = draw(log_weights, count, stream(session.seed, "sampling", t))
    chosen = [participants(session, params, groups[i], t) for i in picked]
    samples = np.array([int(counts[list(g.members)].sum()) for g in chosen])
    sampled = SampledGroups(
        samples=samples, log_p=log_probabilities(log_weights)[picked], total_samples=int(counts.sum())
    )
    return chosen, [float(w) for w in params.aggregation(sampled)]


def participants(session: Session, params: GroupedParams, group: Group, t: int) -> Group:
    """The group with the members that take part in this round."""
    if params.participation == 1.0:
        return group
    count = max(1, int(params.participation * len(group.members) + 0.5))
    rng = stream(session.seed, "participation", t, group.number)
    return Group(
        group.number, group.aggregator, tuple(sorted(int(c) for c in rng.choice(group.members, count, replace=False)))
    )


def send_to_edges(session: Session, groups: Sequence[Group], size_bytes: int, t: int) -> dict[str, simpy.Event]:
    """Sends the global model to every edge that has a group in this round; the arrival by edge."""
    edges = dict.fromkeys(g.aggregator for g in groups if g.aggregator != CLOUD)
    return {edge: session.world.send(CLOUD, edge, size_bytes, Tag("model", t)) for edge in edges}


def group_process(
    session: Session,
    training: Chosen,
    group: Group,
    model: Handle,
    arrival: simpy.Event | None,
    rounds: Sequence[GroupRound],
) -> Steps:
    """One group in one global round: its group rounds, then its model to the cloud. Returns the group's model."""
    if arrival is not None:
        yield arrival
    for at in rounds:
        model = yield from training(session, group, model, at)
    if group.aggregator != CLOUD:
        yield session.world.send(
            group.aggregator, CLOUD, rounds[-1].up_bytes, Tag("model", rounds[-1].round, group.number)
        )
    return model
