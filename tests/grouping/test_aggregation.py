from __future__ import annotations

import math

import numpy as np
import pytest

from emulator.errors import InputError
from emulator.grouping.aggregation import SampledGroups, samples, stabilised, unbiased
from emulator.grouping.sampling import draw, log_probabilities
from emulator.registry import NoParams, aggregations

NONE = NoParams()


def sampled(held: list[int], p: list[float], total: int) -> SampledGroups:
    logs = [math.log(x) if x else -math.inf for x in p]
    return SampledGroups(np.array(held), np.array(logs), total)


def test_the_rules_are_registered() -> None:
    assert {"samples", "unbiased", "stabilised"} <= set(aggregations.names())


def test_by_samples() -> None:
    np.testing.assert_allclose(samples(sampled([10, 30], [0.9, 0.1], 400), NONE), [0.25, 0.75])


def test_unbiased_is_equation_4() -> None:
    weights = unbiased(sampled([10, 30], [0.5, 0.1], 400), NONE)
    np.testing.assert_allclose(weights, [10 / 400 / (0.5 * 2), 30 / 400 / (0.1 * 2)])


def test_stabilised_is_equation_39() -> None:
    groups = sampled([10, 30, 5], [0.5, 0.1, 0.2], 400)
    raw = unbiased(groups, NONE)
    np.testing.assert_allclose(stabilised(groups, NONE), raw / raw.sum(), rtol=1e-13)


def test_all_groups_with_equal_probabilities_count_by_samples_under_every_rule() -> None:
    groups = sampled([10, 30, 60], [1 / 3] * 3, 100)
    for rule in (samples, unbiased, stabilised):
        np.testing.assert_allclose(rule(groups, NONE), [0.1, 0.3, 0.6], rtol=1e-13)


def test_unbiased_weights_average_to_the_share_of_samples_for_one_group_a_round() -> None:
    held, log_p = np.array([10, 30, 60]), log_probabilities(np.log([5.0, 2.0, 1.0]))
    rng = np.random.default_rng(0)
    mean = np.zeros(3)
    for _ in range(20_000):
        drawn = draw(log_p, 1, rng)
        mean[drawn] += unbiased(SampledGroups(held[drawn], log_p[drawn], 100), NONE) / 20_000
    np.testing.assert_allclose(mean, held / 100, rtol=0.06)  # over three standard deviations of the rarest


def test_weights_beyond_floats_are_refused_when_unbiased_and_handled_when_stabilised() -> None:
    groups = SampledGroups(np.array([10, 30, 60]), np.array([0.0, -1e6, -1e6]), 1000)
    with pytest.raises(InputError, match="stabilised"):
        unbiased(groups, NONE)
    np.testing.assert_allclose(stabilised(groups, NONE), [0, 1 / 3, 2 / 3], rtol=1e-9)


def test_groups_of_probability_0_outweigh_all_others() -> None:
    groups = sampled([10, 30, 60], [1.0, 0.0, 0.0], 1000)
    with pytest.raises(InputError, match="stabilised"):
        unbiased(groups, NONE)
    np.testing.assert_allclose(stabilised(groups, NONE), [0, 1 / 3, 2 / 3])


def test_a_group_without_samples_counts_nothing() -> None:
    groups = sampled([10, 0], [1.0, 0.0], 10)
    np.testing.assert_allclose(samples(groups, NONE), [1, 0])
    np.testing.assert_allclose(unbiased(groups, NONE), [0.5, 0])
    np.testing.assert_allclose(stabilised(groups, NONE), [1, 0])


def test_no_samples_at_all() -> None:
    with pytest.raises(InputError, match="none of the sampled groups holds any samples"):
        sampled([0, 0], [0.5, 0.5], 10)
    with pytest.raises(ValueError, match="must both be"):
        SampledGroups(np.array([1, 2]), np.array([0.0]), 3)
