"""Models evaluated and measured in one process: the run's own, or a worker.

The random stream of a measurement is named after the measurement and the client, an evaluation is a sum over batches of a fixed
size, and every vector begins where torch lets vectors begin (the last bits of a matrix product depend on that). So who measures
changes no result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from emulator.contracts.learning import MeasurementChoice, Subjects
from emulator.learning.device import HOST, Place, within_memory
from emulator.learning.flat import FlatModel
from emulator.learning.measured_models import MeasuredModels, Samples
from emulator.learning.trainer import TrainingData
from emulator.rng import stream

EVALUATION_BATCH = 1024


@dataclass(frozen=True)
class MeasureJob:
    """A measurement of models, with a client's samples where it wants them; or, without one, the test of a model on one batch.

    ``first`` is the first test sample of that batch.
    """

    states: Sequence[Tensor]
    measurement: MeasurementChoice | None = None
    client: int | None = None
    first: int = 0

    @property
    def on(self) -> Subjects:
        """Whose samples it needs."""
        return "test" if self.measurement is None else self.measurement.plugin.facts.on


class Measurer:
    """Evaluates and measures models. The module that it is given becomes its own; ``training`` is on the device of ``place``.

    ``samples`` are those of the tests and the public ones, there too: whoever asks for them sees to it that they are there.
    """

    def __init__(self, module: nn.Module, training: TrainingData, classes: int, seed: int, place: Place = HOST) -> None:
        self.flat = FlatModel(module.to(place.device))
        self.classes = classes
        self.samples: dict[Subjects, Samples] = {}
        self._training = training
        self._task = training.task()
        self._seed = seed
        self._place = place

    def measure(self, job: MeasureJob) -> np.ndarray:
        """What a measurement reads off models; of a test, the sum of the samples' losses, and behind it what the task counts.

        Raises `HflError` where the memory of a GPU does not suffice.
        """
        states = [state.to(self._place.device) for state in job.states]
        chosen, client = job.measurement, job.client
        if chosen is None:
            with within_memory(self._place, "an evaluation"):
                return self._test(states[0], job.first)
        rng = stream(self._seed, "measurement", chosen.kind, -1 if client is None else client)
        measured = MeasuredModels(
            states, self._samples_of(job), self.classes, rng, self.flat, place=self._place, task=self._training.task
        )
        if job.on == "everybody":
            rows = np.concatenate([self._training.parts[c] for c in range(len(self._training.parts)) if c != client])
            measured = replace(measured, others=self._of_training(rows), features=self._features)
        with within_memory(self._place, f"the measurement '{chosen.kind}'"):
            return chosen(measured)

    def size(self, job: MeasureJob) -> int:
        """How many predictions a job takes, about."""
        if job.measurement is None:
            return min(EVALUATION_BATCH, len(self.samples["test"].y) - job.first)
        if job.client is not None:
            return len(job.states) * len(self._training.parts[job.client])
        return len(job.states) * (len(self.samples[job.on].y) if job.on in self.samples else 1)

    def _test(self, state: Tensor, first: int) -> np.ndarray:
        self.flat.state.copy_(state)
        module, batch, samples = self.flat.module.eval(), slice(first, first + EVALUATION_BATCH), self.samples["test"]
        with torch.inference_mode():
            y = samples.y[batch]
            with self._place.arithmetic():
                scores = module(samples.x[batch]).float()
            loss = float(self._task.loss(scores, y, "sum"))
            return np.array([loss, *self._task.counts(scores, y)])

    @cached_property
    def _features(self) -> nn.Module:
        from emulator.learning.gan import trained_features

        return trained_features(self._training.x, self._training.y, self.classes)

    def _samples_of(self, job: MeasureJob) -> Samples:
        if job.on in ("test", "public"):
            return self.samples[job.on]
        return self._of_training(np.arange(0) if job.client is None else self._training.parts[job.client])

    def _of_training(self, rows: np.ndarray) -> Samples:
        there = torch.from_numpy(rows).to(self._place.device)
        return Samples(self._training.x[there], self._training.y[there])
