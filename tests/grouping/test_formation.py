from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from patience import PATIENCE_S

from emulator.contracts.grouping import FormationChoice, aggregations, formations, samplings, schedules
from emulator.errors import InputError
from emulator.grouping.formation.cdg import CdgParams
from emulator.grouping.formation.cov import CovParams
from emulator.grouping.formation.kld import KldParams
from emulator.grouping.formation.qcid import QcidParams
from emulator.grouping.formation.random_groups import RandomParams
from emulator.grouping.view import ClientView
from emulator.registry import NoParams, Params, Scale


def clients(n: int, seed: int = 0) -> ClientView:
    counts = np.random.default_rng(seed).integers(0, 30, (n, 10))
    return ClientView(counts, counts.sum(axis=1))


def scale(clients: int, smallest_edge: int) -> Scale:
    return Scale(clients=clients, edges=3, smallest_edge=smallest_edge, classes=10, train_samples=None)


CHOICES: list[tuple[str, Params]] = [
    ("all", NoParams()),
    ("single", NoParams()),
    ("random", RandomParams(size=4)),
    ("cov", CovParams()),
    ("cdg", CdgParams(size=4)),
    ("kld", KldParams()),
    ("qcid", QcidParams()),
]


@pytest.mark.parametrize(("name", "params"), CHOICES)
@pytest.mark.parametrize("n", [0, 1, 2, 7, 60])
def test_every_client_is_in_exactly_one_group(name: str, params: Params, n: int) -> None:
    groups = FormationChoice(name, params)(clients(n), np.random.default_rng(3))
    assert sorted(i for group in groups for i in group) == list(range(n))
    assert all(group and group == sorted(group) for group in groups)
    assert all(type(i) is int for group in groups for i in group)


@pytest.mark.parametrize(("name", "params"), CHOICES)
def test_equal_streams_give_equal_groups(name: str, params: Params) -> None:
    rule = FormationChoice(name, params)
    assert rule(clients(40), np.random.default_rng(3)) == rule(clients(40), np.random.default_rng(3))


def test_all_and_single() -> None:
    rng = np.random.default_rng(0)
    assert formations["all"].function(clients(3), rng, NoParams()) == [[0, 1, 2]]
    assert formations["single"].function(clients(3), rng, NoParams()) == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("n", "size", "sizes"),
    [(10, 5, [5, 5]), (13, 4, [4, 4, 5]), (11, 4, [5, 6]), (7, 4, [7]), (3, 4, [3]), (5, 1, [1] * 5)],
)
def test_random_groups_are_as_equal_as_possible_and_none_is_too_small(n: int, size: int, sizes: list[int]) -> None:
    groups = formations["random"].function(clients(n), np.random.default_rng(0), RandomParams(size=size))
    assert sorted(len(group) for group in groups) == sizes


def test_random_groups_mix_all_clients_evenly() -> None:
    rng = np.random.default_rng(0)
    view, params = clients(6), RandomParams(size=3)
    together = np.zeros((6, 6))
    for _ in range(4000):
        for group in formations["random"].function(view, rng, params):
            together[np.ix_(group, group)] += 1
    # Two clients of six share a group of three with probability 2/5; 0.05 is over six standard deviations.
    np.testing.assert_allclose(together[np.triu_indices(6, 1)] / 4000, 0.4, atol=0.05)


def test_what_a_rule_needs() -> None:
    assert {name: formations[name].facts.needs for name, _ in CHOICES} == {
        "all": (), "single": (), "random": (), "cov": ("label-counts",), "cdg": ("label-counts",),
        "kld": ("label-counts", "label-mix"), "qcid": ("label-counts",),
    }  # fmt: skip
    smallest = {name: formations[name].facts.smallest(params) for name, params in CHOICES}
    assert smallest == {"all": 1, "single": 1, "random": 4, "cov": 5, "cdg": 4, "kld": 5, "qcid": 5}


def test_only_groups_larger_than_the_fleet_are_a_problem_wherever_groups_are_formed() -> None:
    assert list(CovParams(min_size=11).problems(scale(30, 10))) == []
    assert list(RandomParams(size=30).problems(scale(30, 10))) == []
    [(key, message)] = CovParams(min_size=31).problems(scale(30, 10))
    assert key == "min_size"
    assert message == "groups of 31 clients or more cannot be formed from 30"
    [(key, message)] = RandomParams(size=31).problems(scale(30, 10))
    assert key == "size"
    assert "31" in message


@pytest.mark.parametrize(
    "wrong",
    [{"min_size": 0}, {"max_cov": -0.1}, {"max_cov": float("inf")}, {"min_size": 2.5}, {"minsize": 5}],
)
def test_wrong_parameters_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CovParams.model_validate(wrong)


def test_misspelt_names_are_recognised() -> None:
    with pytest.raises(InputError, match="unknown formation 'covv'; did you mean 'cov'"):
        formations["covv"]


def test_the_room_is_found_without_loading_torch_and_every_rule_has_a_summary() -> None:
    script = (
        "import sys; import emulator.contracts; from emulator.registry import Registry\n"
        "for slot in ('formation', 'sampling', 'aggregation', 'schedule'): Registry.by_slot[slot].names()\n"
        "print(sorted({'torch', 'sklearn', 'pandas', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert done.stdout.strip() == "[]"
    for registry in (formations, samplings, aggregations, schedules):
        assert all(registry[name].summary for name in registry.names())
