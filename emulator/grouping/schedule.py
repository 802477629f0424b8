"""Schedules of groups: before which rounds they are formed anew (S2 §5.2).

A rule is a function ``(round_index, clients, params) -> bool``. Rounds count from 0. Before round 0 groups are always
formed. A rule may also say how many groups there are to be (`emulator.contracts.grouping.ScheduleFacts`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from emulator.contracts.grouping import ScheduleFacts, schedules
from emulator.registry import NoParams, Params, Scale


class EveryParams(Params):
    """How often groups are formed."""

    rounds: Annotated[int, Field(ge=1)] = Field(description="global rounds between two formations")


@schedules.register("fixed")
def fixed(round_index: int, clients: int, params: NoParams) -> bool:
    """The same groups from beginning to end."""
    return round_index == 0


@schedules.register("every", EveryParams)
def every(round_index: int, clients: int, params: EveryParams) -> bool:
    """New groups every so many rounds."""
    return round_index % params.rounds == 0


class GrowingParams(Params):
    """How the number of groups grows."""

    shape: Literal["linear", "log", "exp"] = Field(
        "exp", description="linear: β(α(t-1)+1); log: β(α ln t + 1); exp: β(1+α)^(t-1), for round t from 1"
    )
    rate: Annotated[float, Field(gt=0, le=1e6)] = Field(description="how fast (α)")
    start: Annotated[int, Field(ge=1)] = Field(1, description="groups in the first round (β)")

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """There are never more groups than clients."""
        if self.start > scale.clients:
            yield "start", f"{self.start} groups cannot be formed from {scale.clients} clients"


def growing_count(round_index: int, clients: int, params: GrowingParams) -> int:
    """The number of groups in a round (S4 Eqs. 4-6, floored); never more than there are clients."""
    factor = {
        "linear": params.rate * round_index + 1,
        "log": params.rate * math.log(round_index + 1) + 1,
        "exp": math.exp(min(round_index * math.log1p(params.rate), 40)),  # more than anybody has clients
    }[params.shape]
    return min(int(params.start * factor + 1e-9), clients)


@schedules.register("growing", GrowingParams, ScheduleFacts(count=growing_count))
def growing(round_index: int, clients: int, params: GrowingParams) -> bool:
    """More and more groups: formed anew whenever their number grows (FedSeq2Par)."""
    if round_index == 0:
        return True
    return growing_count(round_index, clients, params) > growing_count(round_index - 1, clients, params)
