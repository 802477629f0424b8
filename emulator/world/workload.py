"""What the clock must know of the model and its training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from devices.compute import PASSES, Arithmetic
from devices.memory import FLOAT_BYTES, Need


@dataclass(frozen=True)
class Workload:
    """Size of the model on the wire, and the arithmetic and memory of one sample.

    ``by_kind`` are the forward FLOPs in layers that are not dense, by kind; ``model`` is the model's kind in the scenario.
    ``activation_bytes`` are kept of a sample until the backward pass. ``state_vectors`` of the model's size are kept by
    the optimiser and the local rule beside weights and gradients. No batch is larger than ``most_samples``. ``unsent_bytes`` of
    the model are on a device and never on the wire.
    """

    model_bytes: int
    forward_flops: float
    parameters: int
    by_kind: tuple[tuple[str, float], ...] = ()
    model: str = ""
    activation_bytes: int = 0
    state_vectors: int = 0
    most_samples: int | None = None
    unsent_bytes: int = 0

    @cached_property
    def forward(self) -> Arithmetic:
        """A forward pass of one sample."""
        return Arithmetic(self.forward_flops, self.by_kind, self.model, self.parameters)

    def training(self, batch_size: int, step_flops: int = 0) -> Arithmetic:
        """A pass of training; what a step computes beside its gradient is spread over its samples and passes."""
        extra = step_flops * self.parameters / (PASSES * batch_size)
        return replace(self.forward, extra_flops=extra, memory_bytes=self.need(batch_size).training_bytes)

    def need(self, batch_size: int) -> Need:
        """The memory that training in batches of a size needs."""
        batch = batch_size if self.most_samples is None else min(batch_size, self.most_samples)
        vector = self.parameters * FLOAT_BYTES
        held = self.model_bytes + self.unsent_bytes
        return Need(held, vector, self.state_vectors * vector, batch * self.activation_bytes)
