"""S2 Table 1 over ten seeds. The figures are the paper's; how the fleet is drawn is in `table1`."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.contracts.grouping import FormationChoice
from emulator.grouping.formation.cov import CovParams
from emulator.grouping.sampling import log_probabilities
from emulator.grouping.sampling.rules import SamplingParams, esrcov
from emulator.grouping.view import GroupView

from .table1 import OTHERS, PUBLISHED, at_size, by_rule, groups_of, measure, rule_of_size, sizes


@pytest.mark.parametrize("setting", [s for s in PUBLISHED if s[1] >= 0.5])
def test_mean_size_and_mean_cov_are_the_published_ones(setting: tuple[float, float]) -> None:
    size, cov = PUBLISHED[setting]
    ours = measure(*setting)
    assert ours.mean_size == pytest.approx(size, rel=0.06)
    assert ours.mean_cov == pytest.approx(cov, rel=0.12)
    assert ours.smallest == 5


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_a_limit_out_of_reach_gives_about_the_published_ones(alpha: float) -> None:
    size, cov = PUBLISHED[alpha, 0.1]
    ours = measure(alpha, 0.1)
    assert ours.mean_size == pytest.approx(size, rel=0.2)
    assert ours.mean_cov == pytest.approx(cov, rel=0.2)
    assert ours.smallest >= 5


def test_a_limit_out_of_reach_on_skewed_data_gives_large_groups() -> None:
    # Published: 10.96 and 0.28. Alg. 2 does not get there with any sizes that we tried (9.0 to 10.0, 0.35 to
    # 0.38).
    ours = measure(0.1, 0.1)
    assert 8.5 < ours.mean_size < 11
    assert 0.28 < ours.mean_cov < 0.42
    assert ours.smallest >= 5


@pytest.mark.parametrize(("mean", "std"), [(110, 30), (110, 90), (80, 45), (140, 45)])
@pytest.mark.parametrize("setting", [(0.1, 0.5), (0.5, 0.5), (1.0, 0.5)])
def test_the_open_choice_of_client_sizes_hardly_matters(setting: tuple[float, float], mean: float, std: float) -> None:
    size, cov = PUBLISHED[setting]
    ours = measure(*setting, mean=mean, std=std)
    assert ours.mean_size == pytest.approx(size, rel=0.06)
    assert ours.mean_cov == pytest.approx(cov, rel=0.15)


def test_client_sizes_are_within_their_bounds() -> None:
    drawn = sizes(2000, np.random.default_rng(0))
    assert drawn.min() >= 20
    assert drawn.max() <= 200
    assert drawn.mean() == pytest.approx(110, abs=3)


def test_esrcov_nearly_always_takes_the_same_few_of_sixty_groups() -> None:
    """S2 §5.1: the top 3 have over 92 % of the probability, the top 5 over 99 %. So it is in most fleets."""
    top3, top5, groups = [], [], []
    for seed in range(20):
        _, labels = groups_of(alpha=0.1, max_cov=1.0, seed=seed)
        log_weights = esrcov(GroupView(labels, labels.sum(axis=1)), SamplingParams(groups=12))
        p = np.sort(np.exp(log_probabilities(log_weights)))[::-1]
        groups.append(len(p))
        top3.append(p[:3].sum())
        top5.append(p[:5].sum())
    assert 57 <= min(groups) <= max(groups) <= 60
    assert np.median(top3) > 0.92
    assert np.median(top5) > 0.99
    assert np.mean(np.array(top3) > 0.92) >= 0.8
    assert np.mean(np.array(top5) > 0.99) >= 0.8


@pytest.mark.parametrize("setting", PUBLISHED)
def test_at_equal_group_sizes_no_other_rule_has_a_lower_mean_cov(setting: tuple[float, float]) -> None:
    """S2 §4.4 and Fig. 6, for every setting of Table 1: all rules tuned to the mean size that CoV-Grouping gave."""
    alpha, max_cov = setting
    size, cov = by_rule(FormationChoice("cov", CovParams(max_cov=max_cov)), alpha)
    others = {name: at_size(name, alpha, size) for name in OTHERS}
    if setting == (0.1, 0.1):
        # This limit is out of reach: the first groups grow far beyond the mean size and leave the last with few
        # labels. KLD in groups of equal size is 2 % better (0.360 against 0.366).
        assert cov < 1.05 * others.pop("kld")
    assert cov < min(others.values())


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("size", [5, 8, 10])
def test_in_groups_of_one_size_cov_grouping_is_the_most_balanced(alpha: float, size: int) -> None:
    """The same with nothing but the size to close a group: equal sizes are equal overheads for every operation."""
    mean_size, cov = by_rule(rule_of_size("cov", size), alpha)
    for name in OTHERS:
        other_size, other_cov = by_rule(rule_of_size(name, size), alpha)
        assert other_size == mean_size
        assert cov < other_cov
