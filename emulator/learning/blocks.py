"""Parts of models that torch does not have.

This imports torch, so it stays outside the package of models, whose modules must not.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """The sum of two ways, ``body(x) + shortcut(x)`` (He et al. 2016)."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Both ways must give the same shape."""
        total: Tensor = self.body(x) + self.shortcut(x)
        return total


class LastStep(nn.Module):
    """Of what a layer says after every step of a sequence, what it says after the last: [batch, features]."""

    def forward(self, said: Tensor | tuple[Tensor, object]) -> Tensor:
        """``said`` is [batch, steps, features], or a recurrent layer's result: that, and its state."""
        steps = said[0] if isinstance(said, tuple) else said
        return steps[:, -1]


class PlacedEmbedding(nn.Module):
    """Tokens [batch, steps] as vectors [batch, steps, width], to which those of their places are added."""

    def __init__(self, tokens: int, steps: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.places = nn.Parameter(torch.randn(steps, width))

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both."""
        total: Tensor = self.tokens(x) + self.places
        return total


class Attention(nn.Module):
    """Self-attention in which every step looks at itself and the steps before it (Vaswani et al. 2017, §3.2).

    Written out in matrix products: the fused kernels of torch round in ways that depend on where they run.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.looking = nn.Linear(width, 3 * width)
        self.result = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, width] to the same."""
        batch, steps, width = x.shape
        parts = self.looking(x).view(batch, steps, 3, self._heads, width // self._heads).permute(2, 0, 3, 1, 4)
        queries, keys, values = parts
        scores = queries @ keys.transpose(2, 3) / math.sqrt(width // self._heads)
        later = torch.ones(steps, steps, dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(later, -math.inf).softmax(3) @ values
        result: Tensor = self.result(mixed.transpose(1, 2).reshape(batch, steps, width))
        return result
