"""The workload that every system is given, and what its driver prints; needs numpy, and torch for what returns a module.

Data and initial weights are the same for all systems, bit for bit. Only the order of the batches is each system's own.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor, nn

CLIENTS, SAMPLES, BATCH, CLASSES, LEARNING_RATE = 100, 50, 10, 10, 0.05
SHAPE = (1, 28, 28)
TEST_SAMPLES = 200
# Shapes of the weights, with the inputs of a neuron, by their names in the state of `network`.
WEIGHTS = {
    "0.weight": ((16, 1, 5, 5), 25),
    "0.bias": ((16,), 25),
    "3.weight": ((32, 16, 5, 5), 400),
    "3.bias": ((32,), 400),
    "7.weight": ((10, 512), 512),
    "7.bias": ((10,), 512),
}


@dataclass(frozen=True)
class Workload:
    """Samples as float32 [samples, 1, 28, 28] and labels as int64; every client has `SAMPLES` that stand in a row."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray

    def parts(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Samples and labels of one client after another."""
        for start in range(0, len(self.x), SAMPLES):
            yield self.x[start : start + SAMPLES], self.y[start : start + SAMPLES]


def make_workload(clients: int = CLIENTS) -> Workload:
    """Images of ten random patterns under noise; all clients have images of all patterns."""
    rng = np.random.default_rng(1)
    patterns = rng.standard_normal((CLASSES, *SHAPE))

    def draw(samples: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(0, CLASSES, samples)
        noise = rng.standard_normal((samples, *SHAPE))
        return (patterns[y] + 0.5 * noise).astype(np.float32), y

    test_x, test_y = draw(TEST_SAMPLES)
    return Workload(*draw(clients * SAMPLES), test_x, test_y)


def initial_weights() -> dict[str, np.ndarray]:
    """The weights that everybody begins with, drawn as PyTorch draws them; float32."""
    rng = np.random.default_rng(0)
    return {k: rng.uniform(-(n**-0.5), n**-0.5, shape).astype(np.float32) for k, (shape, n) in WEIGHTS.items()}


def network(shape: tuple[int, ...] = SHAPE, classes: int = CLASSES) -> nn.Module:
    """The CNN as a torch module with the initial weights; the arguments are those that a factory of ours is given."""
    import torch
    from torch import nn

    assert (shape, classes) == (SHAPE, CLASSES)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(512, classes),
    )  # fmt: skip
    model.load_state_dict({k: torch.from_numpy(v) for k, v in initial_weights().items()})
    return model


@cache
def made_once(clients: int) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    """The network, and samples and labels of every client as tensors: for workers that are asked client by client."""
    import torch

    return network(), [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in make_workload(clients).parts()]


def test_loss(model: nn.Module, work: Workload) -> float:
    """Mean cross-entropy of a torch module on the test samples."""
    import torch

    with torch.no_grad():
        answers = model(torch.from_numpy(work.test_x))
        return float(torch.nn.functional.cross_entropy(answers, torch.from_numpy(work.test_y)))


class Rounds:
    """Times the rounds of a system. A round lasts from the end of the one before; the first is the warm-up and is not counted."""

    def __init__(self, loss_before: float) -> None:
        self._losses = [loss_before]
        self._seconds: list[float] = []
        self._since: float | None = None

    def ended(self, loss: Callable[[], float]) -> None:
        """A round has ended. What ``loss`` takes is not counted; it is asked after the first round alone."""
        now = time.perf_counter()
        if self._since is None:
            self._losses.append(loss())
        else:
            self._seconds.append(now - self._since)
        self._since = time.perf_counter()

    def print(self) -> None:
        """Prints one line of JSON: seconds of every round, and the loss before and after the first."""
        print(json.dumps({"seconds": self._seconds, "losses": self._losses}), flush=True)


def asked() -> argparse.Namespace:
    """What a driver is told: ``clients``, ``rounds`` (the warm-up among them) and ``cores``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cores", type=int, default=2)
    return parser.parse_args()
