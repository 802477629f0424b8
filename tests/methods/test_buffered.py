"""Asynchronous aggregation: update rules as the papers write them, limits in which it is another method, and what it charges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.contracts.methods import GroupResult
from emulator.contracts.staleness import StalenessChoice, stalenesses
from emulator.errors import ScenarioError
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.recipes import Handle, LocalTraining
from emulator.ledger import COMPUTE, DONE, GROUP_OPERATION, TRANSFER
from emulator.methods.session import Session
from emulator.methods.versions import Arrival, Versions, VersionSlots, weights_of_latest
from emulator.run import execute
from emulator.scenario import Loaded
from tests.methods.playing import cut_off_and_finished, played

Small = Callable[..., Loaded]

CLOUD = ("method={preset: %s, local: {batch_size: 4, learning_rate: 0.1}}", "topology.edges=0")


def asynchronous(small: Small, preset: str, *changes: str) -> Loaded:
    return small(CLOUD[0] % preset, CLOUD[1], *changes)


# Update rules, with numbers in place of models.


class Numbers:
    """A lab whose models are numbers, by the keys of their handles."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def handle(self, value: float) -> Handle:
        handle = Handle(f"{len(self.values)}")
        self.values[handle.key] = value
        return handle

    def combine(self, vectors: Sequence[Handle], weights: Sequence[float]) -> Handle:
        return self.handle(math.fsum(self.values[v.key] * weight for v, weight in zip(vectors, weights, strict=True)))


def slots(**given_slots: Any) -> VersionSlots:
    return VersionSlots.model_validate(given_slots)


@st.composite
def courses(draw: st.DrawFn) -> list[list[tuple[int, float, int]]]:
    """Results, version by version: the age in versions of what each was made of, its value, and its samples."""
    versions = draw(st.integers(1, 6))
    return [
        draw(st.lists(st.tuples(st.integers(0, number), st.floats(-5, 5), st.integers(1, 50)), min_size=1, max_size=4))
        for number in range(versions)
    ]


def followed(how: VersionSlots, course: Sequence[Sequence[tuple[int, float, int]]], units: int = 9) -> list[float]:
    """The versions that the rule makes of these results, beginning with 1."""
    lab = Numbers()
    versions = Versions(cast(Any, lab), how, lab.handle(1.0))
    made = [versions.model]
    for results in course:
        arrivals = [
            Arrival(unit, unit, versions.number - age, made[versions.number - age],
                    GroupResult(lab.handle(value), (unit,), samples), 0.0)
            for unit, (age, value, samples) in enumerate(results)
        ]  # fmt: skip
        versions.model, _ = versions.made_of(arrivals, units)
        versions.number += 1
        made.append(versions.model)
    return [lab.values[each.key] for each in made]


KINDS = [("constant", {}), ("polynomial", {"a": 0.5}), ("hinge", {"a": 10.0, "b": 4})]


def factor(kind: str, age: int) -> float:
    """s(t - τ) as Xie et al. (2019) write it in Section 5.2."""
    return {"constant": 1.0, "polynomial": (age + 1) ** -0.5, "hinge": 1.0 if age <= 4 else 1 / (10 * (age - 4) + 1)}[
        kind
    ]


@pytest.mark.parametrize(("kind", "values"), KINDS)
@given(courses(), st.sampled_from((0.3, 0.6, 1.0)))
def test_fedasync_mixes_as_algorithm_1(
    kind: str, values: dict[str, float], course: list[list[tuple[int, float, int]]], alpha: float
) -> None:
    # x_t = (1 - α_t) x_{t-1} + α_t x_new, with α_t = α s(t - τ).
    course = [results[:1] for results in course]
    how = slots(buffer=1, update="mix", rate=alpha, staleness={"kind": kind, **values})
    x = [1.0]
    for [(age, new, _)] in course:
        a = alpha * factor(kind, age)
        x.append((1 - a) * x[-1] + a * new)
    assert followed(how, course) == pytest.approx(x, rel=1e-12, abs=1e-12)


@given(courses(), st.sampled_from((0.5, 1.0)))
def test_fedbuff_adds_as_algorithm_1(course: list[list[tuple[int, float, int]]], eta: float) -> None:
    # Δ̄ = Σ Δ_i / √(1 + τ_i) / K, and w ← w + η Δ̄, where Δ_i is what client i made of its version, less that version.
    how = slots(buffer=1, update="add", rate=eta, weights="equal", staleness={"kind": "polynomial", "a": 0.5})
    w = [1.0]
    for results in course:
        buffered = sum((value - w[len(w) - 1 - age]) / math.sqrt(1 + age) for age, value, _ in results)
        w.append(w[-1] + eta * buffered / len(results))
    assert followed(how, course) == pytest.approx(w, rel=1e-9, abs=1e-9)


