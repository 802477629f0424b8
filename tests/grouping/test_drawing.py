from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from emulator.grouping.sampling import draw, log_probabilities

TRIALS = 20_000


def successive(weights: list[float], count: int) -> dict[tuple[int, ...], float]:
    """The exact probability of each set, by adding up the orders in which it may be drawn."""
    result: dict[tuple[int, ...], float] = {}
    for order in itertools.permutations(range(len(weights)), count):
        p, left = 1.0, sum(weights)
        for i in order:
            p *= weights[i] / left
            left -= weights[i]
        key = tuple(sorted(order))
        result[key] = result.get(key, 0.0) + p
    return result


def assert_distribution(log_weights: list[float], count: int, expected: dict[tuple[int, ...], float]) -> None:
    """Chi-square, at most five standard deviations over its mean; sets that cannot be drawn must not be."""
    rng = np.random.default_rng(7)
    seen = Counter(tuple(draw(np.array(log_weights), count, rng)) for _ in range(TRIALS))
    possible = {key: p for key, p in expected.items() if p > 1e-12}
    assert set(seen) <= set(possible)
    assert math.fsum(possible.values()) == pytest.approx(1)
    statistic = sum((seen[key] - TRIALS * p) ** 2 / (TRIALS * p) for key, p in possible.items())
    freedom = len(possible) - 1
    assert statistic <= freedom + 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("shift", [0.0, 1e6, -1e6])
def test_sets_come_as_often_as_in_drawing_one_after_another(count: int, shift: float) -> None:
    weights = [8.0, 4.0, 2.0, 1.0, 0.5]
    assert_distribution([math.log(w) + shift for w in weights], count, successive(weights, count))


def test_infinite_weights_come_first_and_uniformly() -> None:
    inf = math.inf
    assert_distribution([inf, 5.0, inf, inf, 0.0], 2, {(0, 2): 1 / 3, (0, 3): 1 / 3, (2, 3): 1 / 3})
    e5 = 1 / (1 + math.exp(-5))
    assert_distribution([inf, 5.0, inf, 0.0], 3, {(0, 1, 2): e5, (0, 2, 3): 1 - e5})


def test_weights_of_nothing_come_last_and_uniformly() -> None:
    nothing = -math.inf
    assert_distribution([nothing, 0.0, nothing, -800.0], 2, {(1, 3): 1.0})
    assert_distribution([nothing, 0.0, nothing, -800.0], 3, {(0, 1, 3): 0.5, (1, 2, 3): 0.5})


def test_noise_is_not_lost_in_weights_beyond_the_precision_of_floats() -> None:
    assert_distribution([1e18, 1e18, 1e18, 0.0], 1, {(i,): 1 / 3 for i in range(3)})
    assert_distribution([1e18, -1e18, -1e18, -1e18], 2, {(0, i): 1 / 3 for i in (1, 2, 3)})


def test_weights_far_apart_are_drawn_in_their_order() -> None:
    log_weights = np.array([1e6, 0.0, 3e6, 2e6])
    assert draw(log_weights, 2, np.random.default_rng(0)) == [2, 3]
    assert draw(log_weights, 3, np.random.default_rng(0)) == [0, 2, 3]


def test_none_and_all() -> None:
    rng = np.random.default_rng(0)
    assert draw(np.zeros(5), 0, rng) == []
    assert draw(np.zeros(5), 5, rng) == [0, 1, 2, 3, 4]
    assert draw(np.zeros(0), 0, rng) == []
    assert all(type(i) is int for i in draw(np.zeros(5), 3, rng))


def test_what_cannot_be_drawn_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="cannot draw 6 of 5"):
        draw(np.zeros(5), 6, rng)
    with pytest.raises(ValueError, match="NaN"):
        draw(np.array([0.0, math.nan]), 1, rng)
    with pytest.raises(ValueError, match="no weights"):
        log_probabilities(np.zeros(0))


def test_log_probabilities() -> None:
    weights = np.array([1.0, 2.0, 5.0])
    np.testing.assert_allclose(log_probabilities(np.log(weights)), np.log(weights / 8), rtol=1e-14)
    np.testing.assert_allclose(log_probabilities(np.log(weights) + 1e6), np.log(weights / 8), atol=1e-9)
    np.testing.assert_array_equal(log_probabilities(np.array([1e6, 0.0])), [0, -1e6])


def test_log_probabilities_of_infinite_weights() -> None:
    inf = math.inf
    np.testing.assert_allclose(log_probabilities(np.array([inf, 3.0, inf])), [-math.log(2), -inf, -math.log(2)])
    np.testing.assert_allclose(log_probabilities(np.array([-inf, 3.0])), [-inf, 0])
    np.testing.assert_allclose(log_probabilities(np.array([-inf, -inf])), [-math.log(2)] * 2)
