"""Names and numbers that several sections of a scenario have."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

NAME = r"^[A-Za-z0-9][A-Za-z0-9 _.+-]*$"
Name = Annotated[str, StringConstraints(min_length=1, max_length=80, pattern=NAME)]
Count = Annotated[int, Field(ge=1, le=100_000_000)]
PositiveEpsilon = Annotated[float, Field(gt=0, allow_inf_nan=False)]
TIER_NAME = r"^[a-z][a-z0-9]{0,39}$"
TierName = Annotated[str, StringConstraints(min_length=1, max_length=40, pattern=TIER_NAME)]
