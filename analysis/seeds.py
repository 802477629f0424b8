"""Runs that differ in nothing but their seed: means, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from analysis.quantities import Axis

if TYPE_CHECKING:
    import pandas as pd

CONFIDENCE = 0.95
POWER = 0.8
BANDS = {
    "interval": "the 95 % interval of the mean (Student's t)",
    "range": "from the lowest to the highest",
    "none": "",
}


def mean_and_interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half the width of its 95 % interval by Student's t with n - 1 degrees of freedom.

    Half the width is nan for a single value; both are nan for none. Values that are nan are left out.
    """
    known = [float(v) for v in values if not math.isnan(v)]
    if not known:
        return math.nan, math.nan
    mean = math.fsum(known) / len(known)
    if len(known) < 2:
        return mean, math.nan
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in known) / (len(known) - 1))
    return mean, _quantile(len(known) - 1) * deviation / math.sqrt(len(known))


def detectable(values: Sequence[float]) -> float:
    """The mean difference that a paired t test on so many seeds finds with 80 % power (5 % two-sided).

    ``values`` are differences of pairs, whose standard deviation is taken for the true one. Exact, by the noncentral t
    distribution, both tails counted. Raises `ValueError` for fewer than two.
    """
    n = len(values)
    if n < 2:
        raise ValueError("a standard deviation takes at least two values")
    mean = math.fsum(values) / n
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    return _noncentrality(n - 1) * deviation / math.sqrt(n)


@lru_cache
def _noncentrality(freedom: int) -> float:
    """By how many standard errors a mean must differ from 0 for a t test to say so with the probability `POWER`."""
    from scipy.optimize import brentq
    from scipy.special import nctdtr

    critical = _quantile(freedom)

    def lacking(shift: float) -> float:
        # P(T > c) and P(T < -c); the latter is P(T > c) with the shift on the other side.
        return float(2 - nctdtr(freedom, shift, critical) - nctdtr(freedom, -shift, critical)) - POWER

    return float(brentq(lacking, 0.0, 10 * critical, xtol=1e-10))


def sign_test(wins: int, losses: int) -> float:
    """The two-sided p of the exact sign test; 1 where there is neither a win nor a loss."""
    n, fewer = wins + losses, min(wins, losses)
    return min(1.0, sum(math.comb(n, k) for k in range(fewer + 1)) / float(2 ** (n - 1))) if n else 1.0


def _quantile(freedom: int) -> float:
    """The 97.5 % point of Student's t distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


@dataclass(frozen=True, eq=False)
class Curve:
    """Accuracies (shares) ``y`` over what they took ``x`` (SI units), with a band from ``low`` to ``high`` or none."""

    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None


def mean_curve(
    seeds: Sequence[pd.DataFrame], axis: Axis, band: str = "interval", column: str = "accuracy", share: bool = True
) -> Curve:
    """The mean of the accuracy curves of several seeds, each drawn straight between its evaluations.

    The mean stands where the evaluations of the seeds stand on average, and ends where the first of the seeds ends: beyond,
    it would be a mean of others. ``band`` is a key of `BANDS`, ``column`` holds the accuracies, or
    another measure; of a ``share``, a band stays from 0 to 1. One seed is its own curve,
    without a band.
    """
    pairs = [(m[axis.column].to_numpy(dtype=float), m[column].to_numpy(dtype=float)) for m in seeds]
    if len(pairs) == 1:
        return Curve(*pairs[0])
    end = min(float(x[-1]) for x, _ in pairs)
    longest = max(len(x) for x, _ in pairs)
    places = [float(np.mean([x[k] for x, _ in pairs if len(x) > k])) for k in range(longest)]
    x = np.unique([*(p for p in places if p < end * (1 - 1e-9)), end])
    # A curve that stands still on the axis has several accuracies at one place: the last one counts.
    ys = np.array([np.interp(x, *_last_at_each(*pair)) for pair in pairs])
    mean = ys.mean(axis=0)
    if band == "none":
        return Curve(x, mean)
    if band == "range":
        return Curve(x, mean, ys.min(axis=0), ys.max(axis=0))
    half = _quantile(len(pairs) - 1) * ys.std(axis=0, ddof=1) / math.sqrt(len(pairs))
    low, high = mean - half, mean + half
    return Curve(x, mean, np.clip(low, 0, 1), np.clip(high, 0, 1)) if share else Curve(x, mean, low, high)


def _last_at_each(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    last = np.append(np.diff(x) > 0, True)
    return x[last], y[last]
