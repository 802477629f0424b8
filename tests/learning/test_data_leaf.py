"""LEAF's files: images by writer, text by role in characters and in words, and everything that can be wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_samples import fingerprint, load
from pydantic import ValidationError

from emulator.errors import InputError
from emulator.learning.data.text import CHARACTERS, characters, sentences

TEXT = "So the old farmer opens the gate, and the child of the farmer runs down the road to the old mill again. "


def leaf_file(users: dict[str, tuple[list[Any], list[Any]]]) -> dict[str, Any]:
    return {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }


def save(folder: Path, part: str, content: Any, name: str = "all_data_0_keep_0.json") -> Path:
    path = folder / part / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def images(seed: int, labels: list[int]) -> tuple[list[list[float]], list[int]]:
    pixels = np.random.default_rng(seed).integers(0, 256, (len(labels), 784)) / 255
    return pixels.tolist(), labels


def windows(text: str, first: int, last: int) -> tuple[list[str], list[str]]:
    return [text[i : i + 80] for i in range(first, last)], [text[i + 80] for i in range(first, last)]


def femnist(folder: Path) -> Path:
    save(folder, "train", leaf_file({"f2": images(0, [3, 61]), "f10": images(1, [0])}), "b.json")
    save(folder, "train", leaf_file({"f1": images(2, [7, 7]), "f3": ([], [])}), "a.json")
    save(folder, "test", leaf_file({"f2": images(3, [3]), "z9": images(4, [8, 9])}))
    return folder


def shakespeare(folder: Path) -> Path:
    save(folder, "train", leaf_file({"PLAY_B": windows(TEXT * 3, 0, 60), "PLAY_A": windows(TEXT[::-1] * 2, 0, 5)}))
    save(folder, "test", leaf_file({"PLAY_B": windows(TEXT * 3, 150, 190)}))
    return folder


def test_images_of_writers(tmp_path: Path) -> None:
    data = load("leaf", path=str(femnist(tmp_path)), task="femnist")
    expected = [*images(2, [7, 7])[0], *images(0, [3, 61])[0], *images(1, [0])[0]]
    assert data.x_train.shape == (5, 1, 28, 28)
    mean, std = np.mean(expected), np.std(expected)
    assert data.x_train.reshape(5, -1) == pytest.approx((np.array(expected) - mean) / std, abs=1e-5)
    assert data.y_train.tolist() == [7, 7, 3, 61, 0]
    assert data.owner_names == ("f1", "f2", "f10")  # f3 has nothing to train, z9 is only tested on
    assert data.owners is not None
    assert data.owners.tolist() == [0, 0, 1, 1, 2]
    assert data.y_test.tolist() == [3, 8, 9]
    tested = np.array(images(4, [8, 9])[0])
    assert data.x_test[1:].reshape(2, -1) == pytest.approx((tested - mean) / std, abs=1e-5)
    assert (data.classes, data.x_train.dtype, data.y_train.dtype) == (62, np.float32, np.int64)


def test_the_table_of_characters() -> None:
    assert len(CHARACTERS) == len(set(CHARACTERS)) == 80
    assert characters("\n }zA0~é\U0001f600\ud800").tolist() == [0, 1, 79, 78, 25, 11, 80, 80, 80, 80]
    assert "".join(CHARACTERS[i] for i in characters(TEXT)) == TEXT


def test_characters_of_roles(tmp_path: Path) -> None:
    data = load("leaf", path=str(shakespeare(tmp_path)), task="shakespeare")
    assert (data.shape, data.classes) == ((80,), 81)
    assert data.x_train.dtype == data.y_train.dtype == np.int64
    assert data.owner_names == ("PLAY_A", "PLAY_B")
    assert data.owners is not None
    assert data.owners.tolist() == [1] * 60 + [0] * 5
    text = TEXT * 3
    for i in (0, 7, 59):
        assert "".join(CHARACTERS[c] for c in data.x_train[i]) == text[i : i + 80]
        assert CHARACTERS[data.y_train[i]] == text[i + 80]
    assert "".join(CHARACTERS[c] for c in data.y_test) == text[230:270]


def test_words_are_cut_at_the_ends_of_a_window() -> None:
    text = "Thou art not o'er-done, said the cat's friend."
    found = sentences([text[i : i + 20] for i in range(26)], [text[i + 20] for i in range(26)])
    assert (
        found
        == [
            (["art", "not", "o'er"], "done"),  # 'thou' may have been cut
            (["not", "o'er", "done"], "said"),
            (["o'er", "done", "said"], "the"),
            (["said", "the"], "cat's"),
            (["the", "cat's"], "friend"),
        ][: len(found)]
    )
    assert len(found) == 5
    assert sentences(["a" * 20, ".... a b", "the cat "], [".", ".", "x"]) == [(["a"], "b")]


def test_words_of_roles(tmp_path: Path) -> None:
    folder = str(shakespeare(tmp_path))
    data = load("leaf", path=folder, task="shakespeare", unit="word", vocabulary=4, length=5)
    pairs = sentences(*windows(TEXT * 3, 0, 60)) + sentences(*windows(TEXT[::-1] * 2, 0, 5))
    counts: dict[str, int] = {}
    for _, word in pairs:
        counts[word] = counts.get(word, 0) + 1
    known = sorted(counts, key=lambda w: (-counts[w], w))[:4]
    kept = [(words, word) for words, word in pairs if word in known]
    assert (data.classes, data.shape) == (6, (5,))
    assert data.y_train.tolist() == [2 + known.index(word) for _, word in kept]
    for row, (words, _) in zip(data.x_train.tolist(), kept, strict=True):
        tokens = [2 + known.index(w) if w in known else 1 for w in words[-5:]]
        assert row == [0] * (5 - len(tokens)) + tokens
    assert set(data.y_test.tolist()) <= {2, 3, 4, 5}
    whole = load("leaf", path=folder, task="shakespeare", unit="word", length=40)
    assert whole.classes == 1002
    assert (whole.x_train[:, 0] == 0).all()  # no window of 80 characters has so many words
    assert fingerprint("leaf", path=folder, task="shakespeare", unit="word") != fingerprint(
        "leaf", path=folder, task="shakespeare"
    )


def test_fingerprints_tell_contents_apart_and_not_places(tmp_path: Path) -> None:
    first, second = femnist(tmp_path / "a"), femnist(tmp_path / "b")
    before = fingerprint("leaf", path=str(first), task="femnist")
    assert before == fingerprint("leaf", path=str(second), task="femnist")
    assert before == fingerprint("leaf", path=str(first), task="femnist")  # remembered
    save(second, "test", leaf_file({"f2": images(5, [3]), "z9": images(4, [8, 9])}))
    assert before != fingerprint("leaf", path=str(second), task="femnist")
    (first / "train" / "b.json").rename(first / "train" / "c.json")
    assert before != fingerprint("leaf", path=str(first), task="femnist")


@pytest.mark.parametrize(
    ("task", "content", "text"),
    [
        ("femnist", b"", "not whole JSON"),
        ("femnist", b'{"users": ["f1"], "user_data', "not whole JSON"),
        ("femnist", b"\xff\xfe\x00", "not whole JSON"),
        ("femnist", b"[" * 100_000, "not whole JSON"),
        ("femnist", b"[1, 2]", "no list 'users'"),
        ("femnist", {"users": ["f1"]}, "no list 'users' and no mapping 'user_data'"),
        ("femnist", {"users": ["f1"], "user_data": {}, "num_samples": [1]}, "do not name the same users"),
        ("femnist", {"users": [1], "user_data": {"1": {}}, "num_samples": [1]}, "do not name the same users"),
        ("femnist", {"users": ["f"], "user_data": {"f": {}}, "num_samples": []}, "no list 'num_samples'"),
        ("femnist", {"users": ["f"], "user_data": {"f": {"x": []}}, "num_samples": [0]}, "no lists 'x' and 'y'"),
        ("femnist", {"users": ["f"], "user_data": {"f": 3}, "num_samples": [0]}, "user 'f' has no lists"),
        (
            "femnist",
            {"users": ["f"], "user_data": {"f": {"x": [[0.0] * 784], "y": []}}, "num_samples": [1]},
            "1 samples and 0 labels, and 'num_samples' says 1",
        ),
        ("femnist", leaf_file({"f": ([[0.5] * 783], [1])}), "samples of 783 numbers; a sample of femnist is 784"),
        ("femnist", leaf_file({"f": ([[0.5] * 784, [0.5]], [1, 1])}), "no equally long lists"),
        ("femnist", leaf_file({"f": (["no"], [1])}), "no equally long lists"),
        ("femnist", leaf_file({"f": ([[2.0] * 784], [1])}), "not between 0 and 1"),
        ("femnist", leaf_file({"f": ([[float("nan")] * 784], [1])}), "not between 0 and 1"),
        ("femnist", leaf_file({"f": images(0, [62])}), "label 62"),
        ("femnist", leaf_file({"f": ([[0.5] * 784], ["a"])}), "label 'a'"),
        ("femnist", leaf_file({"f2": images(0, [1])}), "user 'f2' is in it and in an earlier file"),
        ("shakespeare", leaf_file({"r": images(0, [1])}), "that are no texts"),
        ("shakespeare", leaf_file({"r": (["short"], ["a"])}), "a sample of 5 characters"),
        ("shakespeare", leaf_file({"r": (["a" * 80], ["ab"])}), "label 'ab'"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, task: str, content: Any, text: str) -> None:
    (femnist if task == "femnist" else shakespeare)(tmp_path)
    path = tmp_path / "train" / "zz.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(InputError, match=text) as caught:
        load("leaf", path=str(tmp_path), task=task)
    assert str(path) in caught.value.message
    assert caught.value.key == "data.set.path"


def test_folders_that_are_wrong(tmp_path: Path) -> None:
    for call in (load, fingerprint):
        with pytest.raises(InputError, match="there is no folder"):
            call("leaf", path=str(tmp_path / "nothing"), task="femnist")
        with pytest.raises(InputError, match=r"no folder 'train' with \.json files; LEAF's preprocess\.sh"):
            call("leaf", path=str(tmp_path), task="femnist")
    femnist(tmp_path)
    save(tmp_path, "test", leaf_file({"f1": ([], [])}))
    with pytest.raises(InputError, match="test: there is no sample in it"):
        load("leaf", path=str(tmp_path), task="femnist")


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"task": "femnist"}, "give either 'path' or 'generated'"),
        ({"task": "femnist", "path": "x", "generated": {}}, "give either 'path' or 'generated'"),
        ({"task": "femnist", "path": "x", "unit": "word"}, "needs 'task: shakespeare'"),
        ({"task": "shakespeare", "path": "x", "length": 4}, "'length' needs 'unit: word'"),
        ({"path": "x"}, "task"),
    ],
)
def test_parameters_that_do_not_go_together(params: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        load("leaf", **params)
