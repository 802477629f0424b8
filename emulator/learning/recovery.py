"""What a GAN recovery attack gives, and how long it is trained; the attack itself is in `emulator.learning.gan`.

This module does not import torch: scenarios are checked with it, and a run whose results are remembered only unpacks them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from emulator.errors import InputError
from emulator.registry import Params

SMALLEST_SIDE = 4  # of an image that generator and features can work with


class RecoveryParams(Params):
    """How the generator is trained, and what is looked at of it."""

    steps: Annotated[int, Field(ge=0, le=10_000_000)] = Field(1000, description="steps of generator and discriminator")
    batch_size: Annotated[int, Field(ge=2, le=100_000)] = Field(32, description="images of a step, real and made")
    learning_rate: Annotated[float, Field(gt=0)] = Field(1e-3, description="of Adam, for both")
    noise: Annotated[int, Field(ge=1, le=100_000)] = Field(32, description="random numbers that an image is made of")
    width: Annotated[int, Field(ge=1, le=4096)] = Field(32, description="channels of the generator's last hidden layer")
    samples: Annotated[int, Field(ge=2, le=1_000_000)] = Field(
        500, description="images made for the distance; more than there are features (32) make it sound"
    )
    images: Annotated[int, Field(ge=1, le=100)] = Field(10, description="of these, how many are kept as pictures")


@dataclass(frozen=True, eq=False)
class Recovered:
    """Images that an attacker made [n, channels, height, width], and how far they are from private ones.

    ``distance`` is the Fréchet distance to the images of all other clients; ``untrained`` that of what the generator made before
    it was trained; ``own`` that of the attacker's own images, nan where it has one only; ``floor`` that between two halves of the
    private images, below which nothing can be expected. ``nearest`` are the private images whose features are nearest to those of
    ``images``.
    """

    distance: float
    untrained: float
    own: float
    floor: float
    images: np.ndarray
    nearest: np.ndarray

    def to_array(self) -> np.ndarray:
        """All of it as one float32 vector."""
        figures = np.array([self.distance, self.untrained, self.own, self.floor])
        return np.concatenate([figures, self.images.ravel(), self.nearest.ravel()]).astype(np.float32)

    @staticmethod
    def from_array(array: np.ndarray, shape: tuple[int, ...]) -> Recovered:
        """What `to_array` made, for images of this shape."""
        distance, untrained, own, floor = (float(value) for value in array[:4])
        images, nearest = array[4:].reshape(2, -1, *shape)
        return Recovered(distance, untrained, own, floor, images, nearest)


def check_images(shape: tuple[int, ...]) -> None:
    """Raises `InputError` where samples of this shape are no images, or too small ones."""
    if len(shape) != 3 or min(shape[1:]) < SMALLEST_SIDE:
        size = f"images of at least {SMALLEST_SIDE}×{SMALLEST_SIDE} pixels"
        given = "×".join(map(str, shape)) or math.nan
        raise InputError(f"recovering images needs {size}, and samples of this data set are {given}", "attacks")
