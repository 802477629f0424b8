from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_samples import check_form, check_outline, fingerprint, load

from emulator.contracts.learning import data_sets
from emulator.errors import InputError
from emulator.learning.data.cifar import read_batch


def python2_pickle(batch: dict[str, Any]) -> bytes:
    """A pickle as Python 2 wrote the real batches: byte strings, old module names, integers for booleans."""

    def text(value: bytes) -> bytes:
        return (b"U" + bytes((len(value),)) if len(value) < 256 else b"T" + struct.pack("<i", len(value))) + value

    def whole(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    def write(value: Any) -> bytes:
        if isinstance(value, str):
            return text(value.encode())
        if isinstance(value, list):
            return b"](" + b"".join(write(v) for v in value) + b"e"
        if isinstance(value, int):
            return whole(value)
        assert isinstance(value, np.ndarray)
        dtype = b"cnumpy\ndtype\n" + text(b"u1") + whole(0) + whole(1) + b"\x87R(" + whole(3) + text(b"|") + b"NNN"
        dtype += whole(-1) + whole(-1) + whole(0) + b"tb"
        shape = b"(" + b"".join(whole(n) for n in value.shape) + b"t"
        start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n(K\x00t" + text(b"b") + b"\x87R"
        return start + b"(" + whole(1) + shape + dtype + b"\x89" + text(value.tobytes()) + b"tb"

    return b"\x80\x02}(" + b"".join(text(k.encode()) + write(v) for k, v in batch.items()) + b"u."


def python3_pickle(batch: dict[str, Any]) -> bytes:
    return pickle.dumps(batch, protocol=2)


def write_cifar(
    folder: Path, names: list[str], key: str, classes: int, write: Callable[[dict[str, Any]], bytes]
) -> list[dict[str, Any]]:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(5)
    batches = []
    for name in names:
        labels = [int(c) for c in rng.integers(0, classes, 6)]
        batch = {
            "batch_label": name,
            key: labels,
            "data": rng.integers(0, 256, (6, 3072), dtype=np.uint8),
            "filenames": ["a.png"] * 6,
        }
        (folder / name).write_bytes(write(batch))
        batches.append(batch)
    return batches


CIFAR10_NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


@pytest.mark.parametrize("write", [python2_pickle, python3_pickle])
def test_cifar10(tmp_path: Path, write: Callable[[dict[str, Any]], bytes]) -> None:
    batches = write_cifar(tmp_path / "cifar-10-batches-py", CIFAR10_NAMES, "labels", 10, write)
    data = load("cifar10", root=str(tmp_path))
    check_form(data)
    check_outline(data, "cifar10", root=str(tmp_path))
    assert data.shape == data_sets["cifar10"].facts.shape == (3, 32, 32)
    assert (data.classes, len(data.y_train), len(data.y_test)) == (10, 30, 6)
    assert data.y_train.tolist() == [label for b in batches[:5] for label in b["labels"]]
    assert data.y_test.tolist() == batches[5]["labels"]
    red, blue = batches[5]["data"][0, :1024].reshape(32, 32), batches[5]["data"][0, 2048:].reshape(32, 32)
    assert data.x_test[0, 0] == pytest.approx((red / 255 - 0.4914) / 0.2470, abs=1e-5)
    assert data.x_test[0, 2] == pytest.approx((blue / 255 - 0.4465) / 0.2616, abs=1e-5)
    assert fingerprint("cifar10", root=str(tmp_path)).startswith("cifar10:")


def test_cifar100_has_its_fine_labels(tmp_path: Path) -> None:
    batches = write_cifar(tmp_path / "cifar-100-python", ["train", "test"], "fine_labels", 100, python2_pickle)
    data = load("cifar100", root=str(tmp_path))
    check_outline(data, "cifar100", root=str(tmp_path))
    check_form(data)
    assert data.classes == 100
    assert data.y_train.tolist() == batches[0]["fine_labels"]
    assert data.y_test.tolist() == batches[1]["fine_labels"]


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("harm"),)


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("batch").write_bytes(pickle.dumps({"data": Harmful(), "labels": []}))
    with pytest.raises(InputError, match="it refers to pathlib"):
        read_batch(Path("batch"), "labels", 10)
    assert not Path("harm").exists()


PIXELS = np.zeros((2, 3072), np.uint8)


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        ({"labels": [0, 1]}, "not a CIFAR batch"),
        ({"data": PIXELS}, "not a CIFAR batch"),
        ([1, 2], "not a CIFAR batch"),
        ({"data": PIXELS[:, :3071], "labels": [0, 1]}, "3×32×32"),
        ({"data": PIXELS, "labels": [0]}, "label between 0 and 9"),
        ({"data": PIXELS, "labels": [0, 10]}, "label between 0 and 9"),
        ({"data": PIXELS, "labels": [0, "cat"]}, "not a CIFAR batch"),
    ],
)
def test_pickles_of_other_content(tmp_path: Path, batch: Any, text: str) -> None:
    (tmp_path / "batch").write_bytes(pickle.dumps(batch))
    with pytest.raises(InputError, match=text):
        read_batch(tmp_path / "batch", "labels", 10)


@pytest.mark.parametrize("raw", [b"", b"hello", pickle.dumps({"data": PIXELS})[:-100]])
def test_damaged_pickles(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "batch").write_bytes(raw)
    with pytest.raises(InputError, match="is damaged"):
        read_batch(tmp_path / "batch", "labels", 10)
