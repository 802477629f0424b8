"""How long a server waits for those whom it asked: for all of them, until a deadline, or for the first so many."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, TypeVar

import simpy
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.methods import Patience, waitings
from emulator.registry import NoParams, Params
from emulator.scenario.words import Count
from emulator.units import PositiveSeconds
from emulator.world.world import StepsTo, World

T = TypeVar("T")


class DeadlineParams(Params):
    """When it ends."""

    after: PositiveSeconds = Field(description="how long to wait, from the start of the round")


class QuorumParams(Params):
    """How many are enough, and optionally a deadline."""

    count: Count | None = Field(None, description="how many are enough")
    share: Annotated[float, Field(gt=0, le=1)] | None = Field(None, description="or which share of those asked")
    after: PositiveSeconds | None = Field(None, description="how long to wait at most, from the start of the round")

    @model_validator(mode="after")
    def _one(self) -> QuorumParams:
        if self.count is not None and self.share is not None:
            raise PydanticCustomError("quorum", "give 'count' or 'share', not both")
        return self


@waitings.register("all")
def wait_for_all(asked: int, wanted: int, params: NoParams) -> Patience:
    """All: waits for everybody who was asked and is not lost."""
    return Patience(asked)


@waitings.register("deadline", DeadlineParams)
def deadline(asked: int, wanted: int, params: DeadlineParams) -> Patience:
    """Deadline: takes what has arrived in time, and gives up the rest."""
    return Patience(asked, params.after)


@waitings.register("quorum", QuorumParams)
def quorum(asked: int, wanted: int, params: QuorumParams) -> Patience:
    """Quorum: takes the first k of n and gives up the rest; without k, as many as were wanted before over-selection."""
    count = wanted if params.count is None else params.count
    if params.share is not None:
        count = max(1, math.ceil(params.share * asked - 1e-9))
    return Patience(min(count, asked), math.inf if params.after is None else params.after)


def gather(
    world: World,
    steps: Mapping[int, StepsTo[T | None]],
    patience: Patience,
    since_s: float,
    give_up: Callable[[int], None],
) -> StepsTo[dict[int, T]]:
    """Does several things side by side, as long as ``patience`` lasts from ``since_s`` on; gives up what is not done by then.

    Returns the results of those that gave one (not None, not False) in time, in the order of ``steps``.
    """
    env = world.env
    work = {key: env.process(each) for key, each in steps.items()}
    if patience.seconds == math.inf and patience.wanted >= len(work):
        yield env.all_of(work.values())  # its own value would look for each process among all of them
        return {key: _value_of(process) for key, process in work.items() if _has_result(process)}
    enough = env.event()
    good: set[int] = set()
    ended: set[int] = set()

    def note(key: int, process: simpy.Event) -> None:
        ended.add(key)
        if _has_result(process):
            good.add(key)
        if not enough.triggered and (len(good) == patience.wanted or len(ended) == len(work)):
            enough.succeed()

    for key, process in work.items():
        process.callbacks.append(partial(note, key))
    left_s = since_s + patience.seconds - world.now
    yield enough if left_s == math.inf else enough | env.timeout(max(0.0, left_s))
    in_time = [key for key in work if key in good][: patience.wanted]
    for key in work:
        if key not in ended:
            give_up(key)
    return {key: _value_of(work[key]) for key in in_time}


def _has_result(process: simpy.Event) -> bool:
    return process.value is not None and process.value is not False


def _value_of(process: simpy.Event) -> Any:
    return process.value
