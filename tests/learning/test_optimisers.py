"""Optimisers, learning-rate schedules and smoothed labels against torch's own, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from methods.playing import played
from torch import Tensor, nn
from torch.optim import lr_scheduler

from devices.compute import PASSES, training_s
from devices.profile import DeviceProfile
from emulator.contracts.learning import LocalParams, LocalRuleChoice, local_rules, models, rate_schedules
from emulator.errors import HflError, InputError
from emulator.learning.drawing import Drawn
from emulator.learning.flat import FlatModel
from emulator.learning.keys import content_key
from emulator.learning.stepping import loss_gradient
from emulator.learning.trainer import Trainer, TrainingData, TrainJob
from emulator.rng import stream
from emulator.scenario import Loaded

Small = Callable[..., Loaded]

SHAPE, SEED, ROUND, SIZES = (1, 8, 8), 3, 2, [9, 17, 6]
MODELS = [("mlp", {"hidden": (16,)}), ("cnn", {"channels": (4, 8), "hidden": (12,)})]


def fresh(name: str, params: dict[str, Any]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return models[name].function(SHAPE, 10, models[name].params(**params))  # type: ignore[no-any-return]


def make_data() -> TrainingData:
    rng, total = stream(7, "test-data"), sum(SIZES)
    x = torch.from_numpy(rng.normal(size=(total, *SHAPE)).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, 10, total))
    return TrainingData(x, y, np.split(np.arange(total), np.cumsum(SIZES)[:-1]))


def rule(kind: str = "sgd", **params: Any) -> LocalRuleChoice:
    return LocalRuleChoice(kind, local_rules[kind].params(**{"epochs": 3, "batch_size": 4, **params}))


def by_torch(
    model: tuple[str, dict[str, Any]],
    job: TrainJob,
    make: Callable[[Any], torch.optim.Optimizer],
    clip: float | None = None,
) -> Tensor:
    """The same training with torch's own optimiser and loss."""
    module, data = fresh(*model), make_data()
    flat, how = FlatModel(module), job.rule.params
    parameters = list(module.parameters())
    optimiser, drawn = make(parameters), Drawn(job, data, SEED)
    for step in range(drawn.steps):
        batch = drawn.batch(step)
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(module(data.x[batch]), data.y[batch], label_smoothing=how.smoothing)
        for parameter, found in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = found
        if clip is not None:
            nn.utils.clip_grad_norm_(parameters, clip)
        optimiser.step()
    return flat.state.clone()


OPTIMISERS: dict[str, tuple[dict[str, Any], Callable[[Any], torch.optim.Optimizer]]] = {
    "adam": ({"optimiser": "adam"}, lambda p: torch.optim.Adam(p, 0.003)),
    "adam, weight decay in the gradient": (
        {"optimiser": {"kind": "adam", "beta_1": 0.8, "beta_2": 0.95, "eps": 1e-6}, "weight_decay": 0.1},
        lambda p: torch.optim.Adam(p, 0.003, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
    ),
    "adamw, weight decay beside it": (
        {"optimiser": "adamw", "weight_decay": 0.1},
        lambda p: torch.optim.AdamW(p, 0.003, weight_decay=0.1),
    ),
    "sgd": (
        {"momentum": 0.9, "weight_decay": 0.01, "smoothing": 0.2},
        lambda p: torch.optim.SGD(p, 0.003, momentum=0.9, weight_decay=0.01),
    ),
}


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m[0])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_steps_are_those_of_torch(name: str, model: tuple[str, dict[str, Any]], stacked: bool) -> None:
    params, make = OPTIMISERS[name]
    start, local = FlatModel(fresh(*model)).state, rule(learning_rate=0.003, **params)
    trainer = Trainer(fresh(*model), make_data(), SEED, 0.0 if stacked else 1e30)
    jobs = [TrainJob(start, client, local, ROUND, 0) for client in range(len(SIZES))]
    for number, found in trainer.train(jobs):
        expected = by_torch(model, jobs[number], make)
        assert float((expected - start).abs().max()) > 0.005
        assert float((found.state - expected).abs().max()) < 1e-5, name


def test_long_gradients_are_clipped_before_adam_sees_them() -> None:
    start, local = (
        FlatModel(fresh(*MODELS[0])).state,
        rule(learning_rate=0.003, optimiser="adamw", weight_decay=0.1, clip=0.4),
    )
    job = TrainJob(start, 1, local, ROUND, 0)
    ((_, found),) = Trainer(fresh(*MODELS[0]), make_data(), SEED, 0.0).train([job])
    expected = by_torch(MODELS[0], job, lambda p: torch.optim.AdamW(p, 0.003, weight_decay=0.1), clip=0.4)
    unclipped = by_torch(MODELS[0], job, lambda p: torch.optim.AdamW(p, 0.003, weight_decay=0.1))
    assert float((found.state - expected).abs().max()) < 1e-5
    assert float((unclipped - expected).abs().max()) > 1e-4


