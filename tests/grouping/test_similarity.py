from __future__ import annotations

import math

import numpy as np
import pytest

from emulator.grouping.similarity import set_similarity

HALF = math.sqrt(0.5)  # the cosine of 45 degrees
# Clients of one class each, and one of both.
VECTORS = np.array([[1.0, 0], [0, 1], [2, 2], [3, 0]])


def test_by_hand() -> None:
    # {0, 1, 2}: pairs 0, cos 45°, cos 45°; mean (1, 1). {3} has no pair; its mean is (3, 0).
    found = set_similarity(VECTORS, [[0, 1, 2], [3]])
    assert found.intra_cs == pytest.approx(2 * HALF / 4)
    assert found.intra_cs_mean == pytest.approx(2 * HALF / 3)
    assert found.inter_cs == pytest.approx(HALF / 2)
    assert found.inter_cs_mean == pytest.approx(HALF)
    assert found.vts == pytest.approx((1 + HALF) / 2)


def test_equal_sets_are_as_printed() -> None:
    # L = 3 sets of k = 2: {0, 1} complement each other, {2, 2'} are alike, {3, 3'} know one class.
    vectors = np.array([[1.0, 0], [0, 1], [2, 2], [5, 5], [3, 0], [1, 0]])
    found = set_similarity(vectors, [[0, 1], [2, 3], [4, 5]])
    assert found.intra_cs == pytest.approx((0 + 1 + 1) / 6)  # 1/(L·k) Σ over sets and pairs
    assert found.intra_cs_mean == pytest.approx((0 + 1 + 1) / 3)
    assert found.inter_cs == pytest.approx((1 + HALF + HALF) / 3)  # 1/L Σ over pairs of sets
    assert found.inter_cs_mean == pytest.approx((1 + HALF + HALF) / 3)  # three sets have three pairs
    assert found.vts == pytest.approx((1 + 1 + HALF) / 3)


def test_clients_alone_have_no_pairs_inside() -> None:
    # FedAvg in S1's figures: as many sets as clients.
    found = set_similarity(VECTORS, [[0], [1], [2], [3]])
    assert found.intra_cs == 0
    assert math.isnan(found.intra_cs_mean)
    # Pairs: 0-1 0, 0-2 45°, 0-3 1, 1-2 45°, 1-3 0, 2-3 45°.
    assert found.inter_cs == pytest.approx((3 * HALF + 1) / 4)
    assert found.inter_cs_mean == pytest.approx((3 * HALF + 1) / 6)


def test_one_group_has_nothing_to_compare_with() -> None:
    found = set_similarity(VECTORS, [[0, 1]])
    assert found.inter_cs == 0
    assert math.isnan(found.inter_cs_mean)
    assert found.vts == pytest.approx(1)


def test_scale_of_a_group_does_not_count_but_that_of_a_client_in_it_does() -> None:
    found = set_similarity(np.array([[1.0, 0], [0, 3]]), [[0, 1]])
    assert found.vts == pytest.approx(4 / math.sqrt(2 * 10))


@pytest.mark.parametrize("groups", [[], [[0], []]])
def test_empty_groups_are_refused(groups: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="set metrics need groups"):
        set_similarity(VECTORS, groups)
