from __future__ import annotations

import gzip
import struct
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_samples import check_form, check_outline, fingerprint, load
from pydantic import ValidationError

from emulator.contracts.learning import DataSetChoice, data_sets
from emulator.errors import InputError
from emulator.learning.data import check, digits, idx

# digits and synthetic


def test_digits() -> None:
    data = load("digits")
    check_form(data)
    facts = data_sets["digits"].facts
    assert (data.classes, len(data.y_train), data.shape) == (facts.classes, facts.train_samples, facts.shape)
    assert len(data.y_test) == 360
    share = np.bincount(data.y_test) / (np.bincount(data.y_test) + np.bincount(data.y_train))
    assert share == pytest.approx(np.full(10, 360 / 1797), abs=0.004)  # less than one sample of a class
    everything = np.concatenate([data.x_train, data.x_test])
    assert abs(everything.mean()) < 1e-3
    assert everything.std() == pytest.approx(1, abs=1e-3)
    assert len(np.unique(everything.reshape(1797, -1), axis=0)) == 1797  # no sample on both sides
    assert np.array_equal(load("digits").x_test, data.x_test)
    assert fingerprint("digits").startswith("digits:scikit-learn-")


@pytest.mark.parametrize("file", [digits.FILE, "sklearn/moved.csv.gz"])
def test_the_digits_are_those_of_scikit_learn(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    from sklearn.datasets import load_digits

    monkeypatch.setattr(digits, "FILE", file)
    pixels, labels = digits.read_digits()
    assert (pixels.dtype, labels.dtype) == (np.float64, np.int64)
    for ours, theirs in zip((pixels, labels), load_digits(return_X_y=True), strict=True):
        assert np.array_equal(ours, theirs)


def test_synthetic_is_as_hard_as_it_says() -> None:
    # With one prototype a class and two classes, nearest-prototype is the best rule, and errs with Φ(-s/2).
    n = 8000
    data = load("synthetic", classes=2, modes=1, separation=2.0, shape=[1, 20, 20], train_samples=n, test_samples=n)
    check_form(data)
    flat = data.x_train.reshape(n, -1)
    centres = np.stack([flat[data.y_train == c].mean(axis=0) for c in range(2)])
    direction, middle = centres[1] - centres[0], centres.mean(axis=0)
    predicted = (data.x_test.reshape(n, -1) - middle) @ direction > 0
    assert (predicted == data.y_test).mean() == pytest.approx(0.8413, abs=0.025)  # Φ(1)
    assert data.x_train.std() == pytest.approx(1, abs=0.01)


def test_synthetic_of_several_modes_is_beyond_a_linear_rule() -> None:
    from sklearn.linear_model import RidgeClassifier
    from sklearn.neighbors import KNeighborsClassifier

    data = load("synthetic")
    check_form(data)
    x, x_test = data.x_train.reshape(len(data.x_train), -1), data.x_test.reshape(len(data.x_test), -1)
    linear = RidgeClassifier().fit(x, data.y_train).score(x_test, data.y_test)
    near = KNeighborsClassifier(50).fit(x, data.y_train).score(x_test, data.y_test)
    assert 0.3 < linear < near < 0.99


def test_synthetic_depends_on_its_own_seed_alone() -> None:
    a, same, other = load("synthetic"), load("synthetic"), load("synthetic", seed=1)
    assert np.array_equal(a.x_train, same.x_train)
    assert not np.array_equal(a.x_train, other.x_train)
    shorter = load("synthetic", train_samples=100)
    assert np.array_equal(shorter.x_test, a.x_test)
    assert set(np.bincount(a.y_train)) == {500}
    check_outline(a, "synthetic")
    check_outline(other, "synthetic", seed=1)
    assert fingerprint("synthetic") == fingerprint("synthetic") != fingerprint("synthetic", seed=1)


@pytest.mark.parametrize(
    "bad", [{"shape": [1, 8]}, {"shape": [1, 0, 8]}, {"shape": [1.0, 8, 8]}, {"classes": 1}, {"train_samples": 9}]
)
def test_synthetic_parameters_that_make_no_sense(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        data_sets["synthetic"].params.model_validate(bad)


# MNIST and its relatives


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(
    folder: Path, names: tuple[str, str, str, str], *, packed: bool, first_label: int = 0, classes: int = 10
) -> list[np.ndarray]:
    """Small files in the real format; returns what is in them."""
    rng = np.random.default_rng(len(names[0]))
    folder.mkdir(parents=True)
    arrays = []
    for images, labels, samples in ((names[0], names[1], 40), (names[2], names[3], 20)):
        x = rng.integers(0, 256, (samples, 28, 28), dtype=np.uint8)
        y = (np.arange(samples) % classes + first_label).astype(np.uint8)
        for name, array in ((images, x), (labels, y)):
            raw = idx_bytes(array)
            path = folder / (f"{name}.gz" if packed else name)
            path.write_bytes(gzip.compress(raw) if packed else raw)
        arrays += [x, y]
    return arrays


MNIST_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@pytest.fixture(autouse=True)
def _no_debian_folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if "debian" not in request.node.name:
        monkeypatch.setattr(idx, "DEBIAN_FOLDER", tmp_path / "no-debian")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("kind", "folder", "mean", "std"),
    [("mnist", "MNIST", 0.1307, 0.3081), ("fashion-mnist", "FashionMNIST", 0.286, 0.353)],
)
def test_idx_sets(tmp_path: Path, kind: str, folder: str, mean: float, std: float, packed: bool) -> None:
    x_train, y_train, x_test, y_test = write_idx(tmp_path / folder / "raw", MNIST_FILES, packed=packed)
    data = load(kind, root=str(tmp_path))
    check_form(data)
    check_outline(data, kind, root=str(tmp_path))
    assert data.shape == data_sets[kind].facts.shape
    assert data.classes == 10
    assert np.array_equal(data.y_train, y_train)
    assert np.array_equal(data.y_test, y_test)
    for got, raw in ((data.x_train, x_train), (data.x_test, x_test)):
        assert got[:, 0] == pytest.approx((raw / 255 - mean) / std, abs=1e-5)


def test_emnist_images_stand_upright_and_letters_count_from_zero(tmp_path: Path) -> None:
    for split, classes, first in (("letters", 26, 1), ("balanced", 47, 0)):
        names = tuple(
            f"emnist-{split}-{p}-{k}-ubyte" for p in ("train", "test") for k in ("images-idx3", "labels-idx1")
        )
        root = tmp_path / split
        x_train, y_train, _, _ = write_idx(root / "EMNIST/raw", names, packed=True, first_label=first, classes=classes)  # type: ignore[arg-type]
        data = load("emnist", root=str(root), split=split)
        check_form(data)
        check_outline(data, "emnist", root=str(root), split=split)
        assert data.classes == classes
        assert data.y_train.min() == 0
        assert np.array_equal(data.y_train, y_train.astype(int) - first)
        assert data.x_train[:, 0] == pytest.approx((x_train.swapaxes(1, 2) / 255 - 0.1751) / 0.3332, abs=1e-5)


@pytest.mark.parametrize("kind", ["mnist", "fashion-mnist", "emnist", "cifar10", "cifar100"])
def test_sets_that_are_not_there(tmp_path: Path, kind: str) -> None:
    for call in (load, fingerprint):
        with pytest.raises(InputError, match="'download: true'") as caught:
            call(kind, root=str(tmp_path / "nowhere"))
        assert caught.value.key == "data.set"
        assert str(tmp_path / "nowhere") in caught.value.message
        assert ("dataset-fashion-mnist" in caught.value.message) == (kind == "fashion-mnist")
    assert not (tmp_path / "nowhere").exists()


def test_a_set_with_a_missing_file_is_not_there(tmp_path: Path) -> None:
    write_idx(tmp_path / "MNIST/raw", MNIST_FILES, packed=True)
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError, match="is not in"):
        load("mnist", root=str(tmp_path))


