"""Grouped synchronous rounds: the time structure of FedAvg, HierFAVG and Group-FEL (S2 Alg. 1).

Clients are formed into groups, at each edge or under the cloud. In each global round the cloud samples groups and sends them
the global model; each group runs K group rounds on its own; the cloud waits for them and averages.

Clients that are away when a round begins are not asked, and groups with too few of them are not sampled. Where nobody can be
asked, the round waits until somebody is back; where nobody will be, the run ends.

Transfers of a global round, where groups live at the edges: cloud to edge once for each edge that has a sampled group,
K times edge to members and members to edge, edge to cloud once for each sampled group. Where they live under the cloud, models
pass through the edges on their way between client and cloud, one copy for each client.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from pydantic import Field

from emulator.contracts.combining import Combination, ServerOptimiser
from emulator.contracts.grouping import Aggregation, Sampling, Schedule
from emulator.contracts.methods import GroupResult, MethodFacts, Waiting, methods
from emulator.grouping.aggregation import SampledGroups
from emulator.grouping.sampling import draw
from emulator.grouping.view import Floats, group_view
from emulator.learning.recipes import Handle
from emulator.ledger import Tag
from emulator.methods.cluster_models import one_cluster
from emulator.methods.combining import ServerOptimisers, combine, optimiser_refused, refused, refused_at_cloud
from emulator.methods.dividing import Dividing, divide
from emulator.methods.estimators import estimates_for, learn_each
from emulator.methods.forming import Positions, charge_formation, enquiry, form, until_somebody
from emulator.methods.headers import Headers
from emulator.methods.limits import check_deadline, check_groups, check_trained
from emulator.methods.memory import RuleMemory
from emulator.methods.rounds import RoundSlots, group_process, send_to_edges
from emulator.methods.selecting import Selecting
from emulator.methods.session import Session
from emulator.methods.slots import ANY_EDGE, chosen_by_default
from emulator.methods.tiers import TierRounds, problems_of, tiered_round
from emulator.methods.training import Group, GroupRound
from emulator.methods.waiting import gather
from emulator.registry import Scale
from emulator.rng import stream
from emulator.world.fleet import CLOUD, EDGE
from emulator.world.world import Steps, StepsTo


class GroupedParams(RoundSlots):
    """The slots of a grouped method."""

    schedule: Schedule = chosen_by_default("fixed", "when groups are formed anew")
    sampling: Sampling = chosen_by_default("all", "which groups train in a round")
    tiers: dict[str, TierRounds] = Field(
        {},
        description="tiers of servers between the groups and the cloud that average too, each with rounds and a group operation",
    )
    aggregation: Aggregation = chosen_by_default("samples", "weights of the groups in the global model")
    global_combination: Combination = chosen_by_default("mean", "how the cloud puts the models of groups together")
    server_optimiser: ServerOptimiser = chosen_by_default("none", "what the cloud makes of the average of a round")
    wait_for_groups: Waiting = chosen_by_default("all", "how long the cloud waits for the groups of a round")
    dividing: Dividing | None = Field(
        None,
        description="divides the clients once into clusters with a model each; the global accuracy is the mean over clients",
    )

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """Rounds that cannot be played in this fleet."""
        found = list(super().problems(scale))
        yield from found
        if self.dividing is not None and self.local().remember is not None:
            yield "dividing", f"does not go with '{self.local.kind}', whose memory belongs to one global model"
        yield from problems_of(self.tiers, self.aggregator, scale)
        if self.tiers and self.dividing is not None:
            yield "tiers", "do not go with 'dividing': servers in between average one model"
        if self.schedule.plugin.facts.count is not None and "groups" not in type(self.formation.params).model_fields:
            yield (
                "schedule",
                f"'{self.schedule.kind}' says how many groups there are, and formation '{self.formation.kind}' does not take it",
            )
        if self.dividing is not None and self.dividing.clusters > scale.clients:
            yield "dividing.clusters", f"{self.dividing.clusters} clusters, but only {scale.clients} clients"
        if any(key in ("aggregator", "formation") for key, _ in found):
            return
        wanted, most = self.sampling.asked or 0, self.most_groups(scale)
        heard = self.wait_for_groups(self.sampled(most), self.sampled(most)).wanted
        yield from refused_at_cloud(self.global_combination, self.local, self.aggregation, heard)
        for tier, how in self.tiers.items():
            yield from refused(f"tiers.{tier}.combination", how.combination, self.local, how.group_operation)
        yield from optimiser_refused("server_optimiser", self.server_optimiser, self.local)
        if self.dividing is not None and not self.server_optimiser.none:
            yield "server_optimiser", "does not go with 'dividing': its state belongs to one global model; say 'none'"
        if wanted > most:
            yield "sampling", f"{wanted} groups a round, but no more than {most} can be formed"
        elif not found:
            yield from self.beyond(self.taking_part(self.sizes(scale)[-1]), self.sampled(most))

    def beyond(self, members: int, groups: int) -> Iterable[tuple[str, str]]:
        """Quorums that are never reached: no more than so many members of a group take part in a round, and so many groups."""
        for key, most, what in (("members", members, "members of a group"), ("groups", groups, "groups")):
            count = getattr(self, f"wait_for_{key}").count or 0
            if count > most:
                yield f"wait_for_{key}.count", f"waits for {count}, but no more than {most} {what} take part in a round"

    def sampled(self, groups: int) -> int:
        """How many of so many groups train in a round."""
        return self.sampling.count(groups)

    def most_groups(self, scale: Scale) -> int:
        """See `GroupSlots.most_groups`. Clusters have groups of their own."""
        clusters = 1 if self.dividing is None else self.dividing.clusters
        return min(super().most_groups(scale) * clusters, scale.clients)

    def sizes(self, scale: Scale) -> Sequence[int]:
        """See `GroupSlots.sizes`. They may be any where clients are divided, or a schedule says how many groups there are."""
        if self.dividing is None and self.schedule.plugin.facts.count is None:
            return super().sizes(scale)
        return range(1, 1 + max(self.places(scale)))


@methods.register("grouped", GroupedParams, MethodFacts(privacy=("client", "server", "distributed")))
def grouped(session: Session, params: GroupedParams) -> Steps:
    """Synchronous rounds over groups of clients: FedAvg, HierFAVG, Group-FEL and their relatives."""
    lab = session.lab
    model = lab.initial()
    session.selecting = selecting = Selecting(session, params.selection)
    memory = RuleMemory(lab, params.local, session.scenario.topology.client_count)
    full_bytes = session.world.workload.model_bytes * memory.rule.vectors
    if any(slot.kind != "all" for slot in (params.wait_for_members, params.wait_for_groups)):
        session.world.watch()
        first_bytes = 0 if params.initial_model == "seed" else full_bytes
        tier = EDGE if params.aggregator == ANY_EDGE else params.aggregator
        for key, within in (("wait_for_members", 0), ("wait_for_groups", params.group_rounds)):
            how = getattr(params, key)
            check_deadline(session, key, how, params.local, first_bytes, full_bytes, tier, within)
    session.begin(model)
    needs = (*params.formation.plugin.facts.needs, *params.sampling.plugin.facts.needs)
    everything = (*needs, *params.selection.plugin.facts.needs)
    said = yield from learn_each(session, everything, params.estimator, enquiry(session, params))
    estimates = estimates_for(said, needs)
    selecting.learnt(said)
    groups: list[Group] = []
    headers = Headers(session, params) if params.training.plugin.facts.headers else None
    clusters = one_cluster(model, session.scenario.topology.client_count)
    trained = False  # whether any group came back so far
    cloud, edges = ServerOptimisers(session, params.server_optimiser), ServerOptimisers(session, params.edge_optimiser)
    positions = Positions(session, params)
    for t in itertools.count(1):
        if params.dividing is not None and t == params.dividing.round + 1:
            clusters = yield from divide(session, params.dividing, params.local, clusters.models[0], t)
            groups = []
        due, tries, ready = params.schedule(t - 1, len(clusters.of)), itertools.count(), None
        while ready is None:
            if not groups or due or positions.changed():
                positions.note()
                groups = form(session, scheduled(session, params, t), t, estimates, clusters.of)
                edges.forget()
                check_groups(session, params, groups, t)
                yield from charge_formation(session, params.formation, groups, t, estimates)
                due = False
            able = groups if headers is None or not groups else (yield from headers.settled(groups, t, clusters))
            ready = yield from until_somebody(session, params, able, clusters, positions.changed, tries)
        if not ready:
            return
        chosen, draws = sample(session, params, ready, t)
        first_bytes = 0 if params.initial_model == "seed" and t == 1 else full_bytes
        first = GroupRound(
            *(t, 0, params.local, params.group_operation, memory, first_bytes, full_bytes, params.combination, edges)
        )
        rounds = [first, *(replace(first, group_round=k, down_bytes=full_bytes) for k in range(1, params.group_rounds))]
        if params.tiers:
            model, results = yield from through_tiers(session, params, chosen, clusters.models[0], rounds, draws)
            changed = {0: memory.end_round(model)} if results else {}
        else:
            results = yield from ask_groups(session, params, chosen, clusters.models, rounds)
            changed = yield from average(session, params, chosen, clusters.models, results, draws, memory, t)
        for cluster, latest in changed.items():
            changed[cluster] = yield from cloud.step(CLOUD, cluster, clusters.models[cluster], latest, Tag("model", t))
        clusters = clusters.with_models(changed)
        trained = trained or bool(results)
        if session.end_round(t, clusters):
            check_trained(session, trained, "wait_for_members", "wait_for_groups")
            return


def average(
    session: Session,
    params: GroupedParams,
    chosen: Sequence[Group],
    before: Sequence[Handle],
    results: Mapping[int, GroupResult],
    draws: Draws,
    memory: RuleMemory,
    t: int,
) -> StepsTo[dict[int, Handle]]:
    """The new models of those clusters of which a group came back."""
    models: dict[int, Handle] = {}
    for cluster in sorted({g.cluster for g in chosen if g.number in results}):
        own = {g.number: results[g.number] for g in chosen if g.cluster == cluster and g.number in results}
        weights, back = weigh(params, own, draws), [result.model for result in own.values()]
        tag = Tag("model", t)
        latest = yield from combine(session, CLOUD, params.global_combination, before[cluster], back, weights, tag)
        models[cluster] = memory.end_round(latest)
    return models


def through_tiers(
    session: Session,
    params: GroupedParams,
    groups: Sequence[Group],
    model: Handle,
    rounds: Sequence[GroupRound],
    draws: Draws,
) -> StepsTo[tuple[Handle, dict[int, GroupResult]]]:
    """A global round with tiers in between (`emulator.methods.tiers`): the new model, and the results in it by group."""

    def ask(
        server: str, own: Sequence[Group], latest: Handle, turn: Sequence[GroupRound]
    ) -> StepsTo[dict[int, GroupResult]]:
        return ask_groups(session, params, own, [latest], turn, server)

    parts = yield from tiered_round(session, params.tiers, groups, model, rounds, ask)
    results = {number: result for part in parts for number, result in part.groups.items()}
    if not results:
        return model, results
    weights = dict(zip(results, weigh(params, results, draws), strict=True))
    together = [sum(weights[number] for number in part.groups) for part in parts]
    back, tag = [part.model for part in parts], Tag("model", rounds[0].round)
    latest = yield from combine(session, CLOUD, params.global_combination, model, back, together, tag)
    return latest, results


def ask_groups(
    session: Session,
    params: GroupedParams,
    groups: Sequence[Group],
    models: Sequence[Handle],
    rounds: Sequence[GroupRound],
    server: str = CLOUD,
) -> StepsTo[dict[int, GroupResult]]:
    """The models of their clusters from a server to the groups, their group rounds, and back.

    Returns the results by group of those that came back in time.
    """
    world, t = session.world, rounds[0].round
    arrivals = send_to_edges(session, groups, models, rounds[0].down_bytes, t, server)
    patience = params.wait_for_groups(len(groups), len(groups))

    def steps(group: Group) -> StepsTo[GroupResult | None]:
        arrival = arrivals.get((group.aggregator, group.cluster))
        return group_process(session, params, group, models[group.cluster], arrival, rounds, server)

    work = {group.number: steps(group) for group in groups}
    return (yield from gather(world, work, patience, world.now, partial(world.give_up_group, t)))


def scheduled(session: Session, params: GroupedParams, t: int) -> GroupedParams:
    """The parameters with as many groups as the schedule wants in a round, where it says so."""
    count = params.schedule.groups(t - 1, session.scenario.topology.client_count)
    if count is None:
        return params
    formation = params.formation.with_params(params.formation.params.model_copy(update={"groups": count}))
    return params.model_copy(update={"formation": formation})


@dataclass(frozen=True)
class Draws:
    """How groups were drawn: the logarithms of all weights, by group number which of them were picked, and the samples of all."""

    log_weights: Floats
    picked: Mapping[int, int]
    total_samples: int


def sample(session: Session, params: GroupedParams, groups: Sequence[Group], t: int) -> tuple[list[Group], Draws]:
    """The groups of this round, and how they were drawn."""
    view = group_view(session.lab.clients.label_counts, [g.everybody for g in groups])
    log_weights = params.sampling(view)
    picked = draw(log_weights, params.sampled(len(groups)), stream(session.seed, "sampling", t))
    chosen = [groups[i] for i in picked]
    samples = session.lab.clients.samples
    apart = params.training.plugin.facts.headers  # then groups do not train on all samples that there are
    total = sum(int(g.held(samples, g.members).sum()) for g in groups) if apart else int(samples.sum())
    return chosen, Draws(log_weights, {group.number: int(i) for group, i in zip(chosen, picked, strict=True)}, total)


def weigh(params: GroupedParams, results: Mapping[int, GroupResult], draws: Draws) -> list[float]:
    """The weights of the groups that came back, by the samples on which the members trained whose work is in their models."""
    sampled = SampledGroups(
        samples=np.array([r.samples for r in results.values()]),
        total_samples=draws.total_samples,
        log_weights=draws.log_weights,
        drawn=[draws.picked[number] for number in results],
        asked=len(draws.picked),
    )
    return [float(w) for w in params.aggregation(sampled)]
