"""Schedules of groups: before which rounds they are formed anew (S2 §5.2).

A rule is a function ``(round_index, params) -> bool``. Rounds count from 0. Before round 0 groups are always
formed.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from emulator.registry import NoParams, Params, schedules


class EveryParams(Params):
    """How often groups are formed."""

    rounds: Annotated[int, Field(ge=1)] = Field(description="global rounds between two formations")


@schedules.register("fixed")
def fixed(round_index: int, params: NoParams) -> bool:
    """The same groups from beginning to end."""
    return round_index == 0


@schedules.register("every", EveryParams)
def every(round_index: int, params: EveryParams) -> bool:
    """New groups every so many rounds."""
    return round_index % params.rounds == 0
