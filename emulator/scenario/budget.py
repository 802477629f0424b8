"""What a run may spend, where it stood when that was spent, and where it stood over its last rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.errors import quote_all
from emulator.registry import Params
from emulator.units import ClientSeconds, PositiveBytes, PositiveJoules, PositiveSeconds

# What is spent, and its column in metrics.csv.
SPENT = {"rounds": "round", "time": "time_s", "cost": "cost_s", "bytes": "bytes_total", "energy": "energy_j"}

Row = TypeVar("Row", bound=Mapping[str, Any])


class Budget(Params):
    """Limits of what a run may spend; where there are several, all of them hold."""

    rounds: Annotated[int, Field(ge=1)] | None = Field(None, description="global rounds")
    time: PositiveSeconds | None = Field(None, description="emulated time")
    cost: ClientSeconds | None = Field(None, description="client-seconds of training and group operations")
    bytes: PositiveBytes | None = Field(None, description="bytes over all links")
    energy: PositiveJoules | None = Field(None, description="energy of the clients")

    @model_validator(mode="after")
    def _any(self) -> Budget:
        if not self.limits:
            raise PydanticCustomError("budget", "give at least one of {names}", {"names": quote_all(SPENT)})
        return self

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are given, by what they limit (`SPENT`), in SI units."""
        return {name: float(limit) for name in SPENT if (limit := getattr(self, name)) is not None}


def last_within(rows: Iterable[Row], limits: Mapping[str, float]) -> Row | None:
    """The last of a run's evaluations that is within all ``limits`` (see `Budget.limits`); None where there is none.

    Nothing is interpolated: what was tested later had spent more. What is not known (nan) is not within a limit.
    """
    found = None
    for row in rows:
        if all(row[SPENT[name]] <= limit for name, limit in limits.items()):
            found = row
    return found


def mean_of_last(rows: Sequence[Mapping[str, Any]], rounds: int) -> float:
    """The mean accuracy (a share) of a run's evaluations within its last ``rounds``; nan where there is none."""
    known = [row for row in rows if not math.isnan(row["accuracy"])]
    accuracies = [row["accuracy"] for row in known if row["round"] > known[-1]["round"] - rounds]
    return math.fsum(accuracies) / len(accuracies) if accuracies else math.nan
