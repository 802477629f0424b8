from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from emulator.contracts.grouping import aggregations
from emulator.errors import InputError
from emulator.grouping.aggregation import (
    SampledGroups,
    samples,
    stabilised,
    stabilised_as_printed,
    unbiased,
    unbiased_as_printed,
)
from emulator.grouping.sampling import draw, log_inclusion, log_probabilities
from emulator.grouping.sampling.rules import SamplingParams, esrcov, rcov, srcov
from emulator.grouping.view import GroupView
from emulator.registry import NoParams

from .table1 import groups_of

NONE = NoParams()
INF = math.inf


def sampled(held: list[int], weights: list[float], drawn: list[int]) -> SampledGroups:
    """Of groups that hold so many samples and are drawn by these weights."""
    with np.errstate(divide="ignore"):
        return SampledGroups(np.array(held)[drawn], sum(held), np.log(np.array(weights)), drawn)


def test_the_rules_are_registered() -> None:
    printed = {"unbiased-as-printed", "stabilised-as-printed"}
    assert {"samples", "unbiased", "stabilised"} | printed <= set(aggregations.names())


def test_by_samples() -> None:
    np.testing.assert_allclose(samples(sampled([10, 360, 30], [9, 5, 1], [0, 2]), NONE), [0.25, 0.75])


def test_unbiased_is_equation_4_for_one_group_a_round() -> None:
    for g, p in enumerate([0.5, 0.1, 0.4]):
        weights = unbiased(sampled([10, 30, 60], [5, 1, 4], [g]), NONE)
        np.testing.assert_allclose(weights, [[10, 30, 60][g] / 100 / p])


def test_unbiased_is_equation_4_for_equal_probabilities() -> None:
    weights = unbiased(sampled([10, 30, 60, 20], [1, 1, 1, 1], [1, 2]), NONE)
    np.testing.assert_allclose(weights, [30 / 120 / (0.25 * 2), 60 / 120 / (0.25 * 2)])


def test_unbiased_is_inverse_to_the_probability_of_taking_part() -> None:
    # Two of three by weights 2, 1, 1: the first is missed with probability 2/4 * 1/3.
    weights = unbiased(sampled([10, 30, 60], [2, 1, 1], [0, 1]), NONE)
    first, second = 1 - 1 / 6, (2 - (1 - 1 / 6)) / 2
    np.testing.assert_allclose(weights, [0.1 / first, 0.3 / second], rtol=1e-12)


def test_stabilised_is_equation_39() -> None:
    groups = sampled([10, 30, 5, 355], [5, 1, 2, 2], [0, 1, 2])
    raw = unbiased(groups, NONE)
    np.testing.assert_allclose(stabilised(groups, NONE), raw / raw.sum(), rtol=1e-13)


@pytest.mark.parametrize("weights", [[1, 1, 1], [9, 1, 0.1]])
def test_where_all_groups_take_part_they_count_by_samples_under_every_rule(weights: list[float]) -> None:
    groups = sampled([10, 30, 60], weights, [0, 1, 2])
    for rule in (samples, unbiased, stabilised):
        np.testing.assert_allclose(rule(groups, NONE), [0.1, 0.3, 0.6], rtol=1e-13)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_the_expected_unbiased_aggregate_is_the_full_average_exactly(count: int) -> None:
    """Over all sets that may be drawn, each with its probability."""
    held, weights = [10, 35, 5, 40, 10], [8.0, 4.0, 2.0, 1.0, 0.25]
    models = np.random.default_rng(0).normal(size=(5, 7))
    expected = np.zeros(7)
    for order in itertools.permutations(range(5), count):
        p, left = 1.0, sum(weights)
        for g in order:
            p *= weights[g] / left
            left -= weights[g]
        drawn = sorted(order)
        expected += p * unbiased(sampled(held, weights, drawn), NONE) @ models[drawn]
    np.testing.assert_allclose(expected, np.array(held) / 100 @ models, rtol=1e-11)


