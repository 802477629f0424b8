"""Tiers of equally fast clients: whatever the times, tiers are of almost equal size and none overlaps the next."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from emulator.contracts.grouping import FormationChoice
from emulator.grouping.formation.speed_tiers import SpeedTiersParams
from emulator.grouping.view import ClientView


@given(st.lists(st.sampled_from((0.5, 1.0, 2.5)) | st.floats(0, 1e6), max_size=40), st.integers(1, 12))
def test_tiers_are_slices_of_the_clients_in_order_of_their_times(times: list[float], tiers: int) -> None:
    n = len(times)
    view = ClientView(np.ones((n, 2), dtype=np.int64), np.full(n, 2), np.array(times).reshape(n, 1))
    rule = FormationChoice("speed-tiers", SpeedTiersParams(tiers=tiers))
    groups = rule(view, np.random.default_rng(0))
    assert sorted(itertools.chain(*groups)) == list(range(n))
    assert all(group and group == sorted(group) and type(group[0]) is int for group in groups)
    assert len(groups) == rule.most(n) == min(tiers, n)
    if n:
        assert max(map(len, groups)) == rule.largest(n)
        assert min(map(len, groups)) >= rule.largest(n) - 1
    ranks = [[(times[i], i) for i in group] for group in groups]
    assert all(max(one) < min(other) for one, other in itertools.pairwise(ranks))
