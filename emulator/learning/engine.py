"""The arithmetic of one scenario: data, model, training, averaging, evaluation.

Everything here computes with one thread a process, so that no result depends on how many cores there are.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from emulator import plugins
from emulator.cluster import Backend
from emulator.contracts.learning import LocalRule, MeasurementChoice
from emulator.errors import quote_all
from emulator.learning import trial, workers
from emulator.learning.clients import ClientData
from emulator.learning.device import places_of, reproducible, within_memory
from emulator.learning.distillation import DistilJob, DistillationParams, distil_client, distillation_flops
from emulator.learning.extra_samples import Block
from emulator.learning.facts import ModelFacts, model_facts, state_shapes
from emulator.learning.flat import FlatModel
from emulator.learning.gpus import DevicePool
from emulator.learning.layers import are_tokens
from emulator.learning.measured_models import Samples
from emulator.learning.measuring import EVALUATION_BATCH, MeasureJob, Measurer
from emulator.learning.sizes import TRAINING_COPIES, fitting
from emulator.learning.trainer import COPIES, TrainedState, Trainer, TrainingData, TrainJob, steps_of
from emulator.machine import cores
from emulator.rng import derive
from emulator.scenario.schema import Scenario

if TYPE_CHECKING:
    from emulator.learning.probe import ProbeParams
    from emulator.learning.ray_pool import RayPool

log = logging.getLogger(__name__)

WORKERS_AFTER_S = 1.5  # of work in this process: starting workers takes about as long. From 0 down: it waits for them
LONG = 3  # of work to come: so many times as much, and workers start at once


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
            train = torch.from_numpy(arrays.x_train), torch.from_numpy(arrays.y_train)
            self._given = TrainingData(*train, data.parts, scenario.objective)
            limit = scenario.evaluate.samples
            with within_memory(self._place, "the data set"):
                self._training = self._given.to(self._place.device)
                owners = None if arrays.test_owners is None else arrays.test_owners[:limit]
                tests = Samples(self._there(arrays.x_test[:limit]), self._there(arrays.y_test[:limit]), owners)
            tokens, key = are_tokens(self._training.x), key_of(scenario)
            with fitting(scenario, arrays.shape, arrays.classes, TRAINING_COPIES):
                again = self._fresh()
                tested = self._fresh()
                trial.check_same(tested, again, key)
                self._measurer = Measurer(tested, self._training, arrays.classes, scenario.seed, self._place)
                self._measurer.samples["test"] = tests
                self._tested = self._measurer.flat
                self._untrained = self._tested.state.cpu().clone()
                self.facts: ModelFacts = model_facts(again, arrays.shape, tokens, key)
                self.shapes = state_shapes(again)
            self._pool: workers.WorkerPool | DevicePool | RayPool | None = None
            self._max_workers = max_workers
            self._backend = backend
            self._spent_s = 0.0  # on work in this process
            self._ahead_s = 0.0  # that is known to come, if it were done in this process
            self._looked_at: set[int] = set()  # batch sizes
            self._undone = undone.pop_all()

    def _there(self, array: np.ndarray) -> Tensor:
        """An array as a tensor on the device."""
        return torch.from_numpy(array).to(self._place.device)

    def _fresh(self, number: int = 0) -> nn.Module:
        return untrained(self._scenario, self.data.arrays.shape, self.data.arrays.classes, number)

    def initial(self, number: int = 0) -> Tensor:
        """The state of the untrained model; other numbers are other draws."""
        return FlatModel(self._fresh(number)).state if number else self._untrained.clone()

    def pretrained(self, probe: ProbeParams) -> Tensor:
        """The state of the untrained model, but for its last layer trained on another data set. Raises `InputError`."""
        from emulator.learning.probe_training import pretrained_state

        def made(classes: int) -> nn.Module:
            return untrained(self._scenario, self.data.arrays.shape, classes)

        with within_memory(self._place, "training the probe"):
            return pretrained_state(made, self.data.arrays, probe, self._scenario.seed, self._place)

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

        Short runs stay in this process. Once work has taken longer than starting workers does, or the time of a step and what is
        known to come say that the run is long, they start in the background, and take over when they are there. A Ray cluster
        takes every wave of more than one, and so do GPUs, in this process.
        """
        self._warn_of_loops(jobs)
        trainer, left = self._trainer, dict(enumerate(jobs))
        while left:
            numbers, wanted = list(left), list(left.values())
            pool = self._workers() if len(jobs) > 1 else None
            steps = [steps_of(job, self._training) for job in wanted]
            results = self._train_here(trainer, wanted, steps) if pool is None else pool.train(wanted, steps)
            for number, result in results:
                del left[numbers[number]]
                yield numbers[number], result

    def _train_here(
        self, trainer: Trainer, jobs: Sequence[TrainJob], steps: Sequence[int]
    ) -> Iterator[tuple[int, TrainedState]]:
        """Trains jobs in this process: all of them, unless workers are there meanwhile and enough is left for them.

        Those that a stack had begun with then are begun anew by the workers.
        """
        together = COPIES if any(trainer.stacks(job.rule.params.batch_size) for job in jobs) else 1
        all_steps = sum(steps) * (1 + self._rounds_after(jobs))
        wave_s, done, started = 0.0, 0, time.perf_counter()
        with within_memory(self._place, "a training"):
            for count, (number, result) in enumerate(trainer.train(jobs), 1):
                took_s = time.perf_counter() - started
                self._spent_s += took_s
                wave_s, done = wave_s + took_s, done + steps[number]
                yield number, result
                started = time.perf_counter()
                if len(jobs) > 1 and min(together, len(jobs)) <= count:  # sooner the time of a step is not known
                    self._ahead_s = wave_s / max(done, 1) * (all_steps - done)
                if len(jobs) - count > 2 * together and self._workers() is not None:
                    return

    def _rounds_after(self, jobs: Sequence[TrainJob]) -> int:
        """How many rounds come after that of a wave, each with such a wave at least; 0 where that is not known."""
        stop, now = self._scenario.stop, max(job.round for job in jobs)
        sure = (stop.time, stop.cost, stop.bytes) == (None,) * 3 and not stop.goals
        return max(0, stop.rounds - now) if stop.rounds is not None and sure and now > 0 else 0

    @cached_property
    def _trainer(self) -> Trainer:
        return Trainer(self._fresh(), self._training, self._scenario.seed, self.facts.forward_flops, self._place)

    def _warn_of_loops(self, jobs: Sequence[TrainJob]) -> None:
        """Says once where clients train one after another although their model is small, why, and what that costs."""
        sizes = {job.rule.params.batch_size for job in jobs} - self._looked_at
        self._looked_at |= sizes
        if why := next(filter(None, map(self._trainer.why_one_by_one, sorted(sizes))), ""):
            log.warning(
                "clients are trained one after another, because %s; side by side, small models train up to four times as fast "
                "(docs/engine.md)", why,
            )  # fmt: skip

    def try_out(self, rules: Sequence[tuple[str, LocalRule]]) -> None:
        """Tries the model and these local rules, with their keys, on a few samples (see `emulator.learning.trial`).

        Raises `InputError` where a run with them would fail, or its figures would mean nothing.
        """
        data, key, classes = self._training, key_of(self._scenario), self.data.arrays.classes
        state = self._untrained.clone()
        sizes = [len(part) for part in self.data.parts]
        most = min([trial.SAMPLES, *(rule.params.batch_size for _, rule in rules)])
        rows = np.array(list(itertools.islice(itertools.chain.from_iterable(self.data.parts), most)))
        few = replace(data, parts={0: rows})
        some = self._there(rows)
        with plugins.blaming(f"model '{self._scenario.model.kind}'"):
            trial.try_model(self._tested, state, data.x[some], data.y[some], classes, key, data.task)
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
        """The worker processes, once there was enough to do for them and they are there, or those of the cluster, or the GPUs."""
        if self._pool is None and self._backend == "ray":
            from emulator.learning.ray_pool import RayPool

            self._pool = RayPool(self._max_workers, self._fresh(), self._given, *self._ground(), self._place)
        if self._pool is None and self._place.device.type != "cpu":
            self._pool = DevicePool(self._places, self._fresh(), self._training, *self._ground())
        enough = self._spent_s > WORKERS_AFTER_S or self._ahead_s > LONG * WORKERS_AFTER_S
        if self._pool is None and enough and (count := self._max_workers or cores()) > 1:
            alone = plugins.only_here(self._scenario)
            why = alone and f"{alone}, which other processes do not import"
            module = self._fresh()
            if not why and (cannot := workers.cannot_travel(module)):
                why = f"the model cannot be sent to others: {cannot}"
            if why:
                log.warning("clients are trained in one process, because %s", why)
                self._max_workers = 1
                return None
            modules = plugins.modules_of(self._scenario)
            self._pool = workers.WorkerPool(count, module, self._given, *self._ground(), modules, self._place)
        if isinstance(self._pool, workers.WorkerPool) and not self._pool.ready(None if WORKERS_AFTER_S <= 0 else 0.0):
            return None
        return self._pool

    def evaluate(self, states: Sequence[Tensor]) -> list[dict[str, float]]:
        """What the task measures of each model on the test set, and its mean loss, by name."""
        count, task = len(self._measurer.samples["test"].y), self._given.task
        firsts, rule = range(0, count, EVALUATION_BATCH), self._given.task()
        found = dict(self._measured([MeasureJob([state], first=first) for state in states for first in firsts]))
        totals = []
        for model in range(len(states)):
            batches = [found[model * len(firsts) + batch] for batch in range(len(firsts))]
            loss, *counts = sum(batches[1:], batches[0])  # in their order, whoever tested them
            measured = self._named(rule.measures(np.array(counts), float(loss) / count, count))
            totals.append({**{m.name: measured[m.name] for m in task.measures}, "loss": float(loss) / count})
        return totals

    def _named(self, measured: Mapping[str, float]) -> dict[str, float]:
        """What a task measured. Raises `HflError` where something is missing."""
        task = self._given.task
        missing = [m.name for m in task.measures if m.name not in measured]
        if missing:
            raise task.broken(f"its measures lack {quote_all(missing)}")
        return {name: float(value) for name, value in measured.items()}

    def measure(
        self, asked: Sequence[tuple[MeasurementChoice, Sequence[Tensor], int | None]]
    ) -> Iterator[tuple[int, np.ndarray]]:
        """What measurements read off models (see `emulator.learning.measurements`), and whose samples they take.

        Yields the number of each and its result, in the order in which they end.
        """
        jobs = [MeasureJob(states, measurement, client) for measurement, states, client in asked]
        samples = self._measurer.samples
        if any(job.on == "public" for job in jobs) and "public" not in samples:
            x, y = self.data.public_samples
            samples["public"] = Samples(self._there(x), self._there(y))
        return self._measured(jobs)

    def _measured(self, jobs: Sequence[MeasureJob]) -> Iterator[tuple[int, np.ndarray]]:
        """Does jobs here or, once there are workers, there; those on a GPU, or of a run on a cluster, always here."""
        local = self._backend == "local" and self._place.device.type == "cpu"
        for number, job in enumerate(jobs):
            pool = self._workers() if local and number + 1 < len(jobs) else None
            if isinstance(pool, workers.WorkerPool):
                if pool.can_measure(jobs):
                    yield from ((number + n, found) for n, found in pool.measure(jobs[number:], self._measurer))
                    return
                local = False
            started = time.perf_counter()
            found = self._measurer.measure(job)
            self._spent_s += time.perf_counter() - started
            yield number, found

    def close(self) -> None:
        """Ends the worker processes, or lets go of what the cluster holds; whoever computes next has all threads again."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self._undone.close()
