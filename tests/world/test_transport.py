"""Transports: closed forms of every part, shares by weight as a property, and chance that depends on nothing but its key."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from emulator.contracts.world import Transport, TransportChoice
from emulator.errors import HflError, ScenarioError
from emulator.registry import NoParams
from emulator.rng import stream
from emulator.scenario import Loaded
from emulator.world.carriage import DEVIATIONS, Carriage, _doublings, _many_doublings
from emulator.world.fleet import Leg
from emulator.world.network import DedicatedNetwork, Instants
from emulator.world.sharing import Flow, SharedNetwork
from emulator.world.transports import TcpParams, tcp
from traces.step import StepFunction

TCP = tcp(TcpParams())
FRAME_BITS, PAYLOAD = 1514 * 8, 1448
ROUTE = [Leg("l", "a", "b", "", 10e6, 0.015)]

sizes = st.integers(1, 20_000_000)
rates = st.floats(1e5, 1e9)
latencies = st.floats(0.0, 0.3)


def network(env: simpy.Environment, transport: Transport, seed: int = 0) -> SharedNetwork:
    return SharedNetwork(env, stream(0, "jitter"), carriage=Carriage(transport, seed))


def alone_s(transport: Transport, size: int, rate_bps: float, latency_s: float) -> float:
    env = simpy.Environment()
    done = network(env, transport).transfer([Leg("l", "a", "b", "", rate_bps, latency_s)], size)
    env.run(done)
    return float(env.now)


def by_windows_s(size: int, rate_bps: float, latency_s: float) -> float:
    """One window after another, until the link is busy all the time or nothing is left; no queue overflows."""
    frames = -(-size // PAYLOAD)
    frame_s, trip_s = FRAME_BITS / rate_bps, 2 * latency_s
    # The last frame may be short: take the mean frame, as the whole takes no longer for it.
    frame_s *= (size + 66 * frames) / (1514 * frames)
    window_frame_s = FRAME_BITS / rate_bps
    time_s, left, window = trip_s, frames, 10
    while left > window and window * window_frame_s < trip_s + window_frame_s and trip_s:
        time_s += trip_s + window_frame_s - window * (window_frame_s - frame_s)
        left, window = left - window, 2 * window
    return time_s + left * frame_s + latency_s


@given(sizes, rates, latencies)
def test_a_transfer_alone_goes_window_by_window(size: int, rate_bps: float, latency_s: float) -> None:
    endless = replace(TCP, queue_frames=10**9, window_bytes=math.inf)
    expected = by_windows_s(size, rate_bps, latency_s)
    assert alone_s(endless, size, rate_bps, latency_s) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "seconds"),
    [
        ({}, 0.015 + 8e6 / 10e6),
        ({"payload_bytes": 1448, "frame_bytes": 1514}, 0.015 + 8 * (1e6 + 691 * 66) / 10e6),
        ({"set_up": 2.0}, 0.015 + 2 * 0.030 + 0.8),
        # Without framing a segment is a byte: windows of 10 kB, 20 kB, 40 kB > 37.5 kB.
        ({"initial_segments": 10_000}, 0.015 + 0.8 + 2 * (0.030 + 8e-7) - 3 * 0.008),
        ({"window_bytes": 15_000.0}, 0.015 + 1e6 / 15_000 * 0.030),
    ],
    ids=["fluid", "framing", "set-up", "slow start", "window"],
)
def test_each_part_by_itself(change: dict[str, float], seconds: float) -> None:
    transport = replace(Transport(), **change)
    env = simpy.Environment()
    dedicated = DedicatedNetwork(env, stream(0, "jitter"), Carriage(transport, 0)).transfer(ROUTE, 1_000_000)
    env.run(dedicated)
    assert env.now == pytest.approx(seconds, rel=1e-12)
    assert alone_s(transport, 1_000_000, 10e6, 0.015) == pytest.approx(seconds, rel=1e-12)


def test_tcp_with_every_part_off_is_the_fluid(small: Callable[..., Loaded]) -> None:
    off = "{kind: tcp, frame: 1448, set_up: 0, slow_start: null, window: null, round_trip_shares: 0, spread: 0}"
    transport = small(f"topology.transport={off}").scenario.topology.transport()
    assert replace(transport, payload_bytes=1, frame_bytes=1, queue_frames=0) == Transport()


def test_a_queue_that_overflows_leaves_the_link_idle_and_a_longer_one_does_not() -> None:
    # 10 MB at 100 Mbit/s and 50 ms: a pipe of 827 frames. Windows of 10 to 160 fill a queue of 100; when the loss is seen the
    # window is 520, then 364. By hand: 630 frames in six windows, and 6,277 with a window that grows by 64.3 frames a second.
    trip_s, frame_s = 0.1 + FRAME_BITS / 1e8, FRAME_BITS / 1e8
    growth = 3 * 0.4 * (520 * 0.3 / 0.4) ** (2 / 3)
    rest_s = (math.sqrt(364**2 + 2 * growth * trip_s * 6277) - 364) / growth
    wire_s = 8 * (10e6 + 6907 * 66) / 1e8
    expected = 0.1 + 6 * trip_s - 630 * frame_s + rest_s - 6277 * frame_s + wire_s + 0.05
    assert alone_s(TCP, 10_000_000, 1e8, 0.05) == pytest.approx(expected, rel=1e-6)
    longer = alone_s(replace(TCP, queue_frames=1000), 10_000_000, 1e8, 0.05)
    assert longer == pytest.approx(by_windows_s(10_000_000, 1e8, 0.05), rel=1e-9)
    assert longer < expected


@given(sizes, rates, latencies, st.integers(1, 2000))
def test_tcp_is_never_faster_than_the_fluid(size: int, rate_bps: float, latency_s: float, queue: int) -> None:
    fluid_s = alone_s(Transport(), size, rate_bps, latency_s)
    assert alone_s(replace(TCP, queue_frames=queue), size, rate_bps, latency_s) >= fluid_s * (1 - 1e-12)


@given(
    st.lists(st.tuples(st.floats(1e-3, 1e3), latencies), min_size=1, max_size=5),
    sizes,
    st.sampled_from([0, 1, 100, 700]),
)
def test_many_at_once_get_going_as_each_does(each: list[tuple[float, float]], size: int, queue: int) -> None:
    carriage = Carriage(replace(TCP, queue_frames=queue), 0)
    lasts, trips = ([pair[i] for pair in each] for i in range(2))
    some: list[tuple[Instants, Instants]] = [(np.array(trips), np.array(lasts))]
    some += [(np.array(trips), lasts[0]), (trips[0], np.array(lasts))]
    for pair in some:
        found = np.broadcast_to(carriage.start_up_s(size, *pair), len(each)).tolist()
        alone = zip(*(np.broadcast_to(one, len(each)).tolist() for one in pair), strict=True)
        assert found == [carriage.start_up_s(size, trip, last) for trip, last in alone]
    assert np.asarray(carriage.most_bps(np.array(trips))).tolist() == [carriage.most_bps(trip) for trip in trips]


def test_a_pipe_of_exactly_so_many_windows_is_filled_by_them() -> None:
    """However many windows: the power of two at which one more is needed is exact."""
    assert [_doublings(2.0**k) for k in range(-3, 60)] == [0, 0, 0, *range(60)]
    above = [math.nextafter(2.0**k, math.inf) for k in range(60)]
    assert [_doublings(ratio) for ratio in above] == list(range(1, 61))
    assert _many_doublings(np.array(above)).tolist() == list(range(1, 61))


class Weighted:
    """Random flows that start together on random links: (links, latency) each."""

    def __init__(self, flows: Sequence[tuple[frozenset[int], float]], rates_mbps: Sequence[float]) -> None:
        self.env = simpy.Environment()
        self.network = network(self.env, replace(TCP, spread=0.8))
        self.flows: list[Flow] = []
        for i, (links, latency_s) in enumerate(flows):
            own = Leg(f"own-{i}", f"s{i}", "x", "", 5e6, latency_s)
            route = (own, *(Leg(f"l{k}", "x", "r", "", rates_mbps[k] * 1e6, 0.0) for k in sorted(links)))
            self.flows.append(self.network.send(route, 1_000_000))
        self.env.run(until=1e-6)


@given(
    st.lists(st.tuples(st.frozensets(st.integers(0, 3), max_size=3), latencies), min_size=1, max_size=12),
    st.lists(st.floats(1, 50), min_size=4, max_size=4),
)
def test_shares_are_max_min_fair_by_weight(flows: list[tuple[frozenset[int], float]], rates_mbps: list[float]) -> None:
    world = Weighted(flows, rates_mbps)
    network, weighed = world.network, []
    for flow in world.flows:
        assert flow.bundle is not None
        weighed.append(network.rate_bps(flow) / flow.bundle.weight)
    for flow, level in zip(world.flows, weighed, strict=True):
        full = [k for k in flow.links if network.load_bps(k.name) >= k.rate_bps * (1 - 1e-9)]
        assert all(network.load_bps(k.name) <= k.rate_bps * (1 + 1e-9) for k in flow.links)
        at_cap = network.rate_bps(flow) >= min(flow.own_bps, 5e6) * (1 - 1e-9)
        held = any(
            all(weighed[i] <= level * (1 + 1e-9) for i, f in enumerate(world.flows) if k in f.links) for k in full
        )
        assert at_cap or held


@pytest.mark.parametrize("spread", [0.0, 0.25, 1.0])
def test_all_bytes_of_flows_on_one_link_take_as_long_as_without_chance(spread: float) -> None:
    """Whoever gets more, the link is busy until the last of them has left."""
    env = simpy.Environment()
    here = network(env, replace(Transport(), spread=spread, queue_frames=0))
    ends = []
    for i in range(9):
        done = here.transfer([Leg("l", f"s{i}", "r", "", 8e6, 0.0)], 1_000_000)
        done.callbacks.append(lambda _: ends.append(env.now))
    env.run()
    assert ends[-1] == pytest.approx(9.0, rel=1e-9)
    assert (ends[0] == pytest.approx(9.0)) == (spread == 0)


def test_a_long_round_trip_gets_less() -> None:
    env = simpy.Environment()
    here = network(
        env, replace(Transport(), frame_bytes=1500, payload_bytes=1500, queue_frames=100, round_trip_power=1.0)
    )
    near = here.send([Leg("a", "a", "x", "", 1e9, 0.01), Leg("l", "x", "r", "", 12e6, 0.0)], 10**7)
    far = here.send([Leg("b", "b", "x", "", 1e9, 0.11), Leg("l", "x", "r", "", 12e6, 0.0)], 10**7)
    env.run(until=1e-6)
    # With a full queue of 0.1 s: 0.12 s against 0.32 s.
    assert here.rate_bps(near) / here.rate_bps(far) == pytest.approx(0.32 / 0.12, rel=1e-5)


def test_chance_depends_on_seed_route_and_number_alone() -> None:
    def drawn(seed: int, *names: str) -> list[float]:
        carriage = Carriage(TCP, seed)
        return [carriage.factor([Leg("l", name, "r", "", 1e6, 0.0)], 10**6) for name in names]

    first = drawn(1, "a", "b", "a", "a")
    assert drawn(1, "b", "a", "a", "a") == [first[1], first[0], first[2], first[3]]
    assert drawn(1, *["a"] * 50) != drawn(2, *["a"] * 50)
    carriage = Carriage(TCP, 1)
    route = [Leg("l", "a", "r", "", 1e6, 0.0)]
    assert carriage.factor(route, 14_480) == 1.0  # it is over before shares matter
    assert carriage.factor(route, 10**6) == first[0]
    other = Carriage(replace(TCP, initial_segments=0), 1)  # what chance gives does not depend on other parts
    assert [other.factor(route, size) for size in (14_480, 10**6, 10**6)] == [1.0, first[0], first[2]]


def test_chance_is_normal_but_for_its_steps() -> None:
    carriage = Carriage(replace(TCP, spread=1.0), 7)
    drawn = np.log([carriage.factor(ROUTE, 10**6) for _ in range(20_000)])
    assert set(np.round(drawn, 9)) == set(np.round(DEVIATIONS, 9))
    assert drawn.mean() == pytest.approx(0.0, abs=0.03)
    assert drawn.std() == pytest.approx(1.0, abs=0.03)


def test_a_flow_that_is_stopped_has_sent_payload_and_no_headers() -> None:
    env = simpy.Environment()
    transfer = network(env, TCP).start(ROUTE, 1_000_000)
    env.run(until=0.4)
    expected = 1_000_000 * 0.4 / (8 * (1e6 + 691 * 66) / 10e6)
    assert transfer.stop() == pytest.approx(expected, rel=1e-5)


def test_latency_of_a_trace_is_part_of_the_round_trip() -> None:
    env = simpy.Environment()
    later = StepFunction.of([0.0], [0.1])
    carriage = Carriage(replace(Transport(), set_up=1.0), 0)
    here = SharedNetwork(env, stream(0, "jitter"), latencies={"l": later}, carriage=carriage)
    env.run(here.transfer([Leg("l", "a", "b", "", 8e6, 0.02, overhead_s=0.01)], 1_000_000))
    assert env.now == pytest.approx(1.0 + 0.12 + 2 * 0.11, rel=1e-12)


@pytest.mark.parametrize(
    ("gives", "message"),
    [
        (5, "it must give a Transport, and gives 5"),
        (Transport(payload_bytes=2), "frames of 1 bytes cannot carry 2"),
        (Transport(payload_bytes=0), "'payload_bytes' is 0; it must be between 1 and"),
        (Transport(set_up=-1.0), "'set_up' is -1.0; it must be between 0 and 100"),
        (Transport(set_up="x"), "'set_up' is 'x'; it must be a number"),  # type: ignore[arg-type]
        (Transport(initial_segments=0.5), "'initial_segments' is 0.5; it must be a whole number"),  # type: ignore[arg-type]
        (Transport(spread=math.nan), "'spread' is nan; it must be between 0 and 3"),
        (Transport(round_trip_power=9.0), "'round_trip_power' is 9.0; it must be between 0 and 2"),
    ],
)
def test_a_transport_of_the_users_own_must_be_sound(gives: object, message: str) -> None:
    def odd(params: NoParams) -> Transport:
        """Gives something odd."""
        return gives  # type: ignore[return-value]

    choice = TransportChoice("tcp", NoParams())
    plugin = replace(choice.plugin, function=odd)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TransportChoice, "plugin", plugin)
        with pytest.raises(HflError, match=re.escape(message)):
            choice()


@pytest.mark.parametrize(
    ("given", "key", "message"),
    [
        ("{kind: tcp, frame: 1000}", "topology.transport.frame", "cannot carry 1448"),
        ("{kind: tcp, window: 100 B}", "topology.transport.window", "holds no segment"),
        ("{kind: tpc}", "topology.transport", "did you mean 'tcp'"),
        ("{spread: -1}", "topology.transport.spread", "at least 0"),
    ],
)
def test_refusals(small: Callable[..., Loaded], given: str, key: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        small(f"topology.transport={given}")
    (problem,) = error.value.problems
    assert problem.key == key
    assert message in problem.message
