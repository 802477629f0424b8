"""The groupings that Group-FEL is compared with: CDG (OUEA), KLD (SHARE), QCID (Fed-CBS)."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.contracts.grouping import formations
from emulator.grouping import quality
from emulator.grouping.formation.cdg import CdgParams, cdg
from emulator.grouping.formation.kld import KldParams, kld
from emulator.grouping.formation.qcid import QcidParams, qcid
from emulator.grouping.kmeans import kmeans
from emulator.grouping.view import ClientView, group_view


def view(counts: np.ndarray, fleet: np.ndarray | None = None) -> ClientView:
    return ClientView(counts, counts.sum(axis=1), fleet_counts=fleet)


def skewed(rng: np.random.Generator, n: int, m: int, alpha: float, largest: int) -> np.ndarray:
    return rng.multinomial(rng.integers(0, largest + 1, n), rng.dirichlet(np.full(m, alpha), n))


def formed(name: str, counts: np.ndarray, size: int, seed: int) -> list[list[int]]:
    plugin = formations[name]
    params = plugin.params(**{"size" if name == "cdg" else "min_size": size})
    groups: list[list[int]] = plugin.function(view(counts), np.random.default_rng(seed), params)
    return groups


@st.composite
def fleets(draw: st.DrawFn) -> np.ndarray:
    """Few or many clients and labels; equal clients, clients without samples and labels that nobody has among them."""
    n, m = draw(st.integers(0, 40)), draw(st.integers(1, 6))
    kind = draw(st.sampled_from(["skewed", "one label each", "equal", "tiny"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if kind == "equal":
        return np.tile(rng.integers(0, 50, m), (n, 1))
    if kind == "one label each":
        return np.eye(m, dtype=np.int64)[rng.integers(0, m, n)] * rng.integers(0, 9, (n, 1))
    if kind == "tiny":
        return rng.integers(0, 2, (n, m))
    return skewed(rng, n, m, 0.1, 200)


@pytest.mark.parametrize("name", ["cdg", "kld", "qcid"])
@settings(max_examples=120, deadline=None)
@given(counts=fleets(), size=st.integers(1, 9), seed=st.integers(0, 99))
def test_every_client_is_in_one_group_and_no_group_is_too_small(
    name: str, counts: np.ndarray, size: int, seed: int
) -> None:
    n = len(counts)
    groups = formed(name, counts, size, seed)
    assert sorted(i for group in groups for i in group) == list(range(n))
    assert all(group == sorted(group) for group in groups)
    assert all(type(i) is int for group in groups for i in group)
    assert len(groups) == (max(1, n // size) if n else 0)
    if n >= size:
        assert min(map(len, groups), default=size) >= size
    if name == "cdg" and n:
        assert max(map(len, groups)) - min(map(len, groups)) <= 1
    assert groups == formed(name, counts, size, seed)


@pytest.mark.parametrize("name", ["cdg", "kld", "qcid"])
def test_another_stream_gives_other_groups(name: str) -> None:
    counts = skewed(np.random.default_rng(0), 60, 10, 0.1, 200)
    assert formed(name, counts, 5, 1) != formed(name, counts, 5, 2)


@pytest.mark.parametrize("name", ["cdg", "kld"])
@pytest.mark.parametrize("seed", range(5))
def test_one_label_a_client_gives_one_client_of_each_label_in_a_group(name: str, seed: int) -> None:
    counts = np.tile(10 * np.eye(5, dtype=np.int64), (8, 1))
    groups = formed(name, counts, 5, seed)
    assert [sorted(i % 5 for i in group) for group in groups] == [[0, 1, 2, 3, 4]] * 8


@pytest.mark.parametrize("name", ["cdg", "kld", "qcid"])
def test_groups_are_more_balanced_than_at_random(name: str) -> None:
    rng = np.random.default_rng(0)
    counts = skewed(rng, 300, 10, 0.1, 200)
    by_rule = np.mean(
        [quality.cov(group_view(counts, formed(name, counts, 5, s)).label_counts).mean() for s in range(3)]
    )
    random_groups = np.array_split(rng.permutation(300), 60)
    at_random = quality.cov(group_view(counts, [g.tolist() for g in random_groups]).label_counts).mean()
    assert by_rule < 0.92 * at_random


# CDG


def test_each_cluster_is_dealt_out_evenly_over_the_groups() -> None:
    # Three kinds of clients, 10, 7 and 5 of them, with some noise.
    kinds = np.repeat([0, 1, 2], [10, 7, 5])
    rng = np.random.default_rng(0)
    counts = 100 * np.eye(3, dtype=np.int64)[kinds] + rng.integers(0, 6, (22, 3))
    for seed in range(10):
        groups = cdg(view(counts), np.random.default_rng(seed), CdgParams(size=5, clusters=3))
        assert sorted(map(len, groups)) == [5, 5, 6, 6]
        held = np.array([np.bincount(kinds[group], minlength=3) for group in groups])
        assert (held.max(axis=0) - held.min(axis=0) <= 1).all()


def test_the_number_of_clusters_is_that_of_the_labels_unless_given() -> None:
    counts = skewed(np.random.default_rng(0), 50, 4, 0.1, 100)
    default, four, one = (
        cdg(view(counts), np.random.default_rng(1), CdgParams(size=5, clusters=clusters)) for clusters in (None, 4, 1)
    )
    assert default == four != one


def test_kmeans_finds_what_is_far_apart() -> None:
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 4, 200)
    points = 10 * np.eye(4)[kinds] + rng.normal(0, 0.1, (200, 4))
    for seed in range(10):
        labels = kmeans(points, 4, np.random.default_rng(seed))
        assert len(set(zip(kinds.tolist(), labels.tolist(), strict=True))) == 4


def test_kmeans_leaves_every_point_with_its_nearest_centre() -> None:
    points = np.random.default_rng(0).dirichlet(np.full(5, 0.3), 150)
    labels = kmeans(points, 6, np.random.default_rng(0))
    centres = np.array([points[labels == c].mean(axis=0) for c in range(6)])
    distances = ((points[:, None] - centres) ** 2).sum(axis=2)
    np.testing.assert_array_equal(distances.argmin(axis=1), labels)


def test_kmeans_with_fewer_different_points_than_clusters() -> None:
    points = np.array([[0.0, 1.0], [1.0, 0.0]])[[0, 1, 1, 0, 0]]
    labels = kmeans(points, 4, np.random.default_rng(0))
    assert len(set(labels.tolist())) == 2
    assert labels[0] == labels[3] == labels[4] != labels[1] == labels[2]
    assert kmeans(np.zeros((3, 2)), 5, np.random.default_rng(0)).tolist() == [0, 0, 0]
    assert kmeans(np.zeros((0, 2)), 5, np.random.default_rng(0)).tolist() == []


# KLD


def divergence(counts: list[int], reference: list[int]) -> float:
    total, whole = sum(counts), sum(reference)
    if total == 0:
        return math.inf
    terms = (x / total * math.log(x / total * whole / q) for x, q in zip(counts, reference, strict=True) if x)
    return math.fsum(terms)


def naive_kld(counts: np.ndarray, fleet: np.ndarray, rng: np.random.Generator, min_size: int) -> list[list[int]]:
    """The rule word for word, in plain Python."""
    remaining, groups = list(range(len(counts))), []
    while remaining:
        group = [remaining.pop(int(rng.integers(len(remaining))))]
        while remaining and len(group) < min_size:
            totals = {c: counts[[*group, c]].sum(axis=0).tolist() for c in remaining}
            best = min(remaining, key=lambda c: (round(divergence(totals[c], fleet.tolist()), 9), c))
            group.append(best)
            remaining.remove(best)
        groups.append(group)
    if len(groups) > 1 and len(groups[-1]) < min_size:
        for client in sorted(groups.pop()):
            harms = []
            for group in groups:
                before, after = counts[group].sum(axis=0), counts[[*group, client]].sum(axis=0)
                harm = divergence(after.tolist(), fleet.tolist())
                harms.append(harm - divergence(before.tolist(), fleet.tolist()) if math.isfinite(harm) else 0.0)
            groups[harms.index(min(harms))].append(client)
    return [sorted(group) for group in groups]


@pytest.mark.parametrize("seed", range(30))
def test_kld_gives_the_groups_of_the_rule_word_for_word(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m, min_size = int(rng.integers(1, 50)), int(rng.integers(2, 9)), int(rng.integers(1, 7))
    counts = skewed(rng, n, m, float(rng.choice([0.1, 1.0])), int(rng.choice([5, 200, 5000])))
    n -= (
        n % min_size if n > min_size else 0
    )  # without clients that are left over, whose harms may be equal but for rounding
    counts = counts[:n]
    fleet = counts.sum(axis=0) + rng.integers(1, 500, m)
    found = kld(view(counts, fleet), np.random.default_rng(seed), KldParams(min_size=min_size))
    assert found == naive_kld(counts, fleet, np.random.default_rng(seed), min_size)


def test_clients_that_are_left_join_the_group_that_they_harm_least() -> None:
    rng = np.random.default_rng(4)
    counts = skewed(rng, 23, 6, 0.3, 300)
    fleet = counts.sum(axis=0)
    found = kld(view(counts), np.random.default_rng(7), KldParams(min_size=4))
    assert found == naive_kld(counts, fleet, np.random.default_rng(7), 4)
    assert sum(len(group) - 4 for group in found) == 3


def test_kld_goes_by_the_mix_of_the_fleet_not_of_the_edge() -> None:
    # At the edge both labels are equally frequent; in the fleet the first is nine times as frequent.
    counts = np.array([[90, 10], [10, 90], [90, 10], [10, 90]])
    fleet = np.array([9000, 1000])
    alike = {(0, 2), (1, 3)}
    for seed in range(8):
        own = kld(view(counts), np.random.default_rng(seed), KldParams(min_size=2))
        assert not {tuple(group) for group in own} & alike
        first = int(np.random.default_rng(seed).integers(4))
        of_fleet = kld(view(counts, fleet), np.random.default_rng(seed), KldParams(min_size=2))
        # Whoever starts takes a client of the frequent label.
        assert any(first in group and {0, 2} & (set(group) - {first}) for group in of_fleet)


def test_kld_measure_closed_forms() -> None:
    counts = np.array([[5, 5], [10, 0], [9, 1], [0, 0]])
    expected = [0, math.log(2), 0.9 * math.log(1.8) + 0.1 * math.log(0.2), math.inf]
    np.testing.assert_allclose(quality.kld(counts, np.array([70, 70])), expected, atol=1e-15)
    np.testing.assert_allclose(quality.kld(counts, np.array([70, 0])), [math.inf, 0, math.inf, math.inf])


# QCID


def imbalance(counts: np.ndarray, members: tuple[int, ...]) -> float:
    total = counts[list(members)].sum(axis=0)
    return float(((total / total.sum() - 1 / counts.shape[1]) ** 2).sum())


@pytest.mark.parametrize("power", [1.0, 0.5, 2.5])
def test_clients_are_drawn_by_the_powers_of_the_imbalance(power: float) -> None:
    """All orders in which four clients may come into two pairs, against 6000 draws (chi-square, five deviations)."""
    counts = np.array([[30, 10, 2], [5, 40, 10], [1, 2, 12], [20, 20, 1]])

    def chance(members: tuple[int, ...], client: int, left: list[int]) -> float:
        weights = {c: imbalance(counts, (*members, c)) ** (-power * (len(members) + 1)) for c in left}
        return weights[client] / sum(weights.values())

    expected: Counter[tuple[tuple[int, ...], ...]] = Counter()
    for order in itertools.permutations(range(4)):
        p, left = 1.0, list(range(4))
        for k, client in enumerate(order):
            p *= chance(order[k - k % 2 : k], client, left)
            left.remove(client)
        expected[tuple(sorted(order[:2])), tuple(sorted(order[2:]))] += p
    assert math.fsum(expected.values()) == pytest.approx(1)
    rng, trials = np.random.default_rng(0), 6000
    params = QcidParams(min_size=2, power=power)
    seen = Counter(tuple(map(tuple, qcid(view(counts), rng, params))) for _ in range(trials))
    statistic = sum((seen[key] - trials * p) ** 2 / (trials * p) for key, p in expected.items())
    freedom = len(expected) - 1
    assert set(seen) <= set(expected)
    assert statistic <= freedom + 5 * math.sqrt(2 * freedom)


def test_whoever_makes_a_group_wholly_balanced_is_drawn_at_once_and_uniformly() -> None:
    counts = np.array([[10, 0], [0, 10], [0, 10], [10, 0], [10, 0], [0, 10]])
    rng, seen = np.random.default_rng(0), Counter[tuple[int, ...]]()
    for _ in range(3000):
        groups = qcid(view(counts), rng, QcidParams(min_size=2))
        assert all(counts[group].sum(axis=0).tolist() == [10, 10] for group in groups)
        seen[tuple(groups[0])] += 1
    assert len(seen) == 9
    assert max(abs(count - 3000 / 9) for count in seen.values()) < 5 * math.sqrt(3000 / 9)


def test_a_group_begins_with_a_client_without_samples_only_where_no_other_is_left() -> None:
    counts = np.array([[0, 0], [5, 3], [0, 0], [2, 7]])
    first = Counter(
        tuple(qcid(view(counts), np.random.default_rng(seed), QcidParams(min_size=2))[0]) for seed in range(60)
    )
    assert (0, 2) not in first
    assert {(0, 1), (1, 2), (1, 3)} <= set(first)  # with it the imbalance stays as it is
    nobody = np.zeros((5, 3), dtype=np.int64)
    assert sorted(map(len, qcid(view(nobody), np.random.default_rng(0), QcidParams(min_size=2)))) == [2, 3]


def test_parameters() -> None:
    for name, smallest in (("cdg", 7), ("kld", 6), ("qcid", 6)):
        params = formations[name].params(**{"size" if name == "cdg" else "min_size": smallest})
        assert formations[name].facts.smallest(params) == smallest
        assert "label-counts" in formations[name].facts.needs
        assert formations[name].facts.flops(100, 10, 20, params) > 0
    for wrong in ({"power": 0.0}, {"min_size": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            QcidParams.model_validate(wrong)
    with pytest.raises(ValueError, match="clusters"):
        CdgParams(size=3, clusters=0)
    with pytest.raises(ValueError, match=r"fleet counts \(2,\)"):
        view(np.zeros((3, 4), dtype=np.int64), np.zeros(2, dtype=np.int64))


@pytest.mark.parametrize("name", ["cov", "kld", "qcid"])
@settings(max_examples=40)
@given(counts=fleets(), size=st.integers(1, 7), seed=st.integers(0, 99))
def test_clients_that_are_left_join_or_stay_out_and_nothing_else_changes(
    name: str, counts: np.ndarray, size: int, seed: int
) -> None:
    rule = formations[name]

    def groups(leftover: str) -> list[list[int]]:
        params = rule.params(min_size=size, leftover=leftover)
        found: list[list[int]] = rule.function(view(counts), np.random.default_rng(seed), params)
        return found

    joined, without = groups("join"), groups("out")
    assert len(joined) == len(without)
    assert all(set(few) <= set(many) for few, many in zip(without, joined, strict=True))
    outside = set(range(len(counts))) - set(itertools.chain(*without))
    assert len(outside) < size
    assert sorted(itertools.chain(*joined)) == sorted([*itertools.chain(*without), *outside])
