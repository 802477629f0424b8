"""Stacked training: agrees with training one by one, and does not depend in a bit on who is trained with whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from patience import PATIENCE_S
from torch import Tensor, nn

from emulator.contracts.learning import LocalRuleChoice, local_rules, models
from emulator.errors import HflError
from emulator.learning.flat import FlatModel
from emulator.learning.stepping import Update
from emulator.learning.trainer import TrainedState, Trainer, TrainingData, TrainJob
from emulator.learning.workers import WorkerPool, assign_jobs
from emulator.rng import stream

# Float32 rounding, grown over a few steps of training; a weight is of the order of 0.1.
TOLERANCE = 2e-5

MODELS: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("mlp", (1, 8, 8), {"hidden": (16,), "dropout": 0.3}),
    ("cnn", (1, 8, 8), {"channels": (4, 8), "hidden": (12,), "dropout": 0.5}),
    ("lenet5", (1, 28, 28), {}),
    ("cnn-mnist", (1, 28, 28), {}),
    ("cnn-fashion-mnist", (1, 28, 28), {}),
    ("cnn-cifar10", (3, 32, 32), {}),
    ("audio-cnn", (1, 9, 6), {"channels": (4, 4, 8, 8)}),
    ("har-cnn", (6, 1, 40), {"channels": (4, 4, 8), "hidden": 12}),
    ("resnet-1block", (1, 8, 8), {"width": 8, "groups": 4}),
    ("resnet-3block", (3, 8, 8), {"width": 8, "groups": 4}),
    ("resnet-1block", (1, 8, 8), {"width": 8, "norm": "batch"}),
    ("char-lstm", (6,), {"hidden": 9, "layers": 1}),
    ("char-gru", (6,), {"hidden": 9, "layers": 2}),
    ("word-lstm", (6,), {"hidden": 9, "embedding": 5}),
]
RULES: dict[str, dict[str, Any]] = {  # by kind, and a word that tells two of a kind apart
    "sgd": {"momentum": 0.5, "weight_decay": 0.01, "clip": 2.0},
    "fedprox": {"mu": 0.1},
    "scaffold": {},
    "feddyn": {"alpha": 0.1},
    "classifier-sgd": {"momentum": 0.5, "weight_decay": 0.01, "clip": 2.0},
    # Adam divides by a gradient's length. With a small ε it enlarges rounding, and what falls to the other side of a kink.
    "sgd adam": {"optimiser": {"kind": "adam", "eps": 1e-2}, "weight_decay": 0.01, "clip": 2.0, "learning_rate": 0.01},
    "fedprox adamw": {
        "mu": 0.1, "optimiser": {"kind": "adamw", "eps": 1e-2}, "weight_decay": 0.1, "smoothing": 0.2, "learning_rate": 0.01,
    },
    "classifier-sgd adamw": {"optimiser": {"kind": "adamw", "eps": 1e-2}, "weight_decay": 0.1, "learning_rate": 0.01},
    "sgd smoothed": {"smoothing": 0.3, "schedule": {"kind": "step", "every": 1, "factor": 0.5}},
}  # fmt: skip
SIZES = [9, 4, 17, 1, 8, 12, 5, 16, 3, 10, 7, 11, 2]  # samples of the clients; more clients than places in a stack


def fresh(name: str, shape: tuple[int, ...], params: dict[str, Any]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module: nn.Module = models[name].function(shape, 10, models[name].params(**params))
        return module


def make_data(shape: tuple[int, ...]) -> TrainingData:
    rng = stream(7, "test-data")
    total = sum(SIZES)
    x = torch.from_numpy(rng.normal(size=(total, *shape)).astype(np.float32))
    if len(shape) == 1:  # tokens
        x = torch.from_numpy(rng.integers(0, 10, (total, *shape)))
    y = torch.from_numpy(rng.integers(0, 10, total))
    return TrainingData(x, y, np.split(np.arange(total), np.cumsum(SIZES)[:-1]))


def make_trainer(name: str, shape: tuple[int, ...], params: dict[str, Any], stacked: bool) -> Trainer:
    """Of models alone, the gradients are torch's own."""
    trainer = Trainer(fresh(name, shape, params), make_data(shape), 3, 0.0 if stacked else 1e30)
    if not stacked:
        vars(trainer)["_written_out"] = None
    return trainer


