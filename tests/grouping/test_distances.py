"""Distances against numbers worked out by hand, and what holds for all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from emulator.contracts.grouping import distances
from emulator.errors import InputError
from emulator.grouping.distances import cosine_similarity
from emulator.registry import NoParams

OF_DISTRIBUTIONS = ["entropy", "gini", "kl"]


def distance(name: str, a: object, b: object) -> np.ndarray:
    a, b = (np.atleast_2d(np.array(x, dtype=np.float64)) for x in (a, b))
    return np.asarray(distances[name].function(a, b, NoParams()))


LN2, LN4 = math.log(2), math.log(4)


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("euclidean", [3, 0], [0, 4], 5),
        ("euclidean", [1, -2, 2], [1, -2, 2], 0),
        ("cosine", [2, 0], [0, 7], 1),
        ("cosine", [1, 1], [3, 3], 0),
        ("cosine", [1, 0], [-5, 0], 2),
        ("cosine", [4, 3], [3, 4], 1 - 24 / 25),
        ("cosine", [0, 0], [1, 2], 1),  # what has no direction is at right angles to everything
        ("kl", [0.5, 0.5], [0.25, 0.75], 0.5 * LN2 + 0.5 * math.log(2 / 3)),
        ("kl", [0.25, 0.75], [0.5, 0.5], -0.25 * LN2 + 0.75 * math.log(1.5)),
        ("kl", [1, 0], [0.25, 0.75], LN4),
        ("kl", [3, 1], [3, 1], 0),
        ("kl", [2, 6], [8, 8], -0.25 * LN2 + 0.75 * math.log(1.5)),  # counts are scaled to distributions
        ("gini", [1, 0], [0, 1], 0.5),
        ("gini", [1, 0], [1, 0], 0),
        ("gini", [1, 0, 0], [0, 0.5, 0.5], 1 - (1 / 4 + 1 / 16 + 1 / 16)),
        ("gini", [4, 4], [1, 1], 0.5),
        ("entropy", [1, 0], [0, 1], LN2),
        ("entropy", [1, 0], [1, 0], 0),
        ("entropy", [1, 0, 0], [0, 0.5, 0.5], 0.5 * LN2 + 0.5 * LN4),
        ("normalised-cosine", [1, 3], [3, 1], 1 - 2 * (3 / 16) / (10 / 16)),  # (1/4, 3/4) and (3/4, 1/4)
        ("normalised-cosine", [1000, 3], [3000, 1], 1 - 2 * (3 / 16) / (10 / 16)),  # each entry on its own scale
        ("normalised-cosine", [5, 7, 0], [5, 7, 0], 0),
        ("normalised-cosine", [1, 0], [0, 1], 1),
    ],
)
def test_by_hand(name: str, a: list[float], b: list[float], expected: float) -> None:
    assert distance(name, a, b)[0, 0] == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_entropy_is_what_a_mixture_lacks_of_its_divergence_from_uniform() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(7), 2)
    from_uniform = distance("kl", (p + q) / 2, np.full(7, 1 / 7))
    np.testing.assert_allclose(distance("entropy", p, q), math.log(7) - from_uniform, rtol=1e-12)


def test_kl_of_soft_labels_laid_end_to_end_is_the_mean_over_samples() -> None:
    rng = np.random.default_rng(1)
    ours, theirs = rng.dirichlet(np.ones(4), (2, 9))  # two clients, nine samples, four classes
    means = [np.mean([np.sum(p * np.log(p / q)) for p, q in zip(ours, theirs, strict=True)])]
    np.testing.assert_allclose(distance("kl", ours.ravel(), theirs.ravel())[0], means, rtol=1e-12)


def test_kl_stays_finite_where_a_class_is_missing() -> None:
    assert distance("kl", [1, 0], [0, 1])[0, 0] == pytest.approx(-math.log(1e-12), rel=1e-9)
    assert distance("kl", [0, 0], [1, 1])[0, 0] == 0  # a client of which nothing is known counts as uniform


@pytest.mark.parametrize("name", distances.names())
def test_tables_are_made_of_pairs(name: str) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random((5, 3)), rng.random((4, 3))
    table = distance(name, a, b)
    assert table.shape == (5, 4)
    for i in range(5):
        for j in range(4):
            assert table[i, j] == distance(name, a[i], b[j])[0, 0]
    assert distances[name].function(a, np.zeros((0, 3)), NoParams()).shape == (5, 0)


@pytest.mark.parametrize("name", distances.names())
def test_equal_clients_are_equally_far_in_every_bit_wherever_they_stand(name: str) -> None:
    rng = np.random.default_rng(3)
    row, reference = rng.random(37), rng.random(37)
    assert len(set(distance(name, np.tile(row, (101, 1)), reference)[:, 0].tolist())) == 1


@pytest.mark.parametrize("name", distances.names())
def test_not_negative_and_symmetric_but_for_kl(name: str) -> None:
    rng = np.random.default_rng(4)
    a = rng.random((20, 6))
    table = distance(name, a, a)
    assert table.min() >= -1e-12
    if name == "kl":
        assert np.abs(table - table.T).max() > 0.01
    else:
        np.testing.assert_allclose(table, table.T, atol=1e-12)
    if name not in ("gini", "entropy"):
        np.testing.assert_allclose(np.diag(table), 0, atol=1e-12)


@pytest.mark.parametrize("name", [*OF_DISTRIBUTIONS, "normalised-cosine"])
@pytest.mark.parametrize(("a", "b"), [([1, -1], [1, 1]), ([1, 1], [1, -1])])
def test_negative_estimates_are_refused_where_they_make_no_sense(name: str, a: list[float], b: list[float]) -> None:
    with pytest.raises(InputError, match=f"'{name}' compares numbers that are not negative") as caught:
        distance(name, a, b)
    assert caught.value.key == "method.formation.distance"


def test_cosines() -> None:
    table = cosine_similarity(np.array([[1.0, 0], [1, 1]]), np.array([[0.0, 2], [-3, 0], [0, 0]]))
    np.testing.assert_allclose(table, [[0, -1, 0], [math.sqrt(0.5), -math.sqrt(0.5), 0]], atol=1e-15)
