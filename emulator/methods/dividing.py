"""Clients divided once into clusters of their own, each with a model of its own from then on (FedCLAR, Presotto et al. 2022)."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from emulator.contracts.learning import LocalRule
from emulator.grouping.formation.hierarchical import HierarchicalParams, hierarchical
from emulator.grouping.view import ClientView
from emulator.learning.lab import Handle
from emulator.ledger import Tag
from emulator.methods.clusters import Clusters
from emulator.methods.estimators.asking import ask_everybody
from emulator.methods.session import Session
from emulator.registry import Params
from emulator.rng import stream
from emulator.scenario.schema import Count
from emulator.world.fleet import CLOUD
from emulator.world.world import Steps


class Dividing(Params):
    """When, and into how many clusters."""

    round: Count = Field(description="the global round after which the clients are divided")
    clusters: Count = Field(3, description="how many clusters they become")


def divide(session: Session, params: Dividing, local: LocalRule, model: Handle, t: int) -> Steps:
    """Divides all clients by what they make of the global model: similar classifiers come together.

    Every client gets the model, trains it for one local round and sends it back. The server compares by how much the classifier's
    weights have changed, by the cosine, and merges the nearest clusters until so many are left. Returns the `Clusters`.
    """
    world, lab = session.world, session.lab
    rule, tag, size = local.params, Tag("dividing", t), world.workload.model_bytes

    def steps(client: int) -> Steps:
        name = world.fleet.client_names[client]
        if not (yield world.send(CLOUD, name, size, tag)):
            return False
        if not (yield world.train(client, int(lab.clients.samples[client]), rule.epochs, rule.batch_size, tag)):
            return False
        return (yield world.send(name, CLOUD, size, tag))

    yield from ask_everybody(session, steps)
    clients = range(len(lab.clients.samples))
    before = lab.measure("classifier-weights", [model])
    trained = (([lab.train(model, c, local, t)[0]], None) for c in clients)
    changes = np.stack(lab.measure_all("classifier-weights", trained)) - before
    view = ClientView(lab.clients.label_counts, lab.clients.samples, estimates=changes.astype(np.float64))
    groups = hierarchical(
        view, stream(session.seed, "dividing"), HierarchicalParams(groups=min(params.clusters, len(clients)))
    )
    of = np.zeros(len(clients), dtype=np.int64)
    for number, members in enumerate(groups):
        of[members] = number
    return Clusters((model,) * len(groups), of)
