"""Clients divided once into clusters of their own, each with a model of its own from then on (FedCLAR, Presotto et al. 2022)."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from emulator.contracts.learning import LocalRule
from emulator.grouping.formation.hierarchical import HierarchicalParams, hierarchical
from emulator.grouping.view import ClientView
from emulator.learning.recipes import Handle
from emulator.ledger import Tag
from emulator.methods.cluster_models import Clusters
from emulator.methods.estimators.asking import ask_everybody
from emulator.methods.session import Session
from emulator.registry import Params
from emulator.rng import stream
from emulator.scenario.words import Count
from emulator.world.fleet import CLOUD
from emulator.world.world import StepsTo


class Dividing(Params):
    """When, and into how many clusters."""

    round: Count = Field(description="the global round after which the clients are divided")
    clusters: Count = Field(3, description="how many clusters they become")


def divide(session: Session, params: Dividing, local: LocalRule, model: Handle, t: int) -> StepsTo[Clusters]:
    """Divides all clients by what they make of the global model: similar classifiers come together.

    Every client gets the model, trains it for one local round and sends it back. The server compares by how much the classifier's
    weights have changed, by the cosine, and merges the nearest clusters until so many are left. Clients from whom nothing has
    come back by then join the largest cluster.
    """
    lab, tag = session.lab, Tag("dividing", t)
    back: dict[int, Handle] = {}

    size, names = session.world.workload.model_bytes, session.world.fleet.client_names

    def steps(client: int) -> StepsTo[bool]:
        latest = yield from session.deliver(CLOUD, names[client], model, size, tag)
        trained = None if latest is None else (yield from session.train(client, latest, local, tag))
        if trained is None:
            return False
        came = yield from session.deliver(names[client], CLOUD, trained.model, size, tag)
        if came is not None:
            back[client] = came
        return came is not None

    yield from ask_everybody(session, steps)
    of = np.zeros(len(lab.clients.samples), dtype=np.int64)
    heard = sorted(back)
    if not heard:
        return Clusters((model,), of)
    before = lab.measure("classifier-weights", [model])
    trained = (([back.pop(c)], None) for c in heard)  # none is kept longer than it is needed
    changes = np.stack(lab.measure_all("classifier-weights", trained)) - before
    own = lab.clients
    view = ClientView(own.label_counts[heard], own.samples[heard], estimates=changes.astype(np.float64))
    wanted = HierarchicalParams(groups=min(params.clusters, len(heard)))
    groups = [[heard[i] for i in rows] for rows in hierarchical(view, stream(session.seed, "dividing"), wanted)]
    of[:] = max(range(len(groups)), key=lambda number: len(groups[number]))
    for number, members in enumerate(groups):
        of[members] = number
    return Clusters((model,) * len(groups), of)
