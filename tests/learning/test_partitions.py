from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from emulator.contracts.learning import partitions
from emulator.errors import InputError
from emulator.learning.partitions import label_counts
from emulator.learning.partitions.dirichlet import log_dirichlet
from emulator.registry import Scale


def pool(classes: int = 10, each: int = 600, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), each)).astype(np.int64)


def split(
    kind: str, labels: np.ndarray, clients: int, m: int = 10, /, *, seed: int = 1, **params: Any
) -> list[np.ndarray]:
    plugin = partitions[kind]
    given = plugin.params.model_validate(params)
    parts: list[np.ndarray] = plugin.function(labels, clients, m, np.random.default_rng(seed), given)
    return parts


CASES: list[tuple[str, dict[str, Any]]] = [
    ("iid", {}),
    ("iid", {"samples_per_client": 7}),
    *(("dirichlet", {"alpha": a}) for a in (0.0, 1e-320, 0.001, 0.1, 1.0, 1e9)),
    *(("dirichlet", {"alpha": a, "samples_per_client": 30}) for a in (0.0, 0.001, 0.5)),
    *(("dirichlet", {"alpha": a, "sizes": "normal", "min_samples": 5, "max_samples": 60}) for a in (0.0, 0.001, 0.5)),
    *(("dirichlet", {"alpha": a, "sizes": "by-class"}) for a in (0.0, 0.001, 0.5)),
    ("classes-per-client", {"classes": 1}),
    ("classes-per-client", {"classes": 3}),
    ("classes-per-client", {"classes": 4, "samples_per_client": 50}),
    ("label-blocks", {}),
    ("label-blocks", {"alpha": 0.5, "min_samples": 5, "max_samples": 15}),
    ("dominant-label", {"beta": 0.7}),
    ("dominant-label", {"beta": 1.0, "samples_per_client": 20}),
    ("rotation", {"degrees": [0, 90, 180, 270]}),
    ("rotation", {"of": {"kind": "dirichlet", "alpha": 1.0, "samples_per_client": 30}}),
]


@pytest.mark.parametrize(("kind", "params"), CASES, ids=str)
def test_parts_are_sorted_disjoint_and_not_empty(kind: str, params: dict[str, Any]) -> None:
    labels = pool()
    parts = split(kind, labels, 97, **params)
    assert len(parts) == 97
    assert all(p.dtype == np.int64 and len(p) >= 1 and (np.diff(p) > 0).all() for p in parts)
    dealt = np.concatenate(parts)
    assert len(np.unique(dealt)) == len(dealt)
    assert dealt.min() >= 0
    assert dealt.max() < len(labels)


@pytest.mark.parametrize(("kind", "params"), CASES, ids=str)
def test_a_partition_is_determined_by_its_stream(kind: str, params: dict[str, Any]) -> None:
    first, same, other = (split(kind, pool(), 97, seed=s, **params) for s in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "classes-per-client"])
def test_as_many_clients_as_samples_and_one_more(kind: str) -> None:
    labels = pool(each=5)
    every: dict[str, dict[str, Any]] = {"iid": {}, "dirichlet": {"alpha": 0.3}, "classes-per-client": {"classes": 1}}
    params = every[kind]
    assert [len(p) for p in split(kind, labels, 50, **params)] == [1] * 50
    with pytest.raises(InputError, match="51 clients cannot share 50 samples") as caught:
        split(kind, labels, 51, **params)
    assert caught.value.key == "data.partition"


def test_label_counts() -> None:
    labels = np.array([0, 1, 2, 2, 1, 0])
    counts = label_counts(labels, [np.array([0, 2, 3]), np.array([1]), np.array([4, 5])], 4)
    assert counts.dtype == np.int64
    assert counts.tolist() == [[1, 0, 2, 0], [0, 1, 0, 0], [1, 1, 0, 0]]


def test_iid_uses_every_sample_in_sizes_that_differ_by_one() -> None:
    parts = split("iid", pool(), 97)
    sizes = [len(p) for p in parts]
    assert sum(sizes) == 6000
    assert set(sizes) == {61, 62}
    counts = label_counts(pool(), split("iid", pool(), 10), 10)
    assert np.abs(counts / 600 - 0.1).max() < 0.04  # about three standard deviations of a draw of 600


