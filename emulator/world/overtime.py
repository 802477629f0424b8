"""Values that change over time, beside the steps of a trace: spells of disorder, and products of several such values.

Whatever has `at` and `next_change` can be a bandwidth, a speed or a presence; `traces.step.StepFunction` is one.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from traces.step import StepFunction

_MANY = 100_000  # changes in a row of something that is 0 all the time: who waits for it would wait for ever


class OverTime(Protocol):
    """A value that is constant between changes."""

    def at(self, t: float, /) -> float:
        """The value at an instant (emulated seconds)."""

    def next_change(self, t: float, /) -> float:
        """The next instant at which it may change; infinity if it does not."""

    @property
    def peak(self) -> float:
        """A bound that it never exceeds."""


class Spells:
    """1, but ``level`` while a spell lasts. Spells come in order and do not touch; they are made when they are asked for."""

    def __init__(self, spells: Iterable[tuple[float, float]], level: float = 0.0) -> None:
        """``spells`` are pairs of start and end in emulated seconds; there may be infinitely many.

        ``wrong`` makes the error that is raised where they are not in order.
        """
        self.wrong: Callable[[str], Exception] = ValueError
        self._more: Iterator[tuple[float, float]] = iter(spells)
        self._edges: list[float] = []  # start, end, start, end, ...
        self._level = level

    def at(self, t: float) -> float:
        """See `OverTime.at`."""
        return self._level if self._place(t) % 2 else 1.0

    def next_change(self, t: float) -> float:
        """See `OverTime.next_change`."""
        place = self._place(t)
        return self._edges[place] if place < len(self._edges) else math.inf

    @property
    def peak(self) -> float:
        """See `OverTime.peak`."""
        return max(1.0, self._level)

    def _place(self, t: float) -> int:
        while not self._edges or self._edges[-1] <= t:
            spell = next(self._more, None)
            if spell is None:
                break
            start, end = spell
            if not (self._edges[-1] if self._edges else 0) <= start <= end:
                after = f"after one that ends at {self._edges[-1]} s" if self._edges else "as the first"
                raise self.wrong(f"a spell from {start} s to {end} s cannot come {after}; they must be in order")
            self._edges += spell
        return bisect_right(self._edges, t)


def merge_intervals(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Intervals (start and end) in order, with those that overlap or touch made one."""
    result: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def by_chance(rng: np.random.Generator, mean_between_s: float, lasts_s: float) -> Iterator[tuple[float, float]]:
    """Spells without end: from the end of one to the start of the next, an exponentially distributed time."""
    end = 0.0
    while end < math.inf:
        start = end + max(rng.exponential(mean_between_s), 1e-9)
        end = start + lasts_s
        yield start, end


class Product:
    """Several values multiplied."""

    def __init__(self, factors: Sequence[OverTime | float]) -> None:
        self._constant = math.prod(f for f in factors if isinstance(f, float | int))
        self.factors = [f for f in factors if not isinstance(f, float | int)]

    def at(self, t: float) -> float:
        """See `OverTime.at`."""
        return self._constant * math.prod(f.at(t) for f in self.factors)

    def next_change(self, t: float) -> float:
        """See `OverTime.next_change`."""
        return min((f.next_change(t) for f in self.factors), default=math.inf)

    @property
    def peak(self) -> float:
        """See `OverTime.peak`."""
        return self._constant * math.prod(f.peak for f in self.factors)


def time_to_accumulate(rate: OverTime, start_s: float, amount: float) -> float:
    """The first instant at which the integral of ``rate`` from ``start_s`` on reaches ``amount``; infinity where none does."""
    if isinstance(rate, StepFunction):
        return rate.time_to_accumulate(start_s, amount)
    now = next_not_zero(rate, start_s)
    while now < math.inf:
        level, change = rate.at(now), rate.next_change(now)
        if amount <= level * (change - now):
            return now + amount / level
        amount -= level * (change - now)
        now = next_not_zero(rate, change)
    return math.inf


def accumulated(rate: OverTime, start_s: float, now_s: float) -> float:
    """The integral of ``rate`` from ``start_s`` until now; 0 before that."""
    if now_s <= start_s:
        return 0.0
    if isinstance(rate, StepFunction):
        return rate.integrate(start_s, now_s)
    total = 0.0
    while start_s < now_s:
        until = min(rate.next_change(start_s), now_s)
        total += rate.at(start_s) * (until - start_s)
        start_s = until
    return total


def next_zero(value: OverTime, t: float) -> float:
    """The first instant from ``t`` on at which a value is 0; infinity where there is none (or too many changes away)."""
    if isinstance(value, Product):
        return min((next_zero(factor, t) for factor in value.factors), default=math.inf)
    if isinstance(value, StepFunction) and value.least > 0:
        return math.inf
    for _ in range(_MANY):
        if value.at(t) == 0:
            return t
        t = value.next_change(t)
        if t == math.inf:
            break
    return math.inf


def next_not_zero(value: OverTime, t: float) -> float:
    """The first instant from ``t`` on at which a value is above 0; infinity where there is none (or too many changes away)."""
    factors = value.factors if isinstance(value, Product) else ()
    for _ in range(_MANY):
        if value.at(t) > 0:
            return t
        # A product waits for all its factors, however often the others change meanwhile.
        t = max(next_not_zero(f, t) for f in factors) if factors else value.next_change(t)
        if t == math.inf:
            break
    return math.inf
