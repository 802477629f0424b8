"""Swapped labels: training on them is training on labels swapped by hand, however it is computed, and has keys of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from emulator.learning.extra_samples import fetch
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.recipes import LocalTraining
from emulator.learning.trainer import TrainingData, TrainJob
from emulator.learning.workers import WorkerPool
from emulator.scenario import Loaded
from tests.learning.test_trainer import MODELS, SIZES, TOLERANCE, fresh, make_data, make_jobs, make_trainer, results

Small = Callable[..., Loaded]

MODEL = MODELS[1]  # with convolutions and dropout
SWAPS = {0: ((0, 2), (3, 5)), 2: ((3, 5),), 7: ((9, 1),), 9: ((0, 2), (3, 5))}  # by attacker; all others are honest


def poisoned(rule: str = "sgd") -> list[TrainJob]:
    jobs = make_jobs(*MODEL, rule, list(range(len(SIZES))))
    return [replace(job, swaps=SWAPS.get(number, ())) for number, job in enumerate(jobs)]


def swapped_by_hand() -> TrainingData:
    data = make_data(MODEL[1])
    y = data.y.clone()
    for client, pairs in SWAPS.items():
        other = {a: b for pair in pairs for a, b in (pair, pair[::-1])}
        for sample in data.parts[client]:
            y[sample] = other.get(int(y[sample]), int(y[sample]))
    assert (y != data.y).sum() >= 5
    return replace(data, y=y)


@pytest.mark.parametrize("rule", ["sgd", "scaffold"])
@pytest.mark.parametrize("stacked", [True, False])
def test_attackers_train_as_on_labels_swapped_by_hand(stacked: bool, rule: str) -> None:
    by_hand = make_trainer(*MODEL, stacked=stacked)
    by_hand.data = swapped_by_hand()
    ours = results(make_trainer(*MODEL, stacked=stacked), poisoned(rule))
    theirs = results(by_hand, make_jobs(*MODEL, rule, list(range(len(SIZES)))))
    clean = results(make_trainer(*MODEL, stacked=stacked), make_jobs(*MODEL, rule, list(range(len(SIZES)))))
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert torch.equal(one.state, other.state)
        assert torch.equal(one.state, clean[number].state) is (number not in SWAPS)


def test_attackers_stacked_alone_and_in_workers() -> None:
    torch.set_num_threads(1)
    jobs = poisoned()
    here, alone = (results(make_trainer(*MODEL, stacked=stacked), jobs) for stacked in (True, False))
    for together, one in zip(here, alone, strict=True):
        assert float((together.state - one.state).abs().max()) < TOLERANCE
    for count in (1, 2):
        pool = WorkerPool(count, fresh(*MODEL), make_data(MODEL[1]), 3, 0.0)
        try:
            found = dict(pool.train(jobs, [1] * len(jobs)))
        finally:
            pool.close()
        assert all(torch.equal(found[i].state, here[i].state) for i in range(len(jobs)))


def test_labels_that_others_distilled_are_not_swapped() -> None:
    data = make_data(MODEL[1])
    block = (data.x[:2], torch.tensor([0, 2]))
    index = torch.tensor([[0, 1, len(data.y), len(data.y) + 1]])
    own = data.y[:2].tolist()
    _, labels = fetch(data.x, data.y, index, [block], [((own[0], (own[0] + 1) % 10),)])
    assert labels[0].tolist()[2:] == [0, 2]
    assert labels[0, 0] == (own[0] + 1) % 10


def test_poisoned_trainings_have_keys_of_their_own_and_all_others_keep_theirs(small: Small) -> None:
    loaded = small()
    rule = loaded.scenario.method.params.local

    def keys(swaps: dict[int, tuple[tuple[int, int], ...]]) -> list[str]:
        lab = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)
        lab.poison(swaps)
        return [lab.train(LocalTraining(lab.initial(), client, rule, round=1))[0].key for client in range(3)]

    clean, one, other = keys({}), keys({1: ((0, 2),)}), keys({1: ((0, 2), (3, 5))})
    assert clean[0] == one[0] == other[0]
    assert clean[2] == one[2] == other[2]
    assert len({clean[1], one[1], other[1]}) == 3
    assert keys({1: ()}) == clean  # nothing swapped is what is remembered of clean runs
