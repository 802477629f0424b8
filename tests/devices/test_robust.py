"""Robust least squares: exact where the data are, unmoved by outliers, honest about what is not determined."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices import robust

positive = st.floats(1e-3, 1e3)


@settings(max_examples=25, deadline=None)
@given(positive, positive, st.lists(st.tuples(st.floats(0.1, 100), st.floats(0.1, 100)), min_size=4, max_size=12))
def test_exact_times_give_back_their_coefficients(a: float, b: float, given_rows: list[tuple[float, float]]) -> None:
    table = np.array([*given_rows, (1.0, 0.01), (0.01, 1.0)])
    found = robust.linear(table, table @ np.array([a, b]))
    assert found.values == pytest.approx([a, b], rel=1e-6)
    assert found.deviation == pytest.approx(0, abs=1e-8)


@settings(max_examples=25, deadline=None)
@given(positive, st.lists(positive, min_size=1, max_size=10))
def test_a_factor_is_found(k: float, predicted: list[float]) -> None:
    table = np.array(predicted)
    assert robust.factor(k * table, table).values[0] == pytest.approx(k, rel=1e-9)


def test_outliers_move_a_factor_by_far_less_than_a_mean() -> None:
    rng = np.random.default_rng(1)
    predicted = rng.uniform(1, 2, 200)
    measured = 3 * predicted * rng.normal(1, 0.02, 200)
    measured[:10] *= 20  # a host that was busy with something else
    found = robust.factor(measured, predicted)
    assert found.values[0] == pytest.approx(3, rel=0.01)
    assert abs(float((measured / predicted).mean()) / 3 - 1) > 0.5


def test_standard_errors_are_those_of_repeats() -> None:
    rng = np.random.default_rng(2)
    table = np.stack([rng.uniform(1, 10, 60), rng.uniform(1, 10, 60)], axis=1)
    truth = np.array([2.0, 0.5])
    repeats = [robust.linear(table, table @ truth * rng.normal(1, 0.05, 60)) for _ in range(60)]
    spread = np.std([found.values for found in repeats], axis=0, ddof=1)
    told = np.mean([found.standard_errors for found in repeats], axis=0)
    assert told == pytest.approx(spread, rel=0.35)
    assert np.mean([found.values for found in repeats], axis=0) == pytest.approx(truth, rel=0.02)


def test_what_the_data_do_not_tell_has_no_standard_error() -> None:
    column = np.array([1.0, 2.0, 3.0, 5.0])
    same = robust.linear(np.stack([column, 2 * column], axis=1), column)
    assert np.isinf(same.standard_errors).all()
    assert np.isnan(robust.linear(column[:1, None], column[:1]).standard_errors).all()


@pytest.mark.parametrize("times", [[], [0.0], [-1.0], [np.nan], [np.inf]])
def test_times_that_are_none_are_refused(times: list[float]) -> None:
    with pytest.raises(ValueError, match="at least one time"):
        robust.factor(np.array(times), np.ones(len(times)))
