"""Models as flat vectors.

A model's state is one float32 vector: its parameters, then its float buffers, in the order of the module. All that happens to
models outside a forward pass (steps, averages, files) is elementwise on such vectors.
"""

from __future__ import annotations

import torch
from torch import nn


class FlatModel:
    """A module whose parameters, gradients and float buffers are views of flat vectors.

    ``state`` is the whole, ``weights`` its trainable part, ``gradient`` of the size of ``weights``.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        parameters = list(module.parameters())
        buffers = [b for b in module.buffers() if b.is_floating_point()]
        tensors = [*parameters, *buffers]
        self.state = torch.cat([t.detach().reshape(-1).float() for t in tensors])
        self.size = sum(p.numel() for p in parameters)
        self.weights = self.state[: self.size]
        self.gradient = torch.zeros_like(self.weights)
        at = 0
        for tensor in tensors:
            piece = slice(at, at + tensor.numel())
            tensor.data = self.state[piece].view_as(tensor)
            if at < self.size:
                tensor.grad = self.gradient[piece].view_as(tensor)
            at = piece.stop


def has_dropout(module: nn.Module) -> bool:
    """Whether a forward pass in training draws random numbers."""
    return any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in module.modules())