@given(courses())
def test_what_arrived_in_a_beat_is_averaged_by_samples(course: list[list[tuple[int, float, int]]]) -> None:
    how = slots(every="1 s", update="mix")
    averages = [
        sum(value * samples for _, value, samples in results) / sum(samples for *_, samples in results)
        for results in course
    ]
    assert followed(how, course)[1:] == pytest.approx(averages, rel=1e-9, abs=1e-9)


def test_fedat_weighs_tiers_as_equation_5() -> None:
    # T = 10 results of M = 3 tiers, the fastest first: tier m counts T_{M + 1 - m} / T.
    assert weights_of_latest({0: 6, 1: 3, 2: 1}) == {0: 0.1, 1: 0.3, 2: 0.6}
    course = [[(0, 5.0, 1)], [(0, 7.0, 1)]]  # all of tier 0, so that the others' first models count in full
    assert followed(slots(update="latest"), course, units=3) == [1.0, 1.0, 1.0]
    assert followed(slots(update="latest"), course, units=1) == [1.0, 5.0, 7.0]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8).filter(any))
def test_the_weights_of_latest_models_add_up_to_1_and_rise_as_units_get_slower(counts: list[int]) -> None:
    weights = weights_of_latest(dict(enumerate(counts)))
    assert math.fsum(weights.values()) == pytest.approx(1.0, rel=1e-12)
    in_order = [weights[unit] for unit in sorted(weights, key=lambda unit: (-counts[unit], unit))]
    assert in_order == sorted(in_order)


# Limits.


def figures(session: Session, *also: str) -> list[dict[str, object]]:
    """All figures of a run; sums, whose order is another where clients are worked out together, to 12 digits."""
    sums = ("cost_training_s", "cost_s", "energy_j", *also)
    return [
        {name: float(f"{value:.12g}") if name in sums else value for name, value in row.items()}
        for row in session.metrics
    ]


@pytest.mark.parametrize("update", ["add", "mix"])
@pytest.mark.parametrize("sharing", ["max-min", "dedicated"])
def test_fedbuff_with_a_buffer_of_all_equal_clients_is_fedavg_bit_for_bit(
    small: Small, update: str, sharing: str
) -> None:
    world = ("stop.rounds=4", "topology.edges=0", f"topology.sharing={sharing}")
    buffered = played(asynchronous(small, "fedbuff", "method.buffer=8", f"method.update={update}", *world))
    fedavg = played(asynchronous(small, "fedavg", *world))
    assert figures(buffered) == figures(fedavg)
    assert len({row["accuracy"] for row in buffered.metrics}) > 1  # something was learned


def test_a_buffer_of_all_clients_is_fedavg_whatever_their_speeds(small: Small) -> None:
    world = ("stop.rounds=3", "topology.devices={raspberry-pi-4b: 0.5, raspberry-pi-3b-plus: 0.5}")
    buffered = played(asynchronous(small, "fedbuff", "method.buffer=8", *world))
    fedavg = played(asynchronous(small, "fedavg", *world))
    assert [row["loss"] for row in buffered.metrics] == [row["loss"] for row in fedavg.metrics]
    assert [row["time_s"] for row in buffered.metrics] == pytest.approx(
        [row["time_s"] for row in fedavg.metrics], rel=1e-9
    )


def test_fedasync_with_one_client_is_sequential_sgd(small: Small) -> None:
    loaded = asynchronous(small, "fedasync", "method.rate=1.0", "topology.clients=1", "stop.rounds=5")
    session = played(loaded)
    lab = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)
    model, losses = lab.initial(), []
    for step in range(5):
        model = lab.train(LocalTraining(model, 0, loaded.scenario.method.params.local, step + 1)).model
        losses.append(lab.evaluate(model).values["loss"])
    assert [row["loss"] for row in session.metrics[1:]] == losses
    assert {row["staleness"] for row in session.tables["arrivals"]} == {0}


def test_an_edge_that_takes_all_its_clients_in_at_once_averages_them(small: Small) -> None:
    training = "method.training={kind: asynchronous, buffer: 4, update: add, rate: 1.0, staleness: constant}"
    apart = played(small("method={preset: async-edges, local: {batch_size: 4}}", training, "stop.rounds=3"))
    in_step = played(
        small("method={preset: async-edges, local: {batch_size: 4}}", "method.training=parallel", "stop.rounds=3")
    )
    assert figures(apart, "time_s") == figures(in_step, "time_s")


# What happens when.


