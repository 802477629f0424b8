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