def aggregates(rule: str, log_weights: np.ndarray, held: np.ndarray, models: np.ndarray, trials: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    result = np.empty((trials, models.shape[1]))
    for t in range(trials):
        drawn = draw(log_weights, 12, rng)
        groups = SampledGroups(held[drawn], int(held.sum()), log_weights, drawn)
        result[t] = aggregates_of(rule, groups) @ models[drawn]
    return result


def aggregates_of(rule: str, groups: SampledGroups) -> np.ndarray:
    weights: np.ndarray = aggregations[rule].function(groups, NONE)
    return weights


def test_over_many_draws_the_unbiased_aggregate_is_the_full_average_and_the_biased_one_is_not() -> None:
    """12 of some 60 groups of the paper by RCoV: the mean of the aggregates, in standard errors."""
    _, labels = groups_of(alpha=0.1, max_cov=1.0, seed=0)
    held = labels.sum(axis=1)
    log_weights = rcov(GroupView(labels, held), SamplingParams(groups=12))
    # Vectors that have to do with how balanced a group is: there a bias shows.
    models = np.column_stack([np.ones(len(held)), labels / held[:, None], np.exp(log_weights)])
    full = held / held.sum() @ models
    trials = 5000

    def errors(rule: str) -> np.ndarray:
        drawn = aggregates(rule, log_weights, held, models, trials)
        result: np.ndarray = (drawn.mean(axis=0) - full) / (drawn.std(axis=0) / math.sqrt(trials) + 1e-12)
        return result

    assert np.abs(errors("unbiased")).max() < 4.5
    assert np.abs(errors("samples")).max() > 20


@pytest.mark.parametrize(("rule", "total"), [(rcov, 1.018), (srcov, 1.073), (esrcov, 114_000)])
def test_the_printed_factor_of_equation_4_is_biased(rule: Callable[..., np.ndarray], total: float) -> None:
    """The expected sum of the weights n_g/(n p_g S), which would be 1 if S p_g were the chance of being drawn."""
    _, labels = groups_of(alpha=0.1, max_cov=1.0, seed=0)
    held = labels.sum(axis=1)
    log_weights = rule(GroupView(labels, held), SamplingParams(groups=12))
    log_ratio = log_inclusion(log_weights, 12) - log_probabilities(log_weights) - math.log(12)
    assert float(held / held.sum() @ np.exp(log_ratio)) == pytest.approx(total, rel=0.001)


def test_equation_4_as_printed_divides_by_the_probability_of_the_first_draw() -> None:
    # p = 1/2, 1/4, 1/4 and S = 2: 0.1 / (1/2 * 2) and 0.6 / (1/4 * 2).
    groups = sampled([10, 30, 60], [2, 1, 1], [0, 2])
    np.testing.assert_allclose(unbiased_as_printed(groups, NONE), [0.1, 1.2], rtol=1e-13)
    np.testing.assert_allclose(stabilised_as_printed(groups, NONE), [0.1 / 1.3, 1.2 / 1.3], rtol=1e-13)
    # One of the three groups that were drawn did not come back: S stays 3.
    lost = SampledGroups(np.array([10, 60]), 100, np.log([2.0, 1.0, 1.0]), [0, 2], asked=3)
    np.testing.assert_allclose(unbiased_as_printed(lost, NONE), [0.1 / 1.5, 0.6 / 0.75], rtol=1e-13)


def test_for_one_group_a_round_and_for_equal_probabilities_the_printed_weights_are_the_sound_ones() -> None:
    for groups in (sampled([10, 30, 60], [5, 1, 4], [1]), sampled([10, 30, 60, 20], [1, 1, 1, 1], [1, 2])):
        np.testing.assert_allclose(unbiased_as_printed(groups, NONE), unbiased(groups, NONE), rtol=1e-12)
        np.testing.assert_allclose(stabilised_as_printed(groups, NONE), stabilised(groups, NONE), rtol=1e-12)


def test_as_printed_an_unlikely_group_takes_all_the_weight_even_where_all_take_part() -> None:
    groups = sampled([50, 50], [1.0, 1e-6], [0, 1])
    np.testing.assert_allclose(stabilised(groups, NONE), [0.5, 0.5])
    np.testing.assert_allclose(stabilised_as_printed(groups, NONE), [0, 1], atol=1e-5)
    empty = sampled([50, 0], [1.0, 1e-6], [0, 1])
    np.testing.assert_allclose(stabilised_as_printed(empty, NONE), [1, 0])
    beyond = SampledGroups(np.array([10, 30, 60]), 100, np.array([0.0, -INF, -INF]), [0, 1, 2])
    np.testing.assert_allclose(stabilised_as_printed(beyond, NONE), [0, 1 / 3, 2 / 3])
    for minute in (-INF, -1e4):
        unlikely = SampledGroups(np.array([10, 30]), 40, np.array([0.0, minute]), [0, 1])
        with pytest.raises(InputError, match="group 1 was drawn though its probability is as good as 0"):
            unbiased_as_printed(unlikely, NONE)


def test_the_weights_of_the_sharpest_sampling_stay_numbers() -> None:
    """ESRCoV takes nearly always the same groups; those count about as they would if all groups took part."""
    _, labels = groups_of(alpha=0.1, max_cov=1.0, seed=0)
    held = labels.sum(axis=1)
    log_weights = esrcov(GroupView(labels, held), SamplingParams(groups=12))
    for seed in range(20):
        drawn = draw(log_weights, 12, np.random.default_rng(seed))
        groups = SampledGroups(held[drawn], int(held.sum()), log_weights, drawn)
        assert np.isfinite(unbiased(groups, NONE)).all()
        assert stabilised(groups, NONE).sum() == pytest.approx(1)


def test_a_group_that_is_drawn_because_no_other_is_left_counts_by_samples() -> None:
    groups = SampledGroups(np.array([10, 30, 60]), 100, np.array([0.0, -INF, -INF]), [0, 1, 2])
    np.testing.assert_allclose(unbiased(groups, NONE), [0.1, 0.3, 0.6])
    np.testing.assert_allclose(stabilised(groups, NONE), [0.1, 0.3, 0.6])
    one = SampledGroups(np.array([10, 60]), 100, np.array([0.0, -INF, -INF]), [0, 2])
    np.testing.assert_allclose(unbiased(one, NONE), [0.1, 0.6 / 0.5])


def test_a_group_without_samples_counts_nothing() -> None:
    groups = sampled([10, 0], [1.0, 0.0], [0, 1])
    np.testing.assert_allclose(samples(groups, NONE), [1, 0])
    np.testing.assert_allclose(unbiased(groups, NONE), [1, 0])
    np.testing.assert_allclose(stabilised(groups, NONE), [1, 0])


def test_no_samples_at_all() -> None:
    with pytest.raises(InputError, match="none of the sampled groups holds any samples"):
        sampled([0, 0], [0.5, 0.5], [0, 1])
    with pytest.raises(ValueError, match="must be"):
        SampledGroups(np.array([1, 2]), 3, np.zeros(3), [0])
