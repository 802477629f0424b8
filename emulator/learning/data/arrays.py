"""What every data set gives, and the normalisation that image sets share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class ArraySet:
    """A data set in memory.

    ``x_train`` and ``x_test`` are float32 [samples, channels, height, width], normalised; ``y_train`` and
    ``y_test`` int64 labels in [0, classes).
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of one sample."""
        return tuple(self.x_train.shape[1:])


@dataclass(frozen=True, eq=False)
class Outline:
    """A data set without its samples: the labels to train, and the shape of a sample.

    A set that can tell these without reading its samples declares a function of its parameters as its fact ``outline``.
    """

    y_train: np.ndarray
    classes: int
    shape: tuple[int, ...]


def normalised(pixels: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    """``(pixels / 255 - mean) / std`` by channel, as float32, of uint8 [samples, channels, height, width]."""
    x = np.ascontiguousarray(pixels, dtype=np.float32)
    x *= np.asarray([1 / (255 * s) for s in std], np.float32)[:, None, None]
    x -= np.asarray([m / s for m, s in zip(mean, std, strict=True)], np.float32)[:, None, None]
    return x
