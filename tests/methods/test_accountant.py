"""Epsilon: that of `dp_accounting`, of the published formulas, and never less than was proved."""

from __future__ import annotations

import math

import dp_accounting
import pytest
from dp_accounting import pld, rdp
from scipy.stats import norm

from emulator.methods.accountant import Accountant

DELTA = 1e-5


def epsilon(*multipliers: float, delta: float = DELTA) -> float:
    """Of one client whose updates went into sums with noise of these multipliers."""
    accountant = Accountant(1, delta)
    for multiplier in multipliers:
        accountant.took_part((0,), multiplier)
    return accountant.epsilon()


def balle_wang_delta(sigma: float, eps: float) -> float:
    """Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018, Theorem 8 (sensitivity 1)."""
    half, shift = 1 / (2 * sigma), eps * sigma
    return float(norm.cdf(half - shift) - math.exp(eps) * norm.cdf(-half - shift))


@pytest.mark.parametrize("multiplier", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("times", [1, 10, 300])
def test_it_is_what_the_analytic_formula_gives(multiplier: float, times: int) -> None:
    found = epsilon(*[multiplier] * times)
    together = multiplier / math.sqrt(times)
    assert found == pytest.approx(dp_accounting.get_epsilon_gaussian(together, DELTA), rel=1e-12)
    if found < 500:  # e^epsilon
        assert balle_wang_delta(together, found) == pytest.approx(DELTA, rel=1e-6)


@pytest.mark.parametrize("multipliers", [(1.0,) * 20, (2.0, 1.0, 4.0, 1.5), (30.0,) * 100])
def test_it_agrees_with_the_two_general_accountants(multipliers: tuple[float, ...]) -> None:
    """One composes privacy loss distributions, rounded up to a grid; the other Rényi divergences, which are less tight."""
    found = epsilon(*multipliers)
    distributions = pld.PLDAccountant(value_discretization_interval=1e-3)
    renyi = rdp.RdpAccountant()
    for multiplier in multipliers:
        distributions.compose(dp_accounting.GaussianDpEvent(multiplier))
        renyi.compose(dp_accounting.GaussianDpEvent(multiplier))
    assert found == pytest.approx(distributions.get_epsilon(DELTA), rel=0.02)
    assert found <= distributions.get_epsilon(DELTA) + 1e-9
    assert found <= renyi.get_epsilon(DELTA) <= 1.3 * found


PUBLISHED = [
    (
        256 / 60_000,
        1.1,
        14_062,
        3.01,
    ),  # the tutorial of DP-SGD on MNIST in TensorFlow Privacy: 60 epochs in batches of 256
    (0.01, 4.0, 10_000, 1.26),  # Abadi et al. (CCS 2016), where they introduce the moments accountant
]


@pytest.mark.parametrize(("share", "multiplier", "steps", "published"), PUBLISHED)
def test_the_accountant_that_is_installed_gives_published_values(
    share: float, multiplier: float, steps: int, published: float
) -> None:
    """With the conversion from Rényi divergences to epsilon of that time; that of today proves somewhat less."""
    accountant = rdp.RdpAccountant([1 + x / 10 for x in range(1, 100)] + list(range(12, 64)))
    accountant.compose(dp_accounting.PoissonSampledDpEvent(share, dp_accounting.GaussianDpEvent(multiplier)), steps)
    then = min(
        r + math.log(1 / DELTA) / (order - 1) for r, order in zip(accountant.rdp, accountant.orders, strict=True)
    )
    assert round(then, 2) == published
    assert accountant.get_epsilon(DELTA) < then


def test_nothing_seen_costs_nothing_and_no_noise_costs_everything() -> None:
    assert epsilon() == 0.0
    assert epsilon(0.0) == math.inf
    assert epsilon(1.0, 0.0) == math.inf
    assert epsilon(1.0) < epsilon(1.0, 100.0) < epsilon(1.0, 1.0) < math.inf
    assert epsilon(0.001) > 100_000  # large, and still a number


def test_the_run_has_spent_what_the_client_has_who_spent_most() -> None:
    accountant = Accountant(3, DELTA)
    accountant.took_part((0, 1), 2.0)
    accountant.took_part((1,), 2.0)
    accountant.took_part((2,), 3.0)
    assert accountant.epsilon() == epsilon(2.0, 2.0)


def test_a_hidden_draw_is_that_of_the_renyi_accountant_for_replaced_updates() -> None:
    accountant, multiplier, rounds = Accountant(1000, DELTA), 4.0, 50
    for _ in range(rounds):
        accountant.may_have_taken_part(range(1000), 20, multiplier, hidden=True)
    theirs = rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    half = dp_accounting.GaussianDpEvent(multiplier / 2)  # a replaced update shifts the sum by twice the clip
    theirs.compose(dp_accounting.SampledWithoutReplacementDpEvent(1000, 20, half), rounds)
    assert accountant.epsilon() == pytest.approx(theirs.get_epsilon(DELTA))
    assert accountant.epsilon() < 0.5 * epsilon(*[multiplier] * rounds)


def test_a_draw_that_proves_less_than_none_does_not_count() -> None:
    """Most of the members: twice the sensitivity costs more than the draw gains."""
    accountant = Accountant(10, DELTA)
    accountant.may_have_taken_part(range(10), 9, 1.0, hidden=True)
    assert accountant.epsilon() == epsilon(1.0)


def test_a_draw_that_somebody_may_have_seen_does_not_count() -> None:
    accountant = Accountant(1000, DELTA)
    for round_ in range(50):
        accountant.may_have_taken_part(range(1000), 20, 4.0, hidden=round_ != 7)
    assert accountant.epsilon() == epsilon(*[4.0] * 50)