def test_fashion_mnist_is_found_in_a_debian_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idx, "DEBIAN_FOLDER", tmp_path / "debian")
    _, y_train, _, _ = write_idx(tmp_path / "debian", MNIST_FILES, packed=True)
    assert np.array_equal(load("fashion-mnist", root=str(tmp_path)).y_train, y_train)


@pytest.mark.skipif(
    not Path("/usr/share/datasets/fashion-mnist").is_dir(), reason="dataset-fashion-mnist is not installed"
)
def test_the_real_fashion_mnist_of_debian(tmp_path: Path) -> None:
    data = load("fashion-mnist", root=str(tmp_path))
    check_form(data)
    assert (len(data.y_train), len(data.y_test)) == (60_000, 10_000)
    assert np.bincount(data.y_train).tolist() == [6000] * 10
    assert abs(data.x_train.mean(dtype=np.float64)) < 5e-4
    assert data.x_train.std(dtype=np.float64) == pytest.approx(1, abs=5e-4)
    assert fingerprint("fashion-mnist", root=str(tmp_path)).startswith("fashion-mnist:")


def damage_cut(raw: bytes) -> bytes:
    return raw[:-5]


def damage_magic(raw: bytes) -> bytes:
    return b"\x01" + raw[1:]


def damage_all(raw: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("damage", [damage_cut, damage_magic, damage_all])
def test_damaged_idx_files(tmp_path: Path, packed: bool, damage: Callable[[bytes], bytes]) -> None:
    write_idx(tmp_path / "MNIST/raw", MNIST_FILES, packed=packed)
    path = tmp_path / "MNIST/raw" / (MNIST_FILES[0] + ".gz" * packed)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match="is damaged"):
        load("mnist", root=str(tmp_path))


