"""How a server puts models together, and what it makes of their average: combinations and server optimisers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import numpy as np

from emulator.conformance import Facts
from emulator.contracts.values import numbers, short
from emulator.registry import Choice, Chosen, NoParams, Params, Registry

MEAN = "mean"  # the combination that the lab computes itself


@dataclass(frozen=True, eq=False)
class Received:
    """What a server puts together: ``models`` (float32 [d] each, finite, at least one), in the order of their senders' numbers.

    ``before`` is the model [d] that the server had sent out. ``weights`` [n] add up to 1. ``left_out`` counts the models that
    were not finite, which are not among ``models``. None of it may be changed.
    """

    before: np.ndarray
    models: Sequence[np.ndarray]
    weights: np.ndarray
    left_out: int = 0

    def blocks(self, size: int = 2**14) -> Iterator[tuple[slice, np.ndarray]]:
        """The models in pieces of so many numbers: where each lies, and the models there, as float64 [n, up to size]."""
        for at in range(0, len(self.before), size):
            piece = slice(at, at + size)
            yield piece, np.stack([model[piece] for model in self.models]).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class CombinationFacts(Facts):
    """What is true of a combination.

    ``flops``: what the server computes, in floating-point operations, a function ``(models, parameters, params)``. ``least``: a
    function of the parameters that gives the fewest models with which it does what it says. ``version`` changes with every
    change to what it computes.
    """

    flops: Callable[[int, int, Any], float]
    least: Callable[[Any], int] | None = None
    version: int = 1


class CombinationRule(Protocol):
    """One model [d] out of those that a server received."""

    def __call__(self, received: Received, params: Any, /) -> np.ndarray: ...


class CombinationChoice(Chosen[Params, CombinationRule, CombinationFacts]):
    """A combination."""

    slot = "combination"

    @property
    def sums(self) -> bool:
        """Whether it is the weighted sum, which the lab computes itself and which takes no emulated time."""
        return self.kind == MEAN

    @property
    def least(self) -> int:
        """The fewest models with which it does what it says."""
        least = self.plugin.facts.least
        return 1 if least is None else least(self.params)

    def flops(self, models: int, parameters: int) -> float:
        """What the server computes."""
        found = self.plugin.facts.flops(models, parameters, self.params)
        if not 0 <= found < np.inf:
            raise self.broken(f"its flops must be finite and not negative; they are {short(found)}")
        return float(found)

    def __call__(self, before: np.ndarray, models: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
        """The combined model [d], float32.

        Models that are not finite are left out, whatever the combination: no number can be said of them. Where none is left,
        the server keeps the model ``before``.
        """
        fine = [i for i, model in enumerate(models) if np.isfinite(model).all()]
        if not fine:
            return before
        shares = np.array([weights[i] for i in fine], dtype=np.float64)
        total = shares.sum()
        shares = shares / total if total > 0 else np.full(len(fine), 1 / len(fine))
        received = Received(before, [models[i] for i in fine], shares, len(models) - len(fine))
        found = numbers(self, self.plugin.function(received, self.params), (len(before),))
        return _rounded(found)


@dataclass(frozen=True, kw_only=True)
class ServerOptimiserFacts(Facts):
    """What is true of a server optimiser.

    ``states``: a function of the parameters that gives the value with which each of its state vectors begins. ``flops`` are
    floating-point operations of a step for each parameter. ``version`` changes with every change to what it computes.
    """

    flops: int
    states: Callable[[Any], tuple[float, ...]] = lambda params: ()
    version: int = 1


class ServerOptimiserRule(Protocol):
    """A server's step: the new parameters [d], and its new states, from the parameters before and the clients' average."""

    def __call__(
        self, before: np.ndarray, average: np.ndarray, states: Sequence[np.ndarray], params: Any, /
    ) -> tuple[np.ndarray, Sequence[np.ndarray]]: ...


class ServerOptimiserChoice(Chosen[Params, ServerOptimiserRule, ServerOptimiserFacts]):
    """A server optimiser."""

    slot = "server optimiser"

    @property
    def none(self) -> bool:
        """Whether the server takes the average as it is."""
        return self.kind == "none"

    @property
    def beginning(self) -> tuple[float, ...]:
        """The value with which each state vector begins."""
        return self.plugin.facts.states(self.params)

    def __call__(
        self, before: np.ndarray, average: np.ndarray, states: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """The new parameters and states, float32 [d] each; it is given all of them as float64."""
        given = [each.astype(np.float64) for each in (before, average, *states)]
        result = self.plugin.function(given[0], given[1], given[2:], self.params)
        if not isinstance(result, tuple) or len(result) != 2 or len(result[1]) != len(states):
            raise self.broken(f"it must give the parameters and {len(states)} states; it gives {short(result)}")
        size = (len(before),)
        after, *further = [_rounded(numbers(self, each, size)) for each in (result[0], *result[1])]
        return after, further


def _rounded(values: np.ndarray) -> np.ndarray:
    """Numbers as float32; what is beyond it is infinite, as where a training diverges."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


combinations: Registry[CombinationRule, CombinationFacts] = Registry(
    CombinationChoice, "emulator.learning.combinations"
)
server_optimisers: Registry[ServerOptimiserRule, ServerOptimiserFacts] = Registry(
    ServerOptimiserChoice, "emulator.learning.server_optimisers"
)

Combination = Annotated[CombinationChoice, Choice("combination")]
ServerOptimiser = Annotated[ServerOptimiserChoice, Choice("server optimiser")]

AVERAGED = CombinationChoice(MEAN, NoParams())
