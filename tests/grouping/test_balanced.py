from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from emulator.grouping.balanced import balanced_clusters, cheapest_division


@given(
    clusters=st.integers(1, 6),
    size=st.integers(1, 6),
    missing=st.integers(0, 5),
    kind=st.integers(0, 2),
    seed=st.integers(0, 999),
)
@settings(max_examples=150, deadline=None)
def test_the_division_is_the_cheapest(clusters: int, size: int, missing: int, kind: int, seed: int) -> None:
    n = max(0, clusters * size - missing)
    rng = np.random.default_rng(seed)
    # Costs without ties, costs with many, and clusters that everybody wants.
    costs = [
        rng.random((n, clusters)),
        rng.integers(0, 3, (n, clusters)) * 1.0,
        rng.random((n, 1)) + np.arange(clusters) * 0.1,
    ][kind]
    labels = cheapest_division(costs, size)
    assert (np.bincount(labels, minlength=clusters) <= size).all()
    rows, columns = linear_sum_assignment(np.repeat(costs, size, axis=1))
    best = costs[rows, columns // size].sum()
    assert costs[np.arange(n), labels].sum() == pytest.approx(best, rel=1e-9, abs=1e-9)


def test_a_chain_of_moves_by_hand() -> None:
    # All want the first. The last gives way to the second at a cost of 1, the middle one to the third: 9 is less than 10.
    costs = np.array([[0.0, 5, 10], [0, 6, 9], [0, 1, 9]])
    assert cheapest_division(costs, 1).tolist() == [0, 2, 1]  # 0 + 9 + 1
    brute = min(itertools.permutations(range(3)), key=lambda p: sum(costs[i, p[i]] for i in range(3)))
    assert sum(costs[i, c] for i, c in enumerate(brute)) == 10
    assert cheapest_division(costs, 2).tolist() == [0, 0, 1]


def test_too_many_clients_are_refused() -> None:
    with pytest.raises(ValueError, match="7 clients do not fit into 2 clusters of 3"):
        cheapest_division(np.zeros((7, 2)), 3)
    with pytest.raises(ValueError, match="7 points cannot be divided into 2 clusters"):
        balanced_clusters(np.zeros((7, 1)), 2, np.random.default_rng(0))


@pytest.mark.parametrize(("n", "clusters"), [(1, 1), (12, 1), (12, 12), (12, 4), (60, 3)])
def test_clusters_are_equally_large(n: int, clusters: int) -> None:
    points = np.random.default_rng(0).random((n, 3))
    labels = balanced_clusters(points, clusters, np.random.default_rng(1))
    assert np.bincount(labels).tolist() == [n // clusters] * clusters
    assert labels.tolist() == balanced_clusters(points, clusters, np.random.default_rng(1)).tolist()


def test_clusters_gather_what_is_near() -> None:
    points = np.concatenate([c + np.random.default_rng(c).normal(0, 0.1, (8, 2)) for c in (0, 10, 20)])
    for seed in range(5):
        labels = balanced_clusters(points, 3, np.random.default_rng(seed))
        assert sorted(sorted(np.flatnonzero(labels == c).tolist()) for c in range(3)) == [
            list(range(8)), list(range(8, 16)), list(range(16, 24)),
        ]  # fmt: skip
