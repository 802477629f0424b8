"""Estimators: what the servers learn of a client's data, and what learning it costs on the clock."""

from __future__ import annotations

from collections.abc import Collection

from emulator.ledger import Tag
from emulator.methods.session import Session
from emulator.registry import NoParams, estimators
from emulator.world.fleet import CLOUD, edge_name
from emulator.world.world import Steps

COUNT_BYTES = 4  # one label count on the wire


@estimators.register("label-counts")
def label_counts(session: Session, params: NoParams) -> Steps:
    """Label counts: every client tells its server how many samples of each label it has.

    A client that is away tells it when it is back; until then the server goes by what the client registered with.
    """
    world, counts = session.world, session.lab.clients.label_counts
    size_bytes = COUNT_BYTES * counts.shape[1]
    tag = Tag("label-counts")
    names = world.fleet.client_names

    def report(client: int) -> Steps:
        while (back := world.until_back(client)) is not None:
            yield back
            home = world.home(client)
            if home is not None:
                if (yield world.send(names[client], home, size_bytes, tag)):
                    return
            elif (change := world.until_return()) is not None:
                yield change
            else:
                return

    if world.all_present:
        yield world.env.all_of([world.send(name, world.fleet.home(c), size_bytes, tag) for c, name in enumerate(names)])
        return
    here = world.present(range(len(names)))
    reports = {c: world.env.process(report(c)) for c in range(len(names))}
    yield world.env.all_of([reports[c] for c in here])


@estimators.register("label-mix")
def label_mix(session: Session, params: NoParams) -> Steps:
    """The label mix of the whole fleet: every edge tells the cloud its clients' label counts, added up, and gets the total."""
    world, classes = session.world, session.lab.clients.label_counts.shape[1]
    edges = [edge_name(e) for e in range(session.scenario.topology.edges)]
    tag = Tag("label-mix")
    yield world.env.all_of([world.send(edge, CLOUD, COUNT_BYTES * classes, tag) for edge in edges])
    yield world.env.all_of([world.send(CLOUD, edge, COUNT_BYTES * classes, tag) for edge in edges])


def learn(session: Session, needs: Collection[str]) -> Steps:
    """Runs the estimators that the chosen rules need, each once, in the order of their names: counts before their mix."""
    for name in sorted(set(needs)):
        yield from estimators[name].function(session, NoParams())
