"""Collections with pixels from 0 to 1: the same images as in a file of arrays, sample by sample, and so for every client."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_samples import check_form, check_outline, choose, fingerprint, load
from scenario.command import TINY

from emulator.learning.clients import ClientData
from emulator.learning.data import idx
from emulator.scenario.load import load as load_scenario
from emulator.study.load import load as load_study

TRAIN, TEST = 160, 40
KINDS = ("mnist", "fashion-mnist", "emnist", "cifar10", "cifar100")
FOLDERS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST", "emnist": "EMNIST"}


@pytest.fixture(autouse=True)
def _no_debian_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(idx, "DEBIAN_FOLDER", tmp_path / "no-debian")


def both_ways(root: Path, kind: str) -> str:
    """Writes made-up images in torchvision's layout and as arrays; returns the path of the latter."""
    rng, colour = np.random.default_rng(8), kind.startswith("cifar")
    classes = {"emnist": 47, "cifar100": 100}.get(kind, 10)
    shape = (32, 32, 3) if colour else (28, 28)
    parts = [
        (rng.integers(0, 256, (n, *shape), np.uint8), (rng.permutation(n) % classes).astype(np.uint8))
        for n in (TRAIN, TEST)
    ]
    (x_train, y_train), (x_test, y_test) = parts
    write = _write_cifar if colour else _write_idx
    write(root, kind, parts)
    np.savez(root / "own.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return str(root / "own.npz")


def _write_cifar(root: Path, kind: str, parts: list[tuple[np.ndarray, np.ndarray]]) -> None:
    ten = kind == "cifar10"
    folder = root / ("cifar-10-batches-py" if ten else "cifar-100-python")
    folder.mkdir(parents=True)
    (x, y), tested = parts
    batches = [*zip(np.split(x, 5), np.split(y, 5), strict=True)] if ten else [(x, y)]
    names = [f"data_batch_{i}" for i in range(1, 6)] if ten else ["train"]
    for name, (images, labels) in zip([*names, "test_batch" if ten else "test"], [*batches, tested], strict=True):
        rows = images.transpose(0, 3, 1, 2).reshape(len(images), -1)  # channel by channel
        batch = {"data": rows, "labels" if ten else "fine_labels": labels.tolist()}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))


def _write_idx(root: Path, kind: str, parts: list[tuple[np.ndarray, np.ndarray]]) -> None:
    folder = root / FOLDERS[kind] / "raw"
    folder.mkdir(parents=True)
    turned = kind == "emnist"  # its files have rows and columns exchanged
    for part, (x, y) in zip(("train", "test" if turned else "t10k"), parts, strict=True):
        for content, array in (("images-idx3", x.swapaxes(1, 2) if turned else x), ("labels-idx1", y)):
            head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
            name = f"{'emnist-balanced-' if turned else ''}{part}-{content}-ubyte"
            (folder / name).write_bytes(head + array.tobytes())


@pytest.mark.parametrize("kind", KINDS)
def test_unit_pixels_are_bit_for_bit_those_of_a_file_of_arrays(tmp_path: Path, kind: str) -> None:
    own = load("npz", path=both_ways(tmp_path, kind))
    collected = load(kind, root=str(tmp_path), pixels="unit")
    check_form(collected)
    check_outline(collected, kind, root=str(tmp_path), pixels="unit")
    assert (collected.x_train.min(), collected.x_train.max()) == (0, 1)
    for name in ("x_train", "y_train", "x_test", "y_test"):
        ours, theirs = getattr(collected, name), getattr(own, name)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert ours.tobytes() == theirs.tobytes(), name


@pytest.mark.parametrize("kind", KINDS)
def test_pixels_are_told_apart_and_standardised_ones_have_the_keys_they_had(tmp_path: Path, kind: str) -> None:
    both_ways(tmp_path, kind)
    given: dict[str, Any] = {"root": str(tmp_path)}
    assert "pixels" not in choose(kind, **given).dump()
    assert choose(kind, **given, pixels="standardised").dump() == choose(kind, **given).dump()
    assert choose(kind, **given, pixels="unit").dump() == {**choose(kind, **given).dump(), "pixels": "unit"}
    assert fingerprint(kind, **given) != fingerprint(kind, **given, pixels="unit")
    usual, unit = load(kind, **given), load(kind, **given, pixels="unit")
    assert usual.x_train.tobytes() != unit.x_train.tobytes()
    spread = usual.x_train.max(axis=(0, 2, 3)) - usual.x_train.min(axis=(0, 2, 3))
    assert (spread > 2).all()  # one over the deviation of each channel
    assert np.array_equal(usual.y_train, unit.y_train)


@pytest.mark.parametrize(
    "changes",
    [
        ["data.public=1"],
        ["data.partition.alpha=0.0", "data.public=2", "data.public_split=test"],
        [
            "data.partition={kind: classes-per-client, classes: 1, samples_per_client: 12}",
            *("data.public=5", "data.public_set=digits"),
        ],
        ["data.partition={kind: rotation, of: {kind: dirichlet, alpha: 0.5, sizes: normal, min_samples: 5, max_samples: 15}}"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["fashion-mnist", "cifar10"])
def test_clients_get_the_same_samples_from_both(tmp_path: Path, kind: str, changes: list[str]) -> None:
    path = both_ways(tmp_path, kind)
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    one, other = (
        ClientData(load_scenario(tmp_path / "tiny.yaml", [f"data.set={chosen}", *changes]).scenario)
        for chosen in (f"{{kind: npz, path: '{path}'}}", f"{{kind: {kind}, root: '{tmp_path}', pixels: unit}}")
    )
    assert [part.tolist() for part in one.parts] == [part.tolist() for part in other.parts]
    assert np.array_equal(one.truth, other.truth)
    assert one.arrays.x_train.tobytes() == other.arrays.x_train.tobytes()
    assert one.arrays.x_test.tobytes() == other.arrays.x_test.tobytes()
    for ours, theirs in zip(one.public_samples, other.public_samples, strict=True):
        assert len(ours) == len(theirs)
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize(
    "study",
    [
        *("visit/middle-tables", "group-fel/middle-cost", "fedseq/middle-table-2", "hfldd/methods-fashion"),
        *("hicfl/middle-tables", "hicfl/middle-rotation-tables"),
    ],
)
def test_all_runs_that_verdicts_rest_on_have_the_pixels_of_the_page(study: str) -> None:
    runs = load_study(study).runs
    assert runs
    assert all(run.loaded.scenario.data.set.dump().get("pixels") == "unit" for run in runs)
