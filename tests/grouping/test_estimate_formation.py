"""Formation by estimates: what each rule promises, cases worked by hand, and limits that cannot be kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from emulator.contracts.grouping import FormationChoice, formations
from emulator.errors import InputError
from emulator.grouping.distances import cosine_similarity
from emulator.grouping.formation.greedy_distant import GreedyParams
from emulator.grouping.formation.virtual_target import similarity
from emulator.grouping.view import ClientView
from emulator.registry import Scale

FILLING = ("greedy-distant", "kmeans-spread")
RULES: list[tuple[str, dict[str, Any]]] = [
    ("greedy-distant", {}),
    ("greedy-distant", {"max_clients": 3, "distance": "kl"}),
    ("greedy-distant", {"size": 1}),
    ("kmeans-spread", {"clusters": 4}),
    ("kmeans-spread", {"size": 1}),
    ("icg", {"max_clients": 4}),
    ("icg", {"groups": 5}),
    ("hierarchical", {"groups": 3}),
    ("hierarchical", {"groups": 4, "linkage": "complete", "distance": "kl"}),
    ("virtual-target", {"size": 1}),
]


def rule(name: str, params: dict[str, Any]) -> FormationChoice:
    return FormationChoice(name, formations[name].params.model_validate(params))


def clients(n: int, seed: int = 0, equal: bool = True) -> ClientView:
    rng = np.random.default_rng(seed)
    mixes = rng.dirichlet(np.full(6, 0.3), n)
    samples = np.full(n, 100) if equal else rng.integers(1, 200, n)
    counts = np.floor(mixes * samples[:, None]).astype(np.int64)
    return ClientView(counts, samples, mixes)


def of(estimates: Any, samples: Any = None) -> ClientView:
    estimates = np.array(estimates, dtype=np.float64)
    samples = np.full(len(estimates), 10) if samples is None else np.array(samples)
    return ClientView(np.zeros(estimates.shape, dtype=np.int64), samples, estimates)


def formed(name: str, params: dict[str, Any], view: ClientView, seed: int = 3) -> list[list[int]]:
    groups: list[list[int]] = rule(name, params)(view, np.random.default_rng(seed))
    return groups


class First(np.random.Generator):
    """A stream that always points at the first of those that are left."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def integers(self, *args: Any, **kwargs: Any) -> Any:
        return 0


@pytest.mark.parametrize(("name", "params"), RULES)
@pytest.mark.parametrize("n", [0, 1, 2, 7, 61])
def test_every_client_is_in_exactly_one_group(name: str, params: dict[str, Any], n: int) -> None:
    groups = formed(name, params, clients(n))
    assert sorted(i for group in groups for i in group) == list(range(n))
    assert all(group and group == sorted(group) for group in groups)
    assert all(type(i) is int for group in groups for i in group)


@pytest.mark.parametrize(("name", "params"), RULES)
def test_equal_streams_give_equal_groups_and_others_other_ones(name: str, params: dict[str, Any]) -> None:
    view = clients(40, equal=False)
    assert formed(name, params, view) == formed(name, params, view)
    if name != "hierarchical":  # draws nothing where sizes are free
        assert len({str(formed(name, params, view, seed)) for seed in range(5)}) > 1


@pytest.mark.parametrize("name", [*FILLING, "icg", "hierarchical", "virtual-target"])
def test_they_need_estimates(name: str) -> None:
    assert formations[name].facts.needs == ("estimates",)
    with pytest.raises(ValueError, match="no estimates"):
        formed(name, {"groups": 2, "size": 2} if name == "virtual-target" else {"groups": 2} if name in ("icg", "hierarchical")
               else {}, ClientView(np.ones((5, 2), dtype=np.int64), np.full(5, 2)))  # fmt: skip


def test_clients_that_are_all_alike_are_no_trouble() -> None:
    view = of(np.ones((9, 3)))
    for name, params in RULES:
        assert sorted(i for group in formed(name, params, view) for i in group) == list(range(9))


# Limits.


@pytest.mark.parametrize("name", FILLING)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_limits_are_kept_or_refused(name: str, data: st.DataObject) -> None:
    samples = np.array(data.draw(st.lists(st.integers(0, 100), min_size=1, max_size=25)))
    least, most = data.draw(st.integers(1, 150)), data.draw(st.integers(1, 12))
    view = ClientView(
        np.ones((len(samples), 3), dtype=np.int64), samples, np.random.default_rng(0).random((len(samples), 3))
    )
    params = {"min_samples": least, "max_clients": most}
    try:
        groups = formed(name, params, view)
    except InputError:
        # Never where one group of all would do.
        assert len(samples) > most or samples.sum() < least
        return
    assert sorted(i for group in groups for i in group) == list(range(len(samples)))
    assert all(len(group) <= most and samples[group].sum() >= least for group in groups)


