"""Pre-training: every client trains the untrained model on its own data, and what becomes of it tells of the data.

S4 §III-B, S1 §III-A. On the clock: the untrained model goes down to all clients (through their edge, where edges form the
groups); each trains it on its device, works out its estimate, and sends that up. All of it belongs to round 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from emulator.contracts.learning import LocalParams, LocalRuleChoice, MeasurementChoice
from emulator.learning.lab import Subject
from emulator.learning.timing import AnyLab
from emulator.ledger import Tag
from emulator.methods.estimators.asking import Enquiry, ask_everybody
from emulator.methods.session import Session
from emulator.registry import Params, Scale
from emulator.world.fleet import CLOUD
from emulator.world.world import Steps, World

NUMBER_BYTES = 4  # estimates travel as float32
PRETRAINING, ESTIMATE = Tag("pretraining"), Tag("estimate")

# What a client computes, once it has the model, until it can send its estimate; returns whether it came to its end.
Work = Callable[[World, int], Steps]


class PretrainingParams(Params):
    """How clients train the untrained model before they are grouped."""

    epochs: Annotated[int, Field(ge=1, le=100_000)] = Field(10, description="passes over the client's samples (e)")
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = Field(32, description="samples a step")
    learning_rate: Annotated[float, Field(gt=0)] = Field(0.05, description="step size (η)")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="momentum")

    def rule(self, kind: str = "sgd") -> LocalRuleChoice:
        """The local training that these parameters describe."""
        names = ("epochs", "batch_size", "learning_rate", "momentum")
        return LocalRuleChoice(kind, LocalParams(**{name: getattr(self, name) for name in names}))


class PublicParams(PretrainingParams):
    """Pre-training, and predictions of public samples afterwards."""

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """There must be public samples."""
        if scale.public == 0:
            yield "", "needs public samples: say with data.public how many of each class (10 in S4)"


def pretrained(lab: AnyLab, params: PretrainingParams, kind: str = "sgd") -> Iterator[tuple[Sequence[Any], int]]:
    """Every client's model after pre-training, as the one model of a list, and the client; made as it is asked for."""
    rule = params.rule(kind)
    for client in range(len(lab.clients.samples)):
        yield [lab.train(lab.initial(), client, rule, 0)[0]], client


def measured(lab: AnyLab, measurement: MeasurementChoice | str, params: PretrainingParams) -> list[np.ndarray]:
    """A measurement on every client's model after pre-training that needs no samples of the client's."""
    subjects: Iterator[Subject] = ((models, None) for models, _ in pretrained(lab, params))
    return lab.measure_all(measurement, subjects)


def charge(session: Session, enquiry: Enquiry, work: Work, up_bytes: int) -> Steps:
    """The time and bytes of a pre-training: the model down, the clients' work, so many bytes from each up."""
    world = session.world
    servers = dict.fromkeys(enquiry.servers)
    at_edge = {s: world.send(CLOUD, s, enquiry.model_bytes, PRETRAINING) for s in servers if s != CLOUD}

    def fetched(server: str) -> Steps:
        """Whether a server has the model; it gets it from the cloud where that went wrong, or where clients moved to it."""
        if server == CLOUD:
            return True
        if server not in at_edge or (at_edge[server].processed and not at_edge[server].value):
            at_edge[server] = world.send(CLOUD, server, enquiry.model_bytes, PRETRAINING)
        if not at_edge[server].processed:
            yield at_edge[server]
        return at_edge[server].value

    def client(number: int) -> Steps:
        server, name = world.server(enquiry.servers[number]), world.fleet.client_names[number]
        if server is None or not (yield from fetched(server)):
            return False
        if not (yield world.send(server, name, enquiry.model_bytes, PRETRAINING)):
            return False
        if not (yield from work(world, number)):
            return False
        return (yield world.send(name, server, up_bytes, ESTIMATE))

    yield from ask_everybody(session, client)


def train(session: Session, params: PretrainingParams) -> Work:
    """A client's work: training the whole model."""
    samples = session.lab.clients.samples

    def work(world: World, client: int) -> Steps:
        return (yield world.train(client, int(samples[client]), params.epochs, params.batch_size, PRETRAINING))

    return work
