"""The embedded default: 1,797 handwritten digits of 8×8 pixels that come with scikit-learn."""

from __future__ import annotations

import gzip
import importlib.metadata
from pathlib import Path

import numpy as np

from emulator.contracts.learning import DataSetFacts, data_sets
from emulator.learning.data.arrays import ArraySet
from emulator.registry import NoParams
from emulator.rng import stream

FILE = "sklearn/datasets/data/digits.csv.gz"
TEST_SAMPLES = 360
# Of all 1,797 images, with pixels scaled from 0..16 to 0..1.
MEAN, STD = 0.3053, 0.3760


def _fingerprint(params: NoParams) -> str:
    return f"digits:scikit-learn-{importlib.metadata.version('scikit-learn')}"


@data_sets.register(
    "digits", facts=DataSetFacts(classes=10, train_samples=1437, shape=(1, 8, 8), fingerprint=_fingerprint)
)
def digits(params: NoParams) -> ArraySet:
    """Handwritten digits, 8×8, 1,437 to train and 360 to test; comes with scikit-learn, needs no download.

    The split is the same in every scenario, whatever its seed.
    """
    pixels, labels = read_digits()
    x = ((pixels / 16 - MEAN) / STD).astype(np.float32).reshape(-1, 1, 8, 8)
    train, test = stratified_split(labels, TEST_SAMPLES, stream(0, "data", "digits", "split"))
    return ArraySet(x[train], labels[train], x[test], labels[test], classes=10)


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """All images, float64 [1797, 64] from 0 to 16, and their labels, int64.

    Reads scikit-learn's file itself where it is in its place: importing scikit-learn takes a second, this a few hundredths.
    """
    file = Path(str(importlib.metadata.distribution("scikit-learn").locate_file(FILE)))
    if file.is_file():
        with gzip.open(file, "rt") as lines:
            table = np.loadtxt(lines, delimiter=",")
        return table[:, :-1], table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return pixels, labels.astype(np.int64)


def stratified_split(labels: np.ndarray, test_samples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Sorted indices to train and to test; every class is divided in the same proportion."""
    counts = np.bincount(labels)
    exact = counts * test_samples / len(labels)
    quota = np.floor(exact).astype(np.int64)
    quota[np.argsort(quota - exact, kind="stable")[: test_samples - quota.sum()]] += 1
    test = np.sort(np.concatenate([rng.permutation(np.flatnonzero(labels == c))[:q] for c, q in enumerate(quota)]))
    return np.setdiff1d(np.arange(len(labels)), test), test
