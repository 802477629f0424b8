"""Estimators: what the servers learn of a client's data, and what learning it costs on the clock."""

from __future__ import annotations

from collections.abc import Collection

from emulator.ledger import Tag
from emulator.methods.session import Session
from emulator.registry import NoParams, estimators
from emulator.world.world import Steps

COUNT_BYTES = 4  # one label count on the wire


@estimators.register("label-counts")
def label_counts(session: Session, params: NoParams) -> Steps:
    """Label counts: every client tells its server how many samples of each label it has."""
    world, counts = session.world, session.lab.clients.label_counts
    size_bytes = COUNT_BYTES * counts.shape[1]
    tag = Tag("label-counts")
    crews = [world.batch.crew(world.fleet.home(block[0]), block) for block in world.fleet.blocks]
    yield world.env.all_of([crew.send(size_bytes, tag) for crew in crews])


def learn(session: Session, needs: Collection[str]) -> Steps:
    """Runs the estimators that the chosen rules need, each once."""
    for name in sorted(set(needs)):
        yield from estimators[name].function(session, NoParams())