@pytest.mark.parametrize("soft", [False, True])
def test_the_gradient_of_smoothed_labels_is_that_of_torch(soft: bool) -> None:
    rng = stream(1, "scores")
    scores = torch.from_numpy(rng.normal(size=(1, 6, 5))).requires_grad_()
    y = torch.from_numpy(rng.dirichlet(np.ones(5), 6) if soft else rng.integers(0, 5, 6))
    loss = nn.functional.cross_entropy(scores[0], y, label_smoothing=0.3)
    (expected,) = torch.autograd.grad(loss, scores)
    found = loss_gradient(scores.detach(), y.unsqueeze(0), torch.full((1, 6), 1 / 6).double(), 0.3)
    assert torch.allclose(found, expected, atol=1e-12)
    assert not torch.allclose(
        loss_gradient(scores.detach(), y.unsqueeze(0), torch.full((1, 6), 1 / 6).double()), expected, atol=1e-3
    )


def factors(schedule: Any, rounds: int = 40) -> list[float]:
    how = LocalParams(learning_rate=1.0, schedule=schedule)
    return [how.step_size(t) for t in range(1, rounds + 1)]


def of_torch(make: Callable[[Any], Any], rounds: int = 40) -> list[float]:
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 1.0)
    scheduler, found = make(optimiser), []
    for _ in range(rounds):
        found.append(scheduler.get_last_lr()[0])
        optimiser.step()
        scheduler.step()
    return found


SCHEDULES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "constant": ("constant", lambda o: lr_scheduler.ConstantLR(o, 1.0)),
    "step": ({"kind": "step", "every": 7, "factor": 0.3}, lambda o: lr_scheduler.StepLR(o, 7, 0.3)),
    "exponential": ({"kind": "exponential", "factor": 0.9}, lambda o: lr_scheduler.ExponentialLR(o, 0.9)),
    "warm-up": ({"kind": "warm-up", "rounds": 5, "start": 0.2}, lambda o: lr_scheduler.LinearLR(o, 0.2, 1.0, 5)),
    "warm-up, then a cosine": (
        {"kind": "warm-up", "rounds": 5, "start": 0.2, "then": {"kind": "cosine", "rounds": 35, "lowest": 0.05}},
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o, 0.2, 1.0, 5), lr_scheduler.CosineAnnealingLR(o, 35, 0.05)], [5]
        ),
    ),
    "cosine": ({"kind": "cosine", "rounds": 40, "lowest": 0.05}, lambda o: lr_scheduler.CosineAnnealingLR(o, 40, 0.05)),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_those_of_torch(name: str) -> None:
    schedule, make = SCHEDULES[name]
    assert factors(schedule) == pytest.approx(of_torch(make), rel=1e-9)
    assert set(rate_schedules.names()) == {name for name in SCHEDULES if "," not in name}


def test_schedules_have_closed_forms_and_multiply_with_the_decay() -> None:
    assert factors({"kind": "step", "every": 2, "factor": 0.1}, 5) == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    found = factors({"kind": "cosine", "rounds": 4, "lowest": 0.2}, 7)
    assert found[:5] == pytest.approx([0.2 + 0.8 * (1 + math.cos(math.pi * k / 4)) / 2 for k in range(5)])
    assert found[4:] == pytest.approx([0.2] * 3)  # and stays there
    both = LocalParams(learning_rate=0.5, learning_rate_decay=0.5, schedule={"kind": "exponential", "factor": 0.1})
    assert [both.step_size(t) for t in (0, 1, 2, 3)] == pytest.approx([0.5, 0.5, 0.025, 0.00125])


def test_a_schedule_of_the_users_must_give_a_number_above_0(plugin_home: object) -> None:
    rate_schedules.register("mine")(lambda round, params: 1.0 - round)  # noqa: A006
    how = LocalParams(schedule="mine")
    with pytest.raises(HflError, match=r"'mine'.*a number above 0, and gives 0.0 in round 1"):
        how.step_size(1)


