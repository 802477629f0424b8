"""IFCA (Ghosh et al. 2020): k models, and every client trains the one that fits its data best.

In each round the server sends all k models to every client. A client tries them all on its own samples, trains the one with the
least loss, and sends that one back with its number. The server averages what came back for each model.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
from pydantic import Field

from emulator.contracts.methods import MethodFacts, methods
from emulator.learning.recipes import Handle
from emulator.ledger import Tag
from emulator.methods.cluster_models import CLUSTERS, Clusters, cluster_row
from emulator.methods.forming import somebody
from emulator.methods.limits import check_deadline, check_trained
from emulator.methods.session import NOBODY_LEFT, Session
from emulator.methods.slots import OneServer
from emulator.methods.training import Group, combined
from emulator.methods.waiting import gather
from emulator.registry import Scale
from emulator.scenario.words import Count
from emulator.world.world import Steps, StepsTo


class IfcaParams(OneServer):
    """How many models there are, and how clients train."""

    clusters: Count = Field(4, description="how many models there are (k); it must be known beforehand")

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """What does not fit this fleet."""
        yield from super().problems(scale)
        if self.clusters > scale.clients:
            yield "clusters", f"{self.clusters} models, but only {scale.clients} clients"
        if self.encodings:
            yield "encodings", "every client gets several models at once here, which are not encoded; leave it out"


@methods.register("ifca", IfcaParams, MethodFacts(clusters=True, tables=(CLUSTERS,)))
def ifca(session: Session, params: IfcaParams) -> Steps:
    """Several models sent to every client, which trains the one that fits its data best (IFCA)."""
    world, lab = session.world, session.lab
    everybody = range(session.scenario.topology.client_count)
    server = params.server(world.fleet)
    trained = False  # whether any round gave a model so far
    if params.wait_for_members.kind != "all":
        world.watch()
        size = world.workload.model_bytes * params.local().vectors
        first_bytes = 0 if params.initial_model == "seed" else size * params.clusters
        check_deadline(
            session, "wait_for_members", params.wait_for_members, params.local, first_bytes, size, params.aggregator
        )
    clusters = Clusters(tuple(lab.initial(k) for k in range(params.clusters)), np.zeros(len(everybody), dtype=np.int64))
    session.begin(clusters)
    for t in itertools.count(1):
        asked = session.env.process(somebody(session, server, 0, everybody, params.min_members))
        if (yield from session.wait(asked, clusters)):
            return
        group: Group | None = asked.value
        if group is None:
            session.end_early(NOBODY_LEFT, clusters)
            return
        back = yield from _try_and_train(session, params, clusters.models, group, t)
        if len(back) >= params.min_members:
            clusters = yield from _average(session, params, group.aggregator, clusters, back, t)
            trained = True
        if session.end_round(t, clusters):
            check_trained(session, trained, "wait_for_members")
            return


def _try_and_train(
    session: Session, params: IfcaParams, models: Sequence[Handle], group: Group, t: int
) -> StepsTo[dict[int, tuple[int, Handle]]]:
    """A round: k models down, a try of each, a training, one model up. Returns which one each client chose, and made of it."""
    world, samples, local = session.world, session.lab.clients.samples, params.local.params
    size = world.workload.model_bytes * params.local().vectors
    down_bytes = 0 if params.initial_model == "seed" and t == 1 else size * len(models)
    tag, started_s, tries = Tag("model", t), world.now, world.workload.forward.times(len(models))

    def work(client: int) -> StepsTo[tuple[int, Handle] | None]:
        held, choice = int(samples[client]), tag.with_purpose("choice")
        fit = yield from session.measure(
            lambda begun: world.predict(client, tries, held, local.batch_size, choice, begun), "fit", models, client
        )
        if fit is None:
            return None
        chosen = int(np.argmin(fit[:, 0]))
        trained = yield from session.train(client, models[chosen], params.local, tag.with_purpose("training"))
        if trained is None:
            return None
        return chosen, session.sent(t, 0, client, models[chosen], trained.model)

    trips = {c: session.round_trip(c, group.aggregator, work(c), tag, down_bytes, size) for c in group.members}
    patience = params.wait_for_members(len(trips), len(trips))
    back = yield from gather(world, trips, patience, started_s, partial(world.give_up, tag.round, tag.group))
    return back if world.was_up(group.aggregator, started_s) else {}


def _average(
    session: Session,
    params: IfcaParams,
    server: str,
    clusters: Clusters,
    back: Mapping[int, tuple[int, Handle]],
    t: int,
) -> StepsTo[Clusters]:
    """The clusters after a round: who chose which model, and the models averaged over those who did."""
    of = clusters.of.copy()
    of[list(back)] = [chosen for chosen, _ in back.values()]
    changed: dict[int, Handle] = {}
    for cluster in range(len(clusters.models)):
        trained = {c: model for c, (chosen, model) in back.items() if chosen == cluster}
        if trained:
            before, tag = clusters.models[cluster], Tag("model", t, cluster)
            changed[cluster] = yield from combined(session, server, params.combination, before, trained, tag)
        members = np.flatnonzero(of == cluster)
        if t == 1 or not np.array_equal(members, np.flatnonzero(clusters.of == cluster)):
            session.note(CLUSTERS.name, cluster_row(cluster, members.tolist(), "choice", t, session.world.now))
    return Clusters(clusters.models, of).with_models(changed)
