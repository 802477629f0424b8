"""The arithmetic of one scenario: data, model, training, averaging, evaluation.

Everything here computes with one thread a process, so that no result depends on how many cores there are.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from emulator import plugins
from emulator.cluster import Backend
from emulator.contracts.learning import LocalRule, MeasurementChoice
from emulator.learning import trial, workers
from emulator.learning.clients import ClientData
from emulator.learning.device import places_of, reproducible, within_memory
from emulator.learning.distillation import DistilJob, DistillationParams, distil_client, distillation_flops
from emulator.learning.extra_samples import Block
from emulator.learning.facts import ModelFacts, model_facts
from emulator.learning.flat import FlatModel
from emulator.learning.gpus import DevicePool
from emulator.learning.layers import are_tokens
from emulator.learning.measured_models import MeasuredModels, Samples
from emulator.learning.sizes import TRAINING_COPIES, fitting
from emulator.learning.trainer import TrainedState, Trainer, TrainingData, TrainJob, steps_of
from emulator.machine import cores
from emulator.rng import derive, stream
from emulator.scenario.schema import Scenario

if TYPE_CHECKING:
    from emulator.learning.ray_pool import RayPool

log = logging.getLogger(__name__)

EVALUATION_BATCH = 1024
WORKERS_AFTER_S = 1.5  # of training in this process: starting workers takes about as long


def untrained(scenario: Scenario, shape: tuple[int, ...], classes: int, number: int = 0) -> nn.Module:
    """The scenario's model for samples of this shape, as its seed draws it; other numbers are other draws.

    Raises `InputError` where it is none that could be trained.
    """
    key = key_of(scenario)
    cannot = plugins.asking("the model cannot be made", key, (RuntimeError, MemoryError))
    with cannot, torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(scenario.seed, "initial-model", *([number] if number else [])))
        module = scenario.model(shape, classes)
    trial.check_module(module, key)
    return module


def key_of(scenario: Scenario) -> str:
    """The key of a scenario to which the faults of its model belong."""
    return "model.factory" if scenario.model.kind == "module" else "model"


class Engine:
    """Models and data of one scenario. Everything it does is determined by its arguments and the scenario's seed.

    It computes where the scenario says (`emulator.learning.device`), and raises `InputError` where there is no such device.
    States of models that it takes and gives are on the CPU.
    """

    def __init__(
        self, scenario: Scenario, data: ClientData, max_workers: int | None = None, backend: Backend = "local"
    ) -> None:
        with contextlib.ExitStack() as undone:
            undone.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
            self._places = places_of(scenario.compute)
            self._place = self._places[0]
            undone.enter_context(reproducible(self._place))
            self.data = data
            arrays = data.arrays
            self._scenario = scenario
            self._given = TrainingData(torch.from_numpy(arrays.x_train), torch.from_numpy(arrays.y_train), data.parts)
            limit = scenario.evaluate.samples
            with within_memory(self._place, "the data set"):
                self._training = self._given.to(self._place.device)
                self._x_test, self._y_test = map(self._there, (arrays.x_test[:limit], arrays.y_test[:limit]))
            tokens, key = are_tokens(self._training.x), key_of(scenario)
            with fitting(scenario, arrays.shape, arrays.classes, TRAINING_COPIES):
                again = self._fresh()
                tested = self._fresh()
                trial.check_same(tested, again, key)
                self._tested = FlatModel(tested.to(self._place.device))
                self.facts: ModelFacts = model_facts(again, arrays.shape, tokens, key)
            self._pool: workers.WorkerPool | DevicePool | RayPool | None = None
            self._max_workers = max_workers
            self._backend = backend
            self._spent_s = 0.0
            self._looked_at: set[int] = set()  # batch sizes
            self._undone = undone.pop_all()

    def _there(self, array: np.ndarray) -> Tensor:
        """An array as a tensor on the device."""
        return torch.from_numpy(array).to(self._place.device)

    def _fresh(self, number: int = 0) -> nn.Module:
        return untrained(self._scenario, self.data.arrays.shape, self.data.arrays.classes, number)

    def initial(self, number: int = 0) -> Tensor:
        """The state of the untrained model; other numbers are other draws."""
        return FlatModel(self._fresh(number)).state

    def zeros(self) -> Tensor:
        """A state of zeros."""
        return torch.zeros_like(self._tested.state, device="cpu")

    def combine(self, states: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
        """The weighted sum of states, in double precision, in the given order."""
        total = torch.zeros(states[0].shape, dtype=torch.float64)
        for state, weight in zip(states, weights, strict=True):
            total.add_(state, alpha=weight)
        return total.float()

    def train(self, jobs: Sequence[TrainJob]) -> Iterator[tuple[int, TrainedState]]:
        """Trains all jobs; yields the number of each and its result, in the order in which they end.

        Short runs stay in this process. Once training has taken longer than starting workers does, they take over. A Ray
        cluster takes every wave of more than one, and so do GPUs, in this process.
        """
        self._warn_of_loops(jobs)
        trainer, pool = self._trainer, self._workers()
        if pool is not None and len(jobs) > 1:
            yield from pool.train(jobs, [steps_of(job, self._training) for job in jobs])
            return
        started = time.perf_counter()
        with within_memory(self._place, "a training"):
            for result in trainer.train(jobs):
                self._spent_s += time.perf_counter() - started
                yield result
                started = time.perf_counter()

    @cached_property
    def _trainer(self) -> Trainer:
        return Trainer(self._fresh(), self._training, self._scenario.seed, self.facts.forward_flops, self._place)

    def _warn_of_loops(self, jobs: Sequence[TrainJob]) -> None:
        """Says once where clients train one after another although their model is small, why, and what that costs."""
        sizes = {job.rule.params.batch_size for job in jobs} - self._looked_at
        self._looked_at |= sizes
        if why := next(filter(None, map(self._trainer.why_one_by_one, sorted(sizes))), ""):
            log.warning(
                "clients are trained one after another, because %s; small models train about twice to four times as fast side by "
                "side (docs/engine.md)", why,
            )  # fmt: skip

    def try_out(self, rules: Sequence[tuple[str, LocalRule]]) -> None:
        """Tries the model and these local rules, with their keys, on a few samples (see `emulator.learning.trial`).

        Raises `InputError` where a run with them would fail, or its figures would mean nothing.
        """
        data, key, classes = self._training, key_of(self._scenario), self.data.arrays.classes
        state = self._tested.state.cpu().clone()  # that of the untrained model, as long as nothing was tested
        sizes = [len(part) for part in self.data.parts]
        most = min([trial.SAMPLES, *(rule.params.batch_size for _, rule in rules)])
        rows = np.array(list(itertools.islice(itertools.chain.from_iterable(self.data.parts), most)))
        few = TrainingData(data.x, data.y, {0: rows})
        some = self._there(rows)
        with plugins.blaming(f"model '{self._scenario.model.kind}'"):
            trial.try_model(self._tested, state, data.x[some], data.y[some], classes, key)
        for own_key, rule in rules:
            with plugins.blaming(f"local update '{rule.kind}'"):
                trial.try_rule(self._trainer, state, few, rule, (key, own_key))
            trial.warn_of_single_samples(self._tested, state, data, sizes, rule.params.batch_size, key)

    def distil(self, wanted: Sequence[tuple[int, DistillationParams]]) -> Iterator[tuple[int, Block]]:
        """Distils the data of clients; yields the number of each and its images and labels, in the order in which they end."""
        jobs = [DistilJob(client, self.data.arrays.classes, params) for client, params in wanted]
        training, features = self._training, math.prod(self.data.arrays.shape)
        for number, job in enumerate(jobs):
            pool, left = self._workers(), jobs[number:]
            if pool is not None and len(left) > 1:
                sizes = [distillation_flops(len(training.parts[j.client]), j.params, features, j.classes) for j in left]
                yield from ((number + n, block) for n, block in pool.distil(left, sizes))
                return
            started = time.perf_counter()
            with within_memory(self._place, "distilling a client's data"):
                block = distil_client(training.x, training.y, training.parts, job, self._scenario.seed)
            self._spent_s += time.perf_counter() - started
            yield number, block

    def _ground(self) -> tuple[int, float]:
        """What a trainer needs to know, beside model and data."""
        return self._scenario.seed, self._trainer.claimed_flops

    def _workers(self) -> workers.WorkerPool | DevicePool | RayPool | None:
        """The worker processes, once there was enough to do for them, or those of the cluster, or the GPUs."""
        if self._pool is None and self._backend == "ray":
            from emulator.learning.ray_pool import RayPool

            self._pool = RayPool(self._max_workers, self._fresh(), self._given, *self._ground(), self._place)
        if self._pool is None and self._place.device.type != "cpu":
            self._pool = DevicePool(self._places, self._fresh(), self._training, *self._ground())
        count = cores() if self._max_workers is None else self._max_workers
        if self._pool is None and count > 1 and self._spent_s > WORKERS_AFTER_S:
            alone = plugins.only_here(self._scenario)
            why = alone and f"{alone}, which other processes do not import"
            if not why and (cannot := workers.cannot_travel(self._fresh())):
                why = f"the model cannot be sent to others: {cannot}"
            if why:
                log.warning("clients are trained in one process, because %s", why)
                self._max_workers = 1
                return None
            modules = plugins.modules_of(self._scenario)
            self._pool = workers.WorkerPool(count, self._fresh(), self._given, *self._ground(), modules, self._place)
        return self._pool

    def evaluate(self, state: Tensor) -> tuple[float, float]:
        """Accuracy (a share) and mean cross-entropy on the test set."""
        model = self._tested
        model.state.copy_(state)
        model.module.eval()
        correct, loss = 0, 0.0
        with torch.inference_mode(), within_memory(self._place, "an evaluation"):
            for start in range(0, len(self._y_test), EVALUATION_BATCH):
                y = self._y_test[start : start + EVALUATION_BATCH]
                with self._place.arithmetic():
                    scores = model.module(self._x_test[start : start + EVALUATION_BATCH]).float()
                correct += int((scores.argmax(1) == y).sum())
                loss += float(nn.functional.cross_entropy(scores, y, reduction="sum"))
        return correct / len(self._y_test), loss / len(self._y_test)

    def measure(self, measurement: MeasurementChoice, states: Sequence[Tensor], client: int | None) -> np.ndarray:
        """What a measurement reads off these models (see `emulator.learning.measurements`)."""
        rng = stream(self._scenario.seed, "measurement", measurement.kind, -1 if client is None else client)
        on = measurement.plugin.facts.on
        classes, there = self.data.arrays.classes, [state.to(self._place.device) for state in states]
        measured = MeasuredModels(there, self._samples(on, client), classes, rng, self._tested, place=self._place)
        if on == "everybody":
            assert client is not None
            rows = np.concatenate([part for c, part in enumerate(self.data.parts) if c != client])
            measured = replace(measured, others=self._of_training(rows), features=self._features)
        with within_memory(self._place, f"the measurement '{measurement.kind}'"):
            return measurement(measured)

    @cached_property
    def _features(self) -> nn.Module:
        from emulator.learning.gan import trained_features

        return trained_features(self._training.x, self._training.y, self.data.arrays.classes)

    def _samples(self, on: str, client: int | None) -> Samples:
        if on == "test":
            owners = self.data.arrays.test_owners
            return Samples(self._x_test, self._y_test, None if owners is None else owners[: len(self._y_test)])
        if on == "public":
            x, y = self.data.public_samples
            return Samples(self._there(x), self._there(y))
        rows = np.arange(0)
        if on in ("client", "everybody"):
            assert client is not None
            rows = self.data.parts[client]
        return self._of_training(rows)

    def _of_training(self, rows: np.ndarray) -> Samples:
        there = self._there(rows)
        return Samples(self._training.x[there], self._training.y[there])

    def close(self) -> None:
        """Ends the worker processes, or lets go of what the cluster holds; whoever computes next has all threads again."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self._undone.close()
