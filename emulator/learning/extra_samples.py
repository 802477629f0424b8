"""Samples that a training has beside the client's own: other clients' distilled data.

The job holds them, block by block. They stand behind the samples of the data set: an index beyond those counts into them. Who
else is trained at the same time does not matter to them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from emulator.learning.recipes import Swaps

# Samples, and their labels: int64 [n], or soft targets, float32 [n, classes].
Block = tuple[Tensor, Tensor]


def soft_classes(blocks: Sequence[Block]) -> int:
    """The number of classes if any block has soft targets (all are then taken as soft ones), else 0."""
    return next((y.shape[1] for _, y in blocks if y.dim() == 2), 0)


def joined(blocks: Sequence[Block]) -> Block:
    """All blocks as one; with soft targets where any of them has some."""
    classes = soft_classes(blocks)
    labels = [_soft(y, classes) if classes and y.dim() == 1 else y for _, y in blocks]
    return torch.cat([x for x, _ in blocks]), torch.cat(labels)


def moved(block: Block, device: torch.device) -> Block:
    """A block on a device."""
    return block[0].to(device), block[1].to(device)


def fetch(
    x: Tensor, y: Tensor, index: Tensor, extra: Sequence[Block | None], swaps: Sequence[Swaps] | None = None
) -> Block:
    """Samples and labels at the indices [copies, rows] of several trainings, one block (or none) for each.

    ``x`` and ``y`` are those of the data set, and the blocks are on the same device; indices are on the CPU. The labels are soft
    for all if any block's are. ``swaps`` are the labels that each training exchanges in what it has of the data set.
    """
    if not any(block is not None for block in extra):
        at = index.to(x.device)
        return x[at], _swapped(y[at], swaps)
    own = index < len(y)
    at = torch.where(own, index, 0).to(x.device)
    samples, labels = x[at], _swapped(y[at], swaps)
    classes = soft_classes([block for block in extra if block is not None])
    if classes:
        labels = _soft(labels, classes)
    for copy, block in enumerate(extra):
        if block is not None:
            rows = (~own[copy]).nonzero()[:, 0]
            beyond, rows = (index[copy][rows] - len(y)).to(x.device), rows.to(x.device)
            samples[copy, rows], labels[copy, rows] = block[0][beyond], block[1][beyond]
    return samples, labels


def _swapped(labels: Tensor, swaps: Sequence[Swaps] | None) -> Tensor:
    """Labels [copies, rows] with those of each training's pairs exchanged, in place; a label stands in one pair at most."""
    if swaps is None or not any(swaps):
        return labels
    for row, pairs in zip(labels, swaps, strict=True):
        true = row.clone()
        for a, b in pairs:
            row[true == a], row[true == b] = b, a
    return labels


def _soft(labels: Tensor, classes: int) -> Tensor:
    return one_hot(labels, classes).float()