def test_iid_with_a_size_that_does_not_fit() -> None:
    assert {len(p) for p in split("iid", pool(), 100, samples_per_client=60)} == {60}
    with pytest.raises(InputError, match="at most 60 per client"):
        split("iid", pool(), 100, samples_per_client=61)


def test_dirichlet_draws_have_the_moments_of_the_distribution() -> None:
    classes = 5
    for alpha in (0.001, 0.1, 1.0, 20.0):
        logs = log_dirichlet(alpha, 40_000, classes, np.random.default_rng(3))
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        variance = (1 / classes) * (1 - 1 / classes) / (classes * alpha + 1)
        assert np.isfinite(shares).all()
        assert shares.mean(axis=0) == pytest.approx(np.full(classes, 1 / classes), abs=4 * np.sqrt(variance / 40_000))
        assert shares.var(axis=0) == pytest.approx(np.full(classes, variance), rel=0.05)


def test_dirichlet_clients_have_mixes_of_that_distribution() -> None:
    # A large pool and few samples dealt, so that no class runs dry. For p ~ Dir(alpha) over m classes,
    # E[Σ p²] = (1 + alpha) / (1 + m·alpha); n samples drawn by p have E[Σ (c/n)²] = E[Σ p²] (1 - 1/n) + 1/n.
    labels = pool(each=20_000)
    for alpha in (0.1, 1.0):
        counts = label_counts(labels, split("dirichlet", labels, 1000, alpha=alpha, samples_per_client=50), 10)
        expected = (1 + alpha) / (1 + 10 * alpha) * (1 - 1 / 50) + 1 / 50
        assert ((counts / 50) ** 2).sum(axis=1).mean() == pytest.approx(expected, rel=0.05)


def test_dirichlet_equal_keeps_sizes_when_classes_run_dry() -> None:
    labels = np.repeat(np.arange(10), [5, 5, 10, 20, 60, 100, 200, 300, 300, 0])
    parts = split("dirichlet", labels, 100, alpha=0.1)
    assert {len(p) for p in parts} == {10}
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(1000))
    parts = split("dirichlet", labels, 100, alpha=0.1, samples_per_client=3)
    assert {len(p) for p in parts} == {3}


def test_dirichlet_remainder_follows_the_clients_own_mix() -> None:
    # With a tiny alpha a mix is a ranking of the classes: who finds the favourite dry takes the second.
    labels = np.repeat(np.arange(4), [100, 100, 100, 5000])
    counts = label_counts(labels, split("dirichlet", labels, 100, 4, alpha=1e-4, samples_per_client=20), 4)
    assert (counts > 0).sum(axis=1).max() <= 2
    assert ((counts > 0).sum(axis=1) == 1).mean() > 0.9
    assert counts.sum(axis=0)[:3].tolist() == [100, 100, 100]


def test_clients_of_low_number_are_not_served_first() -> None:
    # 2,000 clients like both classes alike, and class 0 has a tenth of what they want of it.
    labels = np.repeat(np.arange(2), [1000, 40_000])
    counts = label_counts(labels, split("dirichlet", labels, 2000, 2, alpha=1.0, samples_per_client=10), 2)
    holders = np.flatnonzero(counts[:, 0])
    assert abs(holders.mean() - 1000) < 200


def test_dirichlet_normal_sizes() -> None:
    labels = pool(each=5000)
    runs = [split("dirichlet", labels, 300, seed=s, alpha=0.1, sizes="normal") for s in range(10)]
    sizes = np.array([len(p) for parts in runs for p in parts])
    assert sizes.min() >= 20
    assert sizes.max() <= 200
    assert sizes.mean() == pytest.approx(110, abs=2.5)
    # A normal distribution cut at two deviations keeps sqrt(1 - 4φ(2) / (2Φ(2) - 1)) of its deviation.
    assert sizes.std() == pytest.approx(45 * 0.8796, rel=0.04)
    given: dict[str, Any] = {"min_samples": 10, "max_samples": 100, "mean_samples": 20.0, "std_samples": 2.0}
    sizes = np.array([len(p) for p in split("dirichlet", labels, 300, alpha=0.1, sizes="normal", **given)])
    assert sizes.mean() == pytest.approx(20, abs=0.5)
    same = split("dirichlet", labels, 300, alpha=0.1, sizes="normal", min_samples=33, max_samples=33)
    assert {len(p) for p in same} == {33}


