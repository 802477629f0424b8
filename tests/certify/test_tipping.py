"""Where the winner changes: against closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from emulator.certify.measuring import Compared
from emulator.certify.order import Row
from emulator.certify.quantities import Quantity
from emulator.certify.tipping import points_of, tipping_points
from emulator.contracts.uncertainty import Distribution, DistributionChoice
from emulator.measures import ACCURACY

read: TypeAdapter[DistributionChoice] = TypeAdapter(Distribution)
TIME = Compared("to", "time", 0.8, ACCURACY)
REACHED = Compared("at", "time", 60.0, ACCURACY)

BANDWIDTH = Quantity(
    "up",
    ("topology", "links", "access", "up"),
    "stated",
    read.validate_python({"kind": "log-uniform", "low": "1 Mbit/s", "high": "100 Mbit/s"}),
)
LOSS = Quantity("loss", ("x",), "stated", read.validate_python({"kind": "uniform", "low": 0, "high": 0.1}))


def worlds(
    measure: Compared, asked: list[int], **methods: Callable[[float, int], float]
) -> Callable[[Sequence[tuple[int, float]]], list[list[Row]]]:
    """Made-up runs: a measure of each method as a function of the quantity and the seed."""

    def at(points: Sequence[tuple[int, float]]) -> list[list[Row]]:
        asked.append(len(points))
        return [
            [
                {"method": method, "seed": seed, measure.column: value(x, seed)}
                for method, value in methods.items()
                for seed in (1, 2, 3)
            ]
            for _, x in points
        ]

    return at


@settings(max_examples=40, deadline=None)
@given(st.floats(1.5e6, 60e6), st.floats(1e6, 50e6))
def test_times_that_are_linear_in_one_over_the_bandwidth_cross_where_they_must(tips: float, bits: float) -> None:
    # 10 s + 2 bits / x = t + bits / x at x = tips, whatever the seeds add to both.
    slow = 10 + bits / tips
    asked: list[int] = []
    at = worlds(TIME, asked, a=lambda x, seed: 10 + seed + 2 * bits / x, b=lambda x, seed: slow + seed + bits / x)
    (row,) = tipping_points([BANDWIDTH], ["a", "b"], [TIME], at)
    assert row["at"] == pytest.approx(tips, rel=1e-3)
    assert (row["better"], row["than"], row["side"]) == ("b", "a", "below")
    assert sum(asked) < 40


def test_a_jump_is_found_as_well() -> None:
    at = worlds(REACHED, [], a=lambda x, _: 0.7, b=lambda x, _: 0.8 if x < 0.0321 else 0.6)
    (row,) = tipping_points([LOSS], ["a", "b"], [REACHED], at)
    assert row["at"] == pytest.approx(0.0321, rel=1e-3)
    assert (row["better"], row["side"]) == ("b", "below")


def test_whoever_never_gets_there_loses() -> None:
    at = worlds(TIME, [], a=lambda x, _: 20.0, b=lambda x, _: 10.0 if x < 5e6 else math.inf)
    (row,) = tipping_points([BANDWIDTH], ["a", "b"], [TIME], at)
    assert row["at"] == pytest.approx(5e6, rel=1e-3)
    assert (row["better"], row["than"], row["side"]) == ("b", "a", "below")


def test_the_same_winner_everywhere_and_no_winner_at_all() -> None:
    found = list(tipping_points([LOSS], ["a", "b"], [TIME], worlds(TIME, [], a=lambda x, _: 1 + x, b=lambda x, _: 2.0)))
    assert [(row["better"], row["at"], row["side"]) for row in found] == [("a", "", "everywhere")]
    assert not list(
        tipping_points([LOSS], ["a", "b"], [TIME], worlds(TIME, [], a=lambda x, _: 2.0, b=lambda x, _: 2.0))
    )
    both = worlds(TIME, [], a=lambda x, _: math.inf, b=lambda x, _: math.inf)
    assert not list(tipping_points([LOSS], ["a", "b"], [TIME], both))


def test_several_crossings() -> None:
    at = worlds(TIME, [], a=lambda x, _: 10 + math.cos(x * 20 * math.pi), b=lambda x, _: 10.0)
    found = [row["at"] for row in tipping_points([LOSS], ["a", "b"], [TIME], at)]
    assert np.allclose(found, [0.025, 0.075], rtol=1e-3)


def test_what_is_unknown_decides_nothing() -> None:
    at = worlds(TIME, [], a=lambda x, _: math.nan if x > 0.05 else 1.0, b=lambda x, _: 2.0)
    (row,) = tipping_points([LOSS], ["a", "b"], [TIME], at)
    assert (row["better"], row["side"]) == ("a", "everywhere")


def test_labels_have_no_tipping_point_and_points_span_the_distribution() -> None:
    labels = Quantity("d", ("x",), "stated", read.validate_python({"kind": "choice", "of": ["a", "b"]}))
    assert not list(tipping_points([labels], ["a", "b"], [TIME], worlds(TIME, [])))
    low, *_, high = points_of(BANDWIDTH)
    assert 1e6 < low < 1.03e6
    assert 97e6 < high < 100e6
