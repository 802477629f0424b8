"""Cluster sampling: Algorithm 1 of S5 on rows of the divergence matrix."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.contracts.grouping import formations
from emulator.grouping.distances import kl
from emulator.grouping.formation.cluster_sampling import ClusterSamplingParams, KindredGroups, cluster_sampling
from emulator.grouping.view import ClientView
from emulator.registry import NoParams
from emulator.rng import stream


def soft_labels(kinds: list[int], samples: int = 6, classes: int = 4, noise: float = 0.01) -> np.ndarray:
    """Rows of soft labels of several samples, laid end to end: clients of a kind are sure of the same class."""
    rng = stream(1, "soft labels")
    rows = noise * rng.random((len(kinds), samples, classes))
    rows[np.arange(len(kinds)), :, kinds] += 1
    return (rows / rows.sum(axis=2, keepdims=True)).reshape(len(kinds), -1)


def formed(estimates: np.ndarray, clusters: int, seed: int = 0) -> KindredGroups:
    counts = np.ones((len(estimates), 4), dtype=np.int64)
    view = ClientView(counts, counts.sum(axis=1), estimates=estimates)
    return cluster_sampling(view, stream(seed, "test"), ClusterSamplingParams(clusters=clusters))


def test_the_divergence_of_rows_is_the_mean_over_the_samples() -> None:
    # S5 Eq. 4, one term at a time.
    rows = soft_labels([0, 1, 2], samples=5, noise=0.4)
    apart = rows.reshape(3, 5, 4)
    expected = np.array([[(p * np.log(p / q)).sum() / 5 for q in apart] for p in apart])
    assert kl(rows, rows, NoParams()) == pytest.approx(expected)


def test_each_group_has_one_client_of_every_kind_that_is_left() -> None:
    kinds = [0, 0, 0, 1, 1, 2, 3, 3, 3, 3]
    groups = formed(soft_labels(kinds), clusters=4)
    assert sorted(c for members in groups for c in members) == list(range(10))
    assert [len(members) for members in groups] == [4, 3, 2, 1]  # as long as clusters have clients left; then one alone
    assert all(members == sorted(members) for members in groups)
    for members in groups:
        assert len({kinds[c] for c in members}) == len(members)
    found = groups.kinds
    assert len(set(found.tolist())) == 4
    assert all((found[i] == found[j]) == (kinds[i] == kinds[j]) for i in range(10) for j in range(10))


def test_who_is_drawn_depends_on_the_stream_alone() -> None:
    estimates = soft_labels([0, 0, 0, 1, 1, 1])
    assert formed(estimates, 2, seed=1) == formed(estimates, 2, seed=1)
    assert len({tuple(map(tuple, formed(estimates, 2, seed=s))) for s in range(20)}) > 5


@pytest.mark.parametrize("clusters", [5, 10, 1000])
def test_more_clusters_than_clients_are_as_many_as_there_are_clients(clusters: int) -> None:
    groups = formed(soft_labels([0, 1, 2, 3]), clusters)
    assert groups == [[0, 1, 2, 3]]


def test_clients_that_cannot_be_told_apart_stay_alone() -> None:
    groups = formed(np.full((5, 8), 0.25), clusters=3)
    assert sorted(groups) == [[0], [1], [2], [3], [4]]


def test_one_cluster_makes_every_client_a_group_of_its_own() -> None:
    assert sorted(formed(soft_labels([0, 1, 2]), clusters=1)) == [[0], [1], [2]]


def test_no_clients_make_no_groups() -> None:
    assert formed(np.zeros((0, 8)), clusters=3) == []


def test_its_arithmetic_is_charged() -> None:
    flops = formations["cluster-sampling"].facts.flops
    few, many = (flops(100, numbers, 10, ClusterSamplingParams()) for numbers in (10, 10_000))
    assert few > 0
    assert many - few == pytest.approx(9990 * 100 * (20 + 3 * 100))