@pytest.mark.parametrize(
    ("which", "content", "text"),
    [
        (0, np.zeros((40, 28, 27), np.uint8), "28×28"),
        (0, np.zeros((0, 28, 28), np.uint8), "28×28"),
        (1, np.zeros(39, np.uint8), "one label for each of 40"),
        (1, np.full(40, 10, np.uint8), "between 0 and 9"),
    ],
)
def test_idx_files_of_other_content(tmp_path: Path, which: int, content: np.ndarray, text: str) -> None:
    write_idx(tmp_path / "MNIST/raw", MNIST_FILES, packed=False)
    (tmp_path / "MNIST/raw" / MNIST_FILES[which]).write_bytes(idx_bytes(content))
    with pytest.raises(InputError, match=text):
        load("mnist", root=str(tmp_path))


def test_fingerprints_follow_the_content(tmp_path: Path) -> None:
    write_idx(tmp_path / "MNIST/raw", MNIST_FILES, packed=False)
    before = fingerprint("mnist", root=str(tmp_path))
    assert before == fingerprint("mnist", root=str(tmp_path), download=True)
    path = tmp_path / "MNIST/raw" / MNIST_FILES[1]
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(bytes(raw))
    assert fingerprint("mnist", root=str(tmp_path)) != before


# Downloads


def test_a_download_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from emulator.learning.torchvision_cpu import torchvision

    calls: list[dict[str, object]] = []

    def fake(**options: object) -> None:
        calls.append(options)
        write_idx(Path(str(options["root"])) / "MNIST/raw", MNIST_FILES, packed=True)

    monkeypatch.setattr(torchvision.datasets, "MNIST", fake)
    first = fingerprint("mnist", root=str(tmp_path / "new"), download=True)
    check_form(load("mnist", root=str(tmp_path / "new"), download=True))
    assert fingerprint("mnist", root=str(tmp_path / "new")) == first
    assert calls == [{"root": str(tmp_path / "new"), "download": True}]


@pytest.mark.parametrize(
    "error",
    [urllib.error.URLError("no route"), RuntimeError("no route"), TimeoutError("no route"), EOFError("no route")],
)
def test_a_download_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    from emulator.learning.torchvision_cpu import torchvision

    def fake(**options: object) -> None:
        assert options["split"] == "digits"
        raise error

    monkeypatch.setattr(torchvision.datasets, "EMNIST", fake)
    with pytest.raises(InputError, match=r"could not be fetched into .*no route") as caught:
        load("emnist", root=str(tmp_path), download=True, split="digits")
    assert caught.value.key == "data.set"


def test_every_set_has_a_fingerprint_and_a_summary() -> None:
    for name in data_sets.names():
        assert callable(data_sets[name].facts.fingerprint)
        assert data_sets[name].summary.endswith(".")


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("mnist", {"root": "nowhere"}),
        ("emnist", {"root": "nowhere"}),
        ("cifar10", {"root": "nowhere"}),
        ("cifar100", {"root": "nowhere"}),
        ("npz", {"path": "nowhere"}),
        ("image-folder", {"path": "nowhere"}),
        ("speech-commands", {"path": "nowhere"}),
        ("leaf", {"task": "femnist", "path": "nowhere"}),
        ("usc-had", {"path": "nowhere"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_checking_a_set_that_is_not_there_says_what_reading_it_would(kind: str, params: dict[str, Any]) -> None:
    said = []
    for call in (load, lambda kind, **given: check(DataSetChoice(kind, data_sets[kind].params(**given)))):
        with pytest.raises(InputError) as caught:
            call(kind, **params)
        said.append((caught.value.key, caught.value.message))
    assert said[0] == said[1]
    if "root" in params:  # it may still be fetched
        check(DataSetChoice(kind, data_sets[kind].params(**params, download=True)))
