"""How far figures of profiles may be off: ranges and standard deviations, with where they come from."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from emulator.registry import Params
from emulator.units import Amount

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class Spread(Params):
    """How uncertain a figure is: a relative standard deviation, or the range in which it may be.

    A range tells no more than its ends: all orders of magnitude in it are as likely. ``source`` says who found that.
    """

    relative: Annotated[float, Field(gt=0, lt=10)] | None = None
    start: Amount | None = Field(None, alias="from")
    to: Amount | None = None
    source: Text

    @model_validator(mode="after")
    def _one_of_both(self) -> Spread:
        if (self.relative is None) == (self.start is None) or (self.start is None) != (self.to is None):
            raise PydanticCustomError("spread", "give either 'relative', or 'from' and 'to'")
        if self.start is not None and self.to is not None:
            if self.start.dimension is not self.to.dimension:
                raise PydanticCustomError("spread", "'from' and 'to' are of different kinds")
            if not 0 < self.start.value < self.to.value:
                raise PydanticCustomError("spread", "'from' must be greater than zero, and 'to' greater than 'from'")
        return self

    def distribution(self, value: float | None = None) -> dict[str, Any]:
        """As a distribution in the section ``uncertain``: of factors on ``value``, or of the figure itself where there is none.

        Raises ``ValueError`` for a relative deviation without a value, which is none of the figure itself.
        """
        if self.relative is not None:
            if value is None:
                raise ValueError("a relative deviation is one of factors")
            return {"kind": "log-normal", "median": 1.0, "sigma": math.sqrt(math.log1p(self.relative**2))}
        assert self.start is not None
        assert self.to is not None
        ends = (self.start.plain, self.to.plain) if value is None else (self.start.value / value, self.to.value / value)
        return {"kind": "log-uniform", "from": ends[0], "to": ends[1]}
