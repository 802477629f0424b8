"""Asynchronous chains: who gets how far, what is averaged, and that nothing comes from the future."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from emulator import ledger
from emulator.assembly import assemble, play
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.ledger import Row
from emulator.methods.session import Session
from emulator.scenario import Loaded
from tests.methods.playing import played

Small = Callable[..., Loaded]

BASE = (
    "topology.edges=0", "method.training=sequential", "method.group_operation=none", "method.aggregator=cloud",
    "method.formation={kind: random, size: 2}", "method.local={kind: sgd, epochs: 1, batch_size: 4, learning_rate: 0.1}",
)  # fmt: skip
ASYNC = ("method={kind: asynchronous, formation: all}", *BASE)
SLOW = "faults=[{kind: slow-down, clients: [0, 1, 2], at: [0 s], factor: 30}]"


def computes(session: Session) -> list[Row]:
    return [r for r in session.world.ledger.rows if r.kind == ledger.COMPUTE]


def test_on_identical_devices_it_makes_as_many_passes_as_the_synchronous_method(small: Small) -> None:
    # Every round all groups train once in both; what differs is where a model goes next, and when models are averaged.
    both = [
        played(small(*ASYNC, "method.window=4", "stop.rounds=8")),
        played(small("method=fedavg", *BASE, "method.sampling=all", "stop.rounds=8")),
    ]
    counts = [Counter(r.who for r in computes(s) if r.status == ledger.DONE) for s in both]
    assert sum(counts[0].values()) == sum(counts[1].values()) == 8 * 8
    assert not [r for r in both[0].world.ledger.rows if r.status == ledger.BROKEN]
    assert both[0].world.now == pytest.approx(both[1].world.now, rel=1e-6)
    assert [m["round"] for m in both[0].metrics] == [0, 4, 8]


def test_fast_chains_do_more_and_nobody_waits_for_slow_ones(small: Small) -> None:
    fast = played(small(*ASYNC, SLOW, "method.window=6", "stop.rounds=6"))
    slow = played(small("method=fedavg", *BASE, SLOW, "method.sampling=all", "stop.rounds=6"))
    assert fast.world.now < slow.world.now
    passes = Counter(
        r.round for r in fast.world.ledger.rows if r.hop == ledger.CLIENT_SERVER and r.status == ledger.DONE
    )
    assert max(passes) == 6
    assert passes[6] < passes[1] or passes[1] < 4  # not every chain got as far as the fastest


def test_the_window_ends_with_the_fastest_chain_once_every_chain_has_made_a_pass(small: Small) -> None:
    session = played(small(*ASYNC, SLOW, "method.window=3", "stop.rounds=3"))
    returned = [r for r in session.world.ledger.rows if r.hop == ledger.CLIENT_SERVER and r.status == ledger.DONE]
    last = max(returned, key=lambda r: r.end_s)
    assert session.world.now == pytest.approx(last.end_s, rel=1e-8)
    assert max(r.round for r in returned) == 3
    first_downs = [r for r in session.world.ledger.rows if r.hop == ledger.SERVER_CLIENT and r.round == 1]
    assert sum(r.round == 1 for r in returned) == len(first_downs) == 4  # nobody is cut off on a first pass
    cut = [r for r in session.world.ledger.rows if r.status == ledger.BROKEN]
    assert all(r.end_s == session.world.now and r.round > 1 for r in cut)


def test_chains_that_are_under_way_at_once_are_trained_together(small: Small) -> None:
    loaded, waves = small(*ASYNC, "method.window=2", "stop.rounds=6"), list[int]()
    session = assemble(
        loaded.scenario,
        Lab(
            loaded.scenario,
            RunMemory(Memo(None)),
            lambda done, waiting: waves.extend([waiting] if done == 1 else []),
            max_workers=1,
        ),
    )
    play(session)
    assert session.lab.trained == session.lab.asked == 6 * 8
    assert waves == [4] * (6 * 2)  # four chains, each two clients a pass, one after another


@pytest.mark.parametrize(
    "world",
    [
        (),
        (SLOW, "topology.transport=tcp"),
        (SLOW, "method.local.kind=scaffold", "method.training.loops=2"),
        (
            "topology.devices={raspberry-pi-4b: 0.5, raspberry-pi-3b-plus: 0.5}",
            "topology.links.peer={bandwidth: 5 Mbit/s}",
        ),
    ],
)
def test_with_a_window_of_one_round_it_is_fedseq_bit_for_bit(small: Small, world: tuple[str, ...]) -> None:
    one = played(small(*ASYNC, "method.share=0.5", "method.window=1", "stop.rounds=5", *world))
    other = played(
        small("method=fedavg", *BASE, "method.sampling={kind: uniform, share: 0.5}", "stop.rounds=5", *world)
    )
    assert len(one.metrics) == 6
    for row, same in zip(one.metrics, other.metrics, strict=True):
        assert (row["accuracy"], row["loss"], row["bytes_total"]) == (
            same["accuracy"],
            same["loss"],
            same["bytes_total"],
        )
        assert row == pytest.approx(same, rel=1e-12)  # a clock on which passes can be cut off rounds otherwise
    assert one.lab.asked == other.lab.asked


@pytest.mark.parametrize(
    ("window", "every", "rounds", "evaluated"),
    [(5, 2, 20, [0, 5, 10, 15, 20]), (3, 4, 12, [0, 6, 9, 12]), (2, 7, 16, [0, 8, 14, 16]), (4, 4, 9, [0, 4, 8, 9])],
)
def test_it_is_evaluated_as_soon_as_a_multiple_has_been_passed(
    small: Small, window: int, every: int, rounds: int, evaluated: list[int]
) -> None:
    session = played(
        small(
            *ASYNC, "method.share=0.25", f"method.window={window}", f"evaluate.every={every}", f"stop.rounds={rounds}"
        )
    )
    assert [m["round"] for m in session.metrics] == evaluated


def test_a_group_works_on_one_model_at_a_time(small: Small) -> None:
    session = played(small(*ASYNC, SLOW, "method.share=0.75", "method.window=8", "stop.rounds=8"))
    for client in {r.who for r in computes(session)}:
        spans = sorted((r.start_s, r.end_s) for r in computes(session) if r.who == client)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_a_model_never_goes_to_the_group_that_it_comes_from(small: Small) -> None:
    session = played(small(*ASYNC, "method.share=0.25", "method.window=10", "stop.rounds=10"))
    downs = sorted((r.start_s, r.group) for r in session.world.ledger.rows if r.hop == ledger.SERVER_CLIENT)
    groups = [group for _, group in downs]
    assert len(groups) == 10
    assert all(one != other for one, other in itertools.pairwise(groups))


def test_one_chain_passes_on_the_very_model(small: Small) -> None:
    # One chain for the whole run is training without any averaging: the loss is that of the last pass.
    whole = played(small(*ASYNC, "method.share=0.25", "method.window=4", "stop.rounds=4"))
    step = played(small(*ASYNC, "method.share=0.25", "method.window=1", "stop.rounds=4"))
    assert whole.lab.asked == step.lab.asked == 4 * 2
    assert [m["round"] for m in step.metrics] == [0, 1, 2, 3, 4]
    assert [m["round"] for m in whole.metrics] == [0, 4]


def test_lost_clients_do_not_stop_it(small: Small) -> None:
    session = played(
        small(*ASYNC, "faults=[{kind: client-crash, clients: 0.5, every: 200 ms, lasts: 300 ms}]", "method.window=5",
              "stop.rounds=20")
    )  # fmt: skip
    assert session.stopped_by == "rounds"
    gone = played(small(*ASYNC, "faults=[{kind: client-crash, at: [400 ms]}]", "method.window=5", "stop.rounds=500"))
    assert gone.stopped_by == "nobody left"