def under_way(session: Session) -> list[int]:
    """How many clients are at work or on their way at every instant at which that changes."""
    trips: dict[tuple[str, int], tuple[float, float]] = {}
    names = set(session.world.fleet.client_names)
    for row in session.world.ledger.rows:
        who = row.who if row.who in names else row.peer
        if who in names:
            first, last = trips.get((who, row.round), (math.inf, 0.0))
            trips[who, row.round] = min(first, row.start_s), max(last, row.end_s)
    edges = sorted({at for trip in trips.values() for at in trip})
    return [sum(first <= at < last for first, last in trips.values()) for at in edges]


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_than_so_many_work_at_once(small: Small, most: int) -> None:
    speeds = "topology.devices={raspberry-pi-4b: 0.5, raspberry-pi-3b-plus: 0.5}"
    session = played(asynchronous(small, "fedasync", f"method.at_work={most}", "stop.rounds=20", speeds))
    assert max(under_way(session)) == most
    assert len({row["client"] for row in session.tables["arrivals"]}) > most  # others take the free places


def test_versions_are_made_at_the_beats_alone(small: Small) -> None:
    session = played(asynchronous(small, "semi-synchronous", "method.every=0.7 s", "stop.rounds=5"))
    times = [row["time_s"] for row in session.metrics[1:]]
    assert all(at / 0.7 == pytest.approx(round(at / 0.7), abs=1e-9) for at in times)
    assert times == sorted(set(times))
    by_round = Counter(row["round"] for row in session.tables["arrivals"])
    for version in by_round:
        weights = [row["weight"] for row in session.tables["arrivals"] if row["round"] == version]
        assert math.fsum(weights) == pytest.approx(1.0)


def test_what_is_too_stale_is_thrown_away_and_its_client_goes_on(small: Small) -> None:
    speeds = "topology.devices={raspberry-pi-4b: 0.5, raspberry-pi-3b-plus: 0.5}"
    session = played(asynchronous(small, "fedasync", "method.max_staleness=6", "stop.rounds=60", speeds))
    arrivals = session.tables["arrivals"]
    used = [row for row in arrivals if row["used"]]
    assert [row["round"] for row in used] == list(range(1, 61))
    assert max(row["staleness"] for row in used) <= 6 < min(row["staleness"] for row in arrivals if not row["used"])
    thrown = {row["client"] for row in arrivals if not row["used"]}
    assert any(row["client"] in thrown for row in used)


def test_staleness_counts_the_versions_in_between(small: Small) -> None:
    session = played(asynchronous(small, "fedasync", "stop.rounds=20"))
    for row in session.tables["arrivals"]:
        assert row["staleness"] == row["round"] - 1 - row["from_round"]
        assert row["weight"] == 0.6 * (row["staleness"] + 1) ** -0.5
    assert max(row["staleness"] for row in session.tables["arrivals"]) > 0


# Secure aggregation of a buffer.


def test_clients_of_a_buffer_pay_for_secure_aggregation_together(small: Small) -> None:
    secure = "method.group_operation={kind: secure-aggregation, a: 100 ms, b: 20 ms, c: 5 ms}"
    session = played(asynchronous(small, "fedbuff", "method.buffer=4", secure, "stop.rounds=6"))
    met = [row for row in session.world.ledger.rows if row.kind == GROUP_OPERATION]
    each_s = 0.1 + 0.02 * 4 + 0.005 * 4**2  # of a buffer of four
    assert [row.end_s - row.start_s for row in met] == pytest.approx([each_s] * len(met))
    sent = [row for row in session.world.ledger.rows if row.kind == TRANSFER and row.hop == "client-server"]
    whole = [row for row in sent if row.what == "model" and row.bytes]
    assert len(met) >= 4 * 6
    assert len(whole) == 4 * 6  # nobody sends a model outside of a meeting
    assert Counter(row["round"] for row in session.tables["arrivals"]) == dict.fromkeys(range(1, 7), 4)


def test_secure_aggregation_of_all_gives_the_same_models(small: Small) -> None:
    changes = ("method.buffer=8", "stop.rounds=3")
    open_ = played(asynchronous(small, "fedbuff", *changes))
    masked = played(asynchronous(small, "fedbuff", "method.group_operation=secure-aggregation", *changes))
    assert [row["loss"] for row in masked.metrics] == [row["loss"] for row in open_.metrics]
    assert masked.metrics[-1]["cost_group_s"] > 0


