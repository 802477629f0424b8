from __future__ import annotations

import gzip
import pickle
import struct
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from emulator.errors import InputError
from emulator.learning.data import ArraySet, idx
from emulator.learning.data.cifar import read_batch
from emulator.registry import data_sets


def load(kind: str, **params: object) -> ArraySet:
    plugin = data_sets[kind]
    loaded: ArraySet = plugin.function(plugin.params.model_validate(params))
    return loaded


def fingerprint(kind: str, **params: object) -> str:
    plugin = data_sets[kind]
    text = plugin.facts["fingerprint"](plugin.params.model_validate(params))
    assert isinstance(text, str)
    return text


def check_form(data: ArraySet) -> None:
    for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test)):
        assert x.dtype == np.float32
        assert y.dtype == np.int64
        assert x.shape == (len(y), *data.shape)
        assert x.flags.c_contiguous
        assert x.flags.writeable  # torch.from_numpy warns otherwise
        assert y.flags.writeable
        assert y.min() >= 0
        assert y.max() < data.classes


# digits and synthetic


def test_digits() -> None:
    data = load("digits")
    check_form(data)
    facts = data_sets["digits"].facts
    assert (data.classes, len(data.y_train), data.shape) == (facts["classes"], facts["train_samples"], facts["shape"])
    assert len(data.y_test) == 360
    share = np.bincount(data.y_test) / (np.bincount(data.y_test) + np.bincount(data.y_train))
    assert share == pytest.approx(np.full(10, 360 / 1797), abs=0.004)  # less than one sample of a class
    everything = np.concatenate([data.x_train, data.x_test])
    assert abs(everything.mean()) < 1e-3
    assert everything.std() == pytest.approx(1, abs=1e-3)
    assert len(np.unique(everything.reshape(1797, -1), axis=0)) == 1797  # no sample on both sides
    assert np.array_equal(load("digits").x_test, data.x_test)
    assert fingerprint("digits").startswith("digits:scikit-learn-")


def test_synthetic_is_as_hard_as_it_says() -> None:
    # With one prototype a class and two classes, nearest-prototype is the best rule, and errs with Φ(-s/2).
    data = load(
        "synthetic", classes=2, modes=1, separation=2.0, shape=[1, 30, 30], train_samples=20_000, test_samples=20_000
    )
    check_form(data)
    flat = data.x_train.reshape(20_000, -1)
    centres = np.stack([flat[data.y_train == c].mean(axis=0) for c in range(2)])
    direction, middle = centres[1] - centres[0], centres.mean(axis=0)
    predicted = (data.x_test.reshape(20_000, -1) - middle) @ direction > 0
    assert (predicted == data.y_test).mean() == pytest.approx(0.8413, abs=0.02)  # Φ(1)
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
    assert data.shape == data_sets[kind].facts["shape"]
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
    with pytest.raises(InputError, match="could not be fetched into .*no route") as caught:
        load("emnist", root=str(tmp_path), download=True, split="digits")
    assert caught.value.key == "data.set"


# CIFAR


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
    assert data.shape == data_sets["cifar10"].facts["shape"] == (3, 32, 32)
    assert (data.classes, len(data.y_train), len(data.y_test)) == (10, 30, 6)
    assert data.y_train.tolist() == sum((b["labels"] for b in batches[:5]), [])
    assert data.y_test.tolist() == batches[5]["labels"]
    red, blue = batches[5]["data"][0, :1024].reshape(32, 32), batches[5]["data"][0, 2048:].reshape(32, 32)
    assert data.x_test[0, 0] == pytest.approx((red / 255 - 0.4914) / 0.2470, abs=1e-5)
    assert data.x_test[0, 2] == pytest.approx((blue / 255 - 0.4465) / 0.2616, abs=1e-5)
    assert fingerprint("cifar10", root=str(tmp_path)).startswith("cifar10:")


def test_cifar100_has_its_fine_labels(tmp_path: Path) -> None:
    batches = write_cifar(tmp_path / "cifar-100-python", ["train", "test"], "fine_labels", 100, python2_pickle)
    data = load("cifar100", root=str(tmp_path))
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


# npz


