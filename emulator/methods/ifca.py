"""IFCA (Ghosh et al. 2020): k models, and every client trains the one that fits its data best.

In each round the server sends all k models to every client. A client tries them all on its own samples, trains the one with the
least loss, and sends that one back with its number. The server averages what came back for each model.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
from pydantic import Field

from emulator.learning.lab import Handle
from emulator.ledger import Tag
from emulator.methods.clusters import CLUSTERS, Clusters, cluster_row
from emulator.methods.forming import somebody
from emulator.methods.limits import check_deadline, check_trained
from emulator.methods.session import NOBODY_LEFT, Session
from emulator.methods.slots import OneServer
from emulator.methods.training import Group, averaged
from emulator.methods.waiting import gather
from emulator.registry import Scale, methods
from emulator.scenario.schema import Count
from emulator.world.world import Steps


class IfcaParams(OneServer):
    """How many models there are, and how clients train."""

    clusters: Count = Field(4, description="how many models there are (k); it must be known beforehand")

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """What does not fit this fleet."""
        yield from super().problems(scale)
        if self.clusters > scale.clients:
            yield "clusters", f"{self.clusters} models, but only {scale.clients} clients"


@methods.register("ifca", IfcaParams, clusters=True, tables=(CLUSTERS,))
def ifca(session: Session, params: IfcaParams) -> Steps:
    """Several models sent to every client, which trains the one that fits its data best (IFCA)."""
    world, lab = session.world, session.lab
    everybody = range(session.scenario.topology.clients)
    server = params.server(world.fleet)
    trained = False  # whether any round gave a model so far
    if params.wait_for_members.kind != "all":
        world.watch()
        size = world.workload.model_bytes * params.local().vectors
        first_bytes = 0 if params.initial_model == "seed" else size * params.clusters
        at_edge = params.aggregator == "edge"
        check_deadline(session, "wait_for_members", params.wait_for_members, params.local, first_bytes, size, at_edge)
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
        back = yield from _try_and_train(session, params, group, t)
        if len(back) >= params.min_members:
            clusters, trained = _choose(session, params, clusters, back, t), True
        if session.end_round(t, clusters):
            check_trained(session, trained, "wait_for_members")
            return


def _try_and_train(session: Session, params: IfcaParams, group: Group, t: int) -> Steps:
    """The time of a round: k models down, a try of each, a training, one model up. Returns the clients that came back."""
    world, samples, local = session.world, session.lab.clients.samples, params.local.params
    rule = params.local()
    size = world.workload.model_bytes * rule.vectors
    down_bytes = 0 if params.initial_model == "seed" and t == 1 else size * params.clusters
    tag, started_s = Tag("model", t), world.now

    def member(client: int) -> Steps:
        name, held = world.fleet.client_names[client], int(samples[client])
        if not (yield world.send(group.aggregator, name, down_bytes, tag)):
            return False
        flops = params.clusters * world.workload.forward_flops
        if not (yield world.predict(client, flops, held, local.batch_size, tag.but("choice"))):
            return False
        if not (yield world.train(client, held, local.epochs, local.batch_size, tag.but("training"), rule.step_flops)):
            return False
        return (yield world.send(name, group.aggregator, size, tag))

    work = {c: world.env.process(member(c)) for c in group.members}
    patience = params.wait_for_members(len(work), len(work))
    back = yield from gather(world, work, patience, started_s, partial(world.give_up, tag.round, tag.group))
    return back if world.was_up(group.aggregator, started_s) else []


def _choose(session: Session, params: IfcaParams, clusters: Clusters, back: Sequence[int], t: int) -> Clusters:
    """The clusters after a round: who chose which model, and the models averaged over those who did."""
    lab, of = session.lab, clusters.of.copy()
    losses = lab.measure_all("fit", [(clusters.models, c) for c in back])
    of[list(back)] = [int(np.argmin(loss[:, 0])) for loss in losses]
    changed: dict[int, Handle] = {}
    for cluster in range(params.clusters):
        own = [c for c in back if of[c] == cluster]
        if own:
            trained = {c: lab.train(clusters.models[cluster], c, params.local, t)[0] for c in own}
            changed[cluster] = averaged(session, trained)
    for cluster in range(params.clusters):
        members = np.flatnonzero(of == cluster)
        if t == 1 or not np.array_equal(members, np.flatnonzero(clusters.of == cluster)):
            row = cluster_row(cluster, members.tolist(), "choice", t, session.world.now)
            session.note(CLUSTERS.name, row)
    return Clusters(clusters.models, of).but(changed)
