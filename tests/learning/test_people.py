"""Clients that are people are tested on their own test samples, where the data set has some of each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from emulator.errors import InputError
from emulator.learning.clients import ClientData
from emulator.learning.engine import untrained
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.scenario import Loaded

Small = Callable[..., Loaded]

MOVING = (
    "data.set={kind: usc-had, window: 50, generated: {owners: 8, samples: 2}}", "topology.clients=6",
    "evaluate.clusters=true",
)  # fmt: skip
WRITERS = "data.set={kind: leaf, task: femnist, generated: {owners: 8, samples: 6}}"


def lab_of(loaded: Loaded) -> Lab:
    return Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)


def test_a_person_is_tested_on_what_is_theirs(small: Small) -> None:
    loaded = small(*MOVING, "data.partition=natural")
    data, lab = ClientData(loaded.scenario), lab_of(loaded)
    owners, tested = data.arrays.owners, data.arrays.test_owners
    assert owners is not None
    assert tested is not None
    people = lab.clients.people
    assert people is not None
    assert [set(owners[part].tolist()) for part in data.parts] == [{p} for p in people.tolist()]
    module = untrained(loaded.scenario, data.arrays.shape, data.arrays.classes).eval()
    with torch.inference_mode():
        scores = module(torch.from_numpy(data.arrays.x_test)).double()
    labels = torch.from_numpy(data.arrays.y_test)
    right = (scores.argmax(1) == labels).numpy()
    losses = torch.nn.functional.cross_entropy(scores, labels, reduction="none").numpy()
    model = lab.initial()
    *each, together = lab.evaluate_each([*((model, [c]) for c in range(6)), (model, [0, 3])])
    for client, found in enumerate(each):
        theirs = tested == people[client]
        assert theirs.any()
        assert found.accuracy == pytest.approx(right[theirs].mean())
        assert found.loss == pytest.approx(losses[theirs].mean())
    assert len({found.loss for found in each}) == 6
    sizes = [len(data.parts[c]) for c in (0, 3)]
    assert together.loss == pytest.approx(np.average([each[0].loss, each[3].loss], weights=sizes))


def test_people_without_test_samples_are_said_by_number(small: Small) -> None:
    lab = lab_of(small(*MOVING, "data.partition=natural", "evaluate.samples=1"))
    with pytest.raises(InputError, match="no test sample of the person behind client") as caught:
        lab.evaluate_each([(lab.initial(), [c]) for c in range(6)])
    assert caught.value.key == "evaluate.samples"


@pytest.mark.parametrize("changes", [(*MOVING, "data.partition=iid"), (WRITERS, "data.partition=iid")])
def test_clients_that_are_several_people_are_tested_by_their_labels(small: Small, changes: tuple[str, ...]) -> None:
    loaded = small(*changes)
    assert lab_of(loaded).clients.people is None
    assert not len(ClientData(loaded.scenario).people)


def test_speakers_who_are_not_in_the_test_set_are_tested_by_their_labels(small: Small) -> None:
    loaded = small("data.set={kind: speech-commands, generated: {owners: 8, samples: 4}}", "data.partition=natural")
    assert lab_of(loaded).clients.people is None


def test_writers_of_leaf_are_people(small: Small) -> None:
    lab = lab_of(small(WRITERS, "data.partition=natural"))
    assert lab.clients.people is not None
    assert lab.clients.people.tolist() == list(range(8))