def make_jobs(
    name: str, shape: tuple[int, ...], params: dict[str, Any], rule: str, clients: list[int]
) -> list[TrainJob]:
    weights = FlatModel(fresh(name, shape, params)).state
    kind, params_of_rule = rule.partition(" ")[0], {"epochs": 2, "batch_size": 4, "learning_rate": 0.05, **RULES[rule]}
    local = LocalRuleChoice(kind, local_rules[kind].params(**params_of_rule))
    memory: tuple[Tensor, ...] = ()
    if local().remember is not None:
        rng = stream(8, "states")
        memory = tuple(torch.from_numpy(0.01 * rng.normal(size=len(weights)).astype(np.float32)) for _ in range(2))
    return [TrainJob(weights, c, local, 2, 1, *memory) for c in clients]


def results(trainer: Trainer, jobs: list[TrainJob]) -> list[TrainedState]:
    found = dict(trainer.train(jobs))
    return [found[i] for i in range(len(jobs))]


def same(one: TrainedState, other: TrainedState) -> bool:
    if (one.own is None) != (other.own is None):
        return False
    return torch.equal(one.state, other.state) and (
        one.own is None or other.own is None or torch.equal(one.own, other.own)
    )


def agree(one: Tensor, other: Tensor) -> bool:
    """To rounding; a value next to a kink (of a ReLU, between two maxima) may fall to its other side and move a few weights."""
    apart = (one - other).abs()
    return float((apart >= TOLERANCE).double().mean()) < 0.002 and float(apart.max()) < 1e-3


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m[0])
def test_stacked_training_agrees_with_one_by_one(model: tuple[str, tuple[int, ...], dict[str, Any]], rule: str) -> None:
    everyone = list(range(len(SIZES)))
    stacked, alone = make_trainer(*model, stacked=True), make_trainer(*model, stacked=False)
    assert stacked.stacks(4)
    assert not alone.stacks(4)
    jobs = make_jobs(*model, rule, everyone)
    expected = results(alone, jobs)
    for trainer in (stacked, Trainer(fresh(*model), make_data(model[1]), 3, 1e30)):
        for found, one in zip(results(trainer, jobs), expected, strict=True):
            assert agree(found.state, one.state)
            assert float((one.state - jobs[0].weights).abs().max()) > 10 * TOLERANCE
            if one.own is not None and found.own is not None:
                scale = float(one.own.abs().max())
                assert float((found.own - one.own).abs().max()) < 1e-3 * scale


@pytest.mark.parametrize("rule", ["sgd", "scaffold", "classifier-sgd", "sgd adam"])
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m[0])
def test_a_result_does_not_depend_on_the_company(model: tuple[str, tuple[int, ...], dict[str, Any]], rule: str) -> None:
    trainer = make_trainer(*model, stacked=True)
    everyone = list(range(len(SIZES)))
    reference = results(trainer, make_jobs(*model, rule, everyone))
    for company in ([12, 3, 7], everyone[::-1], [5], [0, 0, 4, 4]):
        for client, result in zip(company, results(trainer, make_jobs(*model, rule, company)), strict=True):
            assert same(result, reference[client]), (company, client)


@pytest.fixture(scope="module")
def pools() -> Iterator[list[WorkerPool]]:
    name, shape, params = MODELS[1]
    made = [WorkerPool(count, fresh(name, shape, params), make_data(shape), 3, 0.0) for count in (1, 2)]
    yield made
    for pool in made:
        pool.close()


@pytest.mark.parametrize("rule", ["sgd", "scaffold", "classifier-sgd", "fedprox adamw"])
def test_one_worker_two_workers_and_this_process_agree_in_every_bit(pools: list[WorkerPool], rule: str) -> None:
    torch.set_num_threads(1)
    jobs = make_jobs(*MODELS[1], rule, list(range(len(SIZES))))
    here = results(make_trainer(*MODELS[1], stacked=True), jobs)
    for pool in pools:
        found = dict(pool.train(jobs, [1] * len(jobs)))
        assert all(same(found[i], here[i]) for i in range(len(jobs)))
        few = dict(pool.train(jobs[3:5], [1, 1]))
        assert all(same(few[i], here[3 + i]) for i in range(2))


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m[0])
def test_training_the_classifier_alone_leaves_all_before_it_as_it_is_in_every_bit(
    model: tuple[str, tuple[int, ...], dict[str, Any]], stacked: bool
) -> None:
    trainer = make_trainer(*model, stacked=stacked)
    jobs = make_jobs(*model, "classifier-sgd", [2, 5, 7])
    sizes = [p.numel() for p in fresh(*model).parameters()]
    trained = slice(sum(sizes[:-2]), sum(sizes))  # the last layer's weights and biases; buffers come behind them
    for result in results(trainer, jobs):
        moved = result.state != jobs[0].weights
        assert moved[trained].double().mean() > 0.5
        assert not moved[: trained.start].any()
        assert not moved[trained.stop :].any()
    # What is not frozen trains as before: the trainer keeps nothing of it.
    after = results(trainer, make_jobs(*model, "sgd", [2]))
    assert same(after[0], results(make_trainer(*model, stacked=stacked), make_jobs(*model, "sgd", [2]))[0])


