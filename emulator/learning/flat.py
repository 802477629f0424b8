"""Models as flat vectors.

A model's state is one float32 vector: its parameters, then its float buffers, in the order of the module. Weights of convolutions
lie in it channels-last (out, rows, columns, in), which is how they are computed with. All that happens to models outside a
forward pass (steps, averages, files) is elementwise on such vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class FlatModel:
    """A module whose parameters and float buffers are views of a flat vector.

    ``state`` is the whole, ``weights`` its trainable part.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        parameters = list(module.parameters())
        buffers = [b for b in module.buffers() if b.is_floating_point()]
        tensors = [*parameters, *buffers]
        self.state = torch.cat([_laid_out(t.detach()).reshape(-1).float() for t in tensors])
        self.size = sum(p.numel() for p in parameters)
        self.weights = self.state[: self.size]
        self._parameters = parameters
        self.gradient = torch.zeros_like(self.weights)
        at = 0
        for tensor in tensors:
            piece = slice(at, at + tensor.numel())
            tensor.data = shaped(self.state[piece], tuple(tensor.shape))
            at = piece.stop

    def scores(self, x: Tensor) -> Tensor:
        """What the module, in training, gives for samples."""
        self.module.train()
        scores: Tensor = self.module(as_trained(x))
        return scores

    def gradient_of(self, loss: Tensor, only: Sequence[int] | None = None) -> Tensor:
        """The gradient of a loss with respect to ``weights``, in a vector that the next call overwrites.

        With ``only``, it is that of the parameters with these numbers, and 0 elsewhere.
        """
        return flat_gradient(loss, self._parameters, self.gradient, only)


def flat_gradient(loss: Tensor, parameters: Sequence[Tensor], out: Tensor, only: Sequence[int] | None = None) -> Tensor:
    """The gradient of a loss, written into ``out`` in the layout of a flat vector; 0 for what the loss does not depend on.

    With ``only``, 0 for all parameters but those with these numbers: what lies before them is not computed.
    """
    numbers = range(len(parameters)) if only is None else only
    gradients = torch.autograd.grad(loss, [parameters[i] for i in numbers], allow_unused=True)
    found = dict(zip(numbers, gradients, strict=True))
    pieces = [torch.zeros_like(p) if (g := found.get(i)) is None else g for i, p in enumerate(parameters)]
    return torch.cat([_laid_out(piece).reshape(-1) for piece in pieces], out=out)


def as_trained(x: Tensor) -> Tensor:
    """Samples as a single model is given them: images with their channels last."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def device_of(module: nn.Module) -> torch.device:
    """Where a model's parameters are; the CPU for one that has none."""
    return next((p.device for p in module.parameters()), torch.device("cpu"))


def shaped(piece: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A view of a piece of a flat vector as a parameter of this shape."""
    if len(shape) != 4:
        return piece.view(shape)
    out, inner, rows, columns = shape
    return piece.view(out, rows, columns, inner).permute(0, 3, 1, 2)


def _laid_out(tensor: Tensor) -> Tensor:
    """The parameter with its dimensions in the order in which a flat vector has them."""
    return tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor
