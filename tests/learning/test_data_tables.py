"""Tables: those of scikit-learn, CSV files of the user's, and arrays of features, targets, labels and tokens in .npz files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes

from emulator.contracts.learning import DataSetChoice, data_sets
from emulator.errors import InputError
from emulator.learning.data import check, read
from emulator.learning.data.arrays import ArraySet


def chosen(kind: str, **given: Any) -> DataSetChoice:
    return DataSetChoice(kind, data_sets[kind].params.model_validate(given))


def whole(arrays: ArraySet) -> tuple[np.ndarray, np.ndarray]:
    """All samples and labels of a set, sorted by their features."""
    x = np.concatenate([arrays.x_train, arrays.x_test])[:, :, 0, 0]
    y = np.concatenate([arrays.y_train, arrays.y_test])
    order = np.lexsort(x.T)
    return x[order], y[order]


@pytest.mark.parametrize(("kind", "load"), [("diabetes", load_diabetes), ("breast-cancer", load_breast_cancer)])
def test_tables_are_those_of_scikit_learn(kind: str, load: Any) -> None:
    arrays = read(chosen(kind))
    facts = data_sets[kind].facts
    assert (len(arrays.x_train), arrays.shape, arrays.classes) == (facts.train_samples, facts.shape, facts.classes)
    assert np.allclose(arrays.x_train.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(arrays.x_train.std(axis=0), 1, atol=1e-5)
    x, y = load(return_X_y=True, **({"scaled": False} if kind == "diabetes" else {}))
    ours, labels = whole(arrays)
    # What is shifted and scaled keeps its correlations, and each label its row.
    both = np.column_stack([ours, labels.reshape(len(labels), -1)]), np.column_stack([x, y])
    assert np.allclose(*(np.corrcoef(each.T) for each in both), atol=1e-4)
    assert sorted(labels.ravel().tolist()) == pytest.approx(sorted(y.tolist()))


ROWS = "a, b,who,price,kind,red,wet\n" + "".join(
    f"{i},{i * i % 7},{'ann' if i % 3 else 'bob'},{10.5 * i},{'xyz'[i % 3]},{i % 2},{i % 5 // 3}\n" for i in range(20)
)
ASIDE = ["who", "price", "kind", "red", "wet"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text(ROWS)
    return path


def test_csv_of_classes(table: Path) -> None:
    said = chosen("csv", path=str(table), target="kind", ignore=ASIDE[1:], owner="who", standardise=False)
    check(said)
    arrays = read(said)
    assert (arrays.classes, arrays.shape, said.task) == (3, (2, 1, 1), "classification")
    assert (len(arrays.y_train), len(arrays.y_test)) == (16, 4)
    assert arrays.owner_names == ("ann", "bob")
    assert arrays.owners is not None
    for x, label, owner in zip(arrays.x_train[:, 0, 0, 0], arrays.y_train, arrays.owners, strict=True):
        assert (label, owner) == (x % 3, 0 if x % 3 else 1)
    assert len(set(np.concatenate([arrays.x_train, arrays.x_test])[:, 0, 0, 0].tolist())) == 20


def test_csv_of_numbers_and_of_labels(table: Path) -> None:
    prices = read(
        chosen("csv", path=str(table), target="price", learn="regression", ignore=ASIDE, test=0.5, standardise=False)
    )
    assert (prices.classes, len(prices.y_test), prices.y_test.dtype) == (1, 10, np.float32)
    assert np.allclose(prices.y_test[:, 0], 10.5 * prices.x_test[:, 0, 0, 0])
    labels = chosen("csv", path=str(table), target=["red", "wet"], learn="multi-label", ignore=ASIDE, standardise=False)
    found = read(labels)
    assert (found.classes, labels.task) == (2, "multi-label")
    assert np.array_equal(found.y_train[:, 0], found.x_train[:, 0, 0, 0] % 2)


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        (ROWS, {"target": "prise"}, "the file has no column 'prise'; did you mean 'price'?"),
        (ROWS, {"target": "price", "ignore": ["a"]}, "column 'who' has 'bob' in row 2, which is no finite number"),
        (ROWS, {"target": "price", "ignore": ["a", "b", *ASIDE]}, "no columns beside these"),
        (ROWS, {"target": ["red", "wet"], "ignore": ASIDE}, "learn: multi-label"),
        (ROWS, {"target": ["a", "wet"], "ignore": ASIDE, "learn": "multi-label"}, "labels are 0 or 1"),
        ("a,a\n1,2\n1,2\n", {"target": "a"}, "columns of the same name: 'a'"),
        ("a,b\n1,2\n1\n", {"target": "a"}, "row 3 has not as many fields"),
        ("a,b\n1,2\n", {"target": "a"}, "has 1 samples"),
        ("", {"target": "a"}, "has 0 samples"),
        (ROWS.encode("utf-16"), {"target": "a"}, "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_csv_file_is_said(
    tmp_path: Path, text: str | bytes, given: dict[str, Any], said: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=said.replace("?", r"\?")):
        check(chosen("csv", path=str(path), **given))
    with pytest.raises(InputError, match="there is no file"):
        check(chosen("csv", path=str(tmp_path / "none.csv"), **given))


def npz(tmp_path: Path, **arrays: np.ndarray) -> DataSetChoice:
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return chosen("npz", path=str(path), standardise=True)


def test_npz_of_features_targets_and_labels(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(3, 5, (9, 4))
    common = {"x_train": x, "x_test": x[:2]}
    numbers = npz(tmp_path, **common, y_train=x[:, 0], y_test=x[:2, 0])
    check(numbers)
    found = read(numbers)
    assert (numbers.task, found.shape, found.classes, found.y_train.shape) == ("regression", (4, 1, 1), 1, (9, 1))
    assert np.allclose(found.x_train.mean(axis=0), 0, atol=1e-5)
    labels = npz(tmp_path, **common, y_train=(x > 3).astype(np.uint8), y_test=(x[:2] > 3).astype(np.uint8))
    check(labels)
    found = read(labels)
    assert (labels.task, found.classes, found.y_test.dtype) == ("multi-label", 4, np.float32)
    assert np.array_equal(found.y_train, (x > 3).astype(np.float32))


def test_npz_of_tokens(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 6, (9, 4))
    x[0, 0] = 8
    texts = npz(tmp_path, x_train=x, x_test=x[:2], y_train=x[:, 1], y_test=x[:2, 1])
    check(texts)
    found = read(texts)
    assert (texts.task, found.x_train.dtype, found.shape, found.classes) == ("classification", np.int64, (4,), 9)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"y_train": np.array([[2, 0], [0, 1], [0, 0]])}, "neither 0 nor 1"),
        ({"y_train": np.full(3, np.inf), "y_test": np.zeros(2)}, "not finite 32-bit floats"),
        ({"x_train": np.array([[-1, 0], [0, 1], [0, 0]]), "x_test": np.zeros((2, 2), int)}, "tokens from -1 to 1"),
        ({"x_test": np.zeros((2, 2), int)}, "x_test holds int64, x_train float64"),
    ],
)
def test_npz_of_other_content_is_refused(tmp_path: Path, changes: dict[str, np.ndarray], said: str) -> None:
    usual = {
        "x_train": np.zeros((3, 2)),
        "x_test": np.zeros((2, 2)),
        "y_train": np.zeros((3, 2), int),
        "y_test": np.zeros((2, 2), int),
    }
    with pytest.raises(InputError, match=said):
        read(npz(tmp_path, **usual | changes))
