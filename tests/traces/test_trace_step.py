"""Step functions: against a naive loop, and the laws that hold for all of them."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.step import StepFunction

QUICK = settings(max_examples=150, deadline=None)

LEVELS = st.one_of(st.just(0.0), st.floats(1e-3, 1e8))
WIDTHS = st.one_of(st.sampled_from([0.1, 0.25, 1.0, 1 / 3]), st.floats(1e-3, 1e3))
TIMES = st.one_of(st.just(0.0), st.floats(0, 1e4))
AMOUNTS = st.one_of(st.just(0.0), st.floats(1e-9, 1e10))


@st.composite
def functions(draw: st.DrawFn, positive: bool = False, repeat: bool | None = None) -> StepFunction:
    """Step functions of up to eight steps, with either end, shifted and scaled."""
    widths = draw(st.lists(WIDTHS, min_size=1, max_size=8))
    levels = st.floats(1e-3, 1e8) if positive else LEVELS
    values = draw(st.lists(levels, min_size=len(widths), max_size=len(widths)))
    edges = np.cumsum([0.0, *widths])
    repeats = draw(st.booleans()) if repeat is None else repeat
    function = StepFunction.of(edges[:-1], values, float(edges[-1]) if repeats else None)
    if draw(st.booleans()):
        function = function.shifted(draw(st.floats(-1e4 if repeats else 0, 1e4)))
    return function.scaled(draw(st.sampled_from([1.0, 0.5, 3.0, 1e6])))


def naive(times: list[float], values: list[float], period: float | None, t0: float, t1: float) -> float:
    """The integral, step by step and repetition by repetition."""
    total, start = 0.0, 0.0
    while start <= t1:
        for i, value in enumerate(values):
            begin = start + times[i]
            last = i == len(values) - 1
            end = t1 + 1 if last and period is None else start + (period or 0.0) if last else start + times[i + 1]
            total += value * max(0.0, min(end, t1) - max(begin, t0))
        if period is None:
            break
        start += period
    return total


def scale(function: StepFunction, t: float) -> float:
    """How large an integral up to t may be, for tolerances."""
    return float(function.values.max()) * max(t, function.span_s, 1.0)


# What it is.


def test_a_small_one_by_hand() -> None:
    f = StepFunction.of([0, 2, 3], [10, 0, 5], period_s=5)
    assert [f.at(t) for t in (0, 1.9, 2, 3, 4.9, 5, 7, 12)] == [10, 10, 0, 5, 5, 10, 0, 0]
    assert (f.integrate(0, 5), f.integrate(1, 4), f.integrate(4, 6), f.integrate(0, 50)) == (30, 15, 15, 300)
    assert [f.time_to_accumulate(0, a) for a in (0, 10, 20, 20.5, 30, 31, 60, 3000)] == [0, 1, 2, 3.1, 5, 5.1, 10, 500]
    assert f.time_to_accumulate(4, 15) == 6
    assert [f.next_change(t) for t in (0, 1.9, 2, 3, 4.9, 5)] == [2, 2, 3, 5, 5, 7]
    assert (f.end, f.period_s, f.span_s, f.mean) == ("repeat", 5, 5, 6)


def test_the_last_value_holds_without_a_period() -> None:
    f = StepFunction.of([0, 2], [10, 4])
    assert (f.at(1e9), f.next_change(2), f.integrate(1, 102)) == (4, math.inf, 410)
    assert (f.time_to_accumulate(0, 420), f.time_to_accumulate(50, 8)) == (102, 52)
    assert (f.end, f.period_s, f.span_s, f.mean) == ("hold", None, 2, 10)


@pytest.mark.parametrize("period", [None, 3.0])
def test_what_is_never_reached_takes_for_ever(period: float | None) -> None:
    assert StepFunction.of([0, 1], [0, 0], period).time_to_accumulate(5, 1e-9) == math.inf
    assert StepFunction.of([0, 1], [2, 1], period).time_to_accumulate(0, math.inf) == math.inf
    assert StepFunction.of([0, 1], [2, 1], period).scaled(0).time_to_accumulate(0, 1) == math.inf


def test_a_link_that_dies_carries_what_it_had_and_no_more() -> None:
    f = StepFunction.of([0, 0.1, 0.3], [3.3, 7.7, 0])
    everything = f.integrate(0, 100)
    assert f.time_to_accumulate(0, everything) == pytest.approx(0.3)
    assert f.time_to_accumulate(0.05, f.integrate(0.05, 9)) == pytest.approx(0.3)
    assert f.time_to_accumulate(0, everything * 1.0001) == math.inf


def test_a_constant_never_changes() -> None:
    f = StepFunction.constant(7)
    assert (f.at(0), f.at(1e12), f.next_change(3), f.integrate(2, 4), f.time_to_accumulate(1, 70)) == (
        7, 7, math.inf, 14, 11,
    )  # fmt: skip
    assert (f.span_s, f.mean) == (0, 7)


def test_steps_that_change_nothing_are_no_changes() -> None:
    assert StepFunction.of([0, 1, 2, 3], [5, 5, 6, 6]).next_change(0) == 2
    around = StepFunction.of([0, 1, 2], [5, 6, 5], period_s=3)
    assert [around.next_change(t) for t in (0, 1, 2, 3.5)] == [1, 2, 4, 4]
    assert StepFunction.of([0, 1], [5, 5], period_s=2).next_change(0) == math.inf
    assert StepFunction.of([0, 1], [5, 6], period_s=2).scaled(0).next_change(0) == math.inf


@pytest.mark.parametrize(
    ("times", "values", "period"),
    [
        ([], [], None), ([0, 1], [1], None), ([1, 2], [1, 1], None), ([0, 0], [1, 1], None), ([0, 2, 1], [1, 1, 1], None),
        ([0], [-1], None), ([0], [math.nan], None), ([0], [math.inf], None), ([0, math.inf], [1, 1], None),
        ([0, math.nan], [1, 1], None), ([0, 1], [1, 1], 1), ([0, 1], [1, 1], 0.5), ([0], [1], 0), ([0], [1], math.inf),
        ([0], [1], math.nan), ([[0]], [[1]], None), ([0, 1e300], [1e300, 1], None), ([0], [1e300], 1e300),
    ],
)  # fmt: skip
def test_what_is_no_function_of_time_is_refused(times: list[float], values: list[float], period: float | None) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (the messages are for programmers)
        StepFunction.of(times, values, period)


def test_what_makes_no_sense_is_refused() -> None:
    f = StepFunction.of([0, 1], [1, 2], 3)
    for ask in (
        lambda: f.at(-1), lambda: f.at(math.nan), lambda: f.at(math.inf), lambda: f.next_change(-1e-9),
        lambda: f.integrate(2, 1), lambda: f.integrate(-1, 1), lambda: f.integrate(0, math.inf),
        lambda: f.time_to_accumulate(0, -1), lambda: f.time_to_accumulate(0, math.nan),
        lambda: f.time_to_accumulate(-1, 0), lambda: f.scaled(-1), lambda: f.scaled(math.inf),
        lambda: f.shifted(math.nan), lambda: StepFunction.constant(1).shifted(-1),
        lambda: f.sample(np.array([1.0, -1.0])),
    ):  # fmt: skip
        with pytest.raises(ValueError):  # noqa: PT011
            ask()


def test_it_is_frozen_small_and_survives_pickling() -> None:
    f = StepFunction.of(np.arange(1000), np.arange(1000), 1000)
    g = f.shifted(10).scaled(2)
    assert g._steps is f._steps  # a client more costs a few words, not a copy of the trace
    assert not hasattr(g, "__dict__")
    with pytest.raises(FrozenInstanceError):
        f.offset_s = 3  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        f.times_s[0] = 1
    again = pickle.loads(pickle.dumps(g))  # noqa: S301 (our own)
    assert again.integrate(3, 3333) == g.integrate(3, 3333)
    assert repr(f) == "<StepFunction of 1000 steps, repeats after 1000 s>"


# Laws.


@QUICK
@given(
    st.lists(WIDTHS, min_size=1, max_size=6),
    st.lists(LEVELS, min_size=6, max_size=6),
    st.booleans(),
    st.floats(0, 30),
    st.floats(0, 30),
)
def test_agrees_with_a_naive_loop(widths: list[float], values: list[float], repeat: bool, a: float, b: float) -> None:
    edges = np.cumsum([0.0, *(max(w, 0.05) for w in widths)]).tolist()
    times, period = edges[:-1], edges[-1] if repeat else None
    f = StepFunction.of(times, values[: len(times)], period)
    t0, t1 = sorted((a, b))
    wanted = naive(times, values[: len(times)], period, t0, t1)
    assert f.integrate(t0, t1) == pytest.approx(wanted, rel=1e-9, abs=1e-9 * scale(f, t1))
    inside = t0 % period if period else t0
    assert f.at(t0) == values[max(i for i, t in enumerate(times) if t <= inside)]


@QUICK
@given(functions(), TIMES, TIMES, TIMES)
def test_integrals_add_up_and_never_shrink(f: StepFunction, a: float, b: float, c: float) -> None:
    t0, t1, t2 = sorted((a, b, c))
    whole = f.integrate(t0, t2)
    assert f.integrate(t0, t1) + f.integrate(t1, t2) == pytest.approx(whole, rel=1e-9, abs=1e-12 * scale(f, t2))
    assert 0 <= f.integrate(t0, t1) <= whole * (1 + 1e-9) + 1e-12 * scale(f, t2)
    assert f.integrate(t1, t1) == 0


@QUICK
@given(functions(), TIMES, AMOUNTS)
def test_the_time_to_accumulate_an_amount_accumulates_it(f: StepFunction, t0: float, amount: float) -> None:
    t = f.time_to_accumulate(t0, amount)
    if t == math.inf:
        assert f.integrate(t0, t0 + 1e12) < amount
    else:
        assert t >= t0
        slack = 8 * math.ulp(t + f.offset_s) * float(f.values.max())  # as much as passes in the rounding of t
        assert f.integrate(t0, t) == pytest.approx(amount, rel=1e-9, abs=slack)


@QUICK
@given(functions(positive=True), TIMES, TIMES)
def test_accumulating_an_integral_takes_its_time(f: StepFunction, a: float, b: float) -> None:
    t0, t1 = sorted((a, b))
    slow = float(f.values.min())
    slack = 1e-11 * scale(f, t1) / slow  # where little passes in a second, the rounding of much is many seconds
    assert f.time_to_accumulate(t0, f.integrate(t0, t1)) == pytest.approx(t1, rel=1e-9, abs=slack + 1e-9)


@QUICK
@given(functions(), TIMES, AMOUNTS, AMOUNTS)
def test_more_takes_longer(f: StepFunction, t0: float, a: float, b: float) -> None:
    less, more = sorted((a, b))
    first, second = f.time_to_accumulate(t0, less), f.time_to_accumulate(t0, more)
    assert first <= second * (1 + 1e-12) + 1e-12


@QUICK
@given(functions(repeat=True), TIMES, st.floats(0, 100), st.integers(1, 1_000_000))
def test_repetitions_are_all_alike(f: StepFunction, t0: float, length: float, rounds: int) -> None:
    assert f.period_s is not None
    later = t0 + rounds * f.period_s
    moved = 4 * math.ulp(later) * float(f.values.max())  # the start of the later interval is rounded
    wanted = f.integrate(t0, t0 + length)
    assert f.integrate(later, later + length) == pytest.approx(wanted, rel=1e-9, abs=2 * moved + 1e-12 * scale(f, 1))
    assert f.integrate(t0, later) == pytest.approx(rounds * f.integrate(0, f.period_s), rel=1e-9, abs=moved)


@QUICK
@given(functions(repeat=True), st.floats(0, 1e4), TIMES, st.floats(0, 100))
def test_a_shift_is_a_later_start(f: StepFunction, offset: float, t0: float, length: float) -> None:
    g = f.shifted(offset)
    moved = 8 * math.ulp(offset + t0 + length) * float(f.values.max())
    wanted = f.integrate(t0 + offset, t0 + offset + length)
    assert g.integrate(t0, t0 + length) == pytest.approx(wanted, rel=1e-9, abs=4 * moved + 1e-12 * scale(f, 1))
    assert 0 <= g.offset_s < (f.period_s or 0)


@QUICK
@given(functions(), st.floats(0, 500))
def test_from_change_to_change_it_always_gets_on(f: StepFunction, start: float) -> None:
    t, integral = start, 0.0
    for _ in range(40):
        later = f.next_change(t)
        if later == math.inf:
            assert f.at(t) == f.at(t + 1e6)
            break
        assert later > t
        assert f.at(later) != f.at(t)
        before = math.nextafter(later, 0) - 4 * math.ulp(later + f.offset_s)
        if before > t:
            assert f.at(before) == f.at(t)
        integral += f.at(t) * (later - t)
        t = later
    assert f.integrate(start, t) == pytest.approx(integral, rel=1e-9, abs=1e-11 * scale(f, t))


@QUICK
@given(functions(), st.lists(TIMES, min_size=1, max_size=5))
def test_many_times_at_once_are_as_one_by_one(f: StepFunction, times: list[float]) -> None:
    assert f.sample(np.array(times)).tolist() == [f.at(t) for t in times]


@QUICK
@given(functions(), st.floats(0, 3000))
def test_times_and_values_describe_the_function_as_it_is_seen(f: StepFunction, t: float) -> None:
    again = StepFunction.of(f.times_s, f.values, f.period_s)
    assert f.integrate(0, t) == pytest.approx(again.integrate(0, t), rel=1e-9, abs=1e-11 * scale(f, t))
    assert again.at(0) == f.at(0)
    assert again.span_s == pytest.approx(f.span_s)


def test_a_million_repetitions_later_it_is_as_exact_as_at_the_start() -> None:
    f = StepFunction.of([0, 0.25, 0.5], [3e6, 0, 1e6], period_s=1)
    year = 3e7
    assert f.integrate(year, year + 0.25) == f.integrate(0, 0.25)
    assert f.time_to_accumulate(year, 1e6) - year == pytest.approx(0.75, abs=1e-8)
    assert f.next_change(year) == year + 0.25
