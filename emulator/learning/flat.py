"""Models as flat vectors.

A model's state is one float32 vector: its parameters, then its float buffers, in the order of the module. Weights of convolutions
lie in it channels-last (out, rows, columns, in), which is how they are computed with. All that happens to models outside a
forward pass (steps, averages, files) is elementwise on such vectors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FlatModel:
    """A module whose parameters, gradients and float buffers are views of flat vectors.

    ``state`` is the whole, ``weights`` its trainable part, ``gradient`` of the size of ``weights``.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        parameters = list(module.parameters())
        buffers = [b for b in module.buffers() if b.is_floating_point()]
        tensors = [*parameters, *buffers]
        self.state = torch.cat([_laid_out(t.detach()).reshape(-1).float() for t in tensors])
        self.size = sum(p.numel() for p in parameters)
        self.weights = self.state[: self.size]
        self.gradient = torch.zeros_like(self.weights)
        at = 0
        for tensor in tensors:
            piece = slice(at, at + tensor.numel())
            tensor.data = shaped(self.state[piece], tuple(tensor.shape))
            if at < self.size:
                tensor.grad = shaped(self.gradient[piece], tuple(tensor.shape))
            at = piece.stop


def shaped(piece: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A view of a piece of a flat vector as a parameter of this shape."""
    if len(shape) != 4:
        return piece.view(shape)
    out, inner, rows, columns = shape
    return piece.view(out, rows, columns, inner).permute(0, 3, 1, 2)


def _laid_out(tensor: Tensor) -> Tensor:
    """The parameter with its dimensions in the order in which a flat vector has them."""
    return tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor
