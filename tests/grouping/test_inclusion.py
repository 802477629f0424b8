"""Inclusion probabilities against exact fractions, closed forms and the frequencies of `draw`."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from emulator.grouping.sampling import draw, log_inclusion, log_probabilities
from emulator.grouping.sampling.rules import SamplingParams, esrcov
from emulator.grouping.view import GroupView

from .table1 import groups_of

INF = math.inf


def exact(weights: list[float], count: int) -> list[Fraction]:
    """By adding up the orders in which sets may be drawn, without rounding."""
    whole = [Fraction(w) for w in weights]
    result = [Fraction(0)] * len(whole)
    for order in itertools.permutations(range(len(whole)), count):
        p, left = Fraction(1), sum(whole)
        for i in order:
            p *= whole[i] / left
            left -= whole[i]
        for i in order:
            result[i] += p
    return result


def log_of(value: Fraction) -> float:
    """Of numbers that may be too small for a float."""
    return math.log(value.numerator) - math.log(value.denominator)


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0, 60.0, 300.0])
@pytest.mark.parametrize("seed", range(6))
def test_as_in_drawing_one_after_another(spread: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    for count in range(1, n + 1):
        weights = [math.exp(x) for x in rng.uniform(-spread, spread, n)]
        expected = [log_of(p) for p in exact(weights, count)]
        # Differences of logarithms are relative errors, also of the least probable.
        np.testing.assert_allclose(log_inclusion(np.log(weights), count), expected, rtol=0, atol=5e-12)


def test_one_of_all_is_drawn_by_its_probability() -> None:
    log_weights = np.random.default_rng(0).normal(0, 30, 50)
    np.testing.assert_allclose(log_inclusion(log_weights, 1), log_probabilities(log_weights), rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize(("n", "count"), [(3, 2), (60, 12), (100, 1), (40, 40)])
def test_equal_weights_and_everybody(n: int, count: int) -> None:
    np.testing.assert_allclose(np.exp(log_inclusion(np.full(n, 7.5), count)), count / n, rtol=1e-15)
    np.testing.assert_array_equal(log_inclusion(np.arange(n, dtype=float), n), np.zeros(n))


@pytest.mark.parametrize(
    ("n", "count", "spread"), [(60, 12, 0.01), (60, 12, 3), (60, 59, 3), (200, 1, 3), (300, 100, 0.5), (300, 280, 5)]
)
def test_they_add_up_to_the_number_drawn(n: int, count: int, spread: float) -> None:
    log_weights = np.random.default_rng(1).normal(0, spread, n)
    log_pi = log_inclusion(log_weights, count)
    assert np.exp(log_pi).sum() == pytest.approx(count, rel=1e-12)
    assert log_pi.max() <= 0
    order = np.argsort(log_weights)
    assert (np.diff(log_pi[order]) >= -1e-13).all()  # who weighs more is drawn more often


def test_two_kinds_have_a_closed_form() -> None:
    # One of weight w among n - 1 of weight 1: not drawn in S draws with probability Π (n-1-k)/(w + n-1-k).
    n, count, weight = 30, 10, 4.0
    missed = math.prod((n - 1 - k) / (weight + n - 1 - k) for k in range(count))
    log_pi = log_inclusion(np.log([weight, *[1.0] * (n - 1)]), count)
    np.testing.assert_allclose(np.exp(log_pi[0]), 1 - missed, rtol=1e-13)
    np.testing.assert_allclose(np.exp(log_pi[1:]), (count - (1 - missed)) / (n - 1), rtol=1e-13)


def test_weights_beyond_floats() -> None:
    # The first two for certain; the third before the fourth but for e^-2500.
    log_pi = log_inclusion(np.array([1e10, 5e6, 1000.0, -1500.0]), 3)
    np.testing.assert_allclose(log_pi, [0, 0, 0, -2500], rtol=1e-12, atol=1e-12)
    # A certain one, and one of two equal ones far below.
    log_pi = log_inclusion(np.array([-1e9, 800.0, -1e9]), 2)
    np.testing.assert_allclose(log_pi, [math.log(0.5), 0, math.log(0.5)], rtol=1e-12, atol=1e-12)


def test_infinite_weights_come_first_and_those_of_nothing_last() -> None:
    third = math.log(1 / 3)
    np.testing.assert_allclose(log_inclusion(np.array([INF, 5.0, INF, INF]), 1), [third, -INF, third, third])
    log_pi = log_inclusion(np.array([INF, math.log(3), INF, 0.0, -INF]), 3)
    np.testing.assert_allclose(log_pi, [0, math.log(0.75), 0, math.log(0.25), -INF], rtol=1e-12)
    np.testing.assert_allclose(log_inclusion(np.array([-INF, 5.0, -INF]), 2), [math.log(0.5), 0, math.log(0.5)])


@pytest.mark.parametrize("scale", [0.05, 1.0])
def test_frequencies_of_drawing_groups_of_the_paper(scale: float) -> None:
    """60 groups, 12 a round, by ESRCoV (scale 1), where most groups are never seen, and by a milder rule."""
    _, labels = groups_of(alpha=0.1, max_cov=1.0, seed=3)
    log_weights = scale * esrcov(GroupView(labels, labels.sum(axis=1)), SamplingParams(groups=12))
    rng, trials = np.random.default_rng(2), 4000
    seen = np.zeros(len(log_weights))
    for _ in range(trials):
        seen[draw(log_weights, 12, rng)] += 1
    pi = np.exp(log_inclusion(log_weights, 12))
    deviation = np.sqrt(trials * pi * (1 - pi))
    assert (np.abs(seen - trials * pi) <= 4.5 * deviation + 1).all()
    p = np.exp(log_probabilities(log_weights))
    assert np.abs(12 * p - pi).max() > 0.1  # what Eq. 4 has in its place is far off


def test_what_cannot_be_drawn_is_refused() -> None:
    for count in (0, 4):
        with pytest.raises(ValueError, match=f"cannot draw {count} of 3"):
            log_inclusion(np.zeros(3), count)
    with pytest.raises(ValueError, match="NaN"):
        log_inclusion(np.array([0.0, math.nan]), 1)
