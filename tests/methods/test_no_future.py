"""Nobody looks into the future: what a run does before an instant does not depend on what the world does after it.

A run of every preset in random worlds is compared with runs in worlds that are the same up to an instant and others from then on
(`tests.methods.futures`). All that was asked for, begun, sent, noted and learned before it must be the same, byte for byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import event, given, reject, settings
from hypothesis import strategies as st

from emulator.errors import InputError
from emulator.rng import stream
from emulator.scenario.presets import presets
from tests.methods.futures import Chronicle, Future, changeable, chronicle, diverges
from tests.methods.test_every_world_ends import QUICK, REFUSED
from tests.methods.worlds import loaded, worlds

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


def compared(text: str, seed: int) -> Iterator[bool]:
    """A world, and some that are the same up to an instant: whether something differs afterwards, as nothing must before."""
    world, rng = loaded(text), stream(seed, "futures")
    able, for_ever = changeable(world.scenario), bool(rng.integers(2))
    what = frozenset(rng.choice(able, rng.integers(1, len(able) + 1), replace=False).tolist())
    try:
        base = chronicle(world, Future(what, for_ever=for_ever))
    except InputError as error:
        if not any(reason in error.message for reason in REFUSED):
            raise
        reject()
    if not base.end_s:
        reject()
    for _ in range(FUTURES):
        future = Future(what, instant(base, rng), int(rng.integers(1000)), for_ever)
        other = chronicle(world, future)
        found = diverges(base, other, future.at_s)
        assert found is None, f"{future}\n{found}\n{text}"
        yield diverges(base, other, math.inf) is not None


@pytest.mark.parametrize("preset", PRESETS)
def test_nobody_looks_into_the_future(preset: str) -> None:
    @settings(QUICK, max_examples=IN_SUITE, derandomize=True)
    @given(worlds(preset), SEEDS)
    def holds(text: str, seed: int) -> None:
        for differs in compared(text, seed):
            event(f"differs afterwards: {differs}")

    holds()


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_nobody_looks_into_the_future_of_a_thousand_worlds(preset: str) -> None:
    @settings(QUICK, max_examples=-(-ON_DEMAND // len(PRESETS)))
    @given(worlds(preset), SEEDS)
    def holds(text: str, seed: int) -> None:
        for differs in compared(text, seed):
            event(f"differs afterwards: {differs}")

    holds()
