"""Public samples from another data set: their shape, their keys, and that nothing is kept back for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from emulator.errors import InputError
from emulator.learning.clients import ClientData
from emulator.learning.lab import Lab, keys_of
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.public import averaging, fitted
from emulator.scenario import Loaded

Small = Callable[..., Loaded]
OTHER = ("data.public=4", "data.public_set={kind: synthetic, shape: [1, 4, 4], classes: 3, seed: 7}")


def test_averaging_keeps_the_mean_and_a_pixel_is_the_mean_of_what_it_covers() -> None:
    for before, after in ((4, 2), (2, 4), (8, 28), (5, 3), (3, 3)):
        weights = averaging(before, after)
        assert weights.shape == (after, before)
        assert weights.sum(axis=1) == pytest.approx(np.ones(after))
        assert weights.mean(axis=0) == pytest.approx(np.full(before, 1 / before))
    assert averaging(4, 2).tolist() == [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]
    assert averaging(3, 2)[0] == pytest.approx([2 / 3, 1 / 3, 0])


def test_images_are_fitted_to_another_shape() -> None:
    x = np.arange(2 * 16, dtype=np.float32).reshape(2, 1, 4, 4)
    small = fitted(x, (3, 2, 2))
    assert small.dtype == np.float32
    assert small.shape == (2, 3, 2, 2)
    assert small[0, 0].tolist() == [[2.5, 4.5], [10.5, 12.5]]  # means of 2×2 pixels
    assert (small[:, 0] == small[:, 2]).all()  # grey in all channels
    grey = fitted(np.stack([x[:, 0], x[:, 0] + 3], axis=1), (1, 4, 4))
    assert grey == pytest.approx(x + 1.5)
    assert (fitted(x, (1, 4, 4)) == x).all()
    with pytest.raises(InputError, match="2 channels") as caught:
        fitted(np.zeros((1, 2, 4, 4), np.float32), (3, 4, 4))
    assert caught.value.key == "data.public_set"


def test_public_samples_of_another_set_leave_the_clients_all_of_theirs(small: Small) -> None:
    plain, other = ClientData(small().scenario), ClientData(small(*OTHER).scenario)
    assert (plain.label_counts == other.label_counts).all()
    assert all((a == b).all() for a, b in zip(plain.parts, other.parts, strict=True))
    x, y = other.public_samples
    assert x.shape == (12, 1, 8, 8)  # four of each of its three classes, as large as the clients' samples
    assert np.bincount(y).tolist() == [4, 4, 4]
    assert len(other.public) == 0


def test_public_samples_of_the_own_set_are_those_kept_back(small: Small) -> None:
    data = ClientData(small("data.public=2").scenario)
    x, y = data.public_samples
    assert (x == data.arrays.x_train[data.public]).all()
    assert np.bincount(y).tolist() == [2] * 10
    assert not set(data.public.tolist()) & {i for part in data.parts for i in part.tolist()}


def test_public_samples_of_the_test_split_leave_clients_and_tests_all_of_theirs(small: Small) -> None:
    plain, data = ClientData(small().scenario), ClientData(small("data.public=2", "data.public_split=test").scenario)
    assert all((a == b).all() for a, b in zip(plain.parts, data.parts, strict=True))
    x, y = data.public_samples
    assert np.bincount(y).tolist() == [2] * 10
    tests = {each.tobytes() for each in data.arrays.x_test}
    assert {each.tobytes() for each in x} <= tests
    assert len(data.arrays.x_test) == len(plain.arrays.x_test)  # they still count for testing


def test_keys_change_with_the_public_set_and_clients_data_does_not(small: Small) -> None:
    changes = [
        ("data.public=4",),
        OTHER,
        (*OTHER, "data.public_set.seed=8"),
        (*OTHER, "data.public=5"),
        (*OTHER, "data.public_set=digits"),
        (*OTHER, "data.public_split=test"),
        ("data.public=4", "data.public_split=test"),
    ]
    keys = [keys_of(small(*c).scenario) for c in changes]
    assert len({k.public for k in keys}) == len(keys)
    assert len({k.data(8) for k in keys[1:]} | {keys_of(small().scenario).data(8)}) == 1
    assert keys[0].data(8) != keys[1].data(8)


def test_soft_labels_are_of_the_public_set(small: Small) -> None:
    def rows(*changes: str) -> np.ndarray:
        lab = Lab(small(*changes).scenario, RunMemory(Memo(None)), max_workers=1)
        return lab.measure("soft-labels", [lab.initial()])

    assert rows(*OTHER).shape == (12, 10)
    assert rows("data.public=4").shape == (40, 10)
    assert not np.array_equal(rows(*OTHER), rows(*OTHER, "data.public_set.seed=8"))


def test_what_is_wrong_with_the_public_set_is_said_of_it(small: Small) -> None:
    loaded = small("data.public=4", "data.public_set={kind: mnist, root: nowhere}")
    with pytest.raises(InputError, match="mnist is not in") as caught:
        keys_of(loaded.scenario)
    assert caught.value.key == "data.public_set"
    few = ClientData(small("data.public=3000", *OTHER[1:]).scenario)
    with pytest.raises(InputError, match="would leave none"):
        _ = few.public_samples
