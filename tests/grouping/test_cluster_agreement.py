"""Clusters that were found, against the true ones."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.grouping.cluster_agreement import adjusted_rand_index, purity


def clusters(text: str) -> np.ndarray:
    return np.array([int(c) for c in text])


@pytest.mark.parametrize(
    ("found", "truth", "index", "pure"),
    [
        ("000111", "000111", 1, 1),
        ("111000", "000111", 1, 1),  # names do not matter
        ("022", "577", 1, 1),
        # Pairs in common 2, in found 6 (3 + 3), in truth 6 of 15: (2 - 36/15) / (6 - 36/15).
        ("000111", "001011", (2 - 2.4) / (6 - 2.4), 4 / 6),
        # Contingency [[2, 1], [0, 3]]: 1 + 3 pairs in common, 3 + 3 found, 1 + 6 true.
        ("000111", "001111", (4 - 6 * 7 / 15) / (6.5 - 6 * 7 / 15), 5 / 6),
        # Pairs in common 1, found 2, true 6; then both pairs that were found are in common: pure, but not the same.
        ("001123", "000111", (1 - 2 * 6 / 15) / (4 - 2 * 6 / 15), 5 / 6),
        ("001223", "000111", (2 - 2 * 6 / 15) / (4 - 2 * 6 / 15), 1),
        ("0000", "0011", 0, 0.5),  # all in one cluster
        ("0123", "0011", 0, 1),  # each in its own
        ("0000", "5555", 1, 1),
        ("0123", "3210", 1, 1),
        ("0", "0", 1, 1),
        ("0101", "0011", (0 - 2 * 2 / 6) / (2 - 2 * 2 / 6), 0.5),  # worse than chance
    ],
)  # fmt: skip
def test_by_hand(found: str, truth: str, index: float, pure: float) -> None:
    assert adjusted_rand_index(clusters(found), clusters(truth)) == pytest.approx(index)
    assert purity(clusters(found), clusters(truth)) == pytest.approx(pure)


def test_the_index_is_that_of_scikit_learn_and_symmetric() -> None:
    from sklearn.metrics import adjusted_rand_score

    rng = np.random.default_rng(4)
    for _ in range(30):
        clients = int(rng.integers(2, 60))
        found, truth = rng.integers(0, rng.integers(1, 8), clients), rng.integers(0, rng.integers(1, 8), clients)
        assert adjusted_rand_index(found, truth) == pytest.approx(adjusted_rand_score(truth, found))
        assert adjusted_rand_index(found, truth) == pytest.approx(adjusted_rand_index(truth, found))


def test_random_clusters_have_an_index_of_zero_on_average() -> None:
    rng = np.random.default_rng(5)
    truth = np.arange(40) % 4
    drawn = [adjusted_rand_index(rng.permutation(truth), truth) for _ in range(400)]
    assert abs(np.mean(drawn)) < 0.01


def test_shapes_that_do_not_fit() -> None:
    for found, truth in (("01", "0"), ("", "")):
        with pytest.raises(ValueError, match="must both be"):
            purity(clusters(found), clusters(truth))
