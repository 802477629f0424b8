"""Asking the clients: who wants to know, and which estimators are run for what rules need."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from emulator.methods.session import Session
from emulator.registry import Chosen, estimators
from emulator.world.world import Steps

ESTIMATES = "estimates"  # what a rule needs that works on whatever the chosen estimator says


@dataclass(frozen=True)
class Enquiry:
    """Where estimates go: ``servers[i]`` is who forms the groups of client i.

    ``model_bytes`` is the size of the untrained model on its way to a client; 0 where clients draw it themselves from a seed.
    """

    servers: Sequence[str]
    model_bytes: int


def learn(session: Session, needs: Collection[str], estimator: Chosen, enquiry: Enquiry) -> Steps:
    """Runs the estimators that rules need, each once; returns what ``estimator`` says, None where no rule needs it."""
    said: dict[str, np.ndarray] = {}
    for need in sorted(set(needs)):
        asked = estimator if need == ESTIMATES else Chosen("estimator", need, estimators[need].params())
        if asked.kind not in said:
            said[asked.kind] = yield from asked(session, enquiry)
    return said[estimator.kind] if ESTIMATES in needs else None