@given(
    samples=st.lists(st.integers(0, 100), min_size=1, max_size=25), least=st.integers(1, 150), most=st.integers(1, 12)
)
@settings(max_examples=60, deadline=None)
def test_icg_keeps_limits_or_refuses(samples: list[int], least: int, most: int) -> None:
    view = of(np.random.default_rng(0).random((len(samples), 3)), samples)
    try:
        groups = formed("icg", {"min_samples": least, "max_clients": most}, view)
    except InputError:
        assert len(samples) > most or sum(samples) < least
        return
    assert sorted(i for group in groups for i in group) == list(range(len(samples)))
    assert all(len(group) <= most and view.samples[group].sum() >= least for group in groups)
    assert max(map(len, groups)) - min(map(len, groups)) <= 1


@pytest.mark.parametrize("name", [*FILLING, "icg"])
def test_the_published_setting_gives_groups_of_8_to_11(name: str) -> None:
    # 500 clients of 100 images, |D_S|min = 800 and K_S,max = 11: 62 superclients, four clients are spread.
    groups = formed(name, {"min_samples": 800, "max_clients": 11}, clients(500))
    assert len(groups) == 62
    assert sorted(map(len, groups)) == [8] * 58 + [9] * 4


@pytest.mark.parametrize("name", FILLING)
def test_a_last_group_that_is_short_of_samples_is_spread_over_those_with_fewest(name: str) -> None:
    view = of(np.random.default_rng(1).random((7, 2)), [30] * 7)
    groups = formed(name, {"min_samples": 90, "max_clients": 4}, view)
    assert sorted(map(len, groups)) == [3, 4]
    message = "no groups with at least 90 samples and at most 3 clients each were found for 7"
    with pytest.raises(InputError, match=message) as caught:
        formed(name, {"min_samples": 90, "max_clients": 3}, view)
    assert caught.value.key == "method.formation.min_samples"


@pytest.mark.parametrize("name", FILLING)
def test_without_samples_asked_for_groups_are_full_but_the_last(name: str) -> None:
    assert sorted(map(len, formed(name, {"max_clients": 4}, clients(10)))) == [2, 4, 4]


@pytest.mark.parametrize("name", [*FILLING, "virtual-target"])
@pytest.mark.parametrize(
    ("n", "size", "groups", "sizes"),
    [(12, 4, None, [4, 4, 4]), (14, 4, None, [4, 4, 4]), (14, 4, 2, [4, 4]), (36, 4, 9, [4] * 9), (3, 4, None, [3])],
)
def test_an_exact_size_leaves_clients_out(name: str, n: int, size: int, groups: int | None, sizes: list[int]) -> None:
    params = {"size": size} if groups is None else {"size": size, "groups": groups}
    found = formed(name, params, clients(n))
    assert [len(group) for group in found] == sizes
    members = [i for group in found for i in group]
    assert len(set(members)) == len(members)


