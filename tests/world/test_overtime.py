"""Values over time: spells, products, and how long an amount takes."""

from __future__ import annotations

import itertools
import math

import pytest

from emulator.rng import stream
from emulator.world.overtime import (
    Product,
    Spells,
    by_chance,
    merge_intervals,
    next_not_zero,
    next_zero,
    time_to_accumulate,
)
from traces.step import StepFunction


def test_spells_that_touch_are_one() -> None:
    assert merge_intervals([(5.0, 7.0), (1.0, 2.0), (2.0, 3.0), (6.0, 9.0)]) == [(1.0, 3.0), (5.0, 9.0)]


def test_a_spell_lasts_from_its_start_to_just_before_its_end() -> None:
    spells = Spells([(10.0, 20.0), (30.0, math.inf)])
    assert [spells.at(t) for t in (0.0, 10.0, 19.9, 20.0, 30.0, 1e12)] == [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    assert [spells.next_change(t) for t in (0.0, 10.0, 20.0, 30.0)] == [10.0, 20.0, 30.0, math.inf]
    assert (next_zero(spells, 0.0), next_zero(spells, 12.0), next_zero(spells, 20.0)) == (10.0, 12.0, 30.0)
    assert (next_not_zero(spells, 12.0), next_not_zero(spells, 31.0)) == (20.0, math.inf)


def test_questions_in_any_order_have_the_same_answers() -> None:
    asked = [0.0, 500.0, 3.0, 120.0, 4999.0, 77.7]
    forth, back = (Spells(by_chance(stream(1, "test"), 50.0, 10.0)) for _ in range(2))
    answers = {t: forth.at(t) for t in asked}
    assert {t: back.at(t) for t in reversed(asked)} == dict(reversed(answers.items()))


def test_spells_by_chance_have_the_mean_that_was_asked_for() -> None:
    spells = list(itertools.islice(by_chance(stream(2, "test"), 100.0, 5.0), 4000))
    assert {round(end - start, 6) for start, end in spells} == {5.0}
    gaps = [after[0] - before[1] for before, after in itertools.pairwise(spells)]
    assert sum(gaps) / len(gaps) == pytest.approx(100.0, rel=4 / math.sqrt(4000))


def test_a_product_changes_when_any_of_its_factors_does() -> None:
    product = Product([2.0, Spells([(10.0, 20.0)], 0.5), StepFunction.of([0.0, 15.0], [3.0, 4.0], 30.0)])
    assert [product.at(t) for t in (0.0, 10.0, 15.0, 20.0, 31.0)] == [6.0, 3.0, 4.0, 8.0, 6.0]
    assert [product.next_change(t) for t in (0.0, 10.0, 15.0, 20.0)] == [10.0, 15.0, 20.0, 30.0]
    assert product.peak == 8.0


def test_work_waits_while_nothing_is_done_and_takes_longer_while_little_is() -> None:
    # 10 s of work: 4 s at full speed, 6 s standing still, 10 s at half speed, the last second at full speed.
    speed = Product([Spells([(4.0, 10.0)]), Spells([(10.0, 20.0)], 0.5)])
    assert time_to_accumulate(speed, 0.0, 10.0) == 21.0
    assert time_to_accumulate(speed, 5.0, 0.0) == 10.0
    assert time_to_accumulate(Spells([(4.0, math.inf)]), 0.0, 5.0) == math.inf
    step = StepFunction.of([0.0, 4.0, 10.0], [1.0, 0.0, 1.0])
    assert time_to_accumulate(Product([step]), 1.0, 5.0) == step.time_to_accumulate(1.0, 5.0)


def test_what_is_never_on_together_never_ends() -> None:
    on = StepFunction.of([0.0, 1.0], [1.0, 0.0], 2.0)
    never = Product([on, on.shifted(1.0)])
    assert time_to_accumulate(never, 0.0, 1.0) == next_not_zero(never, 0.5) == math.inf


def test_what_is_out_for_long_is_waited_for_however_often_something_else_changes_meanwhile() -> None:
    # A thousand seconds hold more changes than anybody goes through one by one.
    flicker = StepFunction.of([0.0, 0.001], [1.0, 0.0], 0.002)
    out = Product([Spells([(0.0, 1000.0005)]), flicker])
    assert next_not_zero(out, 0.0) == pytest.approx(1000.0005)
    assert time_to_accumulate(out, 0.0, 0.001) == pytest.approx(1000.0025)
    assert next_not_zero(Product([Spells([(0.0, math.inf)]), flicker]), 0.0) == math.inf


def test_what_never_goes_out_is_not_searched_for_an_end() -> None:
    asked: list[float] = []

    class Counted(StepFunction):
        def next_change(self, t: float) -> float:
            asked.append(t)
            return StepFunction.next_change(self, t)

    up = StepFunction.of([0.0, 1.0], [0.5, 1.0], 2.0)
    assert next_zero(Product([Counted(up._steps)]), 3.0) == math.inf
    assert not asked
