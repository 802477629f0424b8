"""What a training draws by chance: the batches of every epoch, and dropout masks.

All of it comes from streams that are named after the client, the round and the epoch, so it is the same whoever is trained
beside the client, and in which process. It is drawn on the CPU and then moved, so it is the same on every device too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from emulator.learning.extra_samples import joined, moved
from emulator.rng import derive, stream

if TYPE_CHECKING:
    from emulator.learning.trainer import TrainingData, TrainJob

POOLED = -1  # what random streams call the samples of several clients in one place


class Drawn:
    """What a training draws from its random streams: the batches of every epoch, and generators of dropout masks."""

    def __init__(self, job: TrainJob, data: TrainingData, seed: int) -> None:
        self._job = job
        self._seed = seed
        self._mine = data.of(job.client)
        self._name = job.client if isinstance(job.client, int) else POOLED
        self.extra = moved(joined(job.extra), data.x.device) if job.extra else None
        if self.extra is not None:
            behind = np.arange(len(data.y), len(data.y) + len(self.extra[1]))
            self._mine = np.concatenate([self._mine, behind])
        self._rows: int = job.rule.params.batch_size
        self._each: int = -(-len(self._mine) // self._rows)
        self.steps: int = self._each * job.rule.params.epochs
        self.generator = torch.Generator()
        self._order = torch.empty(0, dtype=torch.int64)

    def _names(self, step: int) -> tuple[int, int, int]:
        return self._name, self._job.round, self._job.first_epoch + step // self._each

    def begins_epoch(self, step: int) -> bool:
        """Whether a step is the first of its epoch."""
        return step % self._each == 0

    def batch(self, step: int) -> Tensor:
        """The indices of a step's samples. Steps must be asked for in order."""
        if self.begins_epoch(step):
            order = stream(self._seed, "batches", *self._names(step)).permutation(self._mine)
            self._order = torch.from_numpy(order)
            self.generator.manual_seed(derive(self._seed, "dropout", *self._names(step)))
        start = step % self._each * self._rows
        return self._order[start : start + self._rows]

    def padded(self, step: int, rows: int) -> tuple[Tensor, Tensor]:
        """A step's indices and the weights of its samples in the loss, padded with samples of weight 0."""
        batch = self.batch(step)
        count = len(batch)
        if count == rows:
            return batch, torch.full((rows,), 1.0 / rows)
        index, weight = torch.zeros(rows, dtype=torch.int64), torch.zeros(rows)
        index[:count], weight[:count] = batch, 1.0 / count
        return index, weight

    def counted(self, step: int) -> tuple[int, torch.Generator]:
        """How many samples a step has, and where its dropout masks come from."""
        start = step % self._each * self._rows
        return min(self._rows, len(self._mine) - start), self.generator


class Masks:
    """Dropout masks [copies, rows, ...] of a step: each client's from its own stream, as it would draw them alone."""

    def __init__(self, sources: Sequence[tuple[int, torch.Generator] | None], rows: int, device: torch.device) -> None:
        self._sources = sources
        self._rows = rows
        self._device = device

    def __call__(self, shape: tuple[int, ...], p: float) -> Tensor:
        """Masks for activations of this shape, which drop a value with probability p."""
        masks = torch.zeros(len(self._sources), self._rows, *shape)
        for mask, source in zip(masks, self._sources, strict=True):
            if source is not None:
                count, generator = source
                mask[:count] = dropout_mask((count, *shape), p, generator)
        return masks.to(self._device)


class OwnDropout(nn.Module):
    """Dropout by masks from ``source``, a function of their shape and of the share that is dropped; None: drops nothing."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.source: Callable[[tuple[int, ...], float], Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Zeroes a share of the values in training and scales the rest."""
        if not self.training or self.source is None:
            return x
        return x * self.source(tuple(x.shape), self.p).to(x.device)


def dropout_mask(shape: tuple[int, ...], p: float, generator: torch.Generator) -> Tensor:
    """0 with probability p, else 1 / (1 - p)."""
    return (torch.rand(shape, generator=generator) >= p).float() / (1.0 - p)


def own_dropouts(module: nn.Module) -> list[OwnDropout]:
    """Replaces the module's dropout layers by ones with their own streams; returns those."""
    found = []
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Dropout) and child.p > 0:
                own = OwnDropout(child.p)
                setattr(parent, name, own)
                found.append(own)
    return found
