"""Asking the clients: who wants to know, and which estimators are run for what rules need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
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


def ask_everybody(session: Session, steps: Callable[[int], Steps]) -> Steps:
    """Lets all clients work through ``steps(client)`` side by side, which return whether it went well to the end.

    A client that is away, or is lost on the way, begins when it is back. Nobody waits for those who are away at the start: until
    then the servers go by what these registered with.
    """
    world = session.world
    everybody = range(len(world.fleet.client_names))
    if world.all_present:
        yield world.env.all_of([world.env.process(steps(c)) for c in everybody])
        return

    def until_done(client: int) -> Steps:
        while (back := world.until_back(client)) is not None:
            yield back
            if world.home(client) is not None:
                if (yield from steps(client)):
                    return
            elif (change := world.until_return()) is not None:
                yield change
            else:
                return

    here = world.present(everybody)
    work = {c: world.env.process(until_done(c)) for c in everybody}
    yield world.env.all_of([work[c] for c in here])


def learn(session: Session, needs: Collection[str], estimator: Chosen, enquiry: Enquiry) -> Steps:
    """Runs the estimators that rules need, each once; returns what ``estimator`` says, None where no rule needs it."""
    said: dict[str, np.ndarray] = {}
    for need in sorted(set(needs)):
        asked = estimator if need == ESTIMATES else Chosen("estimator", need, estimators[need].params())
        if asked.kind not in said:
            said[asked.kind] = yield from asked(session, enquiry)
    return said[estimator.kind] if ESTIMATES in needs else None
