from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from emulator.contracts.grouping import DrawingParams, SamplingChoice, samplings
from emulator.grouping.sampling import draw, log_probabilities
from emulator.grouping.sampling.rules import SamplingParams
from emulator.grouping.view import GroupView
from emulator.registry import Scale

# CoV 0.1, 0.5, sqrt(1) and 0; then a group without samples
COUNTS = np.array([[9, 11], [5, 15], [8, 0], [7, 7], [0, 0]])
GROUPS = GroupView(COUNTS, COUNTS.sum(axis=1))
INF = math.inf


def log_weights(name: str) -> np.ndarray:
    result = SamplingChoice(name, SamplingParams(groups=2))(GROUPS)
    assert isinstance(result, np.ndarray)
    assert result.dtype == np.float64
    return result


def test_formulas() -> None:
    np.testing.assert_allclose(log_weights("rcov"), [math.log(10), math.log(2), 0, INF, -INF], atol=1e-14)
    np.testing.assert_allclose(log_weights("srcov"), [math.log(100), math.log(4), 0, INF, -INF], atol=1e-14)
    np.testing.assert_allclose(log_weights("esrcov"), [100, 4, 1, INF, -INF], rtol=1e-14)
    np.testing.assert_array_equal(log_weights("uniform"), np.zeros(5))


def test_all_takes_everyone() -> None:
    rule = SamplingChoice("all", DrawingParams())
    assert rule.plugin.facts.everyone is True
    np.testing.assert_array_equal(rule(GROUPS), np.zeros(5))
    assert draw(rule(GROUPS), rule.params.count(5), np.random.default_rng(0)) == [0, 1, 2, 3, 4]


def test_facts() -> None:
    needs = {name: samplings[name].facts.needs for name in ("all", "uniform", "rcov", "srcov", "esrcov")}
    label_counts = ("label-counts",)
    assert needs == {
        "all": (), "uniform": (), "rcov": label_counts, "srcov": label_counts, "esrcov": label_counts
    }  # fmt: skip
    assert not samplings["uniform"].facts.everyone


@pytest.mark.parametrize("name", ["rcov", "srcov", "esrcov"])
def test_a_group_of_cov_0_is_always_drawn_and_an_empty_one_never_before_the_rest(name: str) -> None:
    rng = np.random.default_rng(0)
    weights = log_weights(name)
    for _ in range(50):
        assert 3 in draw(weights, 1, rng)
        assert 4 not in draw(weights, 4, rng)
    np.testing.assert_array_equal(np.exp(log_probabilities(weights)), [0, 0, 0, 1, 0])


def test_esrcov_beyond_the_range_of_floats() -> None:
    counts = np.array([[99_999, 100_001], [99_998, 100_002], [50, 150]])  # exp(1e10), exp(2.5e9), exp(4)
    weights = SamplingChoice("esrcov", SamplingParams(groups=1))(GroupView(counts, counts.sum(axis=1)))
    np.testing.assert_allclose(weights, [1e10, 2.5e9, 4], rtol=1e-12)
    assert draw(weights, 2, np.random.default_rng(0)) == [0, 1]
    np.testing.assert_allclose(log_probabilities(weights), [0, -7.5e9, 4 - 1e10], rtol=1e-12)


def test_how_many_groups() -> None:
    assert SamplingParams(groups=12).count(60) == 12
    assert SamplingParams(groups=12).count(7) == 7  # regrouping may leave fewer groups than were asked for
    assert SamplingParams(share=0.2).count(60) == 12
    assert SamplingParams(share=1).count(60) == 60
    assert SamplingParams(share=0.25).count(10) == 3  # a half is rounded up
    assert SamplingParams(share=0.145).count(100) == 15  # 14.499999999999998 in floats
    assert SamplingParams(share=0.001).count(60) == 1


def test_a_number_takes_the_place_of_the_share() -> None:
    assert SamplingParams().count(60) == 12  # S2: 12 of about 60
    assert SamplingParams(groups=3, share=0.5).count(10) == 3
    assert SamplingParams(groups=None, share=0.5).count(10) == 5  # null takes a preset's value back


@pytest.mark.parametrize("wrong", [{"groups": 0}, {"share": 0.0}, {"share": 1.1}, {"groups": 1.5}])
def test_wrong_numbers_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        SamplingParams.model_validate(wrong)


def test_more_groups_than_clients_is_a_problem() -> None:
    scale = Scale(clients=30, edges=3, smallest_edge=10, classes=10, train_samples=None)
    assert list(SamplingParams(groups=30).problems(scale)) == []
    assert list(SamplingParams(share=1.0).problems(scale)) == []
    [(key, message)] = SamplingParams(groups=31).problems(scale)
    assert key == "groups"
    assert message == "31 groups cannot be drawn: 30 clients make at most as many"
