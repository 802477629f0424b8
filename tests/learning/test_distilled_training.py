"""Training on other clients' distilled data: as if the samples were the client's own, whoever is trained with it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from emulator import checkpoint
from emulator.contracts.learning import LocalRuleChoice, local_rules, models
from emulator.errors import HflError
from emulator.learning import engine
from emulator.learning.distillation import DistilJob, DistillationParams, distil_client
from emulator.learning.extra_samples import Block, fetch, joined
from emulator.learning.flat import FlatModel
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.recipes import LocalTraining
from emulator.learning.trainer import TrainedState, Trainer, TrainingData, TrainJob, steps_of
from emulator.learning.workers import WorkerPool
from emulator.rng import stream
from emulator.scenario import Loaded

Small = Callable[..., Loaded]
SHAPE, CLASSES = (1, 8, 8), 10
SIZES = [9, 4, 17, 1, 8, 12, 5, 16, 3, 10, 7, 11]
RULE = LocalRuleChoice("sgd", local_rules["sgd"].params(epochs=2, batch_size=4, learning_rate=0.05))
SMALL = DistillationParams(images=5, steps=4)


def module() -> torch.nn.Module:
    torch.manual_seed(1)
    made: torch.nn.Module = models["cnn"].function(SHAPE, CLASSES, models["cnn"].params(channels=(4,), dropout=0.5))
    return made


def block(number: int, rows: int, soft: bool = False) -> Block:
    rng = stream(9, "block", number)
    x = torch.from_numpy(rng.normal(size=(rows, *SHAPE)).astype(np.float32))
    if soft:
        return x, torch.from_numpy(rng.dirichlet(np.ones(CLASSES), rows).astype(np.float32))
    return x, torch.from_numpy(rng.integers(0, CLASSES, rows))


def own_data() -> TrainingData:
    x, y = block(-1, sum(SIZES))
    x[-SIZES[-1] :] = x[-1]  # the last client's samples are all the same
    return TrainingData(x, y, np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1]))


def job(client: int, *extra: Block) -> TrainJob:
    return TrainJob(FlatModel(module()).state, client, RULE, 2, 0, extra=tuple(extra))


def trained(trainer: Trainer, jobs: list[TrainJob]) -> list[Tensor]:
    found = dict(trainer.train(jobs))
    return [found[i].state for i in range(len(jobs))]


def make_trainer(stacked: bool, data: TrainingData | None = None) -> Trainer:
    return Trainer(module(), data or own_data(), 3, 0.0 if stacked else 1e30)


@pytest.mark.parametrize("stacked", [True, False])
def test_it_is_training_on_samples_of_ones_own(stacked: bool) -> None:
    blocks = [block(0, 6), block(1, 3)]
    alone = own_data()
    x, y = joined(blocks)
    parts = list(alone.parts)
    parts[2] = np.concatenate([parts[2], np.arange(len(alone.y), len(alone.y) + 9)])
    merged = TrainingData(torch.cat([alone.x, x]), torch.cat([alone.y, y]), parts)
    (brought,) = trained(make_trainer(stacked), [job(2, *blocks)])
    (own,) = trained(make_trainer(stacked, merged), [job(2)])
    assert torch.equal(brought, own)
    assert steps_of(job(2, *blocks), alone) == steps_of(job(2), merged) == 2 * 7
    assert not torch.equal(brought, trained(make_trainer(stacked), [job(2)])[0])


def crowd() -> list[TrainJob]:
    soft = block(2, 7, soft=True)
    jobs = [job(c) for c in range(len(SIZES))]
    jobs[1], jobs[4] = job(1, block(0, 6)), job(4, block(0, 6), block(1, 3))
    jobs[5], jobs[6] = job(5, soft), job(6, soft, block(1, 3))
    return jobs


@pytest.mark.parametrize("stacked", [True, False])
def test_company_changes_no_bit(stacked: bool) -> None:
    jobs = crowd()
    together = trained(make_trainer(stacked), jobs)
    for number in (0, 1, 4, 5, 6):
        assert torch.equal(together[number], trained(make_trainer(stacked), [jobs[number]])[0])


def test_both_ways_of_training_agree() -> None:
    for one, other in zip(trained(make_trainer(True), crowd()), trained(make_trainer(False), crowd()), strict=True):
        assert float((one - other).abs().max()) < 2e-5


@pytest.mark.parametrize("stacked", [True, False])
def test_soft_targets_that_are_certain_are_labels(stacked: bool) -> None:
    x, y = block(0, 6)
    certain = torch.nn.functional.one_hot(y, CLASSES).float()
    hard, soft = (trained(make_trainer(stacked), [job(2, (x, labels))])[0] for labels in (y, certain))
    assert float((hard - soft).abs().max()) < 1e-6
    unsure = trained(make_trainer(stacked), [job(2, (x, torch.full_like(certain, 1 / CLASSES)))])[0]
    assert float((hard - unsure).abs().max()) > 1e-3


def test_fetching_rows() -> None:
    data = own_data()
    brought = block(0, 3)
    index = torch.tensor([[1, len(data.y) + 2], [5, 0]])
    x, y = fetch(data.x, data.y, index, [brought, None])
    assert torch.equal(x[0, 1], brought[0][2])
    assert torch.equal(x[1], data.x[[5, 0]])
    assert y.tolist() == [[int(data.y[1]), int(brought[1][2])], [int(data.y[5]), int(data.y[0])]]
    x, y = fetch(data.x, data.y, index, [block(0, 3, soft=True), None])
    assert y.shape == (2, 2, CLASSES)
    assert int(y[1, 0].argmax()) == int(data.y[5])
    assert torch.equal(y[0, 1], block(0, 3, soft=True)[1][2])


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    made = WorkerPool(2, module(), own_data(), 3, 0.0)
    yield made
    made.close()


def test_workers_train_on_the_same_samples(pool: WorkerPool) -> None:
    jobs = crowd()
    here = trained(make_trainer(True), jobs)
    waves = [list(range(len(jobs))), [4, 5], [4, 5], [0, 2], [6, 1, 0]]  # the same blocks again, none, others
    for wave in waves:
        found: dict[int, TrainedState] = dict(pool.train([jobs[n] for n in wave], [1] * len(wave)))
        assert all(torch.equal(found[i].state, here[n]) for i, n in enumerate(wave))


def test_workers_distil_to_the_same_bits(pool: WorkerPool) -> None:
    data = own_data()
    jobs = [DistilJob(c, CLASSES, SMALL.model_copy(update={"learn_labels": c % 2 == 0})) for c in (7, 3, 2, 5)]
    found = dict(pool.distil(jobs, [1.0] * 4))
    for number, each in enumerate(jobs):
        images, labels = distil_client(data.x, data.y, data.parts, each, 3)
        assert torch.equal(found[number][0], images)
        assert torch.equal(found[number][1], labels)
    soft = found[2][1]
    assert soft.shape == (5, CLASSES)
    assert torch.allclose(soft.sum(1), torch.ones(5))
    hopeless = DistilJob(len(SIZES) - 1, CLASSES, SMALL.model_copy(update={"ridge": 1e-30}))
    with pytest.raises(HflError, match="client 11: the images that a client distils are too much alike"):
        list(pool.distil([hopeless], [1.0]))
    assert len(dict(pool.distil(jobs[:1], [1.0]))) == 1


def make(loaded: Loaded, memo: Memo | None = None, **options: object) -> Lab:
    return Lab(loaded.scenario, RunMemory(memo or Memo(None)), **{"max_workers": 1, **options})  # type: ignore[arg-type]


def test_nothing_is_distilled_until_a_training_on_it_is_needed(small: Small) -> None:
    loaded = small()
    memo = Memo(None)

    def accuracy(lab: Lab) -> float:
        blocks = [lab.distil(c, SMALL) for c in (1, 2)]
        model, _ = lab.train(
            LocalTraining(lab.initial(), 0, loaded.scenario.method.params.local, round=1, extra=tuple(blocks))
        )
        assert all(h.value is None for b in blocks for h in b)
        result = lab.evaluate(model).accuracy
        assert lab.trained == 0 or all(h.recipe is None and h.value is not None for b in blocks for h in b)
        return result

    first, second = make(loaded, memo), make(loaded, memo)
    assert accuracy(first) == accuracy(second)
    assert (first.trained, second.trained) == (1, 0)
    assert first.sample_shape == second.sample_shape == (1, 8, 8)
    assert "_engine" not in vars(second)


def test_the_header_trains_on_what_the_members_distilled(small: Small) -> None:
    loaded = small()
    lab, rule = make(loaded), loaded.scenario.method.params.local
    blocks = [lab.distil(c, SMALL) for c in (1, 2)]
    assert [tuple(lab.value(b.images).shape) for b in blocks] == [(5, 1, 8, 8)] * 2
    assert lab.value(blocks[0].labels).dtype == torch.int64
    model = lab.value(lab.train(LocalTraining(lab.initial(), 0, rule, round=1, extra=tuple(blocks)))[0])
    data = lab._engine.data
    x, y = torch.from_numpy(data.arrays.x_train), torch.from_numpy(data.arrays.y_train)
    made = [distil_client(x, y, data.parts, DistilJob(c, 10, SMALL), loaded.scenario.seed) for c in (1, 2)]
    by_hand = Trainer(lab._engine._fresh(), TrainingData(x, y, data.parts), loaded.scenario.seed, 0.0)
    expected = TrainJob(lab.value(lab.initial()), 0, rule, 1, 0, extra=tuple(made))
    assert torch.equal(model, trained(by_hand, [expected])[0])


def test_keys(small: Small) -> None:
    loaded = small()
    lab, rule = make(loaded), loaded.scenario.method.params.local
    base = lab.distil(1, SMALL)
    assert base.images is lab.distil(1, SMALL).images
    changed = [SMALL.model_copy(update={name: value}) for name, value in {
        "images": 6, "steps": 5, "learning_rate": 0.005, "batch_size": 7, "ridge": 1e-5, "depth": 2,
        "weight_variance": 1.0, "bias_variance": 0.0, "learn_labels": True,
    }.items()]  # fmt: skip
    assert len(changed) == len(DistillationParams.model_fields)
    keys = {base.images.key, lab.distil(2, SMALL).images.key, *(lab.distil(1, p).images.key for p in changed)}
    assert len(keys) == 2 + len(changed)
    for change in ("seed=4", "data.partition.alpha=0.4", "data.set.separation=3.0", "topology.clients=9"):
        assert make(small(change)).distil(1, SMALL).images.key != base.images.key
    for change in ("model.hidden=[9]", "topology.edges=4", "method.local.epochs=2"):
        assert make(small(change)).distil(1, SMALL).images.key == base.images.key
    other = lab.distil(2, SMALL)
    extras = [[], [base], [other], [base, other], [other, base]]
    assert len({lab.train(LocalTraining(lab.initial(), 0, rule, round=1, extra=tuple(e)))[0].key for e in extras}) == 5
    memory = (lab.zeros(), lab.zeros())
    state, own = lab.train(LocalTraining(lab.initial(), 0, rule, round=1, memory=memory, extra=(base,)))
    assert own is not None
    assert state.key != lab.train(LocalTraining(lab.initial(), 0, rule, round=1, memory=memory))[0].key


def test_rules_with_memory_take_other_samples_too(small: Small) -> None:
    loaded = small("method.local.kind=scaffold")
    lab, rule = make(loaded), loaded.scenario.method.params.local
    memory = (lab.zeros(), lab.zeros())
    for learn_labels in (False, True):
        block = lab.distil(1, SMALL.model_copy(update={"learn_labels": learn_labels}))
        state, own = lab.train(LocalTraining(lab.initial(), 0, rule, round=1, memory=memory, extra=(block,)))
        assert own is not None
        assert torch.isfinite(lab.value(state)).all()
        assert float(lab.value(own).abs().max()) > 0


def test_distilled_data_is_in_the_checkpoint_and_freed_with_its_last_handle(small: Small, tmp_path: Path) -> None:
    loaded = small()
    lab, rule = make(loaded), loaded.scenario.method.params.local
    block = lab.distil(1, SMALL)
    model, _ = lab.train(LocalTraining(lab.initial(), 0, rule, round=1, extra=(block,)))
    images, labels = lab.value(block.images), lab.value(block.labels)
    checkpoint.write(tmp_path, lab)
    again = make(loaded, restored=checkpoint.Restored(tmp_path))
    restored = again.distil(1, SMALL)
    assert restored.images.recipe is None
    assert torch.equal(again.value(restored.images), images)
    assert torch.equal(again.value(restored.labels), labels)
    gone = weakref.ref(block.images)
    del block
    lab.value(model)
    gc.collect()
    assert gone() is None


def test_worker_processes_change_no_bit(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "WORKERS_AFTER_S", 0.0)
    loaded = small()
    told: list[tuple[int, int]] = []

    def headers(lab: Lab) -> list[Tensor]:
        rule = loaded.scenario.method.params.local
        blocks = [lab.distil(c, SMALL) for c in range(6)]
        ends = [
            lab.train(LocalTraining(lab.initial(), c, rule, round=1, extra=blocks[3 * (c - 6) :][:3]))[0]
            for c in (6, 7)
        ]
        lab.value(lab.combine(ends, [0.5, 0.5]))
        lab.close()
        return [lab.value(end) for end in ends]

    here = headers(make(loaded))
    there = headers(make(loaded, max_workers=2, on_trained=lambda done, of: told.append((done, of))))
    assert all(torch.equal(a, b) for a, b in zip(here, there, strict=True))
    assert told == [(1, 6), (2, 6), (3, 6), (4, 6), (5, 6), (6, 6), (1, 2), (2, 2)]
