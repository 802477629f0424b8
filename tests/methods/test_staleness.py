"""Staleness functions against the formulas of their papers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.contracts.staleness import StalenessChoice, stalenesses

VERSIONS = st.integers(0, 10**6)
POSITIVE = st.floats(1e-3, 1e3)


def chosen(kind: str, **given_params: Any) -> StalenessChoice:
    """A choice of a scenario."""
    return StalenessChoice(kind, stalenesses[kind].params(**given_params))


@given(VERSIONS, POSITIVE, st.integers(0, 100))
def test_they_are_those_of_the_papers(tau: int, a: float, b: int) -> None:
    assert chosen("constant")(tau) == 1
    assert chosen("polynomial", a=a)(tau) == pytest.approx(math.exp(-a * math.log(tau + 1)), rel=1e-9, abs=1e-300)
    late = max(0, tau - b)
    assert chosen("hinge", a=a, b=b)(tau) == pytest.approx(1 / (a * late + 1))
    assert chosen("polynomial")(tau) == pytest.approx(1 / math.sqrt(1 + tau))  # FedBuff's


def test_values_worked_out_by_hand() -> None:
    assert [chosen("polynomial")(tau) for tau in (0, 3, 8)] == pytest.approx([1, 1 / 2, 1 / 3])
    assert [chosen("hinge")(tau) for tau in (0, 4, 5, 6)] == pytest.approx([1, 1, 1 / 11, 1 / 21])


@pytest.mark.parametrize("kind", ["constant", "polynomial", "hinge"])
@given(tau=VERSIONS)
def test_a_new_update_counts_in_full_and_an_older_one_never_more(kind: str, tau: int) -> None:
    assert kind in stalenesses.names()
    assert chosen(kind)(0) == 1
    assert 0 <= chosen(kind)(tau + 1) <= chosen(kind)(tau)
