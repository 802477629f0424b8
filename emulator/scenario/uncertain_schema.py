"""The section ``uncertain``: what is not known for sure about a world. It changes nothing in a run; certificates read it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints, WrapValidator
from pydantic_core import PydanticCustomError

from emulator.contracts.uncertainty import Distribution
from emulator.registry import Params

Key = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class Drawn(Params):
    """How a quantity is drawn: itself, or as a factor on what the scenario says."""

    value: Distribution | None = None
    factor: Distribution | None = Field(
        None, description="a distribution of factors on what stands there: a number, bandwidths of links, speeds of devices"
    )
    name: Annotated[str, StringConstraints(min_length=1, max_length=80, pattern=r"^[^\s,][^\n,]*$")] | None = Field(
        None, description="what tables and pictures call it; by default its key"
    )
    whole: bool = Field(False, description="whether it is rounded to a whole number")


def _drawn(given: Any, handler: Any) -> Any:
    """A mapping with 'kind' is a distribution of values; one with 'factor' or 'value' says more."""
    if isinstance(given, dict) and "kind" not in given:
        if ("factor" in given) == ("value" in given):
            raise PydanticCustomError("drawn", "expected a distribution with its 'kind', or a mapping with 'factor' or 'value'")
        return Drawn.model_validate(given)
    if isinstance(given, dict | Drawn):
        return given if isinstance(given, Drawn) else Drawn.model_construct(**_only(given).model_dump_fields())
    raise PydanticCustomError("drawn", "expected a distribution, such as {{kind: log-normal, median: 10 Mbit/s, spread: 2}}")
