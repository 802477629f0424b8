"""Distributions against scipy.stats, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from emulator.certify.design import correlated, saltelli, shares
from emulator.contracts.uncertainty import Distribution, DistributionChoice
from emulator.errors import InputError

read: TypeAdapter[DistributionChoice] = TypeAdapter(Distribution)

SHARES = np.array([1e-9, 0.001, 0.1, 0.5, 0.75, 0.999, 1 - 1e-9])
positive = st.floats(1e-3, 1e3)


def made(kind: str, **params: Any) -> DistributionChoice:
    return read.validate_python({"kind": kind, **params})


@given(positive, positive)
def test_normal(mean: float, sd: float) -> None:
    assert np.allclose(made("normal", mean=mean, sd=sd)(SHARES), stats.norm.ppf(SHARES, mean, sd))


@given(positive, st.floats(1.01, 50))
def test_log_normal_has_its_spread_between_the_16th_and_the_84th_percentile(median: float, spread: float) -> None:
    found = made("log-normal", median=median, spread=spread)
    low, middle, high = found(np.array([stats.norm.cdf(-1), 0.5, stats.norm.cdf(1)]))
    assert np.allclose([low, middle, high], [median / spread, median, median * spread])
    same = made("log-normal", median=median, sigma=math.log(spread))
    assert np.allclose(found(SHARES), same(SHARES))
    assert np.allclose(np.log(found(SHARES)), stats.norm.ppf(SHARES, math.log(median), math.log(spread)))


@given(positive, positive, st.floats(0, 1))
def test_ranges(low: float, width: float, place: float) -> None:
    ends: dict[str, Any] = {"low": low, "high": low + width}
    assert np.allclose(made("uniform", **ends)(SHARES), low + SHARES * width)
    assert np.allclose(made("log-uniform", **ends)(SHARES), low * ((low + width) / low) ** SHARES)
    triangular = made("triangular", mode=low + place * width, **ends)(SHARES)
    assert np.allclose(triangular, stats.triang.ppf(SHARES, place, low, width))


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=6))
def test_choices_come_as_often_as_they_weigh(weights: list[float]) -> None:
    found = made("choice", of=[f"v{i}" for i in range(len(weights))], weights=weights)
    drawn = found(shares("sobol", 4096, 1, 0)[:, 0]).astype(int)
    counts = np.bincount(drawn, minlength=len(weights)) / 4096
    assert np.allclose(counts, np.array(weights) / sum(weights), atol=3 / 4096)


@given(st.lists(st.integers(1, 5), min_size=2, max_size=30).filter(lambda values: len(set(values)) > 1))
def test_measured_values_come_as_often_as_they_were_measured(values: list[int]) -> None:
    drawn = made("measured", values=values)((np.arange(len(values)) + 0.5) / len(values))
    assert sorted(drawn) == sorted(values)


def test_measured_values_from_a_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("up,other\n3,x\n1,y\n2,z\n")
    found = made("measured", file=str(tmp_path / "a.csv"), column="up", unit="Mbit/s")
    assert found(np.array([0.1, 0.5, 0.9])).tolist() == [1e6, 2e6, 3e6]
    assert found.dimension is not None
    assert found.dimension.base == "bit/s"
    for column, why in (("down", "has no column 'down'"), ("other", "is not all numbers")):
        with pytest.raises(ValidationError, match="1 validation error") as error:
            made("measured", file=str(tmp_path / "a.csv"), column=column)
        assert why in str(error.value.errors()[0]["ctx"]["errors"][0]["msg"])


@given(st.floats(0.05, 0.9), st.floats(0.05, 0.9))
def test_bounds_cut_off_and_keep_the_shape(below: float, width: float) -> None:
    low, high = stats.norm.ppf([below, min(below + width, 0.99)])
    found = made("normal", mean=0, sd=1, least=float(low), most=float(high))
    expected = stats.truncnorm.ppf(SHARES, low, high)
    assert np.allclose(found(SHARES), expected, atol=1e-6)
    assert found(SHARES).min() >= low
    assert found(SHARES).max() <= high


def test_bounds_that_leave_nothing() -> None:
    with pytest.raises(InputError, match="no value lies between"):
        made("uniform", low=0, high=1, least=2)(SHARES)


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"kind": "uniform", "low": 2, "high": 1}, "'low' is greater than 'high'"),
        ({"kind": "uniform", "low": 1, "high": 1}, "nothing is uncertain"),
        ({"kind": "triangular", "low": 1, "mode": 5, "high": 3}, "'mode' is greater than 'high'"),
        ({"kind": "normal", "mean": 1, "sd": 0}, "'sd' must be greater than zero"),
        ({"kind": "log-normal", "median": 0, "spread": 2}, "'median' must be greater than zero"),
        ({"kind": "log-normal", "median": 1}, "give either 'spread' or 'sigma'"),
        ({"kind": "log-uniform", "low": 0, "high": 3}, "'low' must be greater than zero"),
        ({"kind": "uniform", "low": "1 Mbit/s", "high": "2 ms"}, "'low' is bandwidth, but 'high' is time"),
        ({"kind": "uniform", "low": "1 Mbit/s", "high": "2 Mb/s"}, "unknown unit 'Mb/s'"),
        ({"kind": "choice", "of": ["a"]}, "at least two values"),
        ({"kind": "choice", "of": ["a", "a"]}, "read the same"),
        ({"kind": "choice", "of": ["a", "b"], "weights": [1.0]}, "1 weights for 2 values"),
        ({"kind": "measured", "values": [1, 1]}, "nothing is uncertain"),
        ({"kind": "measured", "file": "a.csv"}, "'file' needs 'column'"),
        ({"kind": "measured", "file": "missing.csv", "column": "a"}, "cannot be read"),
        ({"kind": "normal", "mean": 1, "sd": 1, "least": 3, "most": 2}, "nothing lies between"),
    ],
)
def test_distributions_without_support_are_refused(params: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError) as error:
        read.validate_python(params)
    assert why in str(error.value.errors()[0]["ctx"]["errors"][0]["msg"])


@settings(max_examples=15)
@given(st.floats(-0.99, 0.99), st.integers(0, 99))
def test_a_copula_has_the_rank_correlation_of_its_normal_variables(rho: float, seed: int) -> None:
    points = correlated(shares("sobol", 2048, 2, seed), np.array([[1, rho], [rho, 1]]))
    # Spearman's coefficient of a Gaussian copula (Kruskal, 1958).
    assert stats.spearmanr(points).statistic == pytest.approx(6 / math.pi * math.asin(rho / 2), abs=0.01)
    for column in points.T:
        assert stats.kstest(column, "uniform").statistic < 0.01


def test_what_is_not_correlated_stays_bit_for_bit_and_full_correlation_works() -> None:
    points = shares("latin-hypercube", 64, 3, 5)
    assert np.array_equal(correlated(points, np.eye(3)), points)
    one = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1.0]])
    found = correlated(points, one)
    assert np.allclose(found[:, 0], found[:, 2])
    assert np.allclose(found[:, :2], points[:, :2])


@pytest.mark.parametrize("kind", ["sobol", "latin-hypercube"])
def test_designs_are_even_and_the_same_for_a_seed(kind: Any) -> None:
    points = shares(kind, 100, 4, 7)
    assert points.shape == (100, 4)
    assert np.array_equal(points, shares(kind, 100, 4, 7))
    assert not np.array_equal(points, shares(kind, 100, 4, 8))
    assert np.allclose(points.mean(axis=0), 0.5, atol=0.02)


def test_the_points_for_indices_are_those_that_salib_takes() -> None:
    from SALib.analyze import sobol

    points = saltelli(4096, 3, 0)
    assert points.shape == (4096 * 5, 3)
    a, b = 7.0, 0.1  # Ishigami's function, whose indices are known
    x = -math.pi + 2 * math.pi * points
    y = np.sin(x[:, 0]) + a * np.sin(x[:, 1]) ** 2 + b * x[:, 2] ** 4 * np.sin(x[:, 0])
    problem = {"num_vars": 3, "names": ["a", "b", "c"], "bounds": [[0, 1]] * 3}
    found = sobol.analyze(problem, y, calc_second_order=False, seed=0)
    assert np.allclose(found["S1"], [0.314, 0.442, 0], atol=0.02)
    assert np.allclose(found["ST"], [0.558, 0.442, 0.244], atol=0.02)
