"""The files at S4's scale have S4's superclients (Table 5), and the variants of a comparison differ in what is compared alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator.grouping.schedule import GrowingParams, growing_count
from emulator.grouping.view import ClientView
from emulator.methods.estimators.task2vec import Task2VecParams
from emulator.scenario.schema import Scenario
from emulator.study.load import load

# S4 Table 5: superclients of FedSeq, and of FedSeq2Par in the mean over rounds.
SUPERCLIENTS = {
    "table-2-paper": (50, 104),
    "table-4-paper": (50, 104),
    "table-5-paper": (50, 104),
    "table-2-paper-cifar100": (50, 113),
    "table-4-paper-cifar100": (50, 113),
    "table-6-paper": (50, None),
    "table-6-paper-cifar100": (50, None),
    "fig-11-paper": (50, None),
    "femnist-tables-paper": (175, 383),
    "shakespeare-tables-paper": (25, 52),
}


def scenarios_of(study: str) -> dict[str, Scenario]:
    """A scenario for each variant."""
    return {run.variant: run.loaded.scenario for run in reversed(load(f"fedseq/{study}").runs)}


def formed(scenario: Scenario) -> list[int]:
    """The sizes of the superclients of a scenario whose clients have equal numbers of samples; what clients say is made up."""
    rng = np.random.default_rng(0)
    clients = scenario.topology.clients
    counts = np.zeros((clients, 10), np.int64)
    counts[np.arange(clients), rng.integers(10, size=clients)] = 100
    view = ClientView(counts, counts.sum(axis=1), rng.dirichlet(np.ones(8), clients))
    return [len(members) for members in scenario.method.params.formation(view, rng)]


@pytest.mark.parametrize("study", SUPERCLIENTS)
def test_superclients_are_as_many_as_in_s4(study: str) -> None:
    fixed, mean = SUPERCLIENTS[study]
    grown, sizes_of = 0, dict[str, list[int]]()
    for name, scenario in scenarios_of(study).items():
        params = scenario.method.params
        schedule = getattr(params, "schedule", None)
        if schedule is not None and isinstance(schedule.params, GrowingParams):
            assert scenario.stop.rounds is not None
            rounds, clients = scenario.stop.rounds, scenario.topology.clients
            counts = [growing_count(t, clients, schedule.params) for t in range(rounds)]
            assert round(float(np.mean(counts))) == mean, name
            # In closed form, before rounding down: the sum of a geometric series, up to where every client is alone.
            rate, start = schedule.params.rate, schedule.params.start
            alone = min(rounds, int(np.ceil(np.log(clients / start) / np.log1p(rate))))
            total = start * ((1 + rate) ** alone - 1) / rate + clients * (rounds - alone)
            assert 0 <= total / rounds - np.mean(counts) < 1, name
            grown += 1
        elif scenario.label in ("fedseq", "fedasyncseq"):
            limits = str({"kind": params.formation.kind, **params.formation.dump(), "distance": ""})
            if limits not in sizes_of:  # what is far changes who is in a group, not how many there are
                sizes_of[limits] = formed(scenario)
            sizes = sizes_of[limits]
            wanted = 100 if name == "FedSeq, 100 superclients" else fixed
            assert len(sizes) == wanted, name
            assert set(sizes) == {scenario.topology.clients // wanted}, name
    assert sizes_of
    assert grown == (mean is not None)


@pytest.mark.parametrize("study", ["table-4-paper", "table-4-paper-cifar100", "table-4-small"])
def test_the_variants_of_table_4_have_the_same_pre_training(study: str) -> None:
    found = scenarios_of(study)
    trained = {(e.epochs, e.batch_size, e.learning_rate, e.momentum) for e in map(_estimator, found.values())}
    assert len(trained) == 1
    local = {str(scenario.method.params.local.dump()) for scenario in found.values()}
    assert len(local) == 1
    probes = {str(e.probe) for e in map(_estimator, found.values()) if isinstance(e, Task2VecParams)}
    assert len(probes) == 1
    assert probes != {"None"}


def _estimator(scenario: Scenario) -> Any:
    return scenario.method.params.estimator.params


def test_table_2_forms_superclients_as_s4_does() -> None:
    for study, formation, distance in (
        ("table-2-paper", "greedy-distant", "normalised-cosine"),
        ("table-2-paper-cifar100", "greedy-distant", "normalised-cosine"),
        ("femnist-tables-paper", "kmeans-spread", None),
        ("shakespeare-tables-paper", "kmeans-spread", None),
    ):
        found = scenarios_of(study)
        for name in ("FedSeq", "FedAsyncSeq", "FedSeq2Par"):
            params = found[name].method.params
            assert params.estimator.kind == "task2vec"
            assert params.formation.kind == ("icg" if name == "FedSeq2Par" else formation)
            if distance and name != "FedSeq2Par":
                assert params.formation.params.distance.kind == distance
        assert found["FedAsyncSeq"].method.params.window is None  # R = N_S


def test_clients_have_a_hundred_images_and_the_public_ones_are_test_images() -> None:
    for study in ("table-2-paper", "table-2-paper-cifar100"):
        data = scenarios_of(study)["FedSeq"].data
        assert data.kept_back == 0
        assert data.public == 10
        assert data.partition.dump()["samples_per_client"] == 100
        assert data.set.train_samples == 500 * 100
