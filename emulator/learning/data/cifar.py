"""CIFAR-10 and CIFAR-100 in their Python version: pickled batches of 32×32 colour images (Krizhevsky 2009).

Pickles can run code, so they are read by an unpickler that knows arrays and plain values and refuses
everything else. torchvision comes in only to fetch the files.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emulator.contracts.learning import DataSetFacts, data_sets
from emulator.learning.data.arrays import ArraySet, Outline, scaled
from emulator.learning.data.files import StoredParams, damaged, fingerprint, obtain, unless_fetched

SHAPE = (3, 32, 32)

# In each, the last file holds the test samples.
_CIFAR10_FILES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_CIFAR100_FILES = ("train", "test")

# What reading a pickle that is cut short or of another kind can raise.
_UNREADABLE = (
    *(OSError, EOFError, pickle.UnpicklingError, MemoryError, OverflowError),
    *(LookupError, AttributeError, TypeError, ValueError),
)


def _dtype(code: str, *ignored: object) -> np.dtype[Any]:
    # The batches were written with integers where numpy's constructor now wants booleans, and warns.
    return np.dtype(code)


def _encode(text: str, encoding: str) -> bytes:
    return text.encode(encoding)


# Everything that an array in a pickle refers to, under the names of old and new versions of Python and numpy.
_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # type: ignore[dict-item]
    ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # type: ignore[dict-item]
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"it refers to {module_name}.{global_name}") from None


def read_batch(path: Path, label_key: str, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images, uint8 [samples, 3, 32, 32], and labels of a batch; raises `InputError` where it is not one."""
    try:
        with path.open("rb") as file:
            batch = _ArrayUnpickler(file, encoding="latin1").load()
        x, y = np.asarray(batch["data"]), np.asarray(batch[label_key], np.int64)
    except _UNREADABLE as error:
        damaged(path, f"it is not a CIFAR batch ({error})")
    if x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != 3072 or not len(x):
        damaged(path, "it should hold images of 3×32×32 bytes")
    if y.shape != (len(x),) or y.min() < 0 or y.max() >= classes:
        damaged(path, f"it should hold a label between 0 and {classes - 1} for each of {len(x)} images")
    return x.reshape(-1, *SHAPE), y


def _files(
    name: str, params: StoredParams, folder_name: str, names: Sequence[str], collection_class: str
) -> list[Path]:
    folder = Path(params.root, folder_name)
    paths = [folder / n for n in names]
    return obtain(name, params, lambda: paths if all(p.is_file() for p in paths) else None, [folder], collection_class)


def _read(
    paths: Sequence[Path],
    params: StoredParams,
    label_key: str,
    classes: int,
    mean: Sequence[float],
    std: Sequence[float],
) -> ArraySet:
    """All files but the last are for training."""
    *train, (x_test, y_test) = (read_batch(p, label_key, classes) for p in paths)
    x_train = scaled(np.concatenate([x for x, _ in train]), mean, std, params.pixels)
    x_test = scaled(x_test, mean, std, params.pixels)
    return ArraySet(x_train, np.concatenate([y for _, y in train]), x_test, y_test, classes)


def _outline(paths: Sequence[Path], label_key: str, classes: int) -> Outline:
    """Images and labels stand in the same files, so what is saved is the conversion of the images."""
    return Outline(np.concatenate([read_batch(p, label_key, classes)[1] for p in paths[:-1]]), classes, SHAPE)


def _cifar10_files(params: StoredParams) -> list[Path]:
    return _files("cifar10", params, "cifar-10-batches-py", _CIFAR10_FILES, "CIFAR10")


def _cifar10_fingerprint(params: StoredParams) -> str:
    return fingerprint(params.titled("cifar10"), _cifar10_files(params))


@data_sets.register(
    "cifar10",
    StoredParams,
    DataSetFacts(
        classes=10,
        train_samples=50_000,
        shape=SHAPE,
        fingerprint=_cifar10_fingerprint,
        check=unless_fetched(_cifar10_files),
        outline=lambda params: _outline(_cifar10_files(params), "labels", 10),
        prepared=1,
    ),
)
def cifar10(params: StoredParams) -> ArraySet:
    """CIFAR-10, colour photographs, 32×32, 50,000 to train and 10,000 to test."""
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    return _read(_cifar10_files(params), params, "labels", 10, mean, std)


def _cifar100_files(params: StoredParams) -> list[Path]:
    return _files("cifar100", params, "cifar-100-python", _CIFAR100_FILES, "CIFAR100")


def _cifar100_fingerprint(params: StoredParams) -> str:
    return fingerprint(params.titled("cifar100"), _cifar100_files(params))


@data_sets.register(
    "cifar100",
    StoredParams,
    DataSetFacts(
        classes=100,
        train_samples=50_000,
        shape=SHAPE,
        fingerprint=_cifar100_fingerprint,
        check=unless_fetched(_cifar100_files),
        outline=lambda params: _outline(_cifar100_files(params), "fine_labels", 100),
        prepared=1,
    ),
)
def cifar100(params: StoredParams) -> ArraySet:
    """CIFAR-100 (fine labels), colour photographs, 32×32, 50,000 to train and 10,000 to test."""
    mean, std = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
    return _read(_cifar100_files(params), params, "fine_labels", 100, mean, std)
