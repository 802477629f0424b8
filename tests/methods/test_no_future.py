"""Nobody looks into the future: what a run does before an instant does not depend on what the world does after it.

A run of every preset in random worlds is compared with runs in worlds that are the same up to an instant and others from then on
(`tests.methods.futures`). All that was asked for, begun, sent, noted and learned before it must be the same, byte for byte.

Two things may be known beforehand. Who waits is told that nobody comes back, ever: a run ends then ("nobody left", or nothing
happens any more), a client that is lost for good is not asked any more, and a header that is gone is replaced. In half of the
worlds nobody is away for ever, and there nothing of that is let pass. And checks of the input know the best times of links and
devices (a deadline that no round can keep is refused before anything happens), which are the same in all these worlds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np
import pytest
from hypothesis import event, given, reject, settings
from hypothesis import strategies as st

from emulator.contracts.learning import LocalRule
from emulator.contracts.methods import MethodParams, methods
from emulator.errors import InputError
from emulator.ledger import Tag
from emulator.methods.session import Session
from emulator.methods.slots import chosen_by_default
from emulator.rng import stream
from emulator.scenario import Loaded
from emulator.scenario.presets import presets
from emulator.world.fleet import CLOUD
from emulator.world.world import Steps
from tests.methods.futures import Chronicle, Future, changeable, chronicle, diverges
from tests.methods.test_every_world_ends import QUICK, REFUSED
from tests.methods.worlds import TooLongError, loaded, worlds

PRESETS = sorted(presets())
IN_SUITE, ON_DEMAND = 3, 1000  # worlds: of each preset, and in all
SEEDS = st.integers(0, 2**32 - 1)
FUTURES = 2  # of each world


def instant(told: Chronicle, rng: np.random.Generator) -> float:
    """At something that happened, right after it, between two such instants, or anywhere in a run."""
    known = sorted({at_s for at_s, _ in (*told.acts, *told.facts) if 0 < at_s <= told.end_s})
    place = int(rng.integers(len(known)))
    here_s, next_s = known[place], known[min(place + 1, len(known) - 1)]
    anywhere_s = float(rng.uniform(0.01, 0.99)) * told.end_s
    return float(rng.choice([here_s, math.nextafter(here_s, math.inf), (here_s + next_s) / 2, anywhere_s]))


class Compared(NamedTuple):
    """A run in a world that is another one from an instant on: what differs before, and whether anything does afterwards."""

    future: Future
    before: str | None
    afterwards: bool


def compared(world: Loaded, seed: int) -> Iterator[Compared]:
    """Runs in some worlds that are the same as one up to an instant."""
    rng = stream(seed, "futures")
    able, for_ever = changeable(world.scenario), bool(rng.integers(2))
    what = frozenset(rng.choice(able, rng.integers(1, len(able) + 1), replace=False).tolist())
    try:
        base = chronicle(world, Future(what, for_ever=for_ever))
    except InputError as error:
        if not any(reason in error.message for reason in REFUSED):
            raise
        reject()
    except TooLongError:  # somebody waits for days in a world in which others come and go all the time
        reject()
    if not base.end_s:
        reject()
    for _ in range(FUTURES):
        future = Future(what, instant(base, rng), int(rng.integers(1000)), for_ever)
        other = chronicle(world, future)
        yield Compared(future, diverges(base, other, future.at_s), diverges(base, other, math.inf) is not None)


def check(text: str, seed: int) -> None:
    """Nothing differs before the instant."""
    for future, before, afterwards in compared(loaded(text), seed):
        assert before is None, f"{future}\n{before}\n{text}"
        event(f"differs afterwards: {afterwards}")


@pytest.mark.parametrize("preset", PRESETS)
def test_nobody_looks_into_the_future(preset: str) -> None:
    @settings(QUICK, max_examples=IN_SUITE, derandomize=True)
    @given(worlds(preset), SEEDS)
    def holds(text: str, seed: int) -> None:
        check(text, seed)

    holds()


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_nobody_looks_into_the_future_of_a_thousand_worlds(preset: str) -> None:
    @settings(QUICK, max_examples=-(-ON_DEMAND // len(PRESETS)))
    @given(worlds(preset), SEEDS)
    def holds(text: str, seed: int) -> None:
        check(text, seed)

    holds()


# The harness itself.

Small = Callable[..., Loaded]
SEVERAL = 12


class PeekingParams(MethodParams):
    """What a method looks at that it cannot know."""

    local: LocalRule = chosen_by_default("sgd", "how clients train")
    peeks: Literal["", "who", "how long", "whether", "next"] = ""


def peeking(session: Session, params: PeekingParams) -> Steps:
    """Rounds in which clients are asked one after another, by somebody who may know too much."""
    world, model = session.world, session.lab.initial()
    names, size = world.fleet.client_names, world.workload.model_bytes
    world.watch()
    session.begin(model)
    for t in itertools.count(1):
        clients = world.present(range(len(names)))
        if params.peeks == "who":  # those who stay to the end
            clients = [c for c in clients if world._disturbances.next_loss(names[c], world.now) > world.now + 0.1]
        if params.peeks == "next":  # whoever is the first to be done
            clients.sort(key=lambda c: world._end_of_work(c, 0.1, world.now))
        for client in clients[:3]:
            tag = Tag("model", t)
            if params.peeks == "whether" and world._end_of_work(client, 0.1, world.now) > world.now + 0.2:
                continue
            trip = session.round_trip(client, CLOUD, session.train(client, model, params.local, tag), tag, size, size)
            came = session.env.process(trip)
            wait_s = 0.01
            if params.peeks == "how long":  # a tenth of what it will take
                wait_s = min(1.0, world._end_of_work(client, 0.1, world.now) - world.now) / 10
            yield came | session.env.timeout(wait_s)
            if not came.triggered:
                world.give_up(t, -1, client)
            elif came.value is not None:
                model = session.lab.combine([model, came.value.model], [0.5, 0.5])
        yield session.env.timeout(0.01)
        if session.end_round(t, model):
            return


@pytest.fixture
def _peeker(monkeypatch: pytest.MonkeyPatch) -> None:
    methods.names()
    monkeypatch.setattr(methods, "_plugins", dict(methods._plugins))
    methods.register("peeking", PeekingParams)(peeking)


@pytest.mark.usefixtures("_peeker")
@pytest.mark.parametrize("peeks", ["", "who", "how long", "whether", "next"])
def test_whoever_looks_into_the_future_is_found(small: Small, peeks: str) -> None:
    world = small(f"method={{kind: peeking, peeks: '{peeks}', local: {{batch_size: 4}}}}", "stop.rounds=10")
    found = [each for seed in range(SEVERAL) for each in compared(world, seed)]
    assert any(each.before for each in found) == bool(peeks)
    assert sum(each.afterwards for each in found) > len(found) / 2


def test_worlds_differ_after_the_instant(small: Small) -> None:
    found = [each for seed in range(SEVERAL) for each in compared(small("stop.rounds=5"), seed)]
    assert not any(each.before for each in found)
    assert sum(each.afterwards for each in found) > len(found) / 2
