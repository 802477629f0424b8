"""What every data set gives, whose its samples are, and the normalisation that image sets share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emulator.errors import InputError
from emulator.learning.data.mapped import sample_array


@dataclass(frozen=True, eq=False)
class ArraySet:
    """A data set, in memory or mapped from files.

    ``x_train`` and ``x_test`` are float32 [samples, channels, height, width], normalised, or of language int64
    [samples, length], tokens in [0, classes); ``y_train`` and ``y_test`` int64 labels in [0, classes). A row of a table is an
    image of one pixel, [samples, features, 1, 1]. For tasks of numbers (regression, several labels a sample) labels are float32
    [samples, classes]: the classes are the numbers that a model gives for a sample. Where every
    training sample belongs to somebody (a writer, a speaker), ``owners`` numbers them, int64 from 0, in the order
    of ``owner_names``. Where test samples do too, ``test_owners`` are the same numbers, or -1 for people without
    training samples.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int
    owners: np.ndarray | None = None
    owner_names: tuple[str, ...] = ()
    test_owners: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of one sample; of a text its length alone."""
        return tuple(self.x_train.shape[1:])

    @property
    def outline(self) -> Outline:
        """The set without its samples."""
        return Outline(self.y_train, self.classes, self.shape, self.owners, self.owner_names)


@dataclass(frozen=True, eq=False)
class Outline:
    """A data set without its samples: the labels to train, the shape of a sample, and the owners as in `ArraySet`.

    A set that can tell these without reading its samples declares a function of its parameters as its fact ``outline``.
    """

    y_train: np.ndarray
    classes: int
    shape: tuple[int, ...]
    owners: np.ndarray | None = None
    owner_names: tuple[str, ...] = ()


def checked(arrays: object) -> ArraySet:
    """What a data set gave, if that is what `ArraySet` says; raises `InputError` about ``data.set`` where it is not."""
    key = "data.set"
    if not isinstance(arrays, ArraySet):
        raise InputError(f"the set gives a {type(arrays).__name__}, not an ArraySet", key)
    for x, y, which in ((arrays.x_train, arrays.y_train, "training"), (arrays.x_test, arrays.y_test, "test")):
        if len(x) != len(y):
            raise InputError(f"the set has {len(x)} {which} samples and {len(y)} labels for them", key)
        if tuple(x.shape[1:]) != arrays.shape:
            raise InputError(
                f"{which} samples have the shape {list(x.shape[1:])}, the others {list(arrays.shape)}", key
            )
        if x.dtype not in (np.float32, np.int64):
            raise InputError(f"{which} samples are of type {x.dtype}; they must be float32, or int64 for tokens", key)
        if y.dtype == np.float32 and y.ndim == 2:
            if y.shape[1] != arrays.classes:
                raise InputError(
                    f"{which} labels have {y.shape[1]} numbers a sample, and the set {arrays.classes}", key
                )
            if not np.isfinite(y).all():
                raise InputError(f"{which} labels hold numbers that are not finite", key)
            continue
        if y.dtype != np.int64 or y.ndim != 1:
            raise InputError(
                f"{which} labels are {y.dtype} {list(y.shape)}; they must be one int64 for each sample, or a row of float32",
                key,
            )
        if len(y) and not 0 <= y.min() <= y.max() < arrays.classes:
            right = f"with {arrays.classes} classes they must be from 0 to {arrays.classes - 1}"
            raise InputError(f"{which} labels are from {y.min()} to {y.max()}; {right}", key)
    return arrays


def numbered(names: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """The owner of every sample as a number, int64, and the owners' names in their order.

    Owners are ordered by name, numbers in names by their value: ``Subject2`` stands before ``Subject10``.
    """
    ordered = sorted(set(names), key=_by_value)
    number = {name: i for i, name in enumerate(ordered)}
    return np.array([number[name] for name in names], np.int64), tuple(ordered)


def numbered_as(names: Sequence[str], owners: Sequence[str]) -> np.ndarray:
    """The owner of every test sample as a number, int64: the place of its name among those of the owners, or -1."""
    number = {name: i for i, name in enumerate(owners)}
    return np.array([number.get(name, -1) for name in names], np.int64)


def _by_value(name: str) -> tuple[list[str | int], str]:
    # Texts and numbers take turns, so that the same kinds are compared; the name itself tells '01' from '1'.
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"([0-9]+)", name))], name


def standardise(x_train: np.ndarray, x_test: np.ndarray, axes: tuple[int, ...]) -> None:
    """Shifts and scales both, in place, so that ``x_train`` has mean 0 and deviation 1 over these axes.

    What does not vary is only shifted.
    """
    mean = x_train.mean(axis=axes, dtype=np.float64, keepdims=True)
    # As numpy's `std`, bit for bit, which would have the squares of all samples in memory.
    squares = np.subtract(x_train, mean, out=sample_array(x_train.shape, np.float64))
    std = np.sqrt(np.square(squares, out=squares).mean(axis=axes, keepdims=True)).astype(np.float32)
    for x in (x_train, x_test):
        x -= mean.astype(np.float32)
        x /= np.where(std > 0, std, np.float32(1))


def scaled(
    pixels: np.ndarray, mean: Sequence[float], std: Sequence[float], to: Literal["standardised", "unit"]
) -> np.ndarray:
    """Uint8 [samples, channels, height, width] as float32: ``(pixels / 255 - mean) / std`` by channel, or ``pixels / 255``."""
    x = sample_array(pixels.shape)
    x[:] = pixels
    if to == "unit":
        x /= 255
        return x
    x *= np.asarray([1 / (255 * s) for s in std], np.float32)[:, None, None]
    x -= np.asarray([m / s for m, s in zip(mean, std, strict=True)], np.float32)[:, None, None]
    return x


def is_text(shape: tuple[int, ...]) -> bool:
    """Whether samples of this shape are texts: tokens have one axis, everything else has channels, height and width."""
    return len(shape) == 1
