"""Modules of users in stacks: they agree with torch, do not depend on their company, or say why they cannot be stacked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stack_examples import EXAMPLES, IMAGE, OTHERS, TEXT
from torch import Tensor, nn

from emulator.contracts.learning import LocalRuleChoice, local_rules
from emulator.errors import HflError
from emulator.learning.drawing import own_dropouts
from emulator.learning.flat import FlatModel
from emulator.learning.stack_operations import Batch, total
from emulator.learning.stacked import StackedModel
from emulator.learning.stepping import loss_gradient
from emulator.learning.trainer import COPIES, Trainer, TrainingData, TrainJob
from emulator.rng import stream

TOLERANCE = 2e-5
SIZES = [9, 4, 18, 3, 8, 12, 5, 14, 3, 10, 7, 13, 2]  # no batch of one sample, which batch norm refuses
BATCH = 5


def make_data(shape: tuple[int, ...], sizes: list[int]) -> TrainingData:
    rng = stream(7, "test-data")
    total_samples = sum(sizes)
    if shape == TEXT:
        x = torch.from_numpy(rng.integers(0, 10, (total_samples, *shape)))
    else:
        x = torch.from_numpy(rng.normal(size=(total_samples, *shape)).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, 10, total_samples))
    return TrainingData(x, y, np.split(np.arange(total_samples), np.cumsum(sizes)[:-1]))


def fresh(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return make()


def make_jobs(make: Callable[[], nn.Module], clients: list[int], rule: str = "sgd") -> list[TrainJob]:
    params = {"momentum": 0.5, "weight_decay": 0.01, "clip": 2.0}
    local = LocalRuleChoice(rule, local_rules[rule].params(epochs=2, batch_size=BATCH, learning_rate=0.05, **params))
    weights = FlatModel(fresh(make)).state
    return [TrainJob(weights, c, local, 2, 1) for c in clients]


def trained(trainer: Trainer, jobs: list[TrainJob]) -> list[Tensor]:
    found = dict(trainer.train(jobs))
    return [found[i].state for i in range(len(jobs))]


def by_torch(make: Callable[[], nn.Module], data: TrainingData) -> Trainer:
    """A trainer that takes one model after another, and leaves gradients to torch."""
    trainer = Trainer(fresh(make), data, 3, 1e30)
    vars(trainer)["_written_out"] = None
    return trainer


@pytest.mark.parametrize("rule", ["sgd", "classifier-sgd"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_stack_and_a_program_alone_agree_with_torch(name: str, rule: str) -> None:
    make, shape = EXAMPLES[name]
    data = make_data(shape, SIZES)
    stacked, alone = Trainer(fresh(make), data, 3, 0.0), Trainer(fresh(make), data, 3, 1e30)
    assert stacked.stacks(BATCH), stacked.why_not_stacked
    assert not alone.stacks(BATCH)
    jobs = make_jobs(make, list(range(len(SIZES))), rule)
    expected = trained(by_torch(make, data), jobs)
    for trainer in (stacked, alone):
        for found, wanted in zip(trained(trainer, jobs), expected, strict=True):
            assert float((found - wanted).abs().max()) < TOLERANCE
            assert float((wanted - jobs[0].weights).abs().max()) > 10 * TOLERANCE


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_bit_depends_on_the_company(name: str) -> None:
    make, shape = EXAMPLES[name]
    trainer = Trainer(fresh(make), make_data(shape, SIZES), 3, 0.0)
    everyone = list(range(len(SIZES)))
    reference = trained(trainer, make_jobs(make, everyone))
    for company in ([12, 3, 7], everyone[::-1], [5], [0, 0, 4, 4]):
        for client, found in zip(company, trained(trainer, make_jobs(make, company)), strict=True):
            assert torch.equal(found, reference[client]), (company, client)


@settings(max_examples=40)
@given(
    widths=st.lists(st.integers(3, 9), min_size=1, max_size=3), kernel=st.sampled_from([1, 3]), stride=st.integers(1, 2),
    norm=st.sampled_from(["none", "batch", "group"]), pool=st.booleans(), bias=st.booleans(), hidden=st.integers(1, 21),
    rows=st.integers(2, 7), seed=st.integers(0, 99),
)  # fmt: skip
def test_networks_at_random(
    widths: list[int], kernel: int, stride: int, norm: str, pool: bool, bias: bool, hidden: int, rows: int, seed: int
) -> None:
    """The gradient of every copy is that of torch, and its bits do not depend on its place."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    before = 2
    for width in widths:
        layers.append(nn.Conv2d(before, width, kernel, stride if before == 2 else 1, kernel // 2, bias=bias))
        layers += {"none": [], "batch": [nn.BatchNorm2d(width)], "group": [nn.GroupNorm(1, width)]}[norm]
        layers += [nn.ReLU(), nn.MaxPool2d(2, 1)] if pool and before == 2 else [nn.ReLU()]
        before = width
    layers += [nn.Flatten(), nn.LazyLinear(hidden), nn.Tanh(), nn.Linear(hidden, 4)]
    module = nn.Sequential(*layers)
    samples, y = torch.randn(COPIES, rows, 2, 7, 6), torch.randint(0, 4, (COPIES, rows))
    module(samples[0])
    flat = FlatModel(module)
    stack = StackedModel(flat, COPIES, samples[0])
    assert stack.alike(flat, samples[0], rows)
    states = [flat.state + 0.1 * torch.rand_like(flat.state) for _ in range(COPIES)]
    for copy, state in enumerate(states):
        stack.put(stack.state, copy, state)
    weight = torch.full((COPIES, rows), 1 / rows)
    gradient = stack.backward(loss_gradient(stack.forward(samples, Batch()), y, weight)).clone()
    after = stack.state.clone()
    for copy in range(COPIES):
        flat.state.copy_(states[copy])
        own = flat.gradient_of(nn.functional.cross_entropy(flat.scores(samples[copy]), y[copy]))
        found = stack.get(gradient, copy)
        assert float((found - own).abs().max()) <= 1e-4 * max(1.0, float(own.abs().max()))
        assert torch.allclose(stack.get(after, copy), flat.state, atol=1e-6)
    for copy, state in enumerate(reversed(states)):
        stack.put(stack.state, copy, state)
    turned = stack.backward(loss_gradient(stack.forward(samples.flip(0), Batch()), y.flip(0), weight))
    for copy in range(COPIES):
        assert torch.equal(stack.get(turned, COPIES - 1 - copy), stack.get(gradient, copy))


@pytest.mark.parametrize("name", OTHERS)
def test_what_cannot_be_stacked_says_why_and_trains_one_by_one(name: str) -> None:
    make, shape, why = OTHERS[name]
    data = make_data(shape, SIZES)
    trainer = Trainer(fresh(make), data, 3, 0.0)
    assert not trainer.stacks(BATCH)
    assert why in trainer.why_not_stacked
    assert trainer.claimed_flops == float("inf")
    jobs = make_jobs(make, [2, 7])
    assert all(map(torch.equal, trained(trainer, jobs), trained(by_torch(make, data), jobs)))


def test_a_batch_of_one_value_is_an_error_that_names_the_client() -> None:
    make = EXAMPLES["batch norm of vectors"][0]
    trainer = Trainer(fresh(make), make_data(IMAGE, [9, 4, 6]), 3, 0.0)
    assert trainer.stacks(BATCH)
    with pytest.raises(
        HflError, match=r"the training of client 2 failed in round 2, on a batch of 1 sample: .*more than one value"
    ):
        list(trainer.train(make_jobs(make, [0, 1, 2])))


def test_a_program_alone_shares_the_vectors_of_the_model() -> None:
    make, shape = EXAMPLES["tutorial"]
    module = fresh(make)
    own_dropouts(module)
    flat = FlatModel(module)
    samples = make_data(shape, [4]).x
    program = StackedModel(flat, 1, samples)
    assert program.by_hand
    assert program.state.data_ptr() == flat.state.data_ptr()
    scores = program.forward(samples.unsqueeze(0), Batch())
    assert torch.allclose(scores[0], flat.scores(samples), atol=1e-6)
    flat.state.mul_(2)
    assert not torch.allclose(program.forward(samples.unsqueeze(0), Batch())[0], scores[0], atol=1e-3)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(0, 2))
def test_total_is_the_sum(shape: list[int], axis: int) -> None:
    x = torch.arange(float(np.prod(shape))).view(shape)
    before = x.clone()
    axis %= len(shape)
    assert torch.equal(total(x, axis), x.sum(axis))
    assert torch.equal(x, before)
