"""TiFL against its paper: tiers, and how they are drawn."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.methods.selection.tifl import Tifl, TiflParams, changed_probabilities, tiers_of
from emulator.scenario import Loaded
from tests.methods.playing import played

Small = Callable[..., Loaded]
FLAT = ("topology.clients=12", "method=fedavg", "method.participation=0.3", "stop.rounds=6")


def test_with_one_tier_it_is_uniform_bit_for_bit(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the profiling, whose estimates are given here: nobody is asked for them."""
    plain = played(small(*FLAT))
    monkeypatch.setattr("emulator.methods.grouped.learn_each", given_times)
    tiered = played(small(*FLAT, "method.selection={kind: tifl, tiers: 1}"))
    assert plain.metrics == tiered.metrics
    assert plain.world.ledger.rows == tiered.world.ledger.rows


def given_times(*_: object) -> object:
    """Response times of twelve clients: the later ones are slower."""
    yield from ()
    return {"response-time": np.arange(12.0)[:, None]}


def tiers_by_round(small: Small, monkeypatch: pytest.MonkeyPatch, params: str, *changes: str) -> list[set[int]]:
    """The tiers of those who were chosen, round by round."""
    monkeypatch.setattr("emulator.methods.grouped.learn_each", given_times)
    rows = played(small(*FLAT, f"method.selection={{kind: tifl, {params}}}", *changes)).tables["selections"]
    last = max(row["round"] for row in rows)
    return [{int(row["tier"]) for row in rows if row["round"] == t and row["chosen"]} for t in range(1, last + 1)]


def test_all_of_a_round_are_of_one_tier_and_tiers_without_chances_are_left_out(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tiers_by_round(small, monkeypatch, "tiers: 3, probabilities: [1.0, 0.0, 3.0]", "stop.rounds=12")
    assert all(len(tiers) == 1 for tiers in found)
    assert set().union(*found) == {0, 2}


def test_a_tier_is_filled_up_from_the_nearest(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tiers_by_round(small, monkeypatch, "tiers: 6, probabilities: [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]")
    assert found == [{3, 2}] * 6


def test_credits_run_out(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tiers_by_round(small, monkeypatch, "tiers: 3, adaptive: true, interval: 100, credits: 2")
    assert sorted(min(tiers) for tiers in found) == [0, 0, 1, 1, 2, 2]


def test_tiers_with_lower_accuracy_become_more_likely() -> None:
    """Algorithm 2, ChangeProbs, by hand: of three tiers with credits the worst gets 2/3, the next 1/3 and the best 0."""
    assert changed_probabilities([0.9, 0.1, 0.2, 0.5], [True, False, True, True]) == pytest.approx([0, 0, 2 / 3, 1 / 3])
    assert changed_probabilities([0.9, 0.1], [True, False]) == [1.0, 0.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_probabilities_add_up_and_fall_with_accuracy(accuracies: list[float]) -> None:
    found = changed_probabilities(accuracies, [True] * len(accuracies))
    assert sum(found) == pytest.approx(1)
    order = sorted(range(len(found)), key=lambda tier: accuracies[tier])
    assert all(found[a] >= found[b] for a, b in pairwise(order))


def test_probabilities_change_only_where_the_current_tier_has_not_become_better() -> None:
    for latest, changes in ((0.5, False), (0.3, True), (0.2, True)):
        selector = Tifl(None, TiflParams(tiers=2, adaptive=True, interval=3))  # type: ignore[arg-type]  # it asks for nothing
        accuracy = {0: 0.3, 1: 0.6}
        selector._accuracy = accuracy.__getitem__  # type: ignore[method-assign]
        for _ in range(3):
            selector._adapt()
            selector._rounds += 1
        accuracy[0] = latest
        selector._adapt()
        assert (selector._likely == [1.0, 0.0]) is changes


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=40), st.integers(1, 8), st.none() | st.floats(1, 100))
def test_tiers_are_of_equal_size_and_in_order(seconds: list[float], tiers: int, timeout: float | None) -> None:
    params = TiflParams(tiers=tiers).model_copy(update={"timeout": timeout})
    found = tiers_of(np.array(seconds), params)
    in_time = [c for c, each in enumerate(seconds) if timeout is None or each < timeout]
    assert all((found[c] == tiers) is (c not in in_time) for c in range(len(seconds)))
    sizes = [sum(found[c] == tier for c in in_time) for tier in range(tiers)]
    assert max(sizes) - min(sizes) <= 1
    assert all(found[a] <= found[b] for a in in_time for b in in_time if seconds[a] < seconds[b])


def test_profiling_comes_before_the_first_round_and_is_charged(small: Small) -> None:
    session = played(small(*FLAT, "method.selection={kind: tifl, tiers: 3}", "stop.rounds=1"))
    profiled = [row for row in session.world.ledger.rows if row.what == "profiling"]
    assert profiled
    assert max(row.end_s for row in profiled) <= min(row["time_s"] for row in session.tables["selections"])
    seconds = {row["client"]: row["system"] for row in session.tables["selections"]}
    tiers = {row["client"]: row["tier"] for row in session.tables["selections"]}
    assert all(tiers[a] <= tiers[b] for a in seconds for b in seconds if seconds[a] < seconds[b])
