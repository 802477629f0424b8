"""Partitions that make clusters: who is in which, and what labels and rotations they have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from emulator.contracts.learning import partitions
from emulator.errors import InputError
from emulator.learning.partitions import ClusteredParts, label_counts
from emulator.learning.partitions.clustered import apportioned
from emulator.registry import Scale

S3_BLOCKS = [range(4), range(3, 7), range(4, 10), range(10)]


def pool(each: int = 6000, classes: int = 10) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(classes), each)).astype(np.int64)


def split(kind: str, labels: np.ndarray, clients: int, m: int = 10, /, *, seed: int = 1, **params: Any) -> Any:
    plugin = partitions[kind]
    given = plugin.params.model_validate(params)
    return plugin.function(labels, clients, m, np.random.default_rng(seed), given)


def counts_of(labels: np.ndarray, parts: ClusteredParts) -> np.ndarray:
    assert isinstance(parts, ClusteredParts)
    return label_counts(labels, parts, 10)


@pytest.mark.parametrize(
    ("kind", "params"), [("label-blocks", {}), ("dominant-label", {"beta": 0.5}), ("rotation", {"degrees": [0, 90, 180, 270]})]
)  # fmt: skip
def test_clusters_are_equal_and_drawn_at_random(kind: str, params: dict[str, Any]) -> None:
    parts = split(kind, pool(600), 22, **params)
    assert parts.clusters.dtype == parts.turns.dtype == np.int64
    assert sorted(np.bincount(parts.clusters)) == [5, 5, 6, 6]
    assert parts.clusters.tolist() != split(kind, pool(600), 22, seed=2, **params).clusters.tolist()
    assert (np.diff(parts.clusters) < 0).sum() > 3  # no cluster is a block of client numbers


@pytest.mark.parametrize("alpha", [None, 1.0, 0.1])
def test_clusters_have_the_labels_of_their_blocks(alpha: float | None) -> None:
    labels = pool()
    parts = split("label-blocks", labels, 20, samples_per_client=500, alpha=alpha)
    counts = counts_of(labels, parts)
    assert (counts.sum(axis=1) == 500).all()
    assert not parts.turns.any()
    for cluster, block in enumerate(S3_BLOCKS):
        held = counts[parts.clusters == cluster]
        assert set(np.flatnonzero(held.sum(axis=0))) == set(block)
        even = 500 / len(block)
        assert bool(np.abs(held[:, list(block)] - even).max() < 1) is (alpha is None)


def test_a_block_follows_the_frequencies_of_the_set() -> None:
    labels = np.repeat(np.arange(10), [3000, 1000, 600, 400, *[500] * 6])
    parts = split("label-blocks", labels, 4, blocks=[[0, 1, 2, 3], [4, 9]], samples_per_client=100)
    counts = counts_of(labels, parts)
    assert counts[parts.clusters == 0].tolist() == [[60, 20, 12, 8, 0, 0, 0, 0, 0, 0]] * 2
    assert counts[parts.clusters == 1].tolist() == [[0, 0, 0, 0, 50, 0, 0, 0, 0, 50]] * 2


def test_mixes_inside_a_block_are_dirichlet_draws() -> None:
    # For p ~ Dir(alpha) over m labels, E[Σ p²] = (1 + alpha) / (1 + m·alpha).
    labels = pool()
    for alpha in (0.3, 1.0):
        given: dict[str, Any] = {"blocks": [[2, 3, 5, 7]], "alpha": alpha, "samples_per_client": 1000, "overlap": True}
        counts = counts_of(labels, split("label-blocks", labels, 1500, **given))
        assert set(np.flatnonzero(counts.sum(axis=0))) == {2, 3, 5, 7}
        assert ((counts / 1000) ** 2).sum(axis=1).mean() == pytest.approx((1 + alpha) / (1 + 4 * alpha), rel=0.04)


@pytest.mark.parametrize("alpha", [None, 0.5])
@pytest.mark.parametrize(("beta", "size"), [(0.7, 500), (0.5, 300), (0.25, 101), (0.123, 999), (1.0, 40)])
def test_one_label_has_exactly_its_share(beta: float, size: int, alpha: float | None) -> None:
    labels = pool()
    given: dict[str, Any] = {"beta": beta, "labels": [8, 0, 3], "samples_per_client": size, "alpha": alpha}
    parts = split("dominant-label", labels, 12, **given, overlap=True)
    counts = counts_of(labels, parts)
    assert (counts.sum(axis=1) == size).all()
    dominant = np.array([8, 0, 3])[parts.clusters]
    assert (counts[np.arange(12), dominant] == round(beta * size)).all()
    others = counts[np.arange(10) != dominant[:, None]].reshape(12, 9)
    assert bool(np.ptp(others, axis=1).max() <= 1) is (alpha is None or beta == 1)


def test_sizes_between_two_bounds() -> None:
    labels = pool()
    sizes = {
        s: [len(p) for p in split("label-blocks", labels, 20, seed=s, min_samples=900, max_samples=1100)]
        for s in (1, 2)
    }
    assert min(sizes[1]) >= 900
    assert max(sizes[1]) <= 1100
    assert len(set(sizes[1])) > 10
    assert sizes[1] != sizes[2]


@pytest.mark.parametrize(
    ("kind", "params", "most"),
    # S3's fleet on a balanced set of 60,000. Label 3 is in three of four blocks: 5·n·(1/4 + 1/4 + 1/10) = 6,000.
    # A label that dominates one cluster: 5·n·beta + 15·n·(1 - beta)/9 = 6,000.
    [("label-blocks", {}, 2000), ("dominant-label", {"beta": 0.7}, 1500), ("dominant-label", {"beta": 0.5}, 1800)],
)
def test_as_many_samples_as_fit_and_one_more(kind: str, params: dict[str, Any], most: int) -> None:
    assert {len(p) for p in split(kind, pool(), 20, **params)} == {most}
    assert {len(p) for p in split(kind, pool(), 20, **params, samples_per_client=most)} == {most}
    with pytest.raises(InputError, match=rf"at most {most} samples per client fit, or .* 'overlap: true'") as caught:
        split(kind, pool(), 20, **params, samples_per_client=most + 10)
    assert caught.value.key == "data.partition"
    with pytest.raises(InputError, match="take smaller sizes, or let"):
        split(kind, pool(), 20, **params, min_samples=most + 10, max_samples=most + 20)


def test_clients_that_overlap_draw_by_themselves() -> None:
    labels = pool()
    parts = split("dominant-label", labels, 20, beta=0.7, samples_per_client=2500, overlap=True)
    assert all(len(np.unique(p)) == len(p) == 2500 and (np.diff(p) > 0).all() for p in parts)
    held = np.bincount(np.concatenate(parts))
    assert held.max() > 1
    # Five clients draw 1,750 of the 6,000 samples of a label, fifteen 83 or so: 2 clients share a sample by chance.
    one, other = (parts[i] for i in np.flatnonzero(parts.clusters == 0)[:2])
    assert len(np.intersect1d(one, other)) == pytest.approx(1750**2 / 6000 + 9 * 83**2 / 6000, rel=0.15)
    with pytest.raises(InputError, match="a client needs 7000 samples of label 0, and there are only 6000"):
        split("dominant-label", labels, 20, beta=0.7, samples_per_client=10_000, overlap=True)


def test_whole_numbers_by_largest_remainders() -> None:
    mixes = np.array([[0.5, 0.3, 0.2], [1 / 3, 1 / 3, 1 / 3], [0.0, 0.45, 0.55]])
    tie = np.array([[0.0, 0.0, 0.0], [0.9, 0.1, 0.5], [0.0, 0.0, 0.0]])
    counts = apportioned(mixes, np.array([7, 5, 10]), tie)
    # 3.5, 2.1, 1.4 miss one, for the largest remainder; 1.67 three times miss two, by the tie; 4.5 and 5.5 miss one.
    assert counts[:2].tolist() == [[4, 2, 1], [1, 2, 2]]
    assert counts[2].sum() == 10
    assert counts[2, 0] == 0


def test_rotation_turns_clusters_of_another_partition() -> None:
    labels = pool(600)
    parts = split("rotation", labels, 20, degrees=[0, 270, 90], of={"kind": "dirichlet", "alpha": 0.3})
    assert parts.turns.tolist() == np.array([0, 3, 1])[parts.clusters].tolist()
    plain = split("dirichlet", labels, 20, alpha=0.3)
    assert all(np.array_equal(a, b) for a, b in zip(parts, plain, strict=True))
    default = split("rotation", labels, 20)
    assert sorted(default.turns) == [0] * 10 + [2] * 10


def test_rotation_of_clusters_makes_a_cluster_of_every_pair() -> None:
    labels = pool(600)
    parts = split(
        "rotation", labels, 24, degrees=[0, 180], of={"kind": "label-blocks", "blocks": [[0, 1], [2], [3, 4]]}
    )
    assert np.bincount(parts.clusters).tolist() == [4] * 6
    counts = counts_of(labels, parts)
    for cluster in range(6):
        mine = parts.clusters == cluster
        assert set(parts.turns[mine]) == {2 * (cluster % 2)}
        assert set(np.flatnonzero(counts[mine].sum(axis=0))) == [{0, 1}, {2}, {3, 4}][cluster // 2]
    twice = split("rotation", labels, 24, degrees=[90, 180], of={"kind": "rotation", "degrees": [0, 270]})
    assert sorted(zip(twice.clusters.tolist(), twice.turns.tolist(), strict=True))[::6] == [
        (0, 1),
        (1, 2),
        (2, 0),
        (3, 1),
    ]


@pytest.mark.parametrize(
    ("kind", "params", "clients", "text", "key"),
    [
        ("label-blocks", {}, 3, "4 clusters for 3 clients would leave clusters empty", ""),
        ("dominant-label", {"beta": 0.5}, 3, "4 clusters for 3 clients", ""),
        ("rotation", {}, 1, "2 clusters for 1 clients", ".degrees"),
        ("label-blocks", {"blocks": [[0, 10]]}, 3, "there is no label 10; the set's labels go from 0 to 9", ".blocks"),
        ("dominant-label", {"beta": 0.5, "labels": [12]}, 3, "there is no label 12", ".labels"),
        ("label-blocks", {"blocks": [[0], [9]]}, 3, "no samples of the labels of cluster 1", ""),
        ("dominant-label", {"beta": 0.5, "labels": [9]}, 3, "no samples of label 9", ".labels"),
        ("label-blocks", {"blocks": [[0], [1]]}, 60, "not enough samples of the clusters' labels .* fewer clients", ""),
        ("label-blocks", {}, 100, "100 clients cannot share 90 samples", ""),
        ("rotation", {"of": {"kind": "iid", "samples_per_client": 99}}, 5, "at most 18 per client", ".of"),
        ("rotation", {"of": {"kind": "label-blocks", "blocks": [[11]]}}, 5, "there is no label 11", ".of.blocks"),
    ],
)
def test_what_cannot_be_divided(kind: str, params: dict[str, Any], clients: int, text: str, key: str) -> None:
    labels = pool(10, classes=9)  # of ten labels the last has no samples
    with pytest.raises(InputError, match=text) as caught:
        split(kind, labels, clients, **params)
    assert caught.value.key == f"data.partition{key}"


@pytest.mark.parametrize(
    ("kind", "params", "text"),
    [
        ("label-blocks", {"blocks": []}, "at least 1 item"),
        ("label-blocks", {"blocks": [[0], []]}, "at least 1 item"),
        ("label-blocks", {"blocks": [[0, -1]]}, "greater than or equal to 0"),
        ("label-blocks", {"blocks": [0, 1]}, "valid tuple"),
        ("label-blocks", {"min_samples": 5}, "both 'min_samples' and 'max_samples'"),
        ("label-blocks", {"min_samples": 5, "max_samples": 4}, "must not be greater"),
        ("label-blocks", {"min_samples": 5, "max_samples": 6, "samples_per_client": 5}, "give either"),
        ("label-blocks", {"overlap": True}, "'overlap' needs 'samples_per_client'"),
        ("label-blocks", {"alpha": 0.0}, "greater than 0"),
        ("dominant-label", {}, "beta"),
        ("dominant-label", {"beta": 0.0}, "greater than 0"),
        ("dominant-label", {"beta": 1.1}, "less than or equal to 1"),
        ("dominant-label", {"beta": 0.5, "labels": [1, 2, 1]}, "must differ"),
        ("rotation", {"degrees": []}, "at least 1 item"),
        ("rotation", {"degrees": [0, 45]}, "should be 0, 90, 180 or 270"),
        ("rotation", {"degrees": [90, 90]}, "must differ"),
        ("rotation", {"of": "dirichlet"}, "invalid parameters"),
        ("rotation", {"of": "nothing"}, "unknown partition 'nothing'"),
    ],
)
def test_parameters_that_make_no_sense(kind: str, params: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        partitions[kind].params.model_validate(params)


@pytest.mark.parametrize(
    ("kind", "params", "keys"),
    [
        ("label-blocks", {"samples_per_client": 14}, []),
        ("label-blocks", {"samples_per_client": 15}, ["samples_per_client"]),
        ("label-blocks", {"samples_per_client": 15, "overlap": True}, []),
        ("label-blocks", {"min_samples": 15, "max_samples": 20}, ["min_samples"]),
        ("label-blocks", {"blocks": [[0], [3, 10, 4]]}, ["blocks"]),
        ("label-blocks", {"blocks": [[c % 10] for c in range(101)]}, ["blocks"]),
        ("dominant-label", {"beta": 0.5, "labels": [9]}, []),
        ("dominant-label", {"beta": 0.5, "labels": [9, 10]}, ["labels"]),
        ("rotation", {"degrees": [0, 180]}, []),
        ("rotation", {"degrees": [0, 90]}, ["degrees"]),
    ],
)
def test_problems_that_are_known_before_data_is_read(kind: str, params: dict[str, Any], keys: list[str]) -> None:
    given = partitions[kind].params.model_validate(params)
    known = Scale(clients=100, edges=0, smallest_edge=100, classes=10, train_samples=1437, shape=(1, 8, 6))
    assert [key for key, _ in given.problems(known)] == keys
    if len(getattr(given, "blocks", ())) <= 100:
        unknown = Scale(clients=100, edges=0, smallest_edge=100, classes=None, train_samples=None)
        assert list(given.problems(unknown)) == []


def test_samples_that_are_no_images_cannot_be_rotated() -> None:
    given = partitions["rotation"].params.model_validate({})
    flat = Scale(clients=4, edges=0, smallest_edge=4, classes=10, train_samples=100, shape=(64,))
    assert [m for _, m in given.problems(flat)] == [
        "only images can be rotated; a sample must have channels, height and width"
    ]
