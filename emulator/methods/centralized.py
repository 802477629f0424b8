"""Centralized learning, the baseline without federation: all clients send their samples, and the server trains on them.

The samples are charged as bytes on their way, and the training as time of the server's device. A round is one training of so many
epochs on all samples that have arrived. Clients that are away send theirs when they are back.
"""

from __future__ import annotations

import itertools
import math

from pydantic import Field

from emulator.contracts.learning import LocalRule
from emulator.contracts.methods import MethodFacts, MethodParams, methods
from emulator.ledger import Tag
from emulator.methods.estimators.asking import ask_everybody
from emulator.methods.session import NOBODY_LEFT, Session
from emulator.methods.slots import chosen_by_default
from emulator.registry import Scale
from emulator.scenario.words import Count
from emulator.world.fleet import CLOUD
from emulator.world.world import Steps


class CentralizedParams(MethodParams):
    """How the server trains, and what a sample costs on its way."""

    local: LocalRule = chosen_by_default("sgd", "what the server does with a gradient")
    sample_bytes: Count | None = Field(
        None, description="bytes of a sample on its way; without it one for each of its values and one for its label"
    )

    def problems(self, scale: Scale) -> list[tuple[str, str]]:
        """What makes no sense with one trainer."""
        if self.local().remember is None:
            return []
        return [
            ("local", f"'{self.local.kind}' has a memory for each client, and here the server trains; take another")
        ]


@methods.register("centralized", CentralizedParams, MethodFacts(central=True))
def centralized(session: Session, params: CentralizedParams) -> Steps:
    """All samples at the cloud, which trains one model on them (no federation)."""
    world, lab = session.world, session.lab
    samples = lab.clients.samples
    sample_bytes = params.sample_bytes or math.prod(lab.sample_shape) + 1
    model = lab.initial()
    session.begin(model)
    arrived: set[int] = set()
    first = world.env.event()

    def steps(client: int) -> Steps:
        size = int(samples[client]) * sample_bytes
        if not (yield world.send(world.fleet.client_names[client], CLOUD, size, Tag("samples"))):
            return False
        arrived.add(client)
        if not first.triggered:
            first.succeed()
        return True

    through = yield from ask_everybody(session, steps)
    if not arrived and (yield from session.wait(first | through, model)):
        return
    if not arrived:
        session.end_early(NOBODY_LEFT, model)
        return
    for t in itertools.count(1):
        trained = yield from session.train_at_server(CLOUD, model, sorted(arrived), params.local, Tag("training", t))
        model = trained.model
        if session.end_round(t, model):
            return
