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
    low: Amount | None = None
    high: Amount | None = None
    source: Text

    @model_validator(mode="after")
    def _one_of_both(self) -> Spread:
        if (self.relative is None) == (self.low is None) or (self.low is None) != (self.high is None):
            raise PydanticCustomError("spread", "give either 'relative', or 'low' and 'high'")
        if self.low is not None and self.high is not None:
            if self.low.dimension is not self.high.dimension:
                raise PydanticCustomError("spread", "'low' and 'high' are of different kinds")
            if not 0 < self.low.value < self.high.value:
                raise PydanticCustomError("spread", "'low' must be greater than zero, and 'high' greater than that")
        return self

    def distribution(self, value: float | None = None) -> dict[str, Any]:
        """As a distribution in the section ``uncertain``: of factors on ``value``, or of the figure itself where there is none.

        Raises ``ValueError`` for a relative deviation without a value, which is none of the figure itself.
        """
        if self.relative is not None:
            if value is None:
                raise ValueError("a relative deviation is one of factors")
            return {"kind": "log-normal", "median": 1.0, "sigma": math.sqrt(math.log1p(self.relative**2))}
        assert self.low is not None
        assert self.high is not None
        ends = (self.low.plain, self.high.plain) if value is None else (self.low.value / value, self.high.value / value)
        return {"kind": "log-uniform", "low": ends[0], "high": ends[1]}
