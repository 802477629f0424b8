"""What people want to know about a step function: how it looks on the whole, and how it looks from afar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.step import Floats, StepFunction

GAP = 5  # a step longer than so many times the median is called a gap


@dataclass(frozen=True)
class Summary:
    """Values in the function's unit. Steps are those within its span; a function that holds does not count its last."""

    low: float
    mean: float
    high: float
    span_s: float
    steps: int
    median_step_s: float
    longest_step_s: float
    gaps: int
    zero_share: float  # of the span
    longest_zero_s: float


def summarise(function: StepFunction) -> Summary:
    """The summary of a function over its span; where that has no length, all times are 0."""
    widths, values = step_widths(function), function.values
    low, high, mean = float(values.min()), float(values.max()), function.mean
    if not len(widths):
        return Summary(low, mean, high, 0.0, 0, 0.0, 0.0, 0, float(high == 0), 0.0)
    median = float(np.median(widths))
    zero = values[: len(widths)] == 0
    return Summary(
        low,
        mean,
        high,
        function.span_s,
        len(widths),
        median,
        float(widths.max()),
        int((widths > GAP * median).sum()),
        float(widths[zero].sum()) / function.span_s,
        _longest(widths, zero),
    )


def step_widths(function: StepFunction) -> Floats:
    """How many seconds the steps last; of a function that holds, not the last."""
    times = function.times_s
    return np.diff(times if function.period_s is None else np.append(times, function.period_s))


def from_afar(function: StepFunction, bins: int) -> tuple[Floats, Floats, Floats, Floats]:
    """The edges of equal bins over the span, and the mean, the least and the greatest value in each."""
    edges = np.linspace(0.0, function.span_s, bins + 1)
    pairs = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    means = np.array([function.integrate(a, b) / (b - a) for a, b in pairs])
    times, values = function.times_s, function.values
    first = times.searchsorted(edges[:-1], "right") - 1
    last = np.maximum(first + 1, times.searchsorted(edges[1:], "left"))
    spans = [values[a:b] for a, b in zip(first, last, strict=True)]
    return edges, means, np.array([s.min() for s in spans]), np.array([s.max() for s in spans])


def mean_of(functions: Sequence[StepFunction], bins: int) -> tuple[Floats, Floats]:
    """The edges of equal bins over the longest span, and the mean of all functions at the middle of each."""
    span_s = max(f.span_s for f in functions) or 1.0
    edges = np.linspace(0.0, span_s, bins + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    total = np.zeros(bins)
    for function in functions:
        total += function.sample(middles)
    return edges, total / len(functions)


def _longest(widths: Floats, chosen: NDArray[np.bool_]) -> float:
    """The length of the longest run of chosen steps."""
    if not chosen.any():
        return 0.0
    sums = np.concatenate(([0.0], np.cumsum(widths)))
    ends = np.flatnonzero(np.diff(np.concatenate(([False], chosen, [False]))))
    return float((sums[ends[1::2]] - sums[ends[::2]]).max())
