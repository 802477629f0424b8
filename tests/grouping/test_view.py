from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from emulator.grouping.view import ClientView, GroupView, group_view

COUNTS = np.array([[1, 2], [3, 0], [0, 5], [4, 4]])


def test_a_group_is_the_sum_of_its_clients() -> None:
    clients = ClientView(COUNTS, np.array([30, 30, 50, 80]))
    groups = group_view(clients, [[0, 2], [1], [3], []])
    assert groups.label_counts.tolist() == [[1, 7], [3, 0], [4, 4], [0, 0]]
    assert groups.samples.tolist() == [80, 30, 80, 0]
    assert groups.label_counts.dtype == groups.samples.dtype == np.int64


def test_samples_of_bare_counts_are_their_row_sums() -> None:
    assert group_view(COUNTS, [[0, 1], [2, 3]]).samples.tolist() == [6, 13]


def test_no_groups() -> None:
    groups = group_view(COUNTS, [])
    assert groups.label_counts.shape == (0, 2)
    assert groups.samples.shape == (0,)


@pytest.mark.parametrize("view", [ClientView, GroupView])
def test_shapes_are_checked_and_values_are_frozen(view: type[ClientView | GroupView]) -> None:
    with pytest.raises(ValueError, match="must be"):
        view(COUNTS, np.array([1, 2]))
    with pytest.raises(ValueError, match="must be"):
        view(COUNTS[0], np.array([1, 2]))
    with pytest.raises(dataclasses.FrozenInstanceError):
        view(COUNTS, COUNTS.sum(axis=1)).samples = np.arange(4)  # type: ignore[misc]
