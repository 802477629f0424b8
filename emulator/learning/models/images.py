"""What models need to know of images before they are built."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from emulator.errors import InputError

KEY = "model"


def image_shape(name: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width; raises `InputError` where samples are no images."""
    if len(shape) != 3:
        raise InputError(f"{name} takes images (channels, height, width); the samples have the shape {shape}", KEY)
    return shape[0], shape[1], shape[2]


def fitted(name: str, shape: tuple[int, ...], side_after: Callable[[int], int]) -> tuple[int, int, int]:
    """Channels of the images, and height and width of what the model has made of them when it flattens it.

    ``side_after`` says what is left of a side. Raises `InputError` where nothing is left.
    """
    channels, height, width = image_shape(name, shape)
    rows, columns = side_after(height), side_after(width)
    if min(rows, columns) < 1:
        least = next(n for n in count(1) if side_after(n) >= 1)
        raise InputError(
            f"{name} needs images of at least {least}×{least} pixels; the data set has {height}×{width}", KEY
        )
    return channels, rows, columns