@pytest.mark.parametrize("stacked", [True, False])
def test_training_the_classifier_alone_is_regression_on_the_features(stacked: bool) -> None:
    model = MODELS[1]  # has dropout, which a frozen extractor does not
    (found,) = results(make_trainer(*model, stacked=stacked), make_jobs(*model, "classifier-sgd", [2]))
    module, data = fresh(*model).eval(), make_data(model[1])
    extractor, last = module[:-1], module[-1]
    assert isinstance(last, nn.Linear)
    velocity = [torch.zeros_like(p) for p in last.parameters()]
    for epoch in (1, 2):
        order = torch.from_numpy(stream(3, "batches", 2, 2, epoch).permutation(data.parts[2]))
        for batch in order.split(4):
            features = extractor(data.x[batch]).detach()
            gradients = torch.autograd.grad(
                nn.functional.cross_entropy(last(features), data.y[batch]), list(last.parameters())
            )
            decayed = [g + 0.01 * p.detach() for g, p in zip(gradients, last.parameters(), strict=True)]
            norm = torch.cat([g.flatten() for g in decayed]).norm()
            for p, v, g in zip(last.parameters(), velocity, decayed, strict=True):
                v.mul_(0.5).add_(g * min(1.0, 2.0 / float(norm)))
                p.data.sub_(0.05 * v)
    expected = torch.cat([p.detach().flatten() for p in last.parameters()])
    assert float((found.state[-len(expected) :] - expected).abs().max()) < TOLERANCE


def test_a_rule_of_any_kind_can_be_kept_to_the_classifier() -> None:
    # Its own state moves every weight of SCAFFOLD; the mask holds those before the last layer nevertheless.
    (job,) = make_jobs(*MODELS[0], "scaffold", [4])
    weights = job.weights.clone()
    mask = torch.zeros_like(weights)
    mask[-170:] = 1
    Update(job, job.vectors(), mask).step(weights, torch.ones_like(weights), lambda g: [g.view(1, -1)])
    moved = weights != job.weights
    assert not moved[:-170].any()
    assert moved[-170:].all()


def test_an_error_in_a_worker_is_raised_here_and_the_pool_goes_on(pools: list[WorkerPool]) -> None:
    jobs = make_jobs(*MODELS[1], "sgd", [0, 1])
    wild = LocalRuleChoice("sgd", local_rules["sgd"].params(learning_rate=1e30, epochs=5))
    with pytest.raises(HflError, match="the training of client 0 diverged in round 2"):
        list(pools[0].train([TrainJob(jobs[0].weights, 0, wild, 2, 0)], [1]))
    assert len(list(pools[0].train(jobs, [1, 1]))) == 2


def test_a_worker_that_dies_is_reported() -> None:
    name, shape, params = MODELS[0]
    pool = WorkerPool(2, fresh(name, shape, params), make_data(shape), 3, 0.0)
    jobs = make_jobs(*MODELS[0], "sgd", [0, 1, 2, 3])
    list(pool.train(jobs, [1] * 4))
    pool._processes[1].kill()
    pool._processes[1].join(PATIENCE_S)
    with pytest.raises(HflError, match=r"a training process ended unexpectedly \(exit code -9\)"):
        list(pool.train(jobs, [1] * 4))
    pool.close()


def test_models_of_torchvision_reach_a_worker() -> None:
    torch.set_num_threads(1)
    model: tuple[str, tuple[int, ...], dict[str, Any]] = ("resnet18", (3, 17, 17), {})
    jobs = make_jobs(*model, "sgd", [4])
    pool = WorkerPool(1, fresh(*model), make_data(model[1]), 3, 1e30)
    ((_, found),) = pool.train(jobs, [1])
    pool.close()
    (here,) = results(Trainer(fresh(*model), make_data(model[1]), 3, 1e30), jobs)
    assert same(found, here)


def test_work_is_dealt_out_evenly() -> None:
    shares = assign_jobs([5, 1, 1, 1, 4, 3, 3], 2)
    assert sorted(n for share in shares for n in share) == list(range(7))
    assert sorted(sum([5, 1, 1, 1, 4, 3, 3][n] for n in share) for share in shares) == [9, 9]


def test_flat_vectors_are_the_module() -> None:
    module = fresh("cnn", (1, 8, 8), {})
    before = {k: v.clone() for k, v in module.state_dict().items()}
    flat = FlatModel(module)
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    assert flat.size == sum(v.numel() for v in before.values())
    with torch.no_grad():
        flat.state.mul_(2)
    assert all(torch.equal(v, 2 * before[k]) for k, v in module.state_dict().items())
