"""Parts of models that torch does not have.

This imports torch, so it stays outside the package of models, whose modules must not.
"""

from __future__ import annotations

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
    """Of what a recurrent layer says after every step of a sequence, what it says after the last: [batch, features]."""

    def forward(self, said: tuple[Tensor, object]) -> Tensor:
        """``said`` is a recurrent layer's result: outputs [batch, steps, features], and its state."""
        return said[0][:, -1]
