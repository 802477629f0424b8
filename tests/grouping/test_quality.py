from __future__ import annotations

import math

import numpy as np
import pytest

from emulator.grouping.quality import cov, gamma, gamma_groups, gamma_p, gammas


def test_cov_is_the_population_deviation_over_the_mean() -> None:
    counts = np.random.default_rng(0).integers(0, 200, (50, 10))
    np.testing.assert_allclose(cov(counts), counts.std(axis=1) / counts.mean(axis=1), rtol=1e-14)


def test_cov_closed_forms() -> None:
    counts = np.array([[7, 7, 7, 7], [9, 0, 0, 0], [2, 2, 0, 0], [9, 11, 9, 11], [0, 0, 0, 0]])
    np.testing.assert_allclose(cov(counts), [0, math.sqrt(3), 1, 0.1, math.inf], rtol=1e-15)
    assert cov(counts)[0] == 0


def test_cov_does_not_depend_on_scale_nor_on_the_order_of_labels() -> None:
    rng = np.random.default_rng(1)
    row = rng.integers(0, 1000, 35)
    shuffled = np.stack([rng.permutation(row) for _ in range(100)])
    assert len(set(cov(shuffled).tolist())) == 1
    np.testing.assert_allclose(cov(1000 * shuffled), cov(shuffled), rtol=1e-15)


def test_cov_keeps_small_differences_between_large_counts() -> None:
    counts = np.array([[10**9, 10**9 + 1]])
    np.testing.assert_allclose(cov(counts), [0.5 / (10**9 + 0.5)], rtol=1e-12)


def test_cov_of_no_rows() -> None:
    assert cov(np.zeros((0, 10), dtype=np.int64)).shape == (0,)


def test_gamma_is_the_mean_of_squares_over_the_square_of_the_mean() -> None:
    samples = np.array([20, 50, 200, 110])
    assert gamma(samples) == pytest.approx((samples**2).mean() / samples.mean() ** 2)
    assert gamma_groups(samples) == gamma(samples)
    # S2 Eq. 11 as printed: |g|² (1/|g|² + Var(n_i/n_g))
    assert gamma(samples) == pytest.approx(4**2 * (1 / 4**2 + np.var(samples / samples.sum())))


def test_gamma_closed_forms() -> None:
    assert gamma(np.array([30, 30, 30])) == 1
    assert gamma(np.array([30, 0, 0])) == pytest.approx(3)  # all of it with one of three
    assert gamma(np.array([0, 0])) == math.inf
    np.testing.assert_allclose(gammas(np.array([5, 7, 5, 0]), [[0, 2], [1], [1, 3]]), [1, 1, 2])


def test_gamma_p_is_the_sum_of_inverse_probabilities() -> None:
    p = np.array([0.5, 0.3, 0.15, 0.05])
    assert gamma_p(np.log(p) + 1e4) == pytest.approx((1 / p).sum())
    assert gamma_p(np.zeros(60)) == pytest.approx(60**2)  # least: all equally likely


def test_gamma_p_is_finite_as_long_as_floats_are() -> None:
    assert gamma_p(np.array([0.0, -700.0])) == pytest.approx(math.exp(700))
    assert gamma_p(np.array([0.0, -720.0])) == math.inf
    assert gamma_p(np.array([1e6, 0.0])) == math.inf
    assert gamma_p(np.array([math.inf, 3.0])) == math.inf
    assert gamma_p(np.array([math.inf, math.inf])) == pytest.approx(4)
