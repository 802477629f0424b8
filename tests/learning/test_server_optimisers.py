"""Server optimisers against a transcription of Reddi et al. 2021, Algorithm 2, on a quadratic problem over 50 rounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from emulator.contracts.combining import ServerOptimiserChoice, server_optimisers
from emulator.learning.vector_functions import ServerStep

ROUNDS = 50
CURVES = np.array([[1.0, 0.1, 3.0], [0.5, 0.2, 2.0]])  # of two clients: f_i(x) = ½ Σ c (x - a)²
CENTRES = np.array([[1.0, -2.0, 0.5], [0.0, 4.0, 1.5]])


def clients(x: list[float]) -> list[float]:
    """Both clients take five steps of gradient descent from x; the average of what they end with."""
    ends = []
    for curve, centre in zip(CURVES, CENTRES, strict=True):
        y = np.array(x, dtype=np.float64)
        for _ in range(5):
            y = y - 0.1 * curve * (y - centre)
        ends.append(y)
    return ((ends[0] + ends[1]) / 2).tolist()


def transcribed(kind: str, eta: float, beta1: float, beta2: float, tau: float) -> list[list[float]]:
    """Algorithm 2, number by number; FedAvgM as in Hsu et al. 2019."""
    x, m, v = [0.0] * 3, [0.0] * 3, [tau**2] * 3
    path = []
    for _ in range(ROUNDS):
        average = clients(x)
        for i in range(3):
            delta = average[i] - x[i]
            if kind == "momentum":
                m[i] = beta1 * m[i] + delta
                x[i] += eta * m[i]
                continue
            m[i] = beta1 * m[i] + (1 - beta1) * delta
            if kind == "adagrad":
                v[i] = v[i] + delta**2
            elif kind == "yogi":
                sign = (v[i] > delta**2) - (v[i] < delta**2)
                v[i] = v[i] - (1 - beta2) * delta**2 * sign
            else:
                v[i] = beta2 * v[i] + (1 - beta2) * delta**2
            x[i] = x[i] + eta * m[i] / (math.sqrt(v[i]) + tau)
        path.append(list(x))
    return path


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("momentum", {"learning_rate": 0.5, "momentum": 0.8}),
        ("adam", {"learning_rate": 0.1, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3}),
        ("adam", {"learning_rate": 0.03, "beta1": 0.0, "beta2": 0.9, "tau": 1e-1}),
        ("yogi", {"learning_rate": 0.1, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3}),
        ("adagrad", {"learning_rate": 0.3, "beta1": 0.0, "tau": 1e-2}),
        ("adagrad", {"learning_rate": 0.3, "beta1": 0.9, "tau": 1e-2}),
    ],
)
def test_as_transcribed(kind: str, params: dict[str, Any]) -> None:
    choice = ServerOptimiserChoice(kind, server_optimisers[kind].params.model_validate(params))
    step = ServerStep(choice, parameters=3)
    beta1 = params.get("beta1", params.get("momentum"))
    wanted = transcribed(kind, params["learning_rate"], beta1, params.get("beta2", 0.0), params.get("tau", 0.0))
    x, states = torch.zeros(3), []
    for t in range(ROUNDS):
        average = torch.tensor(clients(x.double().tolist()), dtype=torch.float32)
        x, *states = step(x, average, *states)
        assert len(states) == step.outputs - 1
        assert np.allclose(x.numpy(), wanted[t], rtol=1e-3, atol=2e-4), (t, x, wanted[t])
    start = np.abs(CURVES.sum(axis=0) * 0.0 - (CURVES * CENTRES).sum(axis=0)).sum()
    slope = np.abs(CURVES.sum(axis=0) * x.double().numpy() - (CURVES * CENTRES).sum(axis=0)).sum()
    assert slope < 0.5 * start  # it goes where it should, too


def test_buffers_are_those_of_the_average_and_nothing_is_changed_in_place() -> None:
    step = ServerStep(ServerOptimiserChoice("momentum", server_optimisers["momentum"].params()), parameters=2)
    before, average = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 2.0, 7.0])
    after, momentum = step(before, average)
    assert after.tolist() == [2.0, 2.0, 7.0]
    again, _ = step(after, after, momentum)
    assert again.tolist() == [pytest.approx(2.9), 2.0, 7.0]
    assert before.tolist() == [1.0, 2.0, 3.0]
    assert momentum.tolist() == [1.0, 0.0]


def test_defaults_are_those_of_the_paper() -> None:
    adam = server_optimisers["adam"].params()
    assert (adam.beta1, adam.beta2) == (0.9, 0.99)
    assert server_optimisers["adagrad"].params().beta1 == 0.0
    choice = ServerOptimiserChoice("yogi", server_optimisers["yogi"].params(tau=0.01))
    assert choice.beginning == (0.0, 0.01**2)
