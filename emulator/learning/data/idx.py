"""MNIST and its relatives: sets of 28×28 grey images in IDX files.

The files are read as they are, unpacked or with gzip. torchvision comes in only to fetch them.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from emulator.contracts.learning import DataSetFacts, data_sets
from emulator.learning.data.arrays import ArraySet, Outline, scaled
from emulator.learning.data.files import StoredParams, damaged, fingerprint, obtain, unless_fetched

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")  # of the Debian package dataset-fashion-mnist
SIDE = 28

_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_UBYTE = 0x08  # the format's code for unsigned bytes


def read_idx(path: Path) -> np.ndarray:
    """The content of an IDX file of bytes, packed if it ends in ``.gz``; raises `InputError` if damaged."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        damaged(path, str(error))
    if len(raw) < 4 or raw[:3] != bytes((0, 0, _UBYTE)):
        damaged(path, "it is not an IDX file of bytes")
    start = 4 + 4 * raw[3]
    shape = [int.from_bytes(raw[i : i + 4], "big") for i in range(4, start, 4)]
    if len(raw) - start != math.prod(shape):
        damaged(path, f"it should hold {math.prod(shape)} bytes of content and holds {max(len(raw) - start, 0)}")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def find_files(folders: Sequence[Path], names: Sequence[str]) -> list[Path] | None:
    """The files of these names, unpacked or packed, from the first folder that has them all."""
    for folder in folders:
        found = [next((p for p in (folder / n, folder / f"{n}.gz") if p.is_file()), None) for n in names]
        whole = [p for p in found if p is not None]
        if len(whole) == len(names):
            return whole
    return None


def _read_labels(path: Path, classes: int, first_label: int) -> np.ndarray:
    y = read_idx(path).astype(np.int64) - first_label
    if y.ndim != 1 or not len(y):
        damaged(path, "it should hold labels")
    if y.min() < 0 or y.max() >= classes:
        damaged(path, f"its labels should lie between {first_label} and {first_label + classes - 1}")
    return y


def _outline(paths: Sequence[Path], classes: int, first_label: int = 0) -> Outline:
    return Outline(_read_labels(paths[1], classes, first_label), classes, (1, SIDE, SIDE))


def _read_part(images: Path, labels: Path, classes: int, first_label: int) -> tuple[np.ndarray, np.ndarray]:
    x = read_idx(images)
    if x.ndim != 3 or x.shape[1:] != (SIDE, SIDE) or not len(x):
        damaged(images, f"it should hold images of {SIDE}×{SIDE} pixels")
    y = _read_labels(labels, classes, first_label)
    if y.shape != (len(x),):
        damaged(labels, f"it should hold one label for each of {len(x)} images")
    return x[:, None], y


def _read(
    paths: Sequence[Path],
    params: StoredParams,
    classes: int,
    mean: float,
    std: float,
    first_label: int = 0,
    transposed: bool = False,
) -> ArraySet:
    x_train, y_train = _read_part(paths[0], paths[1], classes, first_label)
    x_test, y_test = _read_part(paths[2], paths[3], classes, first_label)
    if transposed:
        x_train, x_test = x_train.swapaxes(2, 3), x_test.swapaxes(2, 3)
    x_train, x_test = (scaled(x, [mean], [std], params.pixels) for x in (x_train, x_test))
    return ArraySet(x_train, y_train, x_test, y_test, classes)


def _mnist_files(params: StoredParams) -> list[Path]:
    folder = Path(params.root, "MNIST", "raw")
    return obtain("mnist", params, lambda: find_files([folder], _FILES), [folder], "MNIST")


def _mnist_fingerprint(params: StoredParams) -> str:
    return fingerprint(params.titled("mnist"), _mnist_files(params))


@data_sets.register(
    "mnist",
    StoredParams,
    DataSetFacts(
        classes=10,
        train_samples=60_000,
        shape=(1, SIDE, SIDE),
        fingerprint=_mnist_fingerprint,
        check=unless_fetched(_mnist_files),
        outline=lambda params: _outline(_mnist_files(params), 10),
        prepared=1,
    ),
)
def mnist(params: StoredParams) -> ArraySet:
    """MNIST, handwritten digits, 28×28, 60,000 to train and 10,000 to test (LeCun et al. 1998)."""
    return _read(_mnist_files(params), params, 10, 0.1307, 0.3081)


def _fashion_files(params: StoredParams) -> list[Path]:
    folders = [Path(params.root, "FashionMNIST", "raw"), DEBIAN_FOLDER]
    advice = ", or install the Debian package dataset-fashion-mnist"
    return obtain("fashion-mnist", params, lambda: find_files(folders, _FILES), folders, "FashionMNIST", advice)


def _fashion_fingerprint(params: StoredParams) -> str:
    return fingerprint(params.titled("fashion-mnist"), _fashion_files(params))


@data_sets.register(
    "fashion-mnist",
    StoredParams,
    DataSetFacts(
        classes=10,
        train_samples=60_000,
        shape=(1, SIDE, SIDE),
        fingerprint=_fashion_fingerprint,
        check=unless_fetched(_fashion_files),
        outline=lambda params: _outline(_fashion_files(params), 10),
        prepared=1,
    ),
)
def fashion_mnist(params: StoredParams) -> ArraySet:
    """Fashion-MNIST, articles of clothing, 28×28, 60,000 to train and 10,000 to test (Xiao et al. 2017).

    Where torchvision's folder has no such set, the files of the Debian package dataset-fashion-mnist are
    taken.
    """
    return _read(_fashion_files(params), params, 10, 0.2860, 0.3530)


EMNIST_CLASSES = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}


class EmnistParams(StoredParams):
    """Which part of EMNIST, and where it is kept."""

    split: Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"] = Field(
        "balanced",
        description="byclass has 62 labels, bymerge and balanced 47, letters 26, digits and mnist 10",
    )


def _emnist_files(params: EmnistParams) -> list[Path]:
    folder = Path(params.root, "EMNIST", "raw")
    names = [
        f"emnist-{params.split}-{part}-{kind}"
        for part in ("train", "test")
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    ]
    name = f"emnist ({params.split})"
    return obtain(name, params, lambda: find_files([folder], names), [folder], "EMNIST", split=params.split)


def _emnist_fingerprint(params: EmnistParams) -> str:
    return fingerprint(params.titled(f"emnist-{params.split}"), _emnist_files(params))


def _first_label(params: EmnistParams) -> int:
    return 1 if params.split == "letters" else 0


def _emnist_outline(params: EmnistParams) -> Outline:
    return _outline(_emnist_files(params), EMNIST_CLASSES[params.split], _first_label(params))


@data_sets.register(
    "emnist",
    EmnistParams,
    DataSetFacts(
        shape=(1, SIDE, SIDE),
        fingerprint=_emnist_fingerprint,
        check=unless_fetched(_emnist_files),
        outline=_emnist_outline,
        prepared=1,
    ),
)
def emnist(params: EmnistParams) -> ArraySet:
    """EMNIST, handwritten letters and digits, 28×28, in six splits (Cohen et al. 2017).

    The files hold every image with rows and columns exchanged, and count the labels of ``letters`` from 1;
    here images stand upright, as in MNIST, and labels count from 0. Mean and deviation are those of
    ``balanced``; the other splits differ from them only in the third decimal.
    """
    paths, classes = _emnist_files(params), EMNIST_CLASSES[params.split]
    return _read(paths, params, classes, 0.1751, 0.3332, _first_label(params), transposed=True)
