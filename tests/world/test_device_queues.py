"""A client's device does one computation at a time, first come, first served."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.contracts.world import GroupOperationChoice
from emulator.ledger import BROKEN, COMPUTE, DONE, Tag
from emulator.scenario import Loaded
from emulator.world.batch import Work
from emulator.world.operations import SecureAggregationParams
from emulator.world.world import Steps, World
from tests.world.test_world import make_world

Small = Callable[..., Loaded]
TAG = Tag("test", 1)

requests = st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 5)), min_size=1, max_size=8)


def asked(world: World, wanted: Sequence[tuple[float, float]]) -> list[tuple[float, bool]]:
    """Asks client 0 at instants for so many seconds of work each; when each began, and whether it was done."""
    begun: list[float] = [math.nan] * len(wanted)
    done: list[bool] = [False] * len(wanted)

    def one(number: int, at_s: float, seconds: float) -> Steps:
        yield world.env.timeout(at_s)

        def note() -> None:
            begun[number] = world.now

        done[number] = yield world.busy(COMPUTE, 0, seconds, Tag("test", 1, number), begun=note)

    world.env.run(world.env.all_of([world.env.process(one(i, *request)) for i, request in enumerate(wanted)]))
    return list(zip(begun, done, strict=True))


@pytest.mark.parametrize("watched", [False, True])
def test_each_computation_begins_when_it_is_asked_for_or_when_the_one_before_ends(small: Small, watched: bool) -> None:
    loaded = small()

    @given(requests)
    @settings(max_examples=60, deadline=None)
    def holds(wanted: list[tuple[float, float]]) -> None:
        world = make_world(loaded)
        if watched:
            world.watch()
        check_queue(world, wanted)

    holds()


def check_queue(world: World, wanted: Sequence[tuple[float, float]]) -> None:
    """What a device with one queue does, worked out by hand."""
    found = asked(world, wanted)
    free_s = 0.0
    order = sorted(range(len(wanted)), key=lambda i: wanted[i][0])
    for i in order:
        start_s = max(wanted[i][0], free_s)
        free_s = start_s + wanted[i][1]
        assert found[i] == (start_s, True)
    rows = sorted(world.ledger.rows, key=lambda row: row.start_s)
    assert [row.start_s for row in rows] == [found[i][0] for i in order]
    assert all(row.status == DONE for row in rows)


def test_what_is_given_up_while_it_waits_leaves_no_row_and_lets_the_next_one_begin(small: Small) -> None:
    world = make_world(small())
    world.watch()

    def give_up() -> Steps:
        yield world.env.timeout(1.0)
        world.give_up(1, 1, 0)  # the second, which waits
        yield world.env.timeout(1.0)
        world.give_up(1, 0, 0)  # the first, which is under way

    world.env.process(give_up())
    found = asked(world, [(0.0, 10.0), (0.5, 10.0), (0.7, 3.0)])
    assert [done for _, done in found] == [False, False, True]
    assert found[0][0] == 0.0
    assert math.isnan(found[1][0])  # it never began
    assert found[2][0] == 2.0
    assert [(r.start_s, r.end_s, r.status) for r in world.ledger.rows] == [(0.0, 2.0, BROKEN), (2.0, 5.0, DONE)]


@pytest.mark.parametrize("meets", [False, True])
def test_clients_that_work_together_wait_for_their_devices_too(small: Small, meets: bool) -> None:
    world = make_world(small())
    crew = world.batch.crew("edge-0", [0, 1])
    work = Work(np.array([10, 10]), 1, 10)
    busy_s = 5.0

    def rounds() -> Steps:
        if meets:
            arrivals_s = yield crew.receive(1000, TAG)
            curve = SecureAggregationParams(a="1 s", b="0 s", c="0 s")  # type: ignore[arg-type]
            operation = GroupOperationChoice("secure-aggregation", curve)
            yield from crew.train_and_operate(work, operation, 1, TAG, arrivals_s)
        else:
            yield crew.exchange(work, 1000, 1000, TAG)

    world.busy(COMPUTE, 0, busy_s, Tag("other", 1))
    world.env.run(world.env.process(rounds()))
    trained = {row.who: row for row in world.ledger.rows if row.what == "training"}
    assert trained["client-0"].start_s == busy_s > trained["client-1"].start_s
    own = sorted((r.start_s, r.end_s) for r in world.ledger.rows if r.who == "client-0" and r.kind != "transfer")
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(own))
    assert len(own) == 2 + meets