KEYS = {  # of rules as they were before there were optimisers, schedules and smoothing
    "sgd": ({"epochs": 2, "learning_rate": 0.1, "momentum": 0.9, "learning_rate_decay": 0.5},
            "4706b865dfc9caf7f5c033a39515217e2108b34d"),
    "fedprox": ({"mu": 0.1}, "8e61cc48a0b43ff81299dca287dbf65885c89f72"),
    "scaffold": ({}, "bcde88a932862259715ea3a91e6b7e0687505cdb"),
    "feddyn": ({}, "573778acfec7c963f503ec6b02a78df94bf64e2f"),
    "classifier-sgd": ({}, "43f6164ef92767b56fd8cf6211bbbc9e5119d432"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_plain_rules_stay_as_they_were(kind: str) -> None:
    params, key = KEYS[kind]

    def key_with(**further: Any) -> str:
        made = local_rules[kind].params(**params, **further)
        return content_key("rule", LocalRuleChoice(kind, made).identity())

    assert key_with() == f"rule:{key}"
    assert key_with(optimiser="sgd", schedule={"kind": "constant"}, smoothing=0.0) == f"rule:{key}"
    changed = [key_with(smoothing=0.1), key_with(optimiser="adam"), key_with(optimiser="adamw")]
    changed += [key_with(optimiser={"kind": "adam", "eps": 1e-7}), key_with(schedule={"kind": "cosine", "rounds": 9})]
    assert len({key_with(), *changed}) == 6


def test_the_code_of_a_users_schedule_is_part_of_the_key(plugin_home: object) -> None:
    rate_schedules.register("mine")(lambda round, params: 1.0)  # noqa: A006
    within = rule(schedule={"kind": "warm-up", "rounds": 2, "then": "mine"}).identity()
    assert [bool(code) for code in within["codes"]] == [False, False, True]


@pytest.mark.parametrize(
    ("change", "key", "message"),
    [
        (
            "method.local={kind: scaffold, optimiser: adam}",
            "method.local.optimiser",
            "'scaffold' remembers what plain steps",
        ),
        ("method.local={kind: feddyn, optimiser: adamw}", "method.local.optimiser", "take 'sgd'"),
        ("method.local={optimiser: adam, momentum: 0.9}", "method.local.momentum", "is that of 'sgd'"),
        ("method.local={optimiser: adma}", "method.local.optimiser", "did you mean 'adam'"),
        ("method.local={schedule: {kind: cosine}}", "method.local.schedule.rounds", "is required"),
        ("method.local={smoothing: 1.0}", "method.local.smoothing", "less than 1"),
    ],
)
def test_what_does_not_go_together_is_refused(small: Small, change: str, key: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        small(change)
    assert key in str(caught.value)


@pytest.mark.parametrize(("local", "flops"), [("{optimiser: adam}", 11), ("{kind: fedprox, optimiser: adamw}", 14)])
def test_the_clock_charges_the_operations_of_the_optimiser(small: Small, local: str, flops: int) -> None:
    small_steps = "batch_size: 4, learning_rate: 0.01}"
    plain = played(small(f"method.local={{{small_steps}"))
    own = played(small(f"method.local={local[:-1]}, {small_steps}"))
    device, work = own.world.fleet.client_devices[0], own.world.workload
    assert all(each is device for each in own.world.fleet.client_devices)
    with_them, without = (training_s(device, work.training(4, each), 1, 4) for each in (flops, 0))
    extra_s = with_them - without
    passes_s = flops * work.parameters / 4 / (PASSES * work.forward_flops) * (without - _overhead_s(device))
    assert extra_s == pytest.approx(passes_s)
    costs = [each.meter.totals().cost_training_s for each in (plain, own)]
    assert costs[1] / costs[0] == pytest.approx(with_them / without)
    assert costs[1] > costs[0]


def _overhead_s(device: DeviceProfile) -> float:
    """Of a sample in a batch of four: what it takes without arithmetic."""
    one, two = (training_s(device, flops, 1, 4) for flops in (1e3, 2e3))
    return 2 * one - two


@pytest.mark.parametrize("stacked", [True, False])
def test_decoupled_decay_leaves_what_is_not_trained_as_it_is_in_every_bit(stacked: bool) -> None:
    start = FlatModel(fresh(*MODELS[0])).state
    local = rule("classifier-sgd", optimiser="adamw", weight_decay=0.5, learning_rate=0.01)
    trainer = Trainer(fresh(*MODELS[0]), make_data(), SEED, 0.0 if stacked else 1e30)
    for _, found in trainer.train([TrainJob(start, client, local, ROUND, 0) for client in range(len(SIZES))]):
        moved = found.state != start
        assert not moved[:-170].any()
        assert moved[-170:].all()
