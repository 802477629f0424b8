"""Learning-rate schedules: by what the step size is multiplied in a global round, which counts from 1."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from emulator.contracts.learning import RateSchedule, rate_schedules
from emulator.registry import NoParams, Params
from emulator.scenario.words import Count

Factor = Annotated[float, Field(gt=0, le=1)]


@rate_schedules.register("constant")
def constant(round: int, params: NoParams) -> float:  # noqa: A002
    """Always 1."""
    return 1.0


class StepParams(Params):
    """Steps down."""

    every: Count = Field(description="rounds between two steps")
    factor: Factor = Field(0.1, description="by what each step multiplies")


@rate_schedules.register("step", StepParams)
def step(round: int, params: StepParams) -> float:  # noqa: A002
    """One factor after every so many rounds."""
    return params.factor ** ((round - 1) // params.every)


class ExponentialParams(Params):
    """A steady decline."""

    factor: Factor = Field(description="by what each round multiplies")


@rate_schedules.register("exponential", ExponentialParams)
def exponential(round: int, params: ExponentialParams) -> float:  # noqa: A002
    """One factor after every round."""
    return params.factor ** (round - 1)


class CosineParams(Params):
    """Half a period of a cosine."""

    rounds: Count = Field(description="after so many rounds the lowest value is reached, and kept")
    lowest: Factor = Field(0.01, description="lowest value, as a share of the step size")


@rate_schedules.register("cosine", CosineParams)
def cosine(round: int, params: CosineParams) -> float:  # noqa: A002
    """Half a period of a cosine, from 1 to the lowest value (Loshchilov and Hutter 2017, without restarts)."""
    done = min(round - 1, params.rounds) / params.rounds
    return params.lowest + (1 - params.lowest) * (1 + math.cos(math.pi * done)) / 2


class WarmUpParams(Params):
    """A rise before another schedule."""

    rounds: Count = Field(description="rounds of the rise; in the next one the factor is 1")
    start: Factor = Field(0.1, description="factor in the first round")
    then: RateSchedule = Field(
        {"kind": "constant"}, validate_default=True, description="schedule after it, whose rounds count from there"
    )


@rate_schedules.register("warm-up", WarmUpParams)
def warm_up(round: int, params: WarmUpParams) -> float:  # noqa: A002
    """A straight rise to 1, and then another schedule (Goyal et al. 2017)."""
    if round > params.rounds:
        return params.then(round - params.rounds)
    return params.start + (1 - params.start) * (round - 1) / params.rounds
