"""Synthetic traces. A generator is a function ``(duration_s, rng, params)`` that returns a step function over that duration.

Levels are plain numbers: whoever uses a generator says of what quantity and in what unit they are, and scales the function.
At the end of its duration a generated trace starts over. The fact ``column`` is what levels are called in a CSV file unless the
user says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.files import TraceGeneratorFacts, trace_generators
from emulator.errors import InputError
from emulator.registry import Params
from emulator.units import PositiveSeconds, Seconds
from traces.step import Floats, StepFunction

MAX_STEPS = 10_000_000

Level = Annotated[float, Field(ge=0, le=1e18)]
PositiveLevel = Annotated[float, Field(gt=0, le=1e18)]
Probability = Annotated[float, Field(gt=0, le=1)]


class _Range(Params):
    """Levels from ``low`` to ``high``."""

    low: Level
    high: Level

    @model_validator(mode="after")
    def _in_order(self) -> _Range:
        if self.low > self.high:
            raise PydanticCustomError("range", "'low' must not be greater than 'high'")
        return self


class ConstantParams(Params):
    """``level`` at all times."""

    level: Level = 1.0


@trace_generators.register("constant", ConstantParams, TraceGeneratorFacts(column="bandwidth [Mbit/s]"))
def constant(duration_s: float, rng: np.random.Generator, params: ConstantParams) -> StepFunction:
    """One level at all times."""
    return StepFunction.of([0.0], [params.level], duration_s)


class DiurnalParams(_Range):
    """From ``low`` to ``high`` and back within a ``period``, highest at ``peak`` (from the start), in steps of ``step``."""

    period: PositiveSeconds = Field("1 d", validate_default=True)
    peak: Seconds = Field("12 h", validate_default=True)
    step: PositiveSeconds = Field("5 min", validate_default=True)


@trace_generators.register("diurnal", DiurnalParams, TraceGeneratorFacts(column="speed [1]"))
def diurnal(duration_s: float, rng: np.random.Generator, params: DiurnalParams) -> StepFunction:
    """A sine wave in steps, such as the load of a day; each step has the mean of the wave over it."""
    edges = _grid(duration_s, params.step)
    turn = 2 * math.pi / params.period
    areas = np.diff(np.sin(turn * (edges - params.peak))) / turn  # of the cosine that is 1 at the peak
    middle, swing = (params.high + params.low) / 2, (params.high - params.low) / 2
    values = middle + swing * areas / np.diff(edges)
    return StepFunction.of(edges[:-1], np.clip(values, params.low, params.high), duration_s)


class MarkovParams(Params):
    """Mean times that it stays on and off, the levels of the two, and the state at the start (``stationary``: by chance)."""

    mean_on: PositiveSeconds
    mean_off: PositiveSeconds
    on: Level = 1.0
    off: Level = 0.0
    start: Literal["stationary", "on", "off"] = "stationary"


@trace_generators.register("markov", MarkovParams, TraceGeneratorFacts(column="availability [1]"))
def markov(duration_s: float, rng: np.random.Generator, params: MarkovParams) -> StepFunction:
    """On and off in turn, for exponentially distributed times."""
    means = np.array([params.mean_on, params.mean_off])
    _check(2 * duration_s / means.sum())
    chance = {"stationary": params.mean_on / means.sum(), "on": 1.0, "off": 0.0}[params.start]
    first = 0 if rng.random() < chance else 1
    stays = _stays(duration_s, means, first, rng.exponential)
    return _alternate(stays, first, (params.on, params.off), duration_s)


class GilbertElliottParams(Params):
    """Levels of the two states, and the chance to go from each to the other at the end of a ``step``."""

    good: Level
    bad: Level
    good_to_bad: Probability
    bad_to_good: Probability
    step: PositiveSeconds = Field("1 s", validate_default=True)


@trace_generators.register("gilbert-elliott", GilbertElliottParams, TraceGeneratorFacts(column="bandwidth [Mbit/s]"))
def gilbert_elliott(duration_s: float, rng: np.random.Generator, params: GilbertElliottParams) -> StepFunction:
    """A channel that is good or bad, and may change at the end of each step (Gilbert 1960, Elliott 1963)."""
    leave = np.array([params.good_to_bad, params.bad_to_good])
    _check(duration_s / params.step)
    first = 0 if rng.random() < params.bad_to_good / leave.sum() else 1
    stays = _stays(duration_s / params.step, 1 / leave, first, lambda mean: rng.geometric(1 / mean))
    return _alternate(stays * params.step, first, (params.good, params.bad), duration_s)


class RandomWalkParams(_Range):
    """From ``low`` to ``high``; at each ``step`` the logarithm moves by a normal number of deviation ``sigma``."""

    low: PositiveLevel
    high: PositiveLevel
    sigma: Annotated[float, Field(gt=0, le=100)] = 0.1
    step: PositiveSeconds = Field("1 s", validate_default=True)
    start: PositiveLevel | None = None

    @model_validator(mode="after")
    def _starts_inside(self) -> RandomWalkParams:
        if self.start is not None and not self.low <= self.start <= self.high:
            raise PydanticCustomError("start", "'start' must lie between 'low' and 'high'")
        return self


@trace_generators.register("random-walk", RandomWalkParams, TraceGeneratorFacts(column="bandwidth [Mbit/s]"))
def random_walk(duration_s: float, rng: np.random.Generator, params: RandomWalkParams) -> StepFunction:
    """A random walk of the logarithm that is thrown back at its bounds; in the long run it is uniform between them.

    It starts at ``start``, or else as it is in the long run.
    """
    edges = _grid(duration_s, params.step)
    low, width = math.log(params.low), math.log(params.high) - math.log(params.low)
    begin = rng.uniform(0, width) if params.start is None else math.log(params.start) - low
    moves = rng.normal(0, params.sigma, len(edges) - 2)
    free = begin + np.concatenate(([0.0], np.cumsum(moves)))
    # A walk between two mirrors is the free walk, folded.
    folded = np.abs((free + width) % (2 * width) - width) if width else np.zeros_like(free)
    return StepFunction.of(edges[:-1], np.clip(np.exp(low + folded), params.low, params.high), duration_s)


def _check(steps: float) -> None:
    if not steps <= MAX_STEPS:
        raise InputError(f"about {steps:.3g} steps are too many; take longer steps or a shorter duration")


def _grid(duration_s: float, step_s: float) -> Floats:
    """The edges of steps of equal length over a duration; the last may be shorter."""
    _check(duration_s / step_s)
    count = max(1, math.ceil(duration_s / step_s * (1 - 1e-12)))
    return np.append(np.arange(count) * step_s, duration_s)


def _stays(length: float, means: Floats, first: int, draw: Callable[[Floats], NDArray[Any]]) -> Floats:
    """Lengths of stays in two states in turn, enough for ``length``; ``draw`` makes a stay for each mean that it is given."""
    drawn = np.zeros(0)
    while drawn.sum() < length:
        pairs = 16 + int(1.1 * (length - drawn.sum()) / means.sum())
        drawn = np.concatenate((drawn, draw(np.tile(np.roll(means, -first), pairs))))
    return drawn


def _alternate(stays_s: Floats, first: int, levels: tuple[float, float], duration_s: float) -> StepFunction:
    times = np.concatenate(([0.0], np.cumsum(stays_s)))
    kept = times < duration_s
    values = np.array(levels)[(np.arange(len(times)) + first) % 2]
    times, values = times[kept], values[kept]
    lasting = np.append(np.diff(times) > 0, True)  # a stay may be too short to be told from none
    return StepFunction.of(times[lasting], values[lasting], duration_s)
