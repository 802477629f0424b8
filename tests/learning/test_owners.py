"""Samples that belong to somebody: their numbers, the partition that makes owners clients, and what goes with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_samples import load
from pydantic import ValidationError

from emulator.contracts.learning import partitions
from emulator.errors import InputError, ScenarioError
from emulator.learning.clients import ClientData, outline_of, turned
from emulator.learning.data.arrays import ArraySet, numbered
from emulator.learning.public import fitted
from emulator.rng import stream
from emulator.scenario import Loaded

OWNED = np.repeat(np.arange(5), [3, 10, 1, 6, 4])[np.random.default_rng(1).permutation(24)]


def natural(clients: int, owners: np.ndarray | None = OWNED, seed: int = 0, **params: Any) -> list[np.ndarray]:
    plugin = partitions["natural"]
    labels = np.arange(24) % 3
    parts: list[np.ndarray] = plugin.function(
        labels, clients, 3, stream(seed, "partition"), plugin.params.model_validate(params), owners=owners
    )
    return parts


def save(tmp_path: Path, users: Any = None, name: str = "user_train", samples: int = 40) -> str:
    rng = np.random.default_rng(3)
    given = {
        "x_train": rng.random((samples, 6, 6)),
        "y_train": np.arange(samples) % 4,
        "x_test": rng.random((8, 6, 6)),
        "y_test": np.arange(8) % 4,
    }
    if users is not None:
        given[name] = users
    np.savez(tmp_path / "own.npz", **given)
    return str(tmp_path / "own.npz")


def test_owners_are_numbered_by_name_and_by_the_numbers_in_it() -> None:
    owners, names = numbered(["b10", "b9", "a", "b10", "b09", "12", "7"])
    assert names == ("7", "12", "a", "b09", "b9", "b10")
    assert owners.tolist() == [5, 4, 2, 5, 3, 1, 0]
    assert owners.dtype == np.int64


def test_each_client_is_one_owner() -> None:
    parts = natural(5)
    for owner, part in enumerate(parts):
        assert part.tolist() == np.flatnonzero(owner == OWNED).tolist()
    assert np.array_equal(natural(5, seed=9)[3], parts[3])  # nothing is random where all take part


def test_of_more_owners_some_are_drawn() -> None:
    drawn = {tuple(OWNED[p[0]] for p in natural(2, seed=s)) for s in range(60)}
    assert drawn == {(a, b) for a in range(5) for b in range(a + 1, 5)}
    for part in natural(2, seed=4):
        assert len(part) == (OWNED[part[0]] == OWNED).sum()
    assert [p.tolist() for p in natural(3, seed=7)] == [p.tolist() for p in natural(3, seed=7)]


def test_small_owners_are_left_out_and_large_ones_cut() -> None:
    assert [len(p) for p in natural(3, min_samples=4)] == [10, 6, 4]
    cut = natural(4, min_samples=2, max_samples=5)
    assert [len(p) for p in cut] == [3, 5, 5, 4]
    assert all((OWNED[p] == OWNED[p[0]]).all() and (np.diff(p) > 0).all() for p in cut)
    assert natural(4, min_samples=2, max_samples=5, seed=1)[1].tolist() != cut[1].tolist()


def test_too_many_clients_are_told_how_many_owners_there_are() -> None:
    with pytest.raises(InputError, match="6 clients for the 5 owners of the data set; take fewer") as caught:
        natural(6)
    assert caught.value.key == "data.partition"
    with pytest.raises(InputError, match="4 clients for the 5 owners of the data set, of whom 3 have at least 4"):
        natural(4, min_samples=4)
    with pytest.raises(InputError, match=r"does not say whose .*'npz' \(whose file has an array 'user_train'\)"):
        natural(2, owners=None)
    with pytest.raises(ValidationError, match="must not be greater"):
        natural(2, min_samples=5, max_samples=4)


def test_sets_that_have_no_owners_are_refused_before_they_are_read(small: Callable[..., Loaded]) -> None:
    for change in ("data.partition=natural", "data.partition={kind: rotation, of: natural}"):
        with pytest.raises(ScenarioError, match=r"data\.partition.*these do: .*'npz'"):
            small("data.partition=iid", change)


@pytest.mark.parametrize(
    ("users", "names"),
    [
        (np.arange(40) % 8, tuple("01234567")),
        (np.array([f"w{i % 8 + 5}" for i in range(40)]), tuple(f"w{i}" for i in range(5, 13))),
        (np.array([b"w%d" % (i % 8) for i in range(40)]), tuple(f"w{i}" for i in range(8))),
    ],
)
@pytest.mark.parametrize("name", ["user_train", "user"])
def test_owners_of_npz(tmp_path: Path, users: np.ndarray, names: tuple[str, ...], name: str) -> None:
    data = load("npz", path=save(tmp_path, users, name))
    assert data.owner_names == names
    assert data.owners is not None
    assert data.owners.dtype == np.int64
    assert data.owners.tolist() == [i % 8 for i in range(40)]


@pytest.mark.parametrize(
    ("users", "text"),
    [
        (np.arange(39), "user_train has the shape 39; give one entry for each of 40"),
        (np.zeros((40, 2), np.int64), "has the shape 40×2"),
        (np.arange(40) / 2, "user_train holds float64; give whole numbers or texts"),
        (np.array([], np.int64), "user_train of .* is empty"),
    ],
)
def test_owners_of_npz_that_do_not_fit(tmp_path: Path, users: np.ndarray, text: str) -> None:
    with pytest.raises(InputError, match=text) as caught:
        load("npz", path=save(tmp_path, users))
    assert caught.value.key == "data.set.path"


def test_npz_names_its_owners_once(tmp_path: Path) -> None:
    whole = dict(np.load(save(tmp_path, np.arange(40))))
    np.savez(tmp_path / "twice.npz", **whole, user=np.arange(40))
    with pytest.raises(InputError, match="both user_train and user"):
        load("npz", path=str(tmp_path / "twice.npz"))


def owned(small: Callable[..., Loaded], tmp_path: Path, *changes: str) -> Loaded:
    path = save(tmp_path, np.arange(40) % 8)
    return small(f"data.set={{kind: npz, path: {path}}}", "data.partition=natural", *changes)


def test_natural_clients_keep_no_public_sample(small: Callable[..., Loaded], tmp_path: Path) -> None:
    data = ClientData(owned(small, tmp_path, "data.public=3").scenario)
    assert data.arrays.owners is not None
    assert len(data.public) == 12
    assert np.bincount(data.arrays.y_train[data.public]).tolist() == [3, 3, 3, 3]
    held = np.concatenate(data.parts)
    assert sorted([*held, *data.public]) == list(range(40))
    for client, part in enumerate(data.parts):
        assert set(data.arrays.owners[part]) == {client}
    assert data.label_counts.sum() == 28


def test_an_owner_whose_samples_are_all_public_is_no_client(small: Callable[..., Loaded], tmp_path: Path) -> None:
    loaded = owned(small, tmp_path, "data.public=9")  # 36 of 40 samples
    with pytest.raises(InputError, match=r"8 clients for the [1-4] owners"):
        ClientData(loaded.scenario)


def test_owners_may_be_rotated_too(small: Callable[..., Loaded], tmp_path: Path) -> None:
    loaded = owned(small, tmp_path, "data.partition={kind: rotation, degrees: [0, 90], of: natural}")
    data, outline = ClientData(loaded.scenario), outline_of(loaded.scenario)
    assert outline.owners is not None
    assert outline.owners.tolist() == [i % 8 for i in range(40)]
    assert data.arrays.owners is not None
    assert len(data.arrays.owners) == len(data.arrays.y_train) == 60
    for client, part in enumerate(data.parts):
        assert set(data.arrays.owners[part]) == {client}
    with pytest.raises(InputError, match="9 clients for the 8 owners") as caught:
        ClientData(
            owned(small, tmp_path, "data.partition={kind: rotation, of: natural}", "topology.clients=9").scenario
        )
    assert caught.value.key == "data.partition.of"


def test_what_needs_images_refuses_texts() -> None:
    x, y = np.zeros((4, 7), np.int64), np.array([0, 1, 0, 1])
    text = ArraySet(x, y, x, y, 2, y, ("a", "b"))
    assert (text.shape, text.outline.shape) == ((7,), (7,))
    same, parts = turned(text, [np.arange(4)], np.zeros(1, np.int64))
    assert same is text
    assert parts[0].tolist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match="only images can be rotated"):
        turned(text, [np.arange(4)], np.ones(1, np.int64))
    with pytest.raises(InputError, match=r"its samples are no images") as caught:
        fitted(x, (1, 8, 8))
    assert caught.value.key == "data.public_set"
    with pytest.raises(InputError, match="those of the clients are no images"):
        fitted(np.zeros((4, 1, 8, 8), np.float32), (7,))
