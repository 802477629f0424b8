from __future__ import annotations

import numpy as np
import pytest

from emulator.grouping.formation.cov import CovParams, cov
from emulator.grouping.quality import cov as cov_of
from emulator.grouping.view import ClientView, group_view

from .naive_cov import naive_cov


def view(counts: np.ndarray) -> ClientView:
    return ClientView(counts, counts.sum(axis=1))


def skewed(rng: np.random.Generator, n: int, m: int, alpha: float, largest: int) -> np.ndarray:
    return rng.multinomial(rng.integers(0, largest + 1, n), rng.dirichlet(np.full(m, alpha), n))


def starts(seed: int, n: int, m: int) -> list[int]:
    """The first draws of the rule where n and then m clients are left."""
    rng = np.random.default_rng(seed)
    return [int(rng.integers(n)), int(rng.integers(m))]


def both(counts: np.ndarray, seed: int, min_size: int, max_cov: float) -> list[list[int]]:
    fast: list[list[int]] = cov(
        view(counts), np.random.default_rng(seed), CovParams(min_size=min_size, max_cov=max_cov)
    )
    assert fast == naive_cov(counts, np.random.default_rng(seed), min_size, max_cov)
    return fast


@pytest.mark.parametrize("seed", range(60))
def test_the_fast_rule_gives_the_groups_of_the_algorithm_word_for_word(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 60)), int(rng.integers(1, 12))
    counts = skewed(rng, n, m, alpha=float(rng.choice([0.1, 0.5, 5.0])), largest=int(rng.choice([20, 200, 100_000])))
    both(counts, seed, int(rng.integers(1, 9)), float(rng.choice([0.0, 0.1, 0.3, 0.5, 1.0, 3.0])))


@pytest.mark.parametrize("seed", range(60))
def test_so_it_does_where_most_choices_are_ties(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    n, m = int(rng.integers(2, 50)), int(rng.integers(1, 5))
    counts = rng.integers(0, 2 + seed % 2, (n, m))  # many equal clients, many without samples
    both(counts, seed, int(rng.integers(1, 7)), float(rng.choice([0.0, 0.2, 0.5, 1.0])))


def test_so_it_does_where_clients_are_dropped_from_the_table_many_times() -> None:
    rng = np.random.default_rng(5)
    both(skewed(rng, 300, 10, 0.1, 200), 5, 5, 0.5)


def test_one_label_a_client_gives_one_client_of_each_label_in_a_group() -> None:
    counts = np.tile(10 * np.eye(5, dtype=np.int64), (8, 1))
    groups = both(counts, 0, 5, 0.0)
    assert [sorted(i % 5 for i in group) for group in groups] == [[0, 1, 2, 3, 4]] * 8


def test_ties_go_to_the_lowest_client_number() -> None:
    counts = np.tile([[4, 4]], (6, 1))
    groups = both(counts, 3, 2, 0.0)
    first = int(np.random.default_rng(3).integers(6))
    assert groups[0] == sorted([first, 0 if first else 1])


def test_a_group_is_closed_at_its_limit_and_when_nothing_lowers_its_cov() -> None:
    limit = np.array([[9, 11], [9, 11], [11, 9], [11, 9]])
    assert [len(g) for g in both(limit, 0, 1, 0.1)] == [1] * 4  # a CoV of 1/10 is not above 0.1
    assert [len(g) for g in both(limit, 0, 1, 0.09)] == [2] * 2
    exactly = np.array([[7, 13], [7, 13], [13, 7], [13, 7]])
    assert [len(g) for g in both(exactly, 0, 1, 0.3)] == [1] * 4  # though the float 0.3 is less than 3/10
    hopeless = np.tile([[5, 0]], (6, 1))
    assert [len(g) for g in both(hopeless, 0, 3, 0.1)] == [3] * 2
    assert [len(g) for g in both(hopeless, 0, 1, 0.1)] == [1] * 6


def test_clients_left_over_join_the_groups_whose_cov_they_harm_least() -> None:
    # Two groups of two: (10, 10) and (10, 9). The last client makes the second one even.
    counts = np.array([[10, 0], [0, 10], [10, 0], [0, 9], [0, 1]])
    seed = next(s for s in range(100) if starts(s, 5, 3) == [0, 1])  # with 0 goes 1, then with 3 goes 2; 4 is left
    assert both(counts, seed, 2, 0.0) == [[0, 1], [2, 3, 4]]


def test_clients_left_over_spread_one_after_another() -> None:
    # Three groups of (4, 4, 4); of the two left over, the second sees what the first did.
    counts = np.array([[4, 0, 0], [0, 4, 0], [0, 0, 4]] * 3 + [[0, 0, 3], [0, 3, 0]])
    for seed in range(200):
        groups = both(counts, seed, 3, 0.0)
        assert sorted(len(group) for group in groups) in ([3, 3, 5], [3, 4, 4])


def test_no_group_is_under_the_minimum_unless_there_are_too_few_clients() -> None:
    rng = np.random.default_rng(2)
    for n in (5, 6, 9, 14, 99):
        counts = skewed(rng, n, 10, 0.1, 200)
        groups = cov(view(counts), rng, CovParams(min_size=5))
        assert min(len(group) for group in groups) >= 5
    assert cov(view(counts[:3]), rng, CovParams(min_size=5)) == [[0, 1, 2]]
    assert cov(view(counts[:0]), rng, CovParams(min_size=5)) == []


def test_clients_without_samples_are_grouped_like_all_others() -> None:
    counts = np.zeros((9, 3), dtype=np.int64)
    assert [len(g) for g in both(counts, 0, 2, 0.5)] == [3, 2, 2, 2]
    counts[4] = [3, 2, 1]
    both(counts, 1, 3, 0.5)


def test_counts_that_floats_hold_only_just_are_still_exact() -> None:
    rng = np.random.default_rng(4)
    counts = rng.integers(2_000_000, 2_000_003, (12, 3))  # S2 to 2^52, CoVs that differ in the seventh place
    both(counts, 0, 3, 0.0)


def test_groups_are_more_even_than_random_ones() -> None:
    rng = np.random.default_rng(6)
    counts = skewed(rng, 200, 10, 0.1, 200)
    ours = cov_of(group_view(counts, cov(view(counts), rng, CovParams(max_cov=1.0))).label_counts)
    order = rng.permutation(200).reshape(40, 5).tolist()
    assert ours.mean() < 0.6 * cov_of(group_view(counts, order).label_counts).mean()
