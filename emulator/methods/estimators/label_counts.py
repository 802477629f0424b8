"""Label counts, told to the server as they are (S2)."""

from __future__ import annotations

import numpy as np

from emulator.contracts.methods import EstimatorFacts, estimators
from emulator.ledger import Tag
from emulator.methods.estimators.asking import Enquiry, ask_everybody
from emulator.methods.session import Session
from emulator.registry import NoParams
from emulator.world.fleet import CLOUD
from emulator.world.world import Steps

COUNT_BYTES = 4  # one label count on the wire


@estimators.register("label-counts", facts=EstimatorFacts(per_class=True))
def label_counts(session: Session, enquiry: Enquiry, params: NoParams) -> Steps:
    """Label counts: every client tells its server how many samples of each label it has; rows are shares of labels."""
    world, counts = session.world, session.lab.clients.label_counts
    size_bytes = COUNT_BYTES * counts.shape[1]
    tag = Tag("label-counts")
    names = world.fleet.client_names

    def report(client: int) -> Steps:
        server = world.server(enquiry.servers[client])
        return server is not None and (yield world.send(names[client], server, size_bytes, tag))

    if world.calm:  # no process a client, where there may be a million
        asking: dict[str, list[int]] = {}
        for client, server in enumerate(enquiry.servers):
            asking.setdefault(server, []).append(client)
        crews = [world.batch.crew(server, clients) for server, clients in asking.items()]
        yield world.env.all_of([crew.send(size_bytes, tag) for crew in crews])
    else:
        yield from ask_everybody(session, report)
    return counts / np.maximum(1, counts.sum(axis=1, keepdims=True))


@estimators.register("label-mix")
def label_mix(session: Session, enquiry: Enquiry, params: NoParams) -> Steps:
    """The label mix of the whole fleet: every edge tells the cloud its clients' label counts, added up, and gets the total."""
    world, counts = session.world, session.lab.clients.label_counts
    size_bytes = COUNT_BYTES * counts.shape[1]
    tag = Tag("label-mix")
    yield world.env.all_of([world.send(edge, CLOUD, size_bytes, tag) for edge in world.fleet.edge_names])
    yield world.env.all_of([world.send(CLOUD, edge, size_bytes, tag) for edge in world.fleet.edge_names])
    return counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
