from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_samples import check_form, fingerprint, load
from scenario.command import TINY, hfl

from emulator.contracts.learning import DataSetChoice
from emulator.errors import InputError
from emulator.learning.data import check
from emulator.learning.data.npz import NpzParams


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
        ({"x_train": np.zeros((12, 63), np.uint8)}, "samples of x_train are 63×1×1, those of x_test 1×9×7"),
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
    path = save(tmp_path, **changes)
    with pytest.raises(InputError, match=text) as caught:
        load("npz", path=path)
    assert caught.value.key == "data.set.path"
    told = None
    try:
        check(DataSetChoice("npz", NpzParams(path=path)))
    except InputError as error:
        told = str(error)
    content = ("negative", "holds the label", "finite")  # is not read to be checked
    assert told == (None if text.startswith(content) else str(caught.value))


@pytest.mark.parametrize("study", [False, True])
def test_validate_refuses_the_file_that_run_would(tmp_path: Path, study: bool) -> None:
    path = save(tmp_path, x_train=np.zeros((12, 63), np.uint8))
    (tmp_path / "s.yaml").write_text(TINY.replace("set: synthetic", f"set: {{kind: npz, path: '{path}'}}"))
    (tmp_path / "study.yaml").write_text("scenario: s.yaml\nseeds: 2\n")
    done = hfl("validate", tmp_path / ("study.yaml" if study else "s.yaml"))
    run = hfl("run", tmp_path / "s.yaml", "--out", tmp_path / "run", "--no-memo")
    assert (done.code, done.out, run.code, run.out) == (2, "", 2, "")
    assert run.err.endswith(done.err)
    assert done.err.startswith(
        f"error: {tmp_path / 's.yaml'}:5:26: data.set.path: samples of x_train are 63×1×1, those of x_test "
    )


def test_files_that_are_no_npz(tmp_path: Path) -> None:
    whole = Path(save(tmp_path)).read_bytes()
    path = tmp_path / "other.npz"
    for raw in (b"", b"hello", whole[:2000], pickle.dumps([1])):
        path.write_bytes(raw)
        with pytest.raises(InputError, match=r"not a whole \.npz file"):
            load("npz", path=str(path))
    at = whole.index(b"x_train.npy") + 200
    path.write_bytes(whole[:at] + bytes(b ^ 255 for b in whole[at : at + 50]) + whole[at + 50 :])
    with pytest.raises(InputError, match=r"x_train of .* cannot be read"):
        load("npz", path=str(path))
    np.save(tmp_path / "single.npy", np.zeros(3))
    with pytest.raises(InputError, match="single array"):
        load("npz", path=str(tmp_path / "single.npy"))
    for call in (load, fingerprint):
        with pytest.raises(InputError, match="there is no file"):
            call("npz", path=str(tmp_path / "nothing.npz"))
