"""Each local rule against a direct transcription of its paper's update, on quadratic losses with known gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
import torch

from emulator.contracts.learning import LocalRuleChoice, Rule, local_rules
from emulator.learning.lab import Lab
from emulator.learning.stepping import Update
from emulator.learning.trainer import TrainJob
from emulator.methods.memory import RuleMemory

Vector = np.ndarray
SIZE, CLIENTS, STEPS, ROUNDS = 6, 4, 5, 4
RATE = 0.1
PARTICIPANTS = [(0, 1, 2, 3), (0, 2), (1, 2, 3), (3,)]  # in each round

rng = np.random.default_rng(5)
CURVATURE = [np.diag(rng.uniform(0.5, 2.0, SIZE)) for _ in range(CLIENTS)]
CENTRE = [rng.normal(size=SIZE) for _ in range(CLIENTS)]


def gradient(client: int, w: Vector) -> Vector:
    """Of ½ (w - centre)ᵀ curvature (w - centre)."""
    return np.asarray(CURVATURE[client] @ (w - CENTRE[client]))


def chosen(kind: str, **params: Any) -> LocalRuleChoice:
    return LocalRuleChoice(kind, local_rules[kind].params(learning_rate=RATE, **params))


def local(
    rule: LocalRuleChoice, client: int, start: torch.Tensor, memory: Sequence[torch.Tensor] = (), round_: int = 1
) -> torch.Tensor:
    """Our own steps on the client's loss."""
    job = TrainJob(start, client, rule, round_, 0, *memory)
    update = Update(job, job.vectors())
    weights = start.clone()
    for _ in range(STEPS):
        update.step(
            weights, torch.tensor(gradient(client, weights.double().numpy())).float(), lambda g: [g.view(1, -1)]
        )
    return weights


class PlainLab:
    """A lab whose handles are the vectors themselves."""

    def zeros(self) -> torch.Tensor:
        return torch.zeros(SIZE)

    def combine(self, vectors: Sequence[torch.Tensor], weights: Sequence[float]) -> torch.Tensor:
        return torch.stack([v * w for v, w in zip(vectors, weights, strict=True)]).sum(0)


def federated(rule: LocalRuleChoice) -> list[Vector]:
    """Our rounds: every participant trains from the global model; the server averages equally and ends the round."""
    lab = cast(Lab, PlainLab())
    memory, model, models = RuleMemory(lab, rule, CLIENTS), torch.zeros(SIZE), []
    functions: Rule = rule()
    for clients in PARTICIPANTS:
        ends = []
        for c in clients:
            states = cast("tuple[torch.Tensor, torch.Tensor]", memory.of(c) or ())
            end = local(rule, c, model, states)
            if functions.remember is not None:
                memory.keep(c, cast(Any, functions.remember(end, model, *states, STEPS * RATE)))
            ends.append(end)
        model = cast(torch.Tensor, memory.end_round(cast(Any, torch.stack(ends).mean(0))))
        models.append(model.double().numpy())
    return models


def transcribed(step: Callable[[int, Vector, Vector], Vector]) -> list[Vector]:
    x, models = np.zeros(SIZE), []
    for clients in PARTICIPANTS:
        x = np.mean([step(c, x.copy(), x) for c in clients], axis=0)
        models.append(x)
    return models


def agree(ours: list[Vector], theirs: list[Vector]) -> None:
    assert np.allclose(ours, theirs, atol=2e-5), np.abs(np.array(ours) - np.array(theirs)).max()
    assert np.abs(ours[-1]).max() > 0.1


def test_sgd() -> None:
    def step(c: int, y: Vector, x: Vector) -> Vector:
        for _ in range(STEPS):
            y = y - RATE * gradient(c, y)
        return y

    agree(federated(chosen("sgd")), transcribed(step))


def test_fedprox() -> None:
    mu = 0.7

    def step(c: int, y: Vector, x: Vector) -> Vector:
        for _ in range(STEPS):
            y = y - RATE * (gradient(c, y) + mu * (y - x))  # h(w) = F(w) + μ/2 ‖w - w_t‖²
        return y

    agree(federated(chosen("fedprox", mu=mu)), transcribed(step))
    assert not np.allclose(federated(chosen("fedprox", mu=mu)), federated(chosen("sgd")), atol=1e-3)


def test_scaffold_option_2() -> None:
    x, c, c_i = np.zeros(SIZE), np.zeros(SIZE), [np.zeros(SIZE) for _ in range(CLIENTS)]
    models = []
    for clients in PARTICIPANTS:
        moves, changes = [], []
        for i in clients:
            y = x.copy()
            for _ in range(STEPS):
                y = y - RATE * (gradient(i, y) - c_i[i] + c)
            new = c_i[i] - c + (x - y) / (STEPS * RATE)
            moves.append(y - x)
            changes.append(new - c_i[i])
            c_i[i] = new
        x = x + np.mean(moves, axis=0)
        c = c + len(clients) / CLIENTS * np.mean(changes, axis=0)
        models.append(x)
    agree(federated(chosen("scaffold")), models)


def test_feddyn() -> None:
    alpha = 0.5
    x, h, grads = np.zeros(SIZE), np.zeros(SIZE), [np.zeros(SIZE) for _ in range(CLIENTS)]
    models = []
    for clients in PARTICIPANTS:
        ends = []
        for i in clients:
            y = x.copy()
            for _ in range(STEPS):
                y = y - RATE * (gradient(i, y) - grads[i] + alpha * (y - x))
            grads[i] = grads[i] - alpha * (y - x)
            ends.append(y)
        h = h - alpha / CLIENTS * np.sum([y - x for y in ends], axis=0)
        x = np.mean(ends, axis=0) - h / alpha
        models.append(x)
    agree(federated(chosen("feddyn", alpha=alpha)), models)


def test_momentum_weight_decay_and_decay_of_the_step() -> None:
    start, round_ = torch.ones(SIZE), 3
    ours = local(chosen("sgd", momentum=0.9, weight_decay=0.2, learning_rate_decay=0.5), 1, start, round_=round_)
    y, v = np.ones(SIZE), np.zeros(SIZE)
    for _ in range(STEPS):
        v = 0.9 * v + gradient(1, y) + 0.2 * y
        y = y - RATE * 0.5 ** (round_ - 1) * v
    assert np.allclose(ours, y, atol=1e-5)


@pytest.mark.parametrize("clip", [0.05, 1e6])
def test_clipping_scales_long_gradients_only(clip: float) -> None:
    ours = local(chosen("sgd", clip=clip), 2, torch.zeros(SIZE))
    y = np.zeros(SIZE)
    for _ in range(STEPS):
        g = gradient(2, y)
        y = y - RATE * g * min(1.0, clip / np.linalg.norm(g))
    assert np.allclose(ours, y, atol=1e-5)


def test_clients_that_never_trained_start_from_zero_and_scaffold_travels_twice() -> None:
    memory = RuleMemory(cast(Lab, PlainLab()), chosen("scaffold"), CLIENTS)
    states = cast("tuple[torch.Tensor, torch.Tensor]", memory.of(2))
    assert [float(s.abs().sum()) for s in states] == [0.0, 0.0]
    assert RuleMemory(cast(Lab, PlainLab()), chosen("sgd"), CLIENTS).of(2) is None
    assert {k: local_rules[k].function(local_rules[k].params()).vectors for k in local_rules.names()} == {
        "classifier-sgd": 1, "feddyn": 1, "fedprox": 1, "scaffold": 2, "sgd": 1,
    }  # fmt: skip
