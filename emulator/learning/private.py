"""What differential privacy does to updates: each is clipped, and Gaussian noise is added to their sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emulator.rng import stream

if TYPE_CHECKING:
    from torch import Tensor

Name = tuple[str | int, ...]  # of a random stream

# Floating-point operations for a parameter, which devices and servers are charged.
CLIPPING = 6  # the difference, its square and the sum of these, scaled, and added (to the model, or to a sum)
DRAWING = 22  # a normal number (logarithm, root, sine: about 20 as polynomials), scaled, and added


@dataclass(frozen=True)
class PrivateMean:
    """The model that clipped updates with noise lead to: ``before`` + (their sum + the noise) / their number.

    It is given the model before, and models after. ``noise`` names random streams; each gives a normal vector of standard
    deviation ``deviation``. Without noise, a single update that is not longer than ``clip`` is the model after, as it was.
    """

    seed: int
    clip: float
    deviation: float
    noise: tuple[Name, ...]
    outputs: int = 1

    def identity(self) -> Any:
        """See `emulator.learning.recipes.VectorFunction`."""
        return ["private mean", 1, self.seed, self.clip.hex(), self.deviation.hex(), self.noise]

    def __call__(self, *values: Tensor) -> Sequence[Tensor]:
        """The new model; sums are in double precision, in the order of the models."""
        import torch

        before, *models = values
        start = before.double()
        total = torch.zeros_like(start)
        for model in models:
            total += clipped(model.double() - start, self.clip)
        for name in self.noise if self.deviation else ():
            drawn = stream(self.seed, *name).standard_normal(len(total))
            total += self.deviation * torch.from_numpy(drawn)
        return [(start + total / len(models)).float()]


def clipped(update: Tensor, clip: float) -> Tensor:
    """An update (double precision), scaled down to the norm ``clip`` where it is longer; zeros where it is not finite."""
    import torch

    norm = float(update.norm())
    if norm <= clip:
        return update
    if not math.isfinite(norm):  # also where squares overflow: nothing is known of such an update but that it is broken
        return torch.zeros_like(update)
    scaled = update * (clip / norm)
    return scaled * min(1.0, clip / float(scaled.norm()))  # rounding may leave it a hair too long