def test_masked_models_count_by_the_staleness_that_was_known_when_they_met(small: Small) -> None:
    """Versions of other buffers that meet meanwhile come too late for who has scaled and masked its model already."""
    secure = "method.group_operation={kind: secure-aggregation, a: 100 ms, b: 20 ms, c: 5 ms}"
    speeds = "topology.devices={raspberry-pi-4b: 0.5, raspberry-pi-3b-plus: 0.5}"
    session = played(asynchronous(small, "fedbuff", "method.buffer=2", secure, speeds, "stop.rounds=12"))
    made_s = {row["round"]: row["time_s"] for row in session.metrics}
    met = [row for row in session.world.ledger.rows if row.kind == GROUP_OPERATION]
    names, later = session.world.fleet.client_names, 0
    for row in session.tables["arrivals"]:
        began_s = max(op.start_s for op in met if op.who == names[row["client"]] and op.end_s <= row["time_s"])
        known = sum(1 for version, at_s in made_s.items() if 0 < version < row["round"] and at_s <= began_s)
        assert row["staleness"] == known - row["from_round"]
        assert row["weight"] == 0.5 * (row["staleness"] + 1) ** -0.5
        later += row["round"] - 1 > known
    assert later > 0


# Asynchronous training inside groups.


def test_what_is_under_way_when_a_group_round_ends_is_cut_off_and_charged(small: Small) -> None:
    speeds = "topology.devices={raspberry-pi-4b: 0.5, raspberry-pi-3b-plus: 0.5}"
    session = played(small("method={preset: async-edges, local: {batch_size: 4}}", speeds, "stop.rounds=3"))
    rows = session.world.ledger.rows
    assert session.metrics[-1]["cost_wasted_s"] > 0
    done = [row for row in rows if row.kind == COMPUTE and row.status == DONE and row.what == "training"]
    counted = Counter((row["round"], row["group"]) for row in session.tables["group_arrivals"])
    assert counted == {(t, g): 4 for t in (1, 2, 3) for g in (0, 1)}
    assert len(done) >= sum(counted.values())


# What is refused, and what is resumed.


@pytest.mark.parametrize(
    ("preset", "changes", "said"),
    [
        ("fedbuff", (), "waits for 10 results, and no more than 8 can be under way; say 8 or less"),
        ("fedbuff", ("method.buffer=4", "method.at_work=3"), "no more than 3 can be under way"),
        ("fedbuff", ("method.buffer=4", "method.every=1 s"), "give 'buffer' or 'every', not both"),
        ("fedasync", ("method.rate=1.5",), "a mix goes no further than to the results"),
        ("fedasync", ("method.local=scaffold",), "'scaffold' has a memory that belongs to rounds"),
        ("fedasync", ("method.selection=by-data-size",), "needs an 'at_work', fewer than there are clients"),
        ("fedasync", ("method.participation=0.5",), "say with 'at_work' how many work at once"),
        ("semi-synchronous", ("method.group_operation=secure-aggregation",), "give 'buffer', which says"),
        (
            "fedbuff",
            ("method.group_operation=secure-aggregation", "method.buffer=1"),
            "'secure-aggregation' needs 2 clients, and a buffer has 1; say 2 or more",
        ),
        ("fedbuff", ("method.buffer=4", "method.training=asynchronous"), "'asynchronous' is for groups"),
        ("fedasync", ("method.update=latest",), "goes with 'update: mix' or 'add'"),
        ("fedasync", ("privacy={at: client, clip: 1.0, noise_multiplier: 1.0}",), "'buffered' does not go with 'privacy'"),
        ("async-edges", ("method.wait_for_members={kind: deadline, after: 9 s}",), "do not work in step"),
        ("async-edges", ("method.group_operation=secure-aggregation",), "do not work in step"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(small: Small, preset: str, changes: tuple[str, ...], said: str) -> None:
    edges = "topology.edges=2" if preset == "async-edges" else "topology.edges=0"
    with pytest.raises(ScenarioError, match=said.replace("'", ".")):
        small(CLOUD[0] % preset, edges, *changes)


def test_a_run_that_was_cut_off_goes_on_to_the_same_end(small: Small, tmp_path: Path) -> None:
    loaded = asynchronous(small, "fedasync", "stop.rounds=12", "method.at_work=5")
    execute(loaded, tmp_path / "whole", Memo(None), max_workers=1)
    cut_off_and_finished(loaded, tmp_path / "parts", after=5)
    for name in ("metrics.csv", "arrivals.csv"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


def test_staleness_functions_of_the_scenario_are_those_of_the_registry() -> None:
    assert {kind for kind, _ in KINDS} == set(stalenesses.names())
    for kind, values in KINDS:
        choice = StalenessChoice(kind, stalenesses[kind].params.model_validate(values))
        assert [choice(age) for age in range(9)] == [factor(kind, age) for age in range(9)]
        assert np.isfinite(choice(10_000))
