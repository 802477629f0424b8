"""Staleness functions: how much an update counts in an asynchronous method that is some versions of the model old."""

from __future__ import annotations

import math
from typing import Annotated, Any, Protocol

from emulator.conformance import Facts
from emulator.contracts.values import short
from emulator.registry import Choice, Chosen, Params, Registry


class StalenessRule(Protocol):
    """The factor of an update; ``staleness`` counts the versions that were made since its sender got the model."""

    def __call__(self, staleness: int, params: Any, /) -> float: ...


class StalenessChoice(Chosen[Params, StalenessRule, Facts]):
    """A staleness function."""

    slot = "staleness"

    def __call__(self, staleness: int) -> float:
        """The factor of an update that is so many versions old (0: nothing was made in between): finite, at least 0."""
        factor = self.plugin.function(staleness, self.params)
        if isinstance(factor, bool) or not isinstance(factor, float | int) or not 0 <= factor < math.inf:
            raise self.broken(
                f"it must give a finite number of at least 0, and gives {short(factor)} for staleness {staleness}"
            )
        return float(factor)


stalenesses: Registry[StalenessRule, Facts] = Registry(
    StalenessChoice, "emulator.methods.staleness", listed="staleness"
)

Staleness = Annotated[StalenessChoice, Choice("staleness")]
