"""Made-up FEMNIST: the digits of scikit-learn, warped to 28×28 in the style of several writers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from emulator.learning.data.digits import read_digits
from emulator.learning.data.generated.leaf_files import Samples, sizes, write_part
from emulator.rng import stream

SIDE = 28
LEVELS = 255  # grey levels: the pixels of the real set are bytes, divided by this


def write(folder: Path, owners: int, samples: int, seed: int) -> None:
    """Writes ``owners`` writers with about ``samples`` images each to train and a quarter of that to test.

    A writer has a slant, proportions, a pen, and digits written more often than others. Of the digits themselves
    nobody trains on those that are in the test files.
    """
    pixels, labels = read_digits()
    ink = pixels.reshape(-1, 8, 8) / 16
    order = stream(seed, "generated", "letters", "digits").permutation(len(labels))
    rows = np.split(order, [len(order) * 4 // 5])
    parts: list[dict[str, Samples]] = [{}, {}]
    for i in range(owners):
        rng = stream(seed, "generated", "letters", i)
        name = f"f{i:04d}_{rng.integers(100):02d}"
        turn, pen, liking = _matrix(rng), rng.uniform(0.6, 1.5), rng.dirichlet(np.full(10, 2.0))
        for users, available, count in zip(parts, rows, sizes(samples, rng.random()), strict=True):
            weights = liking[labels[available]]
            chosen = rng.choice(available, count, p=weights / weights.sum())
            images = [_drawn(ink[row], turn, pen, rng) for row in chosen]
            users[name] = images, [int(labels[row]) for row in chosen]
    for part, users in zip(("train", "test"), parts, strict=True):
        write_part(folder, part, users)


def _matrix(rng: np.random.Generator) -> np.ndarray:
    """From places in an image to places in the digit: a rotation, a slant, and a stretching of both axes."""
    angle, slant = rng.uniform(-0.25, 0.25), rng.uniform(-0.4, 0.4)
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shear = np.array([[1.0, 0.0], [slant, 1.0]])
    result: np.ndarray = rotation @ shear @ np.diag(rng.uniform(0.9, 1.25, 2)) * (8 / SIDE)
    return result


def _drawn(ink: np.ndarray, matrix: np.ndarray, pen: float, rng: np.random.Generator) -> list[float]:
    """The pixels of an image, 0 (ink) to 1 (paper), row by row."""
    from scipy.ndimage import map_coordinates

    centred = np.indices((SIDE, SIDE)).reshape(2, -1) - (SIDE - 1) / 2 - rng.uniform(-1.5, 1.5, (2, 1))
    found = map_coordinates(ink, matrix @ centred + 3.5, order=1, mode="constant")
    levels = np.round(LEVELS * (1 - np.clip(found, 0, 1) ** pen))
    return [round(level / LEVELS, 7) for level in levels.tolist()]
