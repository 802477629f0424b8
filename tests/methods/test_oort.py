"""Oort against its paper: Algorithm 1 on a worked example, the pacer, and shares of what is explored."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.contracts.selection import Call, Report, selections
from emulator.learning.recipes import Handle
from emulator.methods.selection.oort import Known, Oort, OortParams, Pacer, exploited, utilities
from emulator.methods.training import GroupRound
from emulator.rng import stream
from emulator.scenario import Loaded
from tests.methods.playing import played

Small = Callable[..., Loaded]


def test_utilities_are_those_of_algorithm_1() -> None:
    """Four clients in round 10, with T = 20 s and alpha = 2: one is clipped, one is slow, one was heard of long ago."""
    known = {
        0: Known(4.0, 9, 1, 10.0),
        1: Known(4.0, 9, 1, 40.0),
        2: Known(4.0, 1, 1, 20.0),
        3: Known(400.0, 9, 1, 10.0),
    }
    found = utilities(known, 10, 20.0, OortParams(clip=0.5))
    recent, old = math.sqrt(0.1 * math.log(10) / 9), math.sqrt(0.1 * math.log(10))
    assert found == pytest.approx({0: 4 + recent, 1: (4 + recent) * (20 / 40) ** 2, 2: 4 + old, 3: 4 + recent})


def test_those_near_the_best_are_drawn_in_proportion_and_no_others() -> None:
    utility, rng = {7: 10.0, 8: 9.6, 9: 9.4, 3: 1.0}, stream(0, "test")
    once = [exploited(utility, 1, 0.95, rng) for _ in range(3000)]  # the cut is at 0.95 of 10
    assert {client for clients in once for client in clients} == {7, 8}
    assert np.mean([clients == [7] for clients in once]) == pytest.approx(10 / 19.6, abs=0.03)
    assert {client for _ in range(200) for client in exploited(utility, 2, 0.95, rng)} == {7, 8, 9}  # at 0.95 of 9.6
    assert sorted(exploited(utility, 4, 0.95, rng)) == [3, 7, 8, 9]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30), st.integers(1, 5), st.floats(0.1, 10))
def test_the_pacer_compares_each_window_with_the_one_before(gained: list[float], window: int, step_s: float) -> None:
    pacer, wanted_s = Pacer(step_s, window), step_s
    for rounds, each in enumerate(gained, start=1):
        pacer.round_over(each)
        if rounds % window == 0 and rounds >= 2 * window:
            before, latest = gained[rounds - 2 * window : rounds - window], gained[rounds - window : rounds]
            wanted_s += step_s * (sum(before) > sum(latest))
        assert pacer.preferred_s == pytest.approx(wanted_s)


def asked(oort: Oort, at: GroupRound, candidates: range, count: int, seed: int) -> list[int]:
    """Whom it chooses in a round."""
    call = Call(
        "cloud", 0, np.array(candidates), count, 1, Handle("model"), at, 0, stream(seed, "participation", at.round)
    )
    steps = oort.choose(call)
    with pytest.raises(StopIteration) as done:
        next(steps)
    return sorted(done.value.value)


class At:
    """The one thing of a group round that Oort looks at."""

    def __init__(self, round: int) -> None:  # noqa: A002
        self.round = round


@settings(max_examples=60)
@given(
    st.integers(1, 30),
    st.integers(1, 10),
    st.floats(0, 1),
    st.none() | st.integers(1, 3),
    st.integers(0, 1000),
    st.lists(st.floats(0.1, 100) | st.just(math.inf), min_size=30, max_size=30),
)
def test_as_many_as_wanted_are_chosen_whatever_is_heard(
    clients: int, count: int, share: float, most: int | None, seed: int, seconds: list[float]
) -> None:
    params = OortParams(exploration=share, least_exploration=share / 2, most_rounds=most)
    oort, count = Oort(None, params), min(count, clients)  # type: ignore[arg-type]  # it asks the lab for nothing
    times = dict.fromkeys(range(clients), 0)
    for t in range(1, 8):
        new = {client for client in range(clients) if not times[client]}
        chosen = asked(oort, At(t), range(clients), count, seed)  # type: ignore[arg-type]
        assert len(set(chosen)) == count
        explored = len(new & set(chosen))
        wanted = max(share / 2, share * 0.98 ** (t - 1)) * count
        rest = clients - len(new)
        assert explored >= min(len(new), math.floor(wanted + 1e-9))
        assert explored <= max(math.ceil(wanted - 1e-9), count - rest) or most is not None
        if most is not None and sum(n <= most for n in times.values()) >= count:
            assert all(times[client] <= most for client in chosen)
        for client in chosen:
            times[client] += 1
            late = seconds[client] == math.inf
            oort.told(Report(client, t, seconds[client], 10, lambda late=late, c=client: [] if late else [float(c)]))


def test_a_run_hears_the_losses_of_the_models_that_clients_got(small: Small) -> None:
    """The utility in the table is |B| times the root of the mean squared loss of the initial model, after the first round."""
    loaded = small("method=oort", "method.participation=0.5", "stop.rounds=2")
    session = played(loaded)
    rows = {row["client"]: row for row in session.tables["selections"] if row["round"] == 2}
    first = {row["client"] for row in session.tables["selections"] if row["round"] == 1 and row["chosen"]}
    initial, samples = session.lab.initial(), session.lab.clients.samples
    for client, row in rows.items():
        if client not in first:
            assert math.isnan(row["statistical"])
            continue
        squared = float(session.lab.measure("squared-loss", [initial], client)[0])
        fit = float(session.lab.measure("fit", [initial], client)[0, 0])
        assert squared >= fit**2
        assert row["statistical"] == pytest.approx(samples[client] * math.sqrt(squared), rel=1e-12)
    assert "oort" in selections.names()
