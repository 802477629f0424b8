"""Shared links: closed forms, max-min fairness as a property, and agreement with a slow and simple reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.ledger import Ledger, Tag
from emulator.rng import stream
from emulator.scenario import Loaded
from emulator.world.fleet import Fleet, Leg
from emulator.world.levels import Share
from emulator.world.sharing import Flow, SharedNetwork
from emulator.world.world import Workload, World
from traces.step import StepFunction

MB = 1_000_000


def leg(link: str, mbit_s: float, latency_s: float = 0.0) -> Leg:
    return Leg(link, "a", "b", "", mbit_s * 1e6, latency_s)


@dataclass
class Sent:
    """A transfer of the tests: when it starts, over what, how many bytes; ``end_s`` is filled in."""

    start_s: float
    route: Sequence[Leg]
    size_bytes: int
    end_s: float = math.nan


def play(transfers: Sequence[Sent], network: SharedNetwork, env: simpy.Environment) -> None:
    def sender(sent: Sent) -> Iterable[simpy.Event]:
        yield env.timeout(sent.start_s)
        yield network.transfer(sent.route, sent.size_bytes)
        sent.end_s = env.now

    for sent in transfers:
        env.process(sender(sent))  # type: ignore[arg-type]
    env.run()


def ends(*transfers: Sent) -> list[float]:
    env = simpy.Environment()
    play(transfers, SharedNetwork(env, stream(0, "jitter")), env)
    return [t.end_s for t in transfers]


# The ends of these flows in the version before there were transports, to the last bit.
BEFORE_TRANSPORTS = [
    0.3604181818181818,
    3.394327333333333,
    0.5179938461538461,
    4.370463063063062,
    6.878181818181818,
    4.256260606060605,
    1.4959815261044176,
    0.7426620689655172,
    3.3938424242424237,
    4.113403333333333,
    6.310569696969696,
    0.06399692307692308,
]


def test_a_fluid_is_what_it_was_before_there_were_transports() -> None:
    rates = (1.1, 3.7, 13.0, 29.0)
    transfers = []
    for n in range(12):
        numbers = sorted({n % 4, n * 5 // 3 % 4})
        route = [leg(f"l{i}", rates[i], 0.003 * (n % 5)) for i in numbers]
        transfers.append(Sent(0.13 * (n * 7 % 11), route, 31_415 * (n * 11 % 17 + 1)))
    assert ends(*transfers) == BEFORE_TRANSPORTS


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
def test_n_equal_flows_on_one_bottleneck_take_n_times_as_long(n: int) -> None:
    transfers = [Sent(0.0, [leg("cell", 8)], MB) for _ in range(n)]
    assert ends(*transfers) == pytest.approx([float(n)] * n, rel=1e-12)


def test_staggered_arrivals() -> None:
    # 1 s alone; then two share 8 Mbit/s: the first needs 2 more seconds for its second half... and so on.
    first, second = Sent(0.0, [leg("l", 8)], 2 * MB), Sent(1.0, [leg("l", 8)], MB)
    # From 1 s on each has 4 Mbit/s: both have 1 MB left, both end at 3 s.
    assert ends(first, second) == pytest.approx([3.0, 3.0], rel=1e-12)
    first, second = Sent(0.0, [leg("l", 8)], 2 * MB), Sent(1.0, [leg("l", 8)], 3 * MB)
    # The first ends at 3 s; the second then has 2 MB left at full speed.
    assert ends(first, second) == pytest.approx([3.0, 5.0], rel=1e-12)


def test_two_bottlenecks_in_series() -> None:
    # Three flows on the first link (9 Mbit/s); one of them crosses a second of 1 Mbit/s: it gets 1, the others 4 each.
    slow = Sent(0.0, [leg("x", 9), leg("y", 1)], MB)
    others = [Sent(0.0, [leg("x", 9)], MB) for _ in range(2)]
    found = ends(slow, *others)
    assert found[1:] == pytest.approx([2.0, 2.0], rel=1e-12)
    assert found[0] == pytest.approx(8.0, rel=1e-12)


def test_the_classic_example_of_max_min_fairness() -> None:
    # A line of two links of 10 and 20: a long flow over both and one short flow on each. Rates 5, 5 and 15.
    env = simpy.Environment()
    network = SharedNetwork(env, stream(0, "jitter"))
    long, first, second = (
        network.send(r, 100 * MB) for r in ([leg("a", 10), leg("b", 20)], [leg("a", 10)], [leg("b", 20)])
    )
    env.run(until=0.001)
    assert [network.rate_bps(f) / 1e6 for f in (long, first, second)] == pytest.approx([5, 5, 15])


def test_asymmetric_caps() -> None:
    # Access links of 2, 4 and 100 Mbit/s behind a cell of 12: rates 2, 4 and 6.
    transfers = [Sent(0.0, [leg(f"own-{i}", own), leg("cell", 12)], MB) for i, own in enumerate((2, 4, 100))]
    # The third ends at 8/6 s, then nothing holds the others back: they keep their own bandwidth.
    assert ends(*transfers) == pytest.approx([4.0, 2.0, 8 / 6], rel=1e-12)


def test_latency_comes_once_and_occupies_nothing() -> None:
    transfers = [Sent(0.0, [leg("l", 8, 0.5), leg("m", 80, 0.25)], MB) for _ in range(2)]
    assert ends(*transfers, Sent(2.0, [leg("l", 8, 0.5)], MB)) == pytest.approx([2.75, 2.75, 3.5], rel=1e-12)


def test_two_that_come_at_once_find_one_there() -> None:
    found = ends(Sent(0.0, [leg("l", 8)], 2 * MB), Sent(1.0, [leg("l", 8)], MB), Sent(1.0, [leg("l", 8)], MB))
    assert found == pytest.approx([4.0, 4.0, 4.0], rel=1e-12)


def test_no_bytes_take_the_latency_alone() -> None:
    assert ends(Sent(1.0, [leg("l", 8, 0.5)], 0)) == [1.5]


def test_two_flows_of_one_client_share_its_access_link() -> None:
    assert ends(Sent(0.0, [leg("own", 8)], MB), Sent(0.5, [leg("own", 8)], MB)) == pytest.approx([1.5, 2.0], rel=1e-12)


def test_a_stopped_flow_gives_its_share_back_and_says_what_it_sent() -> None:
    env = simpy.Environment()
    network = SharedNetwork(env, stream(0, "jitter"))
    first, second = network.send([leg("l", 8)], 2 * MB), network.send([leg("l", 8)], 2 * MB)
    env.run(until=1.0)
    assert network.stop(first) == pytest.approx(0.5 * MB)
    env.run(second.done)
    assert env.now == pytest.approx(1.0 + 1.5)
    assert not first.done.triggered
    third = network.send([leg("l", 8)], MB)
    assert network.stop(third) == 0.0


def test_bandwidth_follows_a_trace() -> None:
    env = simpy.Environment()
    trace = StepFunction.of([0.0, 1.0, 3.0], [8e6, 0.0, 4e6], period_s=10.0)
    network = SharedNetwork(env, stream(0, "jitter"), {"l": trace})
    transfers = [Sent(0.5, [leg("l", 99)], MB), Sent(3.0, [leg("l", 99)], MB), Sent(20.0, [leg("l", 99)], MB)]
    play(transfers, network, env)
    # The first: 4 Mbit in half a second, nothing for two, then half of 4 Mbit/s: 2 s more. The second has 4 Mbit left then.
    assert [t.end_s for t in transfers] == pytest.approx([5.0, 6.0, 21.0], rel=1e-12)
    alone = Sent(0.25, [leg("l", 99)], 2 * MB)
    env = simpy.Environment()
    play([alone], SharedNetwork(env, stream(0, "jitter"), {"l": trace}), env)
    assert alone.end_s == pytest.approx(trace.time_to_accumulate(0.25, 16e6), rel=1e-12)


links = st.sampled_from(["a", "b", "c", "d", "e"])
bandwidths = st.fixed_dictionaries({name: st.floats(0.5, 50) for name in "abcde"})
sendings = st.lists(
    st.tuples(st.floats(0, 5), st.lists(links, min_size=1, max_size=3, unique=True), st.integers(1, 4 * MB)),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(bandwidths, sendings)
def test_rates_are_max_min_fair_and_bytes_are_conserved(
    speed: dict[str, float], given_: list[tuple[float, list[str], int]]
) -> None:
    env = simpy.Environment()
    network = SharedNetwork(env, stream(0, "jitter"))
    flows: list[tuple[list[str], Flow]] = []
    last = 0.0

    def sender(start: float, names: list[str], size: int) -> Iterable[simpy.Event]:
        yield env.timeout(start)
        flow = network.send([leg(n, speed[n]) for n in names], size)
        flows.append((names, flow))
        yield flow.done

    for start, names, size in given_:
        env.process(sender(start, names, size))  # type: ignore[arg-type]
    carried = dict.fromkeys(speed, 0.0)
    while env.peek() < math.inf:
        at = env.peek()
        assert at >= last  # time never goes back
        for name in speed:
            carried[name] += network.load_bps(name) * (at - last)
        last = at
        while env.peek() == at:
            env.step()
        going = [(names, network.rate_bps(f)) for names, f in flows if f.bundle is not None]
        load = {name: network.load_bps(name) for name in speed}
        for name in speed:
            assert load[name] <= speed[name] * 1e6 * (1 + 1e-6)  # no link above its bandwidth
        for names, rate in going:  # every flow is held back by a full link on which nobody is faster
            assert any(
                load[n] >= speed[n] * 1e6 * (1 - 1e-6) and rate >= max(r for m, r in going if n in m) * (1 - 1e-6)
                for n in names
            ), (names, rate, load)
    for name in speed:
        sent = sum(8 * size for _, names, size in given_ if name in names)
        assert carried[name] == pytest.approx(sent, rel=1e-6, abs=1)
    assert all(f.done.processed for _, f in flows)


def naive(speed: dict[str, float], sendings_: list[tuple[float, list[str], int]]) -> list[float]:
    """The same by brute force: at every instant all rates from scratch, flow by flow."""
    left = [8.0 * size for _, _, size in sendings_]
    ended = [math.nan] * len(left)
    now = 0.0
    while any(math.isnan(e) for e in ended):
        going = [i for i, (start, _, _) in enumerate(sendings_) if start <= now and math.isnan(ended[i])]
        rate: dict[int, float] = {}
        room = {n: s * 1e6 for n, s in speed.items()}
        while len(rate) < len(going):
            crossing = {n: [i for i in going if i not in rate and n in sendings_[i][1]] for n in speed}
            tight = min((n for n in speed if crossing[n]), key=lambda n: room[n] / len(crossing[n]))
            level = room[tight] / len(crossing[tight])
            for i in crossing[tight]:
                rate[i] = level
                for n in sendings_[i][1]:
                    room[n] -= level
        events = [start for start, _, _ in sendings_ if start > now] + [now + left[i] / rate[i] for i in going]
        upcoming = min(events)
        for i in going:
            left[i] -= rate[i] * (upcoming - now)
            if left[i] < 1e-3:
                ended[i] = upcoming
        now = upcoming
    return ended


@settings(max_examples=100, deadline=None)
@given(bandwidths, sendings)
def test_agrees_with_brute_force(speed: dict[str, float], given_: list[tuple[float, list[str], int]]) -> None:
    transfers = [Sent(start, [leg(n, speed[n]) for n in names], size) for start, names, size in given_]
    assert ends(*transfers) == pytest.approx(naive(speed, given_), rel=1e-6, abs=1e-7)


def test_a_thousand_flows_that_come_one_after_another_do_not_cost_a_million_steps() -> None:
    env = simpy.Environment()
    network = SharedNetwork(env, stream(0, "jitter"))
    steps = 0
    work_out = network._levels._work_out

    def counting(share: Share) -> None:
        nonlocal steps
        steps += len(share.link.bundles)
        work_out(share)

    network._levels._work_out = counting  # type: ignore[method-assign]
    transfers = [Sent(0.001 * i, [leg(f"own-{i}", 10), leg("cell", 100)], MB) for i in range(1000)]
    play(transfers, network, env)
    assert steps < 5000  # bundles looked at over the whole run: a few for each coming and going
    assert max(t.end_s for t in transfers) == pytest.approx(80.0, rel=1e-2)


def test_the_world_shares_cells_backhauls_and_the_clouds_port(small: Callable[..., Loaded]) -> None:
    def seconds(*changes: str) -> float:
        topology = small("method=fedavg", *changes).scenario.topology
        env = simpy.Environment()
        world = World(env, Fleet(topology, 0), SharedNetwork(env, stream(0, "jitter")), Workload(0, 1.0, 0), Ledger())
        events = [world.send(name, "cloud", MB, Tag("model")) for name in world.fleet.client_names]
        env.run(env.all_of(events))
        return world.now

    # 8 clients on 2 edges; uplinks of 8 Mbit/s; latencies 20 and 5 ms.
    assert seconds("topology.links.backhaul.up=80 Mbit/s") == pytest.approx(1 + 0.025)
    assert seconds("topology.links.backhaul.up=16 Mbit/s") == pytest.approx(4 * 8 / 16 + 0.025)
    assert seconds("topology.links.cell={up: 4 Mbit/s, down: 1 Mbit/s}") == pytest.approx(4 * 8 / 4 + 0.025)
    assert seconds("topology.links.cloud={up: 4 Mbit/s, down: 1 Mbit/s}") == pytest.approx(8 * 8 / 4 + 0.025)


def test_what_ends_together_ends_in_the_order_in_which_it_began() -> None:
    env = simpy.Environment()
    network = SharedNetwork(env, stream(0, "jitter"))
    order: list[int] = []

    def flows(cell: int, start_s: float) -> Iterable[simpy.Event]:
        yield env.timeout(start_s)
        for _ in range(3):
            network.transfer([leg(f"cell-{cell}", 8)], MB).callbacks.append(lambda _: order.append(cell))

    for cell in range(200):  # the first ones are over before the others begin, so that these take up their memory again
        env.process(flows(cell, 0.0 if cell < 100 else 10.0))  # type: ignore[arg-type]
    env.run()
    assert list(dict.fromkeys(order)) == list(range(200))
