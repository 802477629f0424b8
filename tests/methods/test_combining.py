"""Servers that put models together and step by optimisers: what is learned, what is charged, what survives, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from devices.compute import flops_s
from emulator import checkpoint
from emulator.assembly import assemble, play
from emulator.contracts.combining import CombinationChoice, ServerOptimiserChoice
from emulator.errors import ScenarioError
from emulator.learning import engine as engine_module
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.timing import TimingLab
from emulator.ledger import COMPUTE, Row
from emulator.methods.session import Session
from emulator.run import execute
from emulator.run_results import metrics_csv
from emulator.scenario import Loaded
from tests.methods.playing import cut_off_and_finished, played

Small = Callable[..., Loaded]

PLAIN = "method.group_operation=none"
FLAT = ("method=fedavg", "method.local={epochs: 1, batch_size: 4, learning_rate: 0.1}")
KRUM = "{kind: krum, attackers: 1}"
KINDS = (
    "median",
    "trimmed-mean",
    "geometric-median",
    KRUM,
    "{kind: multi-krum, attackers: 1}",
    "{kind: norm-bound, norm: 0.1}",
)
OPTIMISERS = ("momentum", "adam", "yogi", "adagrad")
FILES = ("metrics.csv", "ledger.parquet", "summary.json", "memory.json")


def server_rows(session: Session, what: str) -> list[Row]:
    return [row for row in session.world.ledger.rows if row.kind == COMPUTE and row.what == what]


def learned(session: Session) -> list[tuple[float, float]]:
    return [(row["accuracy"], row["loss"]) for row in session.metrics]


class Models:
    """A lab that keeps the values that a round is made of, by what made them."""

    def __init__(self, loaded: Loaded) -> None:
        self.lab = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)
        self.applied: list[tuple[Any, list[np.ndarray], list[np.ndarray]]] = []
        apply = self.lab.apply

        def kept(function: Any, vectors: Any) -> Any:
            handles = apply(function, vectors)
            given = [self.lab.value(v).numpy() for v in vectors]
            self.applied.append((function, given, [self.lab.value(h).numpy() for h in handles]))
            return handles

        self.lab.apply = kept  # type: ignore[method-assign]
        self.session = assemble(loaded.scenario, self.lab)
        play(self.session)


def test_a_group_has_the_combination_of_its_members_models(small: Small) -> None:
    models = Models(small(PLAIN, "method.combination=median", "method.group_rounds=1", "stop.rounds=1"))
    assert len(models.applied) == 2  # one at each edge
    for _, (before, *members), (found,) in models.applied:
        assert len(members) == 4
        assert np.array_equal(before, models.lab.value(models.lab.initial()).numpy())
        assert np.array_equal(found, np.median(np.array(members, dtype=np.float64), axis=0).astype(np.float32))


def test_the_cloud_has_the_combination_of_the_groups_models(small: Small) -> None:
    words = ("topology.clients=9", "topology.edges=3", "method.group_rounds=1", "stop.rounds=1")
    models = Models(small(*words, "method.global_combination=median"))  # with secure aggregation at the edges
    ((_, (_, *groups), (found,)),) = models.applied
    assert len(groups) == 3
    assert np.array_equal(found, np.median(np.array(groups), axis=0))
    assert {row.who for row in server_rows(models.session, "combination")} == {"cloud"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_computes_what_its_combination_takes(small: Small, kind: str) -> None:
    words = (*FLAT, "topology.clients=8", "stop.rounds=2")
    plain, session = played(small(*words)), played(small(*words, f"method.combination={kind}"))
    chosen: CombinationChoice = session.scenario.method.params.combination
    flops = chosen.flops(8, session.world.workload.parameters)
    seconds = flops_s(session.world.fleet.device("cloud"), flops)
    rows = server_rows(session, "combination")
    assert [row.who for row in rows] == ["cloud"] * 2
    assert all(row.end_s - row.start_s == pytest.approx(seconds) for row in rows)
    assert seconds > 0
    assert session.world.now == pytest.approx(plain.world.now + 2 * seconds, rel=1e-12)
    assert session.metrics[-1]["bytes_total"] == plain.metrics[-1]["bytes_total"]
    assert learned(session) != learned(plain)


def test_the_mean_is_what_it_was(small: Small) -> None:
    session = played(small(PLAIN, "method.combination=mean", "method.server_optimiser=none"))
    assert session.metrics == played(small(PLAIN)).metrics
    assert not server_rows(session, "combination")
    assert not server_rows(session, "server-optimiser")


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_the_cloud_steps_by_its_optimiser(small: Small, kind: str) -> None:
    models = Models(small(f"method.server_optimiser={{kind: {kind}, learning_rate: 0.05}}", "stop.rounds=3"))
    chosen: ServerOptimiserChoice = models.session.scenario.method.params.server_optimiser
    assert len(models.applied) == 3
    before = models.lab.value(models.lab.initial()).numpy()
    states = [np.full(len(before), value, dtype=np.float32) for value in chosen.beginning]
    for turn, (_, (sent, average, *kept), (after, *further)) in enumerate(models.applied):
        assert np.array_equal(sent, before)
        assert len(kept) == (len(states) if turn else 0)
        before, states = chosen(before, average, states)
        assert np.array_equal(after, before)
        assert all(np.array_equal(*pair) for pair in zip(states, further, strict=True))
    size = models.session.world.workload.parameters
    seconds = flops_s(models.session.world.fleet.device("cloud"), chosen.plugin.facts.flops * size)
    rows = server_rows(models.session, "server-optimiser")
    assert [row.end_s - row.start_s for row in rows] == pytest.approx([seconds] * 3)


def test_momentum_of_nothing_is_the_average(small: Small) -> None:
    plain = played(small(PLAIN, "stop.rounds=3"))
    still = played(small(PLAIN, "stop.rounds=3", "method.server_optimiser={kind: momentum, momentum: 0.0}"))
    assert [loss for _, loss in learned(still)] == pytest.approx([loss for _, loss in learned(plain)], rel=1e-5)


def test_each_group_has_an_optimiser_with_a_state_of_its_own(small: Small) -> None:
    models = Models(small("method.edge_optimiser=momentum", "method.group_rounds=2", "stop.rounds=2"))
    rows = server_rows(models.session, "server-optimiser")
    assert [row.who for row in rows].count("edge-0") == [row.who for row in rows].count("edge-1") == 4
    by_turn = [len(given) for _, given, _ in models.applied]
    assert sorted(by_turn) == [2, 2, *[3] * 6]  # each of two states begins once, and lasts over the rounds


def test_groups_that_are_formed_anew_begin_with_new_states(small: Small) -> None:
    words = ("method.formation={kind: random, size: 4}", "method.schedule={kind: every, rounds: 1}", "stop.rounds=3")
    models = Models(small(*words, "method.edge_optimiser=momentum", "method.group_rounds=1"))
    assert [len(given) for _, given, _ in models.applied] == [2] * 6


@pytest.mark.parametrize(
    "words",
    [
        (PLAIN, "method.combination=median"),
        (f"method.combination={KRUM}", PLAIN, "method.global_combination=median"),
        ("method.server_optimiser=adam", "method.edge_optimiser=yogi"),
        (*FLAT, "method.server_optimiser=adagrad", "method.combination=geometric-median"),
        (PLAIN, "method.combination=median", "attacks={kind: gaussian-noise, share: 0.3}"),
    ],
    ids=["median", "krum", "adam", "adagrad", "noise"],
)
def test_cut_off_what_if_and_two_workers_change_no_bit(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    words = ("topology.clients=10", *words, "stop.rounds=4", "output.plot=false", "output.checkpoint=0 s")
    loaded = small(*words)
    execute(loaded, tmp_path / "whole", Memo(None), max_workers=1)
    cut_off_and_finished(loaded, tmp_path / "cut", after=2)
    monkeypatch.setattr(engine_module, "WORKERS_AFTER_S", 1e-9)
    execute(loaded, tmp_path / "two", Memo(None), max_workers=2)
    for name in FILES:
        wanted = (tmp_path / "whole" / name).read_bytes()
        assert (tmp_path / "two" / name).read_bytes() == wanted
        assert (tmp_path / "cut" / name).read_bytes() == wanted, name
    changed = small(*words, "topology.links.access.up=1 Mbit/s")
    known = checkpoint.read_memory(tmp_path / "whole")
    replay = execute(changed, tmp_path / "replay", Memo(None), known=known, max_workers=1)
    fresh = execute(changed, tmp_path / "fresh", Memo(None), max_workers=1)
    assert replay["trainings"] == {"asked": fresh["trainings"]["computed"], "computed": 0}
    for name in FILES[:3]:
        assert (tmp_path / "replay" / name).read_bytes() == (tmp_path / "fresh" / name).read_bytes()


@pytest.mark.parametrize("words", [(PLAIN, "method.combination=median", "method.server_optimiser=adam"), FLAT])
def test_times_alone_are_those_of_the_run_that_trains(small: Small, words: tuple[str, ...]) -> None:
    loaded = small(*words, "attacks={kind: sign-flip, share: 0.25}")
    timed = assemble(loaded.scenario, TimingLab(loaded.scenario, RunMemory(Memo(None))))
    play(timed)
    trained = played(loaded)
    assert timed.world.ledger.rows == trained.world.ledger.rows
    assert timed.attack is not None
    assert trained.attack is not None
    assert timed.attack.facts() == trained.attack.facts()


@pytest.mark.parametrize(
    "words",
    [
        ("method={preset: ifca, clusters: 2}", "method.combination=median"),
        ("method={preset: hicfl}", "method.combination=median", "stop.rounds=6"),
        ("method={preset: fedclar, formation: {size: 2}, dividing: {round: 1, clusters: 2}, group_operation: none}",
         "method.combination=median", "method.global_combination=median", "method.edge_optimiser=momentum"),
        ("method=sd-feel", "method.combination=trimmed-mean", "topology.links.direct=[{shape: ring, bandwidth: 1 Mbit/s}]"),
        ("method={kind: asynchronous, aggregator: cloud, formation: {kind: random, size: 4}}", "method.combination=median"),
        ("topology.edges=null", "topology.tiers=[{name: region, count: 2}, {name: edge, count: 4}]", PLAIN,
         "method.tiers={region: {combination: median}}"),
    ],
    ids=["ifca", "hicfl", "fedclar", "sd-feel", "asynchronous", "tiers"],
)  # fmt: skip
def test_other_methods_have_it_too(small: Small, words: tuple[str, ...]) -> None:
    local = "method.local={epochs: 1, batch_size: 4, learning_rate: 0.1}"
    session = played(small(words[0], local, *words[1:]))
    assert server_rows(session, "combination")
    assert np.isfinite([row["loss"] for row in session.metrics]).all()


REFUSED = [
    ((f"method.combination={KRUM}",), "method.combination", "the server sees their sum alone"),
    (("method.combination=median", "method.group_operation={kind: sum, of: [secure-aggregation]}"),
     "method.combination", "with 'sum' the server sees their sum alone"),
    ((PLAIN, "method.combination={kind: krum, attackers: 3}"), "method.combination", "'krum' needs 9 models"),
    ((PLAIN, f"method.combination={KRUM}", "method.participation=0.5"), "method.combination", "may have only 2"),
    ((PLAIN, f"method.combination={KRUM}", "topology.clients=10", "method.wait_for_members={kind: quorum, count: 4}"),
     "method.combination", "may have only 4"),
    ((PLAIN, "method.combination={kind: trimmed-mean, share: 0.5}"), "method.combination.share", "must be less than 0.5"),
    ((PLAIN, "method.combination=median", "method.local.kind=scaffold"), "method.combination", "whose memory"),
    (("method.global_combination=median", "method.local.kind=feddyn"), "method.global_combination", "whose memory"),
    (("method.server_optimiser=adam", "method.local.kind=scaffold"), "method.server_optimiser", "whose memory"),
    (("method.edge_optimiser=adam", "method.local.kind=scaffold"), "method.edge_optimiser", "whose memory"),
    ((*FLAT, "method.edge_optimiser=adam"), "method.edge_optimiser", "whose optimiser is 'server_optimiser'"),
    (("method.server_optimiser=adam", "method.dividing={round: 1, clusters: 2}"), "method.server_optimiser", "'dividing'"),
    (("method.global_combination=median", "method.aggregation=unbiased"), "method.global_combination", "'unbiased'"),
    ((*FLAT, "method.global_combination=median"), "method.global_combination", "has one model to put together"),
    ((f"method.global_combination={KRUM}",), "method.global_combination", "'krum' needs 5 models"),
    ((PLAIN, "method.training=sequential", "method.combination=median"),
     "method.combination", "'sequential' training does not put members' models together"),
    (("method={preset: hfldd, local: {batch_size: 4}}", "data.public=4", "method.combination=median"),
     "method.combination", "'distilled' training does not put members' models together"),
    (("method={preset: ifca, clusters: 2}", "method.combination={kind: krum, attackers: 4}"),
     "method.combination", "'krum' needs 11 models"),
    (("topology.edges=null", "topology.tiers=[{name: region, count: 2}, {name: edge, count: 4}]",
      "method.tiers={region: {combination: median, group_operation: secure-aggregation}}"),
     "method.tiers.region.combination", "the server sees their sum alone"),
    (("method.server_optimiser={kind: adam, beta2: 1.0}",), "method.server_optimiser.beta2", "must be less than 1"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "key", "message"), REFUSED)
def test_what_does_not_go_together_is_refused(small: Small, words: tuple[str, ...], key: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        small(*words)
    assert any(f"{key}: " in str(p) and message in str(p) for p in caught.value.problems), str(caught.value)


def test_files_of_a_run_say_what_was_chosen(small: Small) -> None:
    session = played(small(PLAIN, "method.combination={kind: trimmed-mean, share: 0.3}", "stop.rounds=1"))
    assert session.scenario.method.params.combination.dump() == {"kind": "trimmed-mean", "share": 0.3}
    assert metrics_csv(session.metrics).startswith("round,")
