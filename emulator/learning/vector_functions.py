"""What servers and attackers make of models, as functions of vectors for `Lab.apply`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from emulator.contracts.combining import CombinationChoice, ServerOptimiserChoice
from emulator.rng import stream

if TYPE_CHECKING:
    from torch import Tensor


class Combined:
    """The combination of models, given the model before and then the models."""

    outputs = 1

    def __init__(self, combination: CombinationChoice, weights: Sequence[float]) -> None:
        self._combination = combination
        self._weights = tuple(float(w) for w in weights)

    def identity(self) -> Any:
        """See `VectorFunction`."""
        chosen = self._combination
        weights = [w.hex() for w in self._weights]
        return ["combination", chosen.identity(), chosen.plugin.facts.version, weights]

    def __call__(self, *values: Tensor) -> Sequence[Tensor]:
        """See `VectorFunction`."""
        before, *models = (value.numpy() for value in values)
        return [_tensor(self._combination(before, models, self._weights))]


class ServerStep:
    """A server optimiser's step, given the model before, the average, and (but for the first step) its states.

    It gives the new model and the new states. The first ``parameters`` numbers of a model are its parameters, the rest buffers.
    """

    def __init__(self, optimiser: ServerOptimiserChoice, parameters: int) -> None:
        self._optimiser = optimiser
        self._parameters = parameters
        self.outputs = 1 + len(optimiser.beginning)

    def identity(self) -> Any:
        """See `VectorFunction`."""
        chosen = self._optimiser
        return ["server optimiser", chosen.identity(), chosen.plugin.facts.version, self._parameters]

    def __call__(self, *values: Tensor) -> Sequence[Tensor]:
        """See `VectorFunction`."""
        before, average, *states = (value.numpy() for value in values)
        size = self._parameters
        if not states:
            states = [np.full(size, value, dtype=np.float32) for value in self._optimiser.beginning]
        after, further = self._optimiser(before[:size], average[:size], states)
        return [_tensor(np.concatenate([after, average[size:]])), *map(_tensor, further)]


class Poisoned:
    """What an attacker sends in place of the model that it trained, given the model that it received and that one.

    ``scale``: its update times ``size``. ``noise``: an update of normal numbers with standard deviation ``size``, from a stream
    with this ``name``. Buffers stay as they were trained.
    """

    outputs = 1

    def __init__(
        self, how: Literal["scale", "noise"], size: float, parameters: int, seed: int, name: tuple[str | int, ...]
    ) -> None:
        self._how = how
        self._size = size
        self._parameters = parameters
        self._seed = seed
        self._name = name

    def identity(self) -> Any:
        """See `VectorFunction`."""
        chance = [self._seed, *self._name] if self._how == "noise" else []
        return ["poisoned", 1, self._how, self._size.hex(), self._parameters, chance]

    def __call__(self, *values: Tensor) -> Sequence[Tensor]:
        """See `VectorFunction`."""
        before, after = (value.numpy() for value in values)
        size = self._parameters
        start = before[:size].astype(np.float64)
        if self._how == "scale":
            update = after[:size] - start
        else:
            update = stream(self._seed, "attack", "noise", *self._name).standard_normal(size)
        with np.errstate(over="ignore"):  # what is beyond float32 is sent as infinity
            sent = (start + self._size * update).astype(np.float32)
        return [_tensor(np.concatenate([sent, after[size:]]))]


def _tensor(values: np.ndarray) -> Tensor:
    """A float32 tensor of its own, which begins where torch lets tensors begin."""
    import torch

    return torch.from_numpy(values).clone()