def scale(clients: int, train_samples: int | None = None) -> Scale:
    return Scale(clients=clients, edges=3, smallest_edge=clients // 3, classes=6, train_samples=train_samples)


@pytest.mark.parametrize(
    ("name", "params", "key", "message"),
    [
        ("greedy-distant", {"size": 31}, "size", "groups of 31 clients cannot be formed from 30"),
        ("virtual-target", {"size": 4, "groups": 9}, "groups", "9 groups of 4 clients need 36; there are 30"),
        ("icg", {"groups": 31}, "groups", "31 groups cannot be formed from 30 clients"),
        ("hierarchical", {"groups": 31}, "groups", "31 groups cannot be formed from 30 clients"),
        ("kmeans-spread", {"min_samples": 500, "max_clients": 10}, "min_samples",
         "30 clients, 10 a group at most, make 3 groups or more; 500 samples for each are more than the 1499 there are"),
        ("icg", {"min_samples": 500, "max_clients": 10}, "min_samples",
         "30 clients, 10 a group at most, make 3 groups or more; 500 samples for each are more than the 1499 there are"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_beforehand(name: str, params: dict[str, Any], key: str, message: str) -> None:
    chosen = rule(name, params)
    assert list(chosen.params.problems(scale(30, 1499))) == [(key, message)]


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("greedy-distant", {"size": 30}), ("virtual-target", {"size": 5, "groups": 6}), ("icg", {"groups": 30}),
        ("hierarchical", {"groups": 30}), ("kmeans-spread", {"min_samples": 500, "max_clients": 10}), ("icg", {}),
    ],
)  # fmt: skip
def test_what_just_fits_is_no_problem(name: str, params: dict[str, Any]) -> None:
    assert list(rule(name, params).params.problems(scale(30, 1500))) == []
    assert list(rule(name, params).params.problems(scale(30))) == []


@pytest.mark.parametrize("name", FILLING)
def test_limits_that_exclude_each_other_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="'size' takes the place of 'min_samples'"):
        rule(name, {"size": 3, "min_samples": 10})
    with pytest.raises(ValueError, match="'groups' needs 'size'"):
        rule(name, {"groups": 3})


@pytest.mark.parametrize(
    ("name", "params", "smallest", "most"),
    [
        ("greedy-distant", {}, 1, 10), ("greedy-distant", {"size": 3}, 3, 3),
        ("kmeans-spread", {"size": 3, "groups": 2}, 6, 2), ("icg", {"groups": 4}, 4, 4), ("icg", {}, 1, 10),
        ("virtual-target", {"size": 4}, 4, 2), ("virtual-target", {"size": 2, "groups": 3}, 6, 3),
        ("hierarchical", {"groups": 3}, 3, 3),
    ],
)  # fmt: skip
def test_facts(name: str, params: dict[str, Any], smallest: int, most: int) -> None:
    chosen = rule(name, params)
    facts = chosen.plugin.facts
    assert facts.smallest(chosen.params) == smallest
    assert facts.most(chosen.params, 10) == most
    assert len(formed(name, params, clients(10))) <= most


# Greedy distant, by hand.


def test_greedy_takes_the_farthest_from_the_mean() -> None:
    # From 0: farthest is 4 at 10. Mean 5: 1 (at 1) and 3 (at 9) are both 4 away, the lower number joins. Mean 11/3: 3.
    line = of([[0], [1], [3], [9], [10]])
    params = {"distance": "euclidean", "size": 4}
    assert rule("greedy-distant", params)(line, First()) == [[0, 1, 3, 4]]
    params = {"distance": "euclidean", "max_clients": 2}
    # 0 with 4; then 1 (the first that is left) with 3; 2 is left over.
    assert rule("greedy-distant", params)(line, First()) == [[0, 4], [1, 3], [2]]


def test_greedy_pairs_clients_of_different_classes() -> None:
    view = of(np.repeat(np.eye(4), 5, axis=0))  # five clients of each of four classes
    for distance in ("cosine", "kl", "gini", "entropy", "euclidean", "normalised-cosine"):
        for group in formed("greedy-distant", {"distance": distance, "size": 4}, view):
            assert sorted(i // 5 for i in group) == [0, 1, 2, 3], distance


def test_greedy_asks_for_the_distance_from_the_client_to_the_mean() -> None:
    # KL is not symmetric: KL(1 ‖ 0) > KL(2 ‖ 0), but KL(0 ‖ 1) < KL(0 ‖ 2).
    view = of([[0.3, 0.7], [0.75, 0.25], [0.001, 0.999]])
    kl = GreedyParams.model_validate({"distance": "kl"}).distance
    estimates = view.learnt
    assert kl(estimates[1:], estimates[:1])[:, 0].argmax() == 0
    assert kl(estimates[:1], estimates[1:])[0].argmax() == 1
    assert rule("greedy-distant", {"distance": "kl", "size": 2})(view, First()) == [[0, 1]]


# k-means spread.


def test_kmeans_takes_one_of_each_cluster_in_turn() -> None:
    centres = np.array([[0.0, 0], [10, 0], [0, 10]])
    view = of(np.repeat(centres, 4, axis=0) + np.random.default_rng(0).normal(0, 0.1, (12, 2)))
    groups = formed("kmeans-spread", {"clusters": 3, "size": 3}, view)
    assert [sorted(i // 4 for i in group) for group in groups] == [[0, 1, 2]] * 4


def test_kmeans_goes_on_with_the_next_cluster_and_skips_empty_ones() -> None:
    # Clusters of 4 and 2: the turns are A B A B A A, cut into groups of two from wherever the last one ended.
    view = of([[0.0], [0.1], [0.2], [0.3], [9.0], [9.1]])
    groups = formed("kmeans-spread", {"clusters": 2, "size": 2}, view)
    assert [sum(i >= 4 for i in group) for group in groups] == [1, 1, 0]


def test_kmeans_makes_as_many_clusters_as_classes_unless_told() -> None:
    view = clients(60)
    assert formed("kmeans-spread", {"size": 4}, view) == formed("kmeans-spread", {"size": 4, "clusters": 6}, view)
    assert formed("kmeans-spread", {"size": 4}, view) != formed("kmeans-spread", {"size": 4, "clusters": 2}, view)


# Inter-cluster grouping.


@given(n=st.integers(1, 60), groups=st.integers(1, 60))
@settings(max_examples=40, deadline=None)
def test_icg_makes_the_number_of_groups_that_is_asked_for(n: int, groups: int) -> None:
    assume(groups <= n)
    found = formed("icg", {"groups": groups}, clients(n))
    assert len(found) == groups
    assert {len(group) for group in found} <= {n // groups, n // groups + 1}


def test_icg_gives_every_group_one_client_of_each_kind() -> None:
    view = of(np.repeat(np.eye(5), 6, axis=0) + np.random.default_rng(0).normal(0, 0.01, (30, 5)))
    for seed in range(3):
        groups = formed("icg", {"groups": 6}, view, seed)
        assert [sorted(i // 6 for i in group) for group in groups] == [[0, 1, 2, 3, 4]] * 6


def test_icg_spreads_who_is_left_over_those_with_fewest_samples() -> None:
    view = of(np.ones((8, 2)), [1, 1, 1, 1, 50, 50, 50, 50])
    for seed in range(10):
        groups = formed("icg", {"groups": 3}, view, seed)
        assert sorted(map(len, groups)) == [2, 3, 3]
        pair = next(group for group in groups if len(group) == 2)
        pairs = [sum(sorted(view.samples[group])[:2]) for group in groups if len(group) == 3]
        assert view.samples[pair].sum() >= min(pairs)


# Virtual target, by hand.


def test_virtual_target_completes_what_is_missing() -> None:
    view = of([[1, 0, 0], [0.9, 0.1, 0], [0, 0.5, 0.5], [0, 1, 0], [0, 0, 1], [0.3, 0.3, 0.3]])
    # 0 with 2 has (1, .5, .5): 2 / sqrt(3 · 1.5) = 0.943. With 3 or 4: 0.816. With 5: (1.3, .3, .3), 0.798.
    assert rule("virtual-target", {"size": 2, "groups": 1})(view, First()) == [[0, 2]]
    # Then with 3 or 4: (1, 1.5, .5), 0.926; with 5: (1.3, .8, .8), 0.970; with 1: (1.9, .6, .5), 0.853.
    assert rule("virtual-target", {"size": 3, "groups": 1})(view, First()) == [[0, 2, 5]]


def test_virtual_target_prefers_balance_where_greedy_prefers_outliers() -> None:
    # The point of S1: 1 knows a single other class and is the least like 0; 2 knows both others and balances it.
    view = of([[1, 0.0, 0.1], [0, 1, 0], [0.2, 0.8, 0.8]])
    assert rule("virtual-target", {"size": 2})(view, First()) == [[0, 2]]
    assert rule("greedy-distant", {"size": 2})(view, First()) == [[0, 1]]


def test_virtual_target_is_algorithm_1_step_by_step() -> None:
    view = clients(23, seed=5)
    v, rng = view.learnt, np.random.default_rng(8)
    free, sets = list(range(23)), []
    for _ in range(5):
        chosen = [free.pop(int(rng.integers(len(free))))]
        for _ in range(3):
            scores = [cosine_similarity(v[[*chosen, j]].mean(axis=0)[None], np.ones((1, 6)))[0, 0] for j in free]
            chosen.append(free.pop(int(np.argmax(scores))))
        sets.append(sorted(chosen))
    assert formed("virtual-target", {"size": 4, "groups": 5}, view, seed=8) == sets


def test_similarity_to_the_target() -> None:
    rows = np.array([[2.0, 2, 2, 2], [3, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]])
    np.testing.assert_allclose(similarity(rows), [1, 0.5, 0, np.sqrt(0.5)])


def test_virtual_target_wants_a_number_for_each_class() -> None:
    view = ClientView(np.ones((4, 6), dtype=np.int64), np.full(4, 6), np.ones((4, 2)))
    with pytest.raises(InputError, match="one number for each of 6 classes, and the estimates have 2") as caught:
        formed("virtual-target", {"size": 2}, view)
    assert caught.value.key == "method.estimator"