def test_dirichlet_normal_that_does_not_fit() -> None:
    with pytest.raises(InputError, match=r"add up to .* samples, but there are only 6000; lower 'max_samples'"):
        split("dirichlet", pool(), 300, alpha=0.1, sizes="normal")
    with pytest.raises(InputError, match="finds no class with so many left"):
        split("dirichlet", pool(each=50), 3, alpha=0.0, sizes="normal", min_samples=60, max_samples=70)


@pytest.mark.parametrize("sizes", ["equal", "normal", "by-class"])
def test_alpha_zero_gives_one_class_a_client(sizes: str) -> None:
    labels = pool(each=1500)
    counts = label_counts(labels, split("dirichlet", labels, 100, alpha=0, sizes=sizes), 10)
    assert ((counts > 0).sum(axis=1) == 1).all()
    assert (counts > 0).sum(axis=0).min() >= 8
    if sizes != "normal":
        assert (counts > 0).sum(axis=0).tolist() == [10] * 10
        assert counts.sum(axis=0).tolist() == [1500] * 10


def test_alpha_zero_takes_the_largest_size_that_fits() -> None:
    labels = np.repeat(np.arange(3), [100, 50, 30])
    counts = label_counts(labels, split("dirichlet", labels, 7, 3, alpha=0), 3)
    assert counts.sum(axis=1).tolist() == [25] * 7  # 26 would leave room for 3 + 1 + 1 clients
    assert (counts > 0).sum(axis=0).tolist() == [4, 2, 1]
    assert {len(p) for p in split("dirichlet", labels, 7, 3, alpha=0, samples_per_client=20)} == {20}
    with pytest.raises(InputError, match="at most 25 samples per client"):
        split("dirichlet", labels, 7, 3, alpha=0, samples_per_client=26)


def test_alpha_zero_with_fewer_clients_than_classes() -> None:
    for sizes in ("equal", "by-class"):
        counts = label_counts(pool(), split("dirichlet", pool(), 4, alpha=0, sizes=sizes), 10)
        assert counts.sum(axis=1).tolist() == [600] * 4
        assert (counts > 0).sum(axis=0).max() == 1


def test_by_class_divides_every_lot() -> None:
    labels = pool()
    counts = label_counts(labels, split("dirichlet", labels, 50, alpha=0.5, sizes="by-class"), 10)
    assert counts.sum(axis=0).tolist() == [600] * 10
    shares = counts / 600  # each column is a draw of Dir(0.5 · 1) over 50 clients: E[Σ p²] = 1.5 / 26
    assert (shares**2).sum(axis=0).mean() == pytest.approx(1.5 / 26, rel=0.25)
    counts = label_counts(labels, split("dirichlet", labels, 500, alpha=0.001, sizes="by-class"), 10)
    assert counts.sum(axis=0).tolist() == [600] * 10
    assert (counts.sum(axis=1) == 1).sum() > 400  # nearly all were fed by the few that got everything


