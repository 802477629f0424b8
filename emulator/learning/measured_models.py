"""What a measurement works with: models loaded into a module, their parameters by name, and samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from emulator.contracts.tasks import TaskChoice, task_named
from emulator.learning.device import HOST, Place
from emulator.learning.flat import FlatModel, shaped
from emulator.learning.layers import are_tokens, classifier_of

BATCH = 1024  # samples of one forward pass


@dataclass(frozen=True)
class Samples:
    """Samples and their labels; of test samples also their owners, where these are known (see `ArraySet`)."""

    x: Tensor
    y: Tensor
    owners: np.ndarray | None = None


@dataclass(frozen=True)
class MeasuredModels:
    """What one measurement reads: ``states`` of models as flat vectors, and ``samples`` (none, where it needs none).

    All tensors are on one device, on which the module computes too (``place``). ``rng`` is a stream of the measurement's own, of
    numpy. A measurement must not keep the module beyond its end, nor change it. ``others`` are the samples of all other clients
    and ``features`` what images are compared by, for measurements that want them. ``task`` is what the models have learned.
    """

    states: Sequence[Tensor]
    samples: Samples
    classes: int
    rng: np.random.Generator
    flat: FlatModel
    others: Samples | None = None
    features: nn.Module | None = None
    place: Place = HOST
    task: TaskChoice = field(default_factory=lambda: task_named("classification"))

    def load(self, state: Tensor) -> nn.Module:
        """The module with the values of a state, ready to predict."""
        self.flat.state.copy_(state)
        return self.flat.module.eval()

    def scores(self, state: Tensor) -> Tensor:
        """The model's scores [n, classes] of the samples."""
        module = self.load(state)
        with torch.inference_mode(), self.place.arithmetic():
            return torch.cat([module(x) for x in self.samples.x.split(BATCH)]).float()  # type: ignore[no-untyped-call]

    def parameters(self, state: Tensor) -> dict[str, Tensor]:
        """A state's parameters by name, in the order of the module, as views."""
        named = [(name, tuple(p.shape)) for name, p in self.flat.module.named_parameters()]
        pieces = state[: self.flat.size].split([int(np.prod(shape, dtype=np.int64)) for _, shape in named])  # type: ignore[no-untyped-call]
        return {name: shaped(piece, shape) for (name, shape), piece in zip(named, pieces, strict=True)}

    def weights(self, state: Tensor) -> Tensor:
        """All parameters of a state as one vector of doubles, without its buffers."""
        return state[: self.flat.size].double()

    def layers(self, state: Tensor) -> list[Tensor]:
        """A state's weight matrices and kernels, without biases, each as a vector of doubles."""
        return [p.double().reshape(-1) for p in self.parameters(state).values() if p.dim() > 1]

    def classifier(self) -> list[str]:
        """The names of the parameters of the last layer (see `classifier_of`)."""
        names = [name for name, _ in self.flat.module.named_parameters()]
        x = self.samples.x
        return [names[i] for i in classifier_of(self.flat.module, tuple(x.shape[1:]), are_tokens(x))]
