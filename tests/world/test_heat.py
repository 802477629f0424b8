"""Devices that get hot: the closed form against small steps, and many at once against one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from devices.profile import DeviceProfile, Throttling, find_profile
from emulator.ledger import BROKEN, COMPUTE, DONE, Ledger, Tag
from emulator.rng import stream
from emulator.scenario import Loaded
from emulator.world.fleet import Fleet
from emulator.world.heat import Heat
from emulator.world.network import DedicatedNetwork
from emulator.world.overtime import OverTime, Product, Spells
from emulator.world.workload import Workload
from emulator.world.world import Steps, World
from traces.step import StepFunction

Small = Callable[..., Loaded]
STEP_S = 1 / 512  # exact in binary, so that steps do not drift

throttlings = st.builds(
    lambda after, speed, recovers: Throttling.model_construct(after=after, speed=speed, recovers=recovers),
    st.floats(0.5, 20),
    st.floats(0.2, 1),
    st.floats(0.5, 20),
)
works = st.lists(st.tuples(st.floats(0, 8), st.floats(0.1, 12)), min_size=1, max_size=5)  # idle before, then work
speeds = st.none() | st.lists(st.floats(0.3, 3), min_size=1, max_size=5)


def speed_of(levels: Sequence[float] | None) -> StepFunction | None:
    if levels is None:
        return None
    return StepFunction.of(np.arange(len(levels)) * 4.0, levels)


def by_steps(throttling: Throttling, level: float, start_s: float, seconds: float, speed: OverTime | None) -> float:
    """When work is done, with heat and work added up in small steps."""
    now, done = start_s, 0.0
    while done < seconds:
        rate = (1.0 if speed is None else speed.at(now)) * (throttling.speed if level >= 1 else 1.0)
        done += rate * STEP_S
        now += STEP_S
        level = min(1.0, level + STEP_S / throttling.after)
    return now


@given(throttlings, works, speeds)
@settings(max_examples=50, deadline=None)
def test_the_closed_form_is_what_small_steps_add_up_to(
    throttling: Throttling, work: list[tuple[float, float]], levels: list[float] | None
) -> None:
    speed, heat, level, now = speed_of(levels), Heat(throttling), 0.0, 0.0
    # A step too much when it gets hot, when the speed changes and at the end, stretched by the ratio of the speeds.
    slack = 3 * STEP_S / throttling.speed * max(levels or [1.0]) / min(levels or [1.0]) * len(levels or [1.0])
    for idle_s, seconds in work:
        start_s, level = now + idle_s, max(0.0, level - idle_s / throttling.recovers)
        assert heat.level(start_s) == pytest.approx(level, abs=1e-9)
        now = heat.end_of_work(start_s, seconds, speed)
        assert now == pytest.approx(by_steps(throttling, level, start_s, seconds, speed), abs=slack)
        assert heat.work_done(start_s, now, speed) == pytest.approx(seconds, rel=1e-9, abs=1e-9)
        heat.worked(start_s, now)
        level = min(1.0, level + (now - start_s) / throttling.after)


@given(throttlings, works, speeds)
@settings(max_examples=100, deadline=None)
def test_heat_only_slows_down_and_never_below_its_speed(
    throttling: Throttling, work: list[tuple[float, float]], levels: list[float] | None
) -> None:
    speed, heat, now = speed_of(levels), Heat(throttling), 0.0
    for idle_s, seconds in work:
        start_s = now + idle_s
        now = heat.end_of_work(start_s, seconds, speed)
        peak = 1.0 if speed is None else speed.peak
        assert now - start_s >= seconds / peak * (1 - 1e-12) - 1e-9
        if speed is None:
            assert now - start_s <= seconds / throttling.speed * (1 + 1e-12) + 1e-9
        heat.worked(start_s, now)
        assert 0 <= heat.level(now) <= 1


def test_by_hand() -> None:
    heat = Heat(Throttling(after="10 s", speed=0.5, recovers="4 s"))
    assert heat.end_of_work(2.0, 6.0) == 8.0
    heat.worked(2.0, 8.0)
    assert heat.level(8.0) == pytest.approx(0.6)
    assert heat.level(9.0) == pytest.approx(0.35)  # idle for 1 s of 4 s
    # Hot after 6.5 s more; the remaining 1.5 s take 3 s.
    assert heat.end_of_work(9.0, 8.0) == pytest.approx(9 + 6.5 + 3)
    heat.worked(9.0, 18.5)
    assert heat.end_of_work(18.5, 2.0) == pytest.approx(18.5 + 4)  # hot from its first second
    assert heat.end_of_work(30.0, 2.0) == 32.0  # cold again


def test_a_device_that_never_works_again_never_ends() -> None:
    heat = Heat(Throttling(after="10 s", speed=0.5, recovers="4 s"))
    out = Spells([(5.0, math.inf)])
    assert heat.end_of_work(0.0, 20.0, out) == math.inf
    heat.worked(0.0, math.inf)
    assert heat.end_of_work(math.inf, 1.0) == math.inf
    heat.worked(math.inf, math.inf)


# In the world.

HOT = Throttling(after="7 s", speed=0.4, recovers="3 s")


@pytest.fixture
def hot(small: Small) -> Callable[..., World]:
    """Makes a world in which every second client gets hot."""
    loaded = small("topology.clients=6", "topology.edges=2")

    def make(speeds: dict[int, OverTime] | None = None, throttling: Throttling | None = HOT) -> World:
        env, topology = simpy.Environment(), loaded.scenario.topology
        fleet = Fleet(topology, 3)
        pi = find_profile("raspberry-pi-4b")
        throttled: DeviceProfile = pi.model_copy(update={"throttling": throttling})
        fleet.client_devices = [throttled if c % 2 else pi for c in range(topology.clients)]
        network = DedicatedNetwork(env, stream(1, "jitter"))
        return World(env, fleet, network, Workload(1000, 1e9, 250), Ledger(), speeds or {})

    return make


def play(world: World, work: Sequence[tuple[float, float]], together: bool) -> list[tuple[float, float]]:
    """Asks all clients at instants for so many seconds of work each; from when to when each worked."""
    clients, spans = np.arange(6), []

    def steps() -> Steps:
        for at_s, seconds in work:
            yield world.env.timeout(max(0.0, at_s - world.now))
            each_s = seconds * (1 + clients / 10)
            if together:
                starts_s, ends_s = world.occupy(clients, world.now, each_s)
                spans.extend(zip(np.broadcast_to(starts_s, 6).tolist(), ends_s.tolist(), strict=True))
            else:
                for client in clients.tolist():
                    world.busy(COMPUTE, client, float(each_s[client]), Tag("test", 1))

    world.env.process(steps())
    world.env.run()
    return sorted(spans if together else [(row.start_s, row.end_s) for row in world.ledger.rows])


@pytest.mark.parametrize("traced", [False, True])
def test_together_and_one_by_one_agree_in_every_bit(hot: Callable[..., World], traced: bool) -> None:
    @given(st.lists(st.tuples(st.floats(0, 60), st.floats(0.1, 9)), min_size=1, max_size=6))
    @settings(max_examples=40, deadline=None)
    def holds(work: list[tuple[float, float]]) -> None:
        step = StepFunction.of([0.0, 5.0, 9.0], [1.0, 0.5, 2.0])
        speeds = {1: step, 2: step, 3: Product([step, Spells([(2.0, 4.0)])])} if traced else {}
        work = sorted(work)
        spans = play(hot(speeds), work, together=True)
        assert play(hot(speeds), work, together=False) == spans
        watched = hot(speeds)
        watched.watch()
        assert play(watched, work, together=False) == spans

    holds()


def test_without_throttling_nothing_changes_in_a_bit(hot: Callable[..., World]) -> None:
    work = [(0.0, 9.0), (3.0, 4.1), (40.0, 2.3)]
    cool = hot(throttling=None)
    assert not cool._heats
    plain = play(cool, work, together=True)
    free = np.zeros(6)
    expected = []
    for at_s, seconds in work:
        starts = np.maximum(at_s, free)
        free = starts + seconds * (1 + np.arange(6) / 10)
        expected += zip(starts.tolist(), free.tolist(), strict=True)
    assert plain == sorted(expected)
    slower = play(hot(), work, together=True)
    assert sum(end for _, end in slower) > sum(end for _, end in plain)


def test_what_is_cut_off_has_warmed_the_device_until_then(hot: Callable[..., World]) -> None:
    world = hot()
    world.watch()
    ended: list[bool] = []

    def steps() -> Steps:
        first = world.busy(COMPUTE, 1, 100.0, Tag("test", 1, 0))
        yield world.env.timeout(4.0)
        world.give_up(1, 0, 1)
        ended.append((yield first))
        ended.append((yield world.busy(COMPUTE, 1, 5.0, Tag("test", 1, 1))))

    world.env.run(world.env.process(steps()))
    assert ended == [False, True]
    # Busy for 4 s of the 7 s until it is hot: 3 s at full speed, and 2 s of work at 0.4.
    rows = [(r.start_s, r.end_s, r.status) for r in world.ledger.rows]
    assert rows == [(0.0, 4.0, BROKEN), (4.0, pytest.approx(4 + 3 + 2 / 0.4), DONE)]


def test_the_fastest_time_is_that_of_a_cold_device(hot: Callable[..., World]) -> None:
    world, cool = hot(), hot(throttling=None)
    arguments = (1, "edge-0", 1000, 1000, 50, 2, 10)
    least_s = world.fastest_s(*arguments)
    assert least_s == cool.fastest_s(*arguments)
    done = world.train(1, 50, 2, 10, Tag("test", 1))
    world.env.run(done)
    assert world.now > least_s  # it took longer than 7 s, so it got hot
