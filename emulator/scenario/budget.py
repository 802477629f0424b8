"""What a run may spend."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.errors import quote_all
from emulator.registry import Params
from emulator.scenario.words import PositiveEpsilon
from emulator.standing import SPENT
from emulator.units import ClientSeconds, PositiveBytes, PositiveGrams, PositiveJoules, PositiveSeconds


class Budget(Params):
    """Limits of what a run may spend; where there are several, all of them hold."""

    rounds: Annotated[int, Field(ge=1)] | None = Field(None, description="global rounds")
    time: PositiveSeconds | None = Field(None, description="emulated time")
    cost: ClientSeconds | None = Field(None, description="client-seconds of training and group operations")
    bytes: PositiveBytes | None = Field(None, description="bytes over all links")
    energy: PositiveJoules | None = Field(None, description="energy of the clients")
    money: Annotated[float, Field(gt=0)] | None = Field(None, description="in the currency of the runs' price lists")
    carbon: PositiveGrams | None = Field(None, description="CO2 of the clients' energy, in runs with a price list")
    epsilon: PositiveEpsilon | None = Field(None, description="privacy, in runs with 'privacy'")

    @model_validator(mode="after")
    def _any(self) -> Budget:
        if not self.limits:
            raise PydanticCustomError("budget", "give at least one of {names}", {"names": quote_all(SPENT)})
        return self

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are given, by what they limit (`SPENT`), in SI units."""
        return {name: float(limit) for name in SPENT if (limit := getattr(self, name)) is not None}