@pytest.mark.parametrize("take", [1, 2, 3, 7, 10])
def test_classes_per_client(take: int) -> None:
    labels = pool()
    parts = split("classes-per-client", labels, 100, classes=take)
    counts = label_counts(labels, parts, 10)
    assert ((counts > 0).sum(axis=1) == take).all()
    assert (counts > 0).sum(axis=0).tolist() == [10 * take] * 10
    assert counts.sum() == 6000
    sizes = label_counts(labels, split("classes-per-client", labels, 100, classes=take, samples_per_client=45), 10)
    assert (sizes.sum(axis=1) == 45).all()
    held = np.where(sizes > 0, sizes, 45 // take)
    assert held.max() - held.min() <= 1


def test_classes_per_client_overlap_in_many_combinations() -> None:
    counts = label_counts(pool(), split("classes-per-client", pool(), 100, classes=2), 10)
    assert len({tuple(np.flatnonzero(row)) for row in counts}) > 25  # of 45 pairs


def test_classes_per_client_uses_labels_as_evenly_as_can_be() -> None:
    counts = label_counts(pool(), split("classes-per-client", pool(), 7, classes=3), 10)
    assert sorted((counts > 0).sum(axis=0)) == [2] * 9 + [3]


@pytest.mark.parametrize(("take", "each"), [(2, 7), (3, 7), (3, 8), (4, 10), (7, 45)])
def test_classes_per_client_fits_exactly_into_the_pool(take: int, each: int) -> None:
    labels = pool(each=10 * each)
    for seed in range(5):
        parts = split("classes-per-client", labels, 100, seed=seed, classes=take, samples_per_client=each)
        assert {len(p) for p in parts} == {each}
        counts = label_counts(labels, parts, 10)
        assert counts.sum(axis=0).tolist() == [10 * each] * 10
        assert ((counts > 0).sum(axis=1) == take).all()


def test_classes_per_client_that_cannot_be() -> None:
    few = np.repeat(np.arange(3), [100, 100, 4])
    with pytest.raises(InputError, match="class 2 has 4 samples and its 10 holders need") as caught:
        split("classes-per-client", few, 10, 3, classes=3, samples_per_client=9)
    assert caught.value.key == "data.partition"
    with pytest.raises(InputError, match="holders need"):
        split("classes-per-client", few, 20, 3, classes=1)
    with pytest.raises(InputError, match="only 3 classes") as caught:
        split("classes-per-client", few, 2, 10, classes=4)
    assert caught.value.key == "data.partition.classes"
    with pytest.raises(InputError, match="at most 20 per client"):
        split("classes-per-client", few, 10, 3, classes=1, samples_per_client=21)


def test_labels_without_samples_are_not_used() -> None:
    labels = np.repeat([1, 3, 4], 50)
    counts = label_counts(labels, split("classes-per-client", labels, 6, 6, classes=2), 6)
    assert (counts > 0).sum(axis=0).tolist() == [0, 4, 0, 4, 4, 0]
    for alpha in (0.0, 0.2):
        counts = label_counts(labels, split("dirichlet", labels, 6, 6, alpha=alpha), 6)
        assert counts.sum(axis=1).tolist() == [25] * 6


@pytest.mark.parametrize(
    ("kind", "params", "text"),
    [
        ("dirichlet", {}, "alpha"),
        ("dirichlet", {"alpha": -0.1}, "greater than or equal to 0"),
        ("dirichlet", {"alpha": float("nan")}, "finite"),
        ("dirichlet", {"alpha": 1.0, "sizes": "normal", "samples_per_client": 5}, "goes with 'sizes: equal'"),
        ("dirichlet", {"alpha": 1.0, "std_samples": 5.0}, "go with 'sizes: normal'"),
        ("dirichlet", {"alpha": 1.0, "min_samples": 5, "max_samples": 4}, "must not be greater"),
        ("dirichlet", {"alpha": 1.0, "sizes": "normal", "mean_samples": 10.0}, "must lie between"),
        ("dirichlet", {"alpha": 1.0, "sizes": "normal", "std_samples": 181.0}, "range of sizes"),
        ("iid", {"samples_per_client": 0}, "greater than or equal to 1"),
        ("classes-per-client", {"classes": 3, "samples_per_client": 2}, "must be at least 3"),
    ],
)
def test_parameters_that_make_no_sense(kind: str, params: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        partitions[kind].params.model_validate(params)


@pytest.mark.parametrize(
    ("kind", "params", "keys"),
    [
        ("iid", {"samples_per_client": 14}, []),
        ("iid", {"samples_per_client": 15}, ["samples_per_client"]),
        ("dirichlet", {"alpha": 0.1, "samples_per_client": 15}, ["samples_per_client"]),
        ("dirichlet", {"alpha": 0.1, "sizes": "normal"}, ["min_samples"]),
        ("dirichlet", {"alpha": 0.1, "sizes": "normal", "min_samples": 2}, []),
        ("dirichlet", {"alpha": 0.1}, []),
        ("classes-per-client", {"classes": 10}, []),
        ("classes-per-client", {"classes": 11, "samples_per_client": 15}, ["classes", "samples_per_client"]),
    ],
)
def test_problems_that_are_known_before_data_is_read(kind: str, params: dict[str, Any], keys: list[str]) -> None:
    given = partitions[kind].params.model_validate(params)
    known = Scale(clients=100, edges=0, smallest_edge=100, classes=10, train_samples=1437)
    assert [key for key, _ in given.problems(known)] == keys
    unknown = Scale(clients=100, edges=0, smallest_edge=100, classes=None, train_samples=None)
    assert list(given.problems(unknown)) == []


@pytest.mark.benchmark
@pytest.mark.parametrize(("kind", "params"), CASES, ids=str)
def test_speed_for_ten_thousand_clients(kind: str, params: dict[str, Any]) -> None:
    labels = pool(each=60_000)
    assert len(split(kind, labels, 10_000, **params)) == 10_000
