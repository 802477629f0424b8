"""Distributions of what is uncertain about a world."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.conformance import Facts
from emulator.contracts.values import short
from emulator.errors import InputError
from emulator.registry import Choice, Chosen, Params, Registry
from emulator.units import Amount, Dimension

Floats = npt.NDArray[np.float64]


class DistributionParams(Params):
    """What every distribution has: bounds. Without them nothing is cut off."""

    least: Amount | None = Field(None, description="nothing below this is drawn: the distribution is cut off there")
    most: Amount | None = Field(None, description="nothing above this is drawn")

    @property
    def amounts(self) -> dict[str, Amount]:
        """All amounts among the parameters, by the names in a file."""
        found: dict[str, Amount] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, Amount):
                found[name] = value
            elif isinstance(value, tuple):
                found |= {f"{name}[{i}]": v for i, v in enumerate(value) if isinstance(v, Amount)}
        return found

    @property
    def dimension(self) -> Dimension | None:
        """The kind of quantity that is drawn; None for plain numbers."""
        return next((amount.dimension for amount in self.amounts.values()), None)

    @model_validator(mode="after")
    def _of_one_kind(self) -> DistributionParams:
        first = next(iter(self.amounts), "")
        for name, amount in self.amounts.items():
            if amount.dimension is not self.dimension:
                kinds = [a.dimension.name if a.dimension else "a plain number" for a in (self.amounts[first], amount)]
                context = {"first": first, "name": name, "a": kinds[0], "b": kinds[1]}
                raise PydanticCustomError("kinds", "'{first}' is {a}, but '{name}' is {b}", context)
        if self.least is not None and self.most is not None and not self.least.value < self.most.value:
            raise PydanticCustomError("bounds", "nothing lies between 'least' and 'most'; 'least' must be the smaller")
        return self


class Frozen(Protocol):
    """A distribution of numbers, as `scipy.stats` has them: its inverse function and the share that lies below a number."""

    def ppf(self, shares: Any, /) -> Any:
        """The numbers that these shares of all values are below."""

    def cdf(self, values: Any, /) -> Any:
        """The shares of all values that are at most these."""


@dataclass(frozen=True, kw_only=True)
class DistributionFacts(Facts):
    """What is true of a distribution.

    ``logarithmic``: it is one of orders of magnitude. ``stands_for``: for a distribution of the numbers 0, 1, 2, ..., a function
    of its parameters that gives what they stand for: pairs of a label and a value of the scenario.
    """

    logarithmic: bool = False
    stands_for: Callable[[Any], Sequence[tuple[str, Any]]] | None = None


class DistributionRule(Protocol):
    """Gives a distribution in base units, such as one of `scipy.stats` with its parameters."""

    def __call__(self, params: Any, /) -> Frozen: ...


class DistributionChoice(Chosen[DistributionParams, DistributionRule, DistributionFacts]):
    """A distribution."""

    slot = "distribution"

    @property
    def dimension(self) -> Dimension | None:
        """The kind of quantity that is drawn; None for plain numbers and for anything else."""
        return self.params.dimension

    @property
    def stands_for(self) -> Sequence[tuple[str, Any]] | None:
        """Labels and values of what is chosen from; None where numbers are drawn."""
        rule = self.plugin.facts.stands_for
        return None if rule is None else rule(self.params)

    def __call__(self, shares: Floats) -> Floats:
        """The values that these shares (above 0, below 1) of all are below, in base units.

        Raises `InputError` where none lies within the bounds.
        """
        frozen = self.plugin.function(self.params)
        least, most = self.params.least, self.params.most
        if least is not None or most is not None:
            below = 0.0 if least is None else float(frozen.cdf(least.value))
            upto = 1.0 if most is None else float(frozen.cdf(most.value))
            if not below < upto:
                raise InputError("no value lies between 'least' and 'most'")
            shares = below + shares * (upto - below)
        values = np.asarray(frozen.ppf(shares), dtype=np.float64)
        if values.shape != shares.shape or not np.isfinite(values).all():
            raise self.broken(f"it must give a finite number for each share, and gives {short(values)}")
        # What a share is rounded to may lie beyond the bound by a hair.
        return np.clip(values, -math.inf if least is None else least.value, math.inf if most is None else most.value)


distributions: Registry[DistributionRule, DistributionFacts] = Registry(
    DistributionChoice, "emulator.certify.distributions"
)

Distribution = Annotated[DistributionChoice, Choice("distribution")]
