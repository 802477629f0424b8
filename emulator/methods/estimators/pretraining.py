"""Pre-training: every client trains the untrained model on its own data, and what becomes of it tells of the data.

S4 §III-B, S1 §III-A. On the clock: the untrained model goes down to all clients (through their edge, where edges form the
groups); each trains it on its device, works out its estimate, and sends that up. All of it belongs to round 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field

from emulator.contracts.learning import LocalParams, LocalRuleChoice
from emulator.learning.recipes import Trained
from emulator.ledger import Tag
from emulator.methods.estimators.asking import Enquiry, ask_everybody
from emulator.methods.session import Session
from emulator.registry import Params, Scale
from emulator.world.fleet import CLOUD
from emulator.world.world import Steps, StepsTo

NUMBER_BYTES = 4  # estimates travel as float32
PRETRAINING, ESTIMATE = Tag("pretraining"), Tag("estimate")

T = TypeVar("T")


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


def at_servers(session: Session, enquiry: Enquiry, tag: Tag) -> Callable[[str], StepsTo[bool]]:
    """Sends the untrained model on its way to the servers. Returns a process that waits for it at one: whether it is there."""
    world = session.world
    servers = dict.fromkeys(enquiry.servers)
    at_edge = {s: world.send(CLOUD, s, enquiry.model_bytes, tag) for s in servers if s != CLOUD}

    def fetched(server: str) -> Steps:
        """Whether a server has the model; it gets it from the cloud where that went wrong, or where clients moved to it."""
        if server == CLOUD:
            return True
        if server not in at_edge or (at_edge[server].processed and not at_edge[server].value):
            at_edge[server] = world.send(CLOUD, server, enquiry.model_bytes, tag)
        if not at_edge[server].processed:
            yield at_edge[server]
        return at_edge[server].value

    return fetched


def ask_for_estimates(
    session: Session,
    enquiry: Enquiry,
    work: Callable[[int], StepsTo[T | None]],
    size: Callable[[T], int],
) -> StepsTo[dict[int, T]]:
    """The untrained model goes down to all clients; each works, and what it has found, of so many bytes, goes up.

    Returns what has arrived, by client.
    """
    world, fetched = session.world, at_servers(session, enquiry, PRETRAINING)
    arrived: dict[int, T] = {}

    def client(number: int) -> StepsTo[bool]:
        server, name = world.server(enquiry.servers[number]), world.fleet.client_names[number]
        if server is None or not (yield from fetched(server)):
            return False
        if not (yield world.send(server, name, enquiry.model_bytes, PRETRAINING)):
            return False
        found = yield from work(number)
        if found is None or not (yield world.send(name, server, size(found), ESTIMATE)):
            return False
        arrived[number] = found
        return True

    yield from ask_everybody(session, client)
    return {number: arrived[number] for number in sorted(arrived)}


def number_bytes(found: np.ndarray) -> int:
    """The size of numbers on their way."""
    return NUMBER_BYTES * found.size


def rows_of_all(session: Session, clients: Iterable[int], rows: np.ndarray) -> np.ndarray:
    """A row for every client, from those [n, d] of the clients that were heard; the others get the mean of these.

    Where nobody was heard, all rows are the same: an even mix of the classes.
    """
    counts, heard = session.lab.clients.label_counts, list(clients)
    if not heard:
        return np.full(counts.shape, 1 / counts.shape[1])
    everybody = np.tile(rows.mean(axis=0), (len(counts), 1))
    everybody[heard] = rows
    return everybody


def pretrain(session: Session, params: PretrainingParams, client: int) -> StepsTo[Trained | None]:
    """A client's work: training the whole untrained model."""
    return session.train(client, session.lab.initial(), params.rule(), PRETRAINING)
