"""Piecewise-constant functions of time: what a trace is to the emulated world.

A `StepFunction` starts at time 0, keeps a value until its next step, and at its end either starts over (``repeat``) or
keeps its last value for ever (``hold``). Cumulative sums make every question cost a binary search, whatever the number of
repetitions. Shifts and multiples share the arrays of the function they come from, so that thousands of clients can play
one trace, each from its own starting point.

Accuracy: whole repetitions are counted, never added up, so an integral over a short time is as good after a year of emulated
time as at its start. `StepFunction.integrate` and `StepFunction.time_to_accumulate` are inverse to float precision.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROUNDING = 1e-12  # an amount that is all there ever is, computed on another way, may be larger by this share


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Steps:
    """What all shifts and multiples of a function share. Arrays of the standard library: one number from them is a float.

    Step i lasts from ``edges_s[i]`` to ``edges_s[i + 1]``. The last edge is the period, or infinity where the last value holds.
    """

    edges_s: array[float]
    values: array[float]
    sums: array[float]  # the integral up to each edge
    changes_s: array[float]  # the edges after 0 at which the value changes; the period too, if starting over changes it
    least: float  # of the values

    @property
    def period_s(self) -> float:
        return self.edges_s[-1]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StepFunction:
    """A piecewise-constant function of time (seconds from 0 on) with values that are finite and not negative.

    Made by `of` and `constant`, and from others by `shifted` and `scaled`: at time t it is ``factor`` times what its steps
    say at ``t + offset_s``.
    """

    _steps: _Steps
    offset_s: float = 0.0
    factor: float = 1.0

    @classmethod
    def of(
        cls, times_s: Sequence[float] | Floats, values: Sequence[float] | Floats, period_s: float | None = None
    ) -> StepFunction:
        """The function that takes ``values[i]`` at ``times_s[i]``.

        With a period it starts over at that time, without one the last value lasts for ever. Raises ``ValueError`` unless the
        times start at 0 and increase strictly up to below the period, and the values are finite and at least 0.
        """
        times = np.asarray(times_s, dtype=np.float64)
        levels = np.asarray(values, dtype=np.float64)
        end = math.inf if period_s is None else float(period_s)
        if times.ndim != 1 or times.shape != levels.shape or not len(times):
            raise ValueError("needs as many values as times, and at least one")
        if period_s is not None and not math.isfinite(end):
            raise ValueError(f"the period is {period_s}; it must be finite")
        if times[0] != 0 or not np.isfinite(times).all():
            raise ValueError("times must be finite and start at 0")
        edges = np.concatenate((times, (end,)))
        widths = edges[1:] - edges[:-1]
        if not (widths > 0).all():
            raise ValueError("times must increase strictly, and the period must come after them")
        if not np.isfinite(levels).all() or (levels < 0).any():
            raise ValueError("values must be finite and not negative")
        sums = np.zeros(len(edges))
        with np.errstate(over="ignore"):
            np.multiply(levels, widths, out=sums[1:], where=levels > 0)
            np.cumsum(sums, out=sums)
        if not math.isfinite(sums[-1] if period_s is not None else sums[-2]):
            raise ValueError("the values are too large to add up")
        after = np.concatenate((levels[1:], levels[:1] if period_s is not None else levels[-1:]))
        changes = edges[1:][levels != after]
        arrays = [array("d", a.tobytes()) for a in (edges, levels, sums, changes)]
        return cls(_Steps(arrays[0], arrays[1], arrays[2], arrays[3], float(levels.min())))

    @classmethod
    def constant(cls, value: float) -> StepFunction:
        """The function that has this value at all times. Raises ``ValueError`` as `of`."""
        return cls.of([0.0], [value])

    def shifted(self, offset_s: float) -> StepFunction:
        """The same function, played from ``offset_s`` on: at t it is what this one is at ``t + offset_s``. Shares all arrays.

        Where a function repeats, any finite offset will do. Where it holds, there is nothing before its start: raises
        ``ValueError`` for an offset that leads there.
        """
        offset = self.offset_s + offset_s
        if not math.isfinite(offset):
            raise ValueError(f"an offset is a finite number of seconds, not {offset_s}")
        if self.end == "repeat":
            period = self._steps.period_s
            offset %= period
            offset = 0.0 if offset == period else offset  # a tiny negative offset rounds up to the period
        elif offset < 0:
            raise ValueError("a function that does not repeat has nothing before its start")
        return replace(self, offset_s=offset)

    def scaled(self, factor: float) -> StepFunction:
        """This function times ``factor``. Shares all arrays. Raises ``ValueError`` where the factor is negative or not finite."""
        if not 0 <= factor < math.inf:
            raise ValueError(f"a factor is finite and not negative, not {factor}")
        return replace(self, factor=self.factor * factor)

    def ending(self, end: Literal["repeat", "hold"]) -> StepFunction:
        """The same steps with this end. Where a function that held is to repeat, its last value lasts as long as its median step.

        A constant has no end: it stays as it is.
        """
        times, values = self.times_s, self.values
        if end == self.end or len(times) == 1:
            return self
        return StepFunction.of(times, values, float(times[-1] + np.median(np.diff(times))) if end == "repeat" else None)

    @property
    def end(self) -> Literal["repeat", "hold"]:
        """What comes after the last step."""
        return "hold" if self._steps.period_s == math.inf else "repeat"

    @property
    def period_s(self) -> float | None:
        """After how many seconds it starts over; None where the last value holds."""
        return None if self.end == "hold" else self._steps.period_s

    @property
    def span_s(self) -> float:
        """How many seconds are written down: one period, or up to the last step."""
        return self._steps.period_s if self.end == "repeat" else max(0.0, self._steps.edges_s[-2] - self.offset_s)

    @property
    def mean(self) -> float:
        """The mean over `span_s`; the value itself where that is 0."""
        span = self.span_s
        return self.integrate(0.0, span) / span if span else self.at(0.0)

    @property
    def peak(self) -> float:
        """The highest value that it ever has, from the start of its steps."""
        return max(self._steps.values) * self.factor

    @property
    def least(self) -> float:
        """The lowest value that it ever has, from the start of its steps."""
        return self._steps.least * self.factor

    @property
    def times_s(self) -> Floats:
        """The times of the steps, from 0, with the offset taken into account."""
        return self._seen()[0]

    @property
    def values(self) -> Floats:
        """The values of the steps at `times_s`, with the offset and the factor taken into account."""
        return self._seen()[1]

    def at(self, t: float) -> float:
        """The value at time ``t``: at a step, the new value. Raises ``ValueError`` where t is negative or not finite."""
        _, _, i = self._place(t)
        return self._steps.values[i] * self.factor

    def sample(self, times_s: Floats) -> Floats:
        """The values at many times at once, as `at`."""
        times = np.asarray(times_s, dtype=np.float64)
        if not np.isfinite(times).all() or (times < 0).any():
            raise ValueError("times are finite and not negative")
        inside = np.mod(times + self.offset_s, self._steps.period_s)
        steps = _numbers(self._steps.edges_s).searchsorted(inside, "right") - 1
        return _numbers(self._steps.values)[steps] * self.factor

    def integrate(self, t0: float, t1: float) -> float:
        """The integral from ``t0`` to ``t1``. Raises ``ValueError`` unless 0 <= t0 <= t1 and both are finite."""
        if not t0 <= t1:
            raise ValueError(f"cannot integrate from {t0} to {t1}")
        s = self._steps
        k0, r0, i0 = self._place(t0)
        k1, r1, i1 = self._place(t1)
        if k0 == k1 and i0 == i1:
            return s.values[i0] * (t1 - t0) * self.factor
        head = s.values[i0] * (s.edges_s[i0 + 1] - r0)
        tail = s.values[i1] * (r1 - s.edges_s[i1])
        between = s.sums[i1] - s.sums[i0 + 1]
        if k1 > k0:
            between += (k1 - k0) * s.sums[-1]
        return (head + between + tail) * self.factor

    def sums(self, times: Floats) -> Floats:
        """The integral from 0 to each of these times. Raises ``ValueError`` where one is negative or not finite."""
        if not np.isfinite(times).all() or (times < 0).any():
            raise ValueError("times are finite and not negative")
        edges, values, sums = _numbers(self._steps.edges_s), _numbers(self._steps.values), _numbers(self._steps.sums)

        def up_to(instants: Floats) -> Floats:
            rounds, inside = np.divmod(instants, edges[-1])
            steps = edges.searchsorted(inside, "right") - 1
            whole = rounds * sums[-1] if self.end == "repeat" else 0.0
            reached: Floats = whole + sums[steps] + values[steps] * (inside - edges[steps])
            return reached

        return (up_to(times + self.offset_s) - up_to(np.array([self.offset_s]))) * self.factor

    def time_to_accumulate(self, t0: float, amount: float) -> float:
        """The first time at which the integral from ``t0`` reaches ``amount``; infinity where it never does.

        Raises ``ValueError`` where the amount is negative or not a number, or ``t0`` negative or not finite.
        """
        if not amount >= 0:
            raise ValueError(f"an amount is not negative, and {amount} is")
        s = self._steps
        _, r, i = self._place(t0)
        need = amount / self.factor if self.factor else math.inf
        if amount == 0 or need == 0:  # the second: too little to be told from nothing
            return t0
        left_s = s.edges_s[i + 1] - r  # of the step that lasts at t0
        here = s.values[i] * left_s if s.values[i] else 0.0
        if need <= here:
            return t0 + need / s.values[i]
        goal = s.sums[i + 1] + (need - here)  # as an integral from the start of the period of t0
        total, rounds = s.sums[-1], 0.0
        if goal == math.inf or total == 0:
            return math.inf
        if self.end == "hold":
            if need > (here + (total - s.sums[i + 1])) * (1 + _ROUNDING):
                return math.inf
            goal = min(goal, total)
        else:
            rounds, goal = divmod(goal, total)
            if goal == 0:  # reached at the end of a round, not when the next one begins to count
                rounds, goal = rounds - 1, total
        i = bisect_left(s.sums, goal) - 1
        inside = min(s.edges_s[i] + (goal - s.sums[i]) / s.values[i], s.edges_s[i + 1])
        ahead = inside - r
        if rounds:
            ahead += rounds * s.period_s
        return t0 + max(ahead, left_s)

    def next_change(self, t: float) -> float:
        """The first time after ``t`` at which the value is another one; infinity where it stays.

        At the time returned, `at` gives the new value: rounding never leaves it just before the step, so that whoever goes from
        change to change gets on. Raises ``ValueError`` where t is negative or not finite.
        """
        s = self._steps
        k, r, _ = self._place(t)
        if not len(s.changes_s) or not self.factor:
            return math.inf
        i = bisect_right(s.changes_s, r)
        if i < len(s.changes_s):
            change = s.changes_s[i]
            goal = (k + 1, 0.0) if change == s.period_s else (k, change)
            later = t + (change - r)
        elif self.end == "repeat":
            goal = (k + 1, s.changes_s[0])
            later = t + (s.period_s - r + s.changes_s[0])
        else:
            return math.inf
        while self._place(later)[:2] < goal:
            later += math.ulp(later + self.offset_s)
        return later

    def _place(self, t: float) -> tuple[float, float, int]:
        """Where a time falls: full rounds before it, seconds into its round, number of the step."""
        if not 0 <= t < math.inf:
            raise ValueError(f"a time is finite and not negative, not {t}")
        edges = self._steps.edges_s
        # The remainder of floats is exact; by infinity it is the number itself.
        rounds, inside = divmod(t + self.offset_s, edges[-1])
        return rounds, inside, bisect_right(edges, inside) - 1

    def _seen(self) -> tuple[Floats, Floats]:
        """Times and values as they are from the offset on."""
        s = self._steps
        times, values = _numbers(s.edges_s)[:-1], _numbers(s.values) * self.factor
        if not self.offset_s:
            return times, values
        _, _, i = self._place(0.0)
        parts = [np.zeros(1), times[i + 1 :] - self.offset_s]
        levels = [values[i:]]
        if self.end == "repeat":
            parts.append(times[: i + 1] + (s.period_s - self.offset_s))
            levels.append(values[: i + 1])
        seen, shown = np.concatenate(parts), np.concatenate(levels)
        kept = np.append(np.diff(seen) > 0, seen[-1] < s.period_s)  # rounding may let steps fall together
        return seen[kept], shown[kept]

    def __repr__(self) -> str:
        after = "then holds" if self.period_s is None else f"repeats after {self.period_s:g} s"
        return f"<StepFunction of {len(self._steps.values)} steps, {after}>"


def _numbers(values: array[float]) -> Floats:
    """A view of an array that cannot be written to."""
    view: Floats = np.frombuffer(values, dtype=np.float64)
    view.flags.writeable = False
    return view
