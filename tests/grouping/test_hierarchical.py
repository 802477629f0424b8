"""Hierarchical clustering of clients: linkages by hand, and sets of one size (S1's HierCluster)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.grouping.distances import cosine_similarity
from tests.grouping.test_estimate_formation import clients, formed, of


@pytest.mark.parametrize("linkage", ["average", "complete", "single"])
def test_hierarchical_keeps_like_clients_together(linkage: str) -> None:
    view = of(np.repeat(np.eye(3), [5, 2, 4], axis=0) + np.random.default_rng(0).random((11, 3)) * 0.1)
    groups = formed("hierarchical", {"groups": 3, "linkage": linkage}, view)
    assert groups == [[0, 1, 2, 3, 4], [5, 6], [7, 8, 9, 10]]


def test_linkages_by_hand() -> None:
    # Distances on a line: 0 - 4 - 7 - 12 - 14. Merged first: 3 with 4 (2), then 1 with 2 (3). Then single: 0 with {1, 2} at 4,
    # before {1, 2} with {3, 4} at 5; complete: 0 with {1, 2} at 7, before 10.
    view = of([[0], [4], [7], [12], [14]])
    for linkage in ("single", "complete", "average"):
        params = {"groups": 2, "linkage": linkage, "distance": "euclidean"}
        assert formed("hierarchical", params, view) == [[0, 1, 2], [3, 4]]
    # With 0 at -1.5: single still takes the gap of 5 between 7 and 12, not the one of 5.5; complete 8.5 before 10.
    view = of([[-1.5], [4], [7], [12], [14]])
    assert formed("hierarchical", {"groups": 2, "linkage": "single", "distance": "euclidean"}, view) == [
        [0],
        [1, 2, 3, 4],
    ]
    assert formed("hierarchical", {"groups": 2, "linkage": "complete", "distance": "euclidean"}, view) == [
        [0, 1, 2],
        [3, 4],
    ]


def test_hierarchical_sets_of_one_size_by_hand() -> None:
    # On a line: clusters {0, 1}, {2, 3, 4, 5} and {6, 7, 8}. Of four one stays free and is then the nearest to {0, 1}.
    view = of([[0], [1], [10], [11], [12], [13], [30], [31], [32]])
    params = {"groups": 3, "size": 3, "distance": "euclidean"}
    seen = {
        str(formed("hierarchical", params, view, seed)): formed("hierarchical", params, view, seed)
        for seed in range(40)
    }
    for groups in seen.values():
        free = next(client for client in (2, 3, 4, 5) if client not in groups[1])
        assert groups == [[0, 1, free], [client for client in (2, 3, 4, 5) if client != free], [6, 7, 8]]
    assert len(seen) == 4  # whom it takes of a cluster is drawn
    # Sets of two: a cluster of one takes the nearest that is free, though a member of the far cluster is free too.
    view = of([[0], [10], [11], [12], [90], [91], [92]])
    params = {"groups": 3, "size": 2, "distance": "euclidean"}
    first, second, third = formed("hierarchical", params, view)
    assert first[0] == 0
    assert {*first[1:], *second} == {1, 2, 3}
    assert set(third) < {4, 5, 6}
    # Less than a set's clients make one set of all.
    assert formed("hierarchical", {"size": 4}, of([[0], [1], [5]])) == [[0, 1, 2]]


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_hierarchical_sets_of_one_size_come_from_clusters(data: st.DataObject) -> None:
    size, groups = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
    n = size * groups + data.draw(st.integers(0, 25))
    view = clients(n, seed=data.draw(st.integers(0, 1000)))
    linkage = data.draw(st.sampled_from(["average", "complete", "single"]))
    sets = formed(
        "hierarchical", {"groups": groups, "size": size, "linkage": linkage}, view, data.draw(st.integers(0, 9))
    )
    assert [len(members) for members in sets] == [size] * groups
    taken = [client for members in sets for client in members]
    assert len(set(taken)) == len(taken)
    clusters = formed("hierarchical", {"groups": groups, "linkage": linkage}, view)
    homes = {client: home for home, cluster in enumerate(clusters) for client in cluster}
    whole = [next(iter(homes_)) for homes_ in ({homes[c] for c in members} for members in sets) if len(homes_) == 1]
    for home, cluster in enumerate(clusters):
        if len(cluster) > size:
            assert home in whole  # has enough, so its set is its own
        else:
            assert any(set(cluster) <= set(members) for members in sets)
    # Nobody who stayed out is nearer to a set's own cluster than those with whom it was filled.
    far = 1 - cosine_similarity(view.learnt, view.learnt)
    out = sorted(set(range(n)) - set(taken))
    for cluster in (cluster for cluster in clusters if len(cluster) < size):
        members = next(members for members in sets if set(cluster) <= set(members))
        mean = far[:, cluster].mean(axis=1)
        assert all(mean[joined] <= mean[out].min() + 1e-9 for joined in set(members) - set(cluster) if out)
