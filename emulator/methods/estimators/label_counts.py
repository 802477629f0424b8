"""Label counts, told to the server as they are (S2)."""

from __future__ import annotations

import numpy as np

from emulator.ledger import Tag
from emulator.methods.estimators.asking import Enquiry
from emulator.methods.session import Session
from emulator.registry import NoParams, estimators
from emulator.world.world import Steps

COUNT_BYTES = 4  # one label count on the wire


@estimators.register("label-counts", per_class=True)
def label_counts(session: Session, enquiry: Enquiry, params: NoParams) -> Steps:
    """Label counts: every client tells its server how many samples of each label it has; rows are shares of labels."""
    world, counts = session.world, session.lab.clients.label_counts
    size_bytes = COUNT_BYTES * counts.shape[1]
    tag = Tag("label-counts")
    yield world.env.all_of(
        [world.send(name, enquiry.servers[c], size_bytes, tag) for c, name in enumerate(world.fleet.client_names)]
    )
    return counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