def arrays(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    given: dict[str, Any] = {
        "x_train": rng.integers(0, 256, (12, 9, 7), dtype=np.uint8),
        "y_train": np.arange(12) % 4,
        "x_test": rng.integers(0, 256, (5, 9, 7), dtype=np.uint8),
        "y_test": np.arange(5) % 4,
    }
    return {k: v for k, v in (given | changes).items() if v is not None}


def save(tmp_path: Path, **changes: Any) -> str:
    path = tmp_path / "own.npz"
    np.savez(path, **arrays(**changes))
    return str(path)


def test_npz_of_grey_bytes(tmp_path: Path) -> None:
    data = load("npz", path=save(tmp_path, class_names=np.array(["a", "b", "c", "d"])))
    check_form(data)
    assert (data.shape, data.classes) == ((1, 9, 7), 4)
    assert data.x_train[:, 0] == pytest.approx(arrays()["x_train"] / 255)


@pytest.mark.parametrize("layout", ["auto", "nhwc", "nchw"])
def test_npz_with_channels_first_or_last(tmp_path: Path, layout: str) -> None:
    last = np.random.default_rng(4).random((12, 9, 7, 3))
    given = last.transpose(0, 3, 1, 2) if layout == "nchw" else last
    data = load("npz", path=save(tmp_path, x_train=given, x_test=given[:5]), layout=layout)
    check_form(data)
    assert data.shape == (3, 9, 7)
    assert data.x_train == pytest.approx(last.transpose(0, 3, 1, 2).astype(np.float32))


def test_npz_whose_layout_must_be_said(tmp_path: Path) -> None:
    for shape in ((12, 8, 8, 8), (12, 3, 8, 3)):
        path = save(tmp_path, x_train=np.zeros(shape), x_test=np.zeros((5, *shape[1:])))
        with pytest.raises(InputError, match="nchw or nhwc") as caught:
            load("npz", path=path)
        assert caught.value.key == "data.set.layout"
    assert load("npz", path=path, layout="nhwc").shape == (3, 3, 8)


def test_npz_standardised(tmp_path: Path) -> None:
    x = np.random.default_rng(4).random((12, 9, 7, 3)) * [1, 2, 0] + [5, 6, 7]
    path = save(tmp_path, x_train=x, x_test=x[:5])
    data = load("npz", path=path, standardise=True)
    check_form(data)
    assert data.x_train.mean(axis=(0, 2, 3)) == pytest.approx([0, 0, 0], abs=1e-5)
    assert data.x_train.std(axis=(0, 2, 3)) == pytest.approx([1, 1, 0], abs=1e-5)
    assert np.array_equal(data.x_test, data.x_train[:5])
    assert fingerprint("npz", path=path) != fingerprint("npz", path=path, standardise=True)


def test_npz_labels_may_stand_in_a_column(tmp_path: Path) -> None:
    data = load("npz", path=save(tmp_path, y_train=np.arange(12, dtype=np.uint8)[:, None] % 3))
    assert data.y_train.tolist() == [0, 1, 2] * 4
    assert data.classes == 4  # the test labels count too


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"y_test": None}, "lacks 'y_test'; it holds 'x_train'"),
        ({"x_train": np.zeros((12, 63), np.uint8)}, "x_train has 2 axes"),
        ({"x_train": np.zeros((12, 9, 7, 1, 1), np.uint8)}, "x_train has 5 axes"),
        ({"x_test": np.zeros((5, 9, 8), np.uint8)}, "1×9×7, those of x_test 1×9×8"),
        ({"y_train": np.arange(11)}, "12 samples and y_train 11 labels"),
        ({"y_test": np.arange(5) - 1}, "negative label -1"),
        ({"y_test": np.arange(5) / 2}, "y_test holds float64"),
        ({"y_test": np.arange(10).reshape(5, 2)}, "y_test has 2 axes"),
        ({"y_test": np.full(5, 2**40)}, "holds the label 1099511627776"),
        ({"x_train": np.zeros((12, 9, 7), np.int64)}, "x_train holds int64"),
        ({"x_train": np.full((12, 9, 7), np.nan)}, "finite"),
        ({"x_train": np.full((12, 9, 7), 1e300)}, "finite"),
        ({"x_test": np.zeros((0, 9, 7), np.uint8)}, "x_test of .* is empty"),
        ({"y_train": np.array([Path("x")] * 12, object)}, "y_train of .* cannot be read: .*pickle"),
    ],
)
def test_npz_files_of_other_content(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text) as caught:
        load("npz", path=save(tmp_path, **changes))
    assert caught.value.key == "data.set.path"


def test_files_that_are_no_npz(tmp_path: Path) -> None:
    whole = Path(save(tmp_path)).read_bytes()
    path = tmp_path / "other.npz"
    for raw in (b"", b"hello", whole[:2000], pickle.dumps([1])):
        path.write_bytes(raw)
        with pytest.raises(InputError, match="not a whole .npz file"):
            load("npz", path=str(path))
    at = whole.index(b"x_train.npy") + 200
    path.write_bytes(whole[:at] + bytes(b ^ 255 for b in whole[at : at + 50]) + whole[at + 50 :])
    with pytest.raises(InputError, match="x_train of .* cannot be read"):
        load("npz", path=str(path))
    np.save(tmp_path / "single.npy", np.zeros(3))
    with pytest.raises(InputError, match="single array"):
        load("npz", path=str(tmp_path / "single.npy"))
    for call in (load, fingerprint):
        with pytest.raises(InputError, match="there is no file"):
            call("npz", path=str(tmp_path / "nothing.npz"))


def test_every_set_has_a_fingerprint_and_a_summary() -> None:
    for name in data_sets.names():
        assert callable(data_sets[name].facts["fingerprint"])
        assert data_sets[name].summary.endswith(".")
