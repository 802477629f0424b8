"""Asking the clients: who wants to know, and which estimators are run for what rules need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emulator.contracts.grouping import COUNTS, ESTIMATES
from emulator.contracts.methods import Estimator, EstimatorChoice, estimators
from emulator.methods.session import Session
from emulator.world.world import Steps, StepsTo

TRIES = 100  # after which a client that is lost again and again is left out


@dataclass(frozen=True)
class Enquiry:
    """Where estimates go: ``servers[i]`` is who forms the groups of client i.

    ``model_bytes`` is the size of the untrained model on its way to a client; 0 where clients draw it themselves from a seed.
    """

    servers: Sequence[str]
    model_bytes: int


def ask_everybody(session: Session, steps: Callable[[int], Steps]) -> Steps:
    """Lets all clients work through ``steps(client)`` side by side, which return whether it went well to the end.

    A client that is away, or is lost on the way, begins when it is back; what was lost at once, when a server or link that is
    out is back. After `TRIES` that were lost on the way it is left out. Nobody waits for those who are away at the start: the
    servers go by what they know without them. Returns an event that happens when all are through or left out.
    """
    world = session.world
    everybody = range(len(world.fleet.client_names))
    if world.all_present:
        through = world.env.all_of([world.env.process(steps(c)) for c in everybody])
        yield through
        return through

    def until_done(client: int) -> Steps:
        tries = 0
        while tries < TRIES and (back := world.until_back(client)) is not None:
            yield back
            began_s = world.now
            if world.home(client) is not None and (yield from steps(client)):
                return
            if world.now > began_s:
                tries += 1
            elif (way := world.until_way(client)) is not None:
                yield way
            else:
                return

    here = world.present(everybody)
    work = {c: world.env.process(until_done(c)) for c in everybody}
    yield world.env.all_of([work[c] for c in here])
    return world.env.all_of(work.values())


def learn(session: Session, needs: Collection[str], estimator: Estimator, enquiry: Enquiry) -> Steps:
    """`learn_each`, and of that the estimates that a rule works on (`estimates_for`)."""
    return estimates_for((yield from learn_each(session, needs, estimator, enquiry)), needs)


def learn_each(
    session: Session, needs: Collection[str], estimator: Estimator, enquiry: Enquiry
) -> StepsTo[dict[str, np.ndarray]]:
    """Runs the estimators that rules need, each once; one that is the method's own ``estimator`` with its parameters.

    Returns what they say, by need.
    """
    said: dict[str, np.ndarray] = {}
    found: dict[str, np.ndarray] = {}
    for need in sorted(set(needs)):
        own = need in (ESTIMATES, estimator.kind)
        asked = estimator if own else EstimatorChoice(need, estimators[need].params())
        if asked.kind not in said:
            said[asked.kind] = yield from asked(session, enquiry)
        found[need] = said[asked.kind]
    return found


def estimates_for(said: Mapping[str, np.ndarray], needs: Collection[str]) -> np.ndarray | None:
    """The estimates that rules with these needs work on, of what estimators said.

    What the method's own estimator says where rules need whatever that is, otherwise what an estimator says that they need
    by name. None where they need label counts at most.
    """
    order = sorted(needs, key=lambda need: (need != ESTIMATES, need))
    return next((said[need] for need in order if need not in COUNTS), None)
