"""Made-up sets in published formats: the same files from the same numbers, read by the very readers, and worth learning."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_samples import fingerprint, load
from patience import PATIENCE_S

from emulator.errors import InputError
from emulator.files import new_folder
from emulator.learning.data.folders import cache_folder
from emulator.learning.data.generated import KINDS, GeneratedParams, write
from emulator.learning.data.speech_commands import authors_part

READERS: dict[str, tuple[str, dict[str, Any]]] = {
    "leaf-femnist": ("leaf", {"task": "femnist"}),
    "leaf-shakespeare": ("leaf", {"task": "shakespeare"}),
    "speech-commands": ("speech-commands", {"mel_bands": 16, "hop": "50 ms"}),
    "usc-had": ("usc-had", {"window": 100}),
}
SMALL = GeneratedParams(owners=4, samples=3)


def contents(folder: Path) -> dict[str, str]:
    files = [p for p in sorted(folder.rglob("*")) if p.is_file()]
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def made(folder: Path, kind: str, **params: Any) -> dict[str, str]:
    folder.mkdir()
    write(kind, folder, GeneratedParams(**{"owners": 4, "samples": 3} | params))
    return contents(folder)


def test_there_is_a_reader_for_every_kind() -> None:
    assert list(KINDS) == list(READERS)


@pytest.mark.parametrize("kind", READERS)
def test_the_same_numbers_give_the_same_files(tmp_path: Path, kind: str) -> None:
    first = made(tmp_path / "a", kind)
    assert first == made(tmp_path / "b", kind)
    assert set(first.values()).isdisjoint(made(tmp_path / "c", kind, seed=1).values()) or kind == "speech-commands"
    assert first != made(tmp_path / "d", kind, owners=5)


@pytest.mark.parametrize("kind", READERS)
def test_a_scenario_may_ask_for_a_generated_set(tmp_path: Path, kind: str) -> None:
    reader, params = READERS[kind]
    size = {"owners": 4, "samples": 3}
    before = fingerprint(reader, generated=size, **params)
    assert not cache_folder("sample-data").exists()  # a fingerprint needs no files
    data = load(reader, generated=size, **params)
    (folder,) = cache_folder("sample-data").iterdir()
    assert folder.name == f"{kind}-v1-4-owners-3-samples-seed-0"
    assert contents(folder) == made(tmp_path / "own", kind)
    again = load(reader, path=str(tmp_path / "own"), **params)
    for name in ("x_train", "y_train", "x_test", "y_test", "owners"):
        assert np.array_equal(getattr(data, name), getattr(again, name))
    assert len(data.owner_names) == 4
    assert len(data.y_test) > 0
    assert before != fingerprint(reader, generated=size | {"seed": 1}, **params)
    usual = KINDS[kind]
    assert fingerprint(reader, generated={}, **params) == fingerprint(
        reader, generated={"owners": usual.owners, "samples": usual.samples}, **params
    )


def test_lists_of_clips_agree_with_the_authors_rule(tmp_path: Path) -> None:
    names = made(tmp_path / "set", "speech-commands")
    for part in ("testing", "validation"):
        listed = set((tmp_path / "set" / f"{part}_list.txt").read_text().split())
        clips = {n for n in names if "_nohash_" in n}
        assert listed == {n for n in clips if authors_part(n.partition("/")[2].partition("_")[0]) == part} != set()


def nearest_mean(x_train: np.ndarray, y_train: np.ndarray, x_test: np.ndarray) -> np.ndarray:
    labels = np.unique(y_train)
    means = np.stack([x_train[y_train == c].mean(axis=0) for c in labels])
    squares = (x_test**2).sum(axis=1)[:, None] - 2 * x_test @ means.T + (means**2).sum(axis=1)
    found: np.ndarray = labels[squares.argmin(axis=1)]
    return found


@pytest.mark.parametrize(("kind", "least"), [("leaf-femnist", 0.5), ("speech-commands", 0.35), ("usc-had", 0.5)])
def test_labels_can_be_learned(kind: str, least: float) -> None:
    reader, params = READERS[kind]
    data = load(reader, generated={}, **params)
    train, test = (x.reshape(len(x), -1).astype(np.float64) for x in (data.x_train, data.x_test))
    if kind == "usc-had":  # the phase of a step is of no use; how much there is of each frequency is
        train, test = (np.abs(np.fft.rfft(x.reshape(-1, 6, 100))).reshape(len(x), -1) for x in (train, test))
    assert (nearest_mean(train, data.y_train, test) == data.y_test).mean() > least


def test_the_next_character_can_be_learned() -> None:
    data = load("leaf", task="shakespeare", generated={})
    after = np.zeros((81, 81, 81))
    np.add.at(after, (data.x_train[:, -2], data.x_train[:, -1], data.y_train), 1)
    guess = after[data.x_test[:, -2], data.x_test[:, -1]].argmax(axis=1)
    commonest = np.bincount(data.y_train).argmax()
    assert (guess == data.y_test).mean() > 2 * (data.y_test == commonest).mean()


@pytest.mark.parametrize(("kind", "least"), [("leaf-femnist", 0.2), ("speech-commands", 0.1), ("usc-had", 0.02)])
def test_owners_differ(kind: str, least: float) -> None:
    """The means of owners differ by more than chance: a share of the variance of samples lies between owners."""
    reader, params = READERS[kind]
    data = load(reader, generated={}, **params)
    x = data.x_train.reshape(len(data.x_train), -1).astype(np.float64)
    if kind == "usc-had":
        x = np.abs(np.fft.rfft(x.reshape(-1, 6, 100))).reshape(len(x), -1)
    assert data.owners is not None
    rng = np.random.default_rng(0)

    def between(owners: np.ndarray) -> float:
        means = np.stack([x[owners == o].mean(axis=0) for o in range(len(data.owner_names))])
        return float(means.var(axis=0).sum() / x.var(axis=0).sum())

    by_chance = between(rng.permutation(data.owners))
    assert between(data.owners) > (1 + least) * by_chance


def test_an_unknown_kind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown kind of sample data 'usc'; did you mean 'usc-had'"):
        write("usc", tmp_path, SMALL)


def test_two_may_ask_at_once() -> None:
    barrier = threading.Barrier(2)

    def ask() -> tuple[int, ...]:
        barrier.wait(PATIENCE_S)
        return load("usc-had", generated={"owners": 4, "samples": 3}, window=100).x_train.shape

    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(ask) for _ in range(2))
        assert first.result() == second.result()
    assert [p.name for p in cache_folder("sample-data").iterdir()] == ["usc-had-v1-4-owners-3-samples-seed-0"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "made"

    def fail() -> None:
        with new_folder(target) as aside:
            (aside / "a").write_text("half")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert list(tmp_path.iterdir()) == []
    with new_folder(target) as aside:
        (aside / "a").write_text("first")
        with new_folder(target) as other:
            (other / "a").write_text("second")
    assert (target / "a").read_text() == "second"  # who was quicker
    assert list(tmp_path.iterdir()) == [target]
