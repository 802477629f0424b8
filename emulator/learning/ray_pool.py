"""Trainers on a Ray cluster: the shares of a wave are tasks, models and clients' samples are in the object store.

A client's samples are put into the store once, when they are first needed. A machine that uses them keeps its copy, and a
client is trained again on the machine that trained it last, as long as that keeps the shares even. Each process keeps its
trainer. A task whose process or machine is lost runs again; who trains what changes no result (see
`emulator.learning.trainer`).
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
import torch
from torch import Tensor, nn

from emulator import cluster, plugins
from emulator.contracts.tasks import TaskChoice
from emulator.errors import HflError
from emulator.learning.device import HOST, Place, reproducible
from emulator.learning.distillation import DistilJob, distil_client
from emulator.learning.extra_samples import Block
from emulator.learning.gpus import DeviceTrainer
from emulator.learning.recipes import Trainee
from emulator.learning.trainer import TrainedState, Trainer, TrainingData, TrainJob
from emulator.learning.worker import Ahead
from emulator.learning.workers import assign_jobs_near

if TYPE_CHECKING:
    from ray import ObjectRef


@dataclass(frozen=True)
class _Setup:
    """All that a process needs to be a trainer."""

    ahead: Ahead
    module: nn.Module
    seed: int
    forward_flops: float
    place: Place
    task: TaskChoice


@dataclass(frozen=True)
class _Order:
    """A job without its tensors: they are among the values that come with the task, at these places (-1: none).

    ``extra`` are the places of its blocks of samples, and their labels.
    """

    number: int
    job: TrainJob
    vectors: tuple[int, int, int]
    extra: tuple[tuple[int, np.ndarray], ...]


class RayPool:
    """Trainers on the cluster to which this process is connected. ``count`` limits the tasks at a time (None: all CPUs).

    Where ``place`` is a GPU, every task has one, whichever Ray gives it. ``data`` is on the CPU.
    """

    def __init__(
        self,
        count: int | None,
        module: nn.Module,
        data: TrainingData,
        seed: int,
        forward_flops: float,
        place: Place = HOST,
    ) -> None:
        self._count = count
        self._data = data
        self._name = uuid.uuid4().hex
        self._around = ray.put((cluster.Surroundings(), dict(plugins.named)))
        self._gpu = place.device.type == "cuda"
        theirs = replace(place, device=torch.device("cuda", 0)) if self._gpu else place  # a task sees its own alone
        self._setup = ray.put(_Setup(Ahead(module), module, seed, forward_flops, theirs, data.task))
        self._samples: dict[int, ObjectRef] = {}  # of clients, once they were needed
        self._home: dict[int, str] = {}  # where clients were trained last

    def close(self) -> None:
        """Lets go of everything in the object store."""
        self._samples.clear()

    def train(self, jobs: Sequence[TrainJob], steps: Sequence[int]) -> Iterator[tuple[int, TrainedState]]:
        """As `Trainer.train`; ``steps`` says how long each job is.

        Raises the `HflError` that a task raised, or one of its own where a task was lost again and again.
        """
        stored: dict[int, ObjectRef] = {}  # each vector and each block once for all tasks of the wave
        tasks = []
        for node, share in self._deal(steps, [job.client for job in jobs]):
            values = _Values(stored)
            orders = [values.order(number, jobs[number]) for number in share]
            clients = sorted({c for n in share for c in _clients(jobs[n].client)})
            tasks.append(self._begin(_train, node, clients, orders, values.refs))
        for results in self._results(tasks):
            for number, state, own in results:
                yield number, TrainedState(_own(state), None if own is None else _own(own))

    def distil(self, jobs: Sequence[DistilJob], sizes: Sequence[float]) -> Iterator[tuple[int, Block]]:
        """Distils clients' data; yields the number of each job and its result, in the order in which they end.

        ``sizes`` says how long each job is. Raises as `train`.
        """
        tasks = []
        for node, share in self._deal(sizes, [job.client for job in jobs]):
            clients = sorted({jobs[n].client for n in share})
            tasks.append(self._begin(_distil, node, clients, [(n, jobs[n]) for n in share], []))
        for results in self._results(tasks):
            for number, x, y in results:
                yield number, (_own(x), _own(y))

    def _deal(self, sizes: Sequence[float], trainees: Sequence[Trainee]) -> Iterator[tuple[str, list[int]]]:
        """Divides jobs between CPUs or GPUs; which machine is to do which. Remembers who is at home where from now on."""
        there = cluster.nodes("GPU" if self._gpu else "CPU")
        workers = [node for node, count in there.items() for _ in range(count)][: self._count]
        homes = [self._home.get(_clients(trainee)[0], "") for trainee in trainees]
        for node, share in zip(workers, assign_jobs_near(sizes, homes, workers), strict=True):
            self._home |= {c: node for n in share for c in _clients(trainees[n])}
            if share:
                yield node, share

    def _begin(
        self, work: Any, node: str, clients: list[int], orders: Sequence[Any], refs: list[ObjectRef]
    ) -> ObjectRef:
        for client in clients:
            if client not in self._samples:
                rows = self._data.parts[client]
                self._samples[client] = ray.put((self._data.x[rows].numpy(), self._data.y[rows].numpy()))
        task = ray.remote(work).options(
            num_cpus=1,
            num_gpus=int(self._gpu),
            max_retries=cluster.LOST_TIMES,
            scheduling_strategy=cluster.near(node),
        )
        held = [self._samples[client] for client in clients]
        # The setup stands in a list, so that it is fetched by those who do not have it yet, not by every task.
        begun: ObjectRef = task.remote(self._name, [self._around, self._setup], clients, orders, *held, *refs)
        return begun

    def _results(self, tasks: list[ObjectRef]) -> Iterator[list[Any]]:
        left = list(tasks)
        try:
            while left:
                (done, *_), left = ray.wait(left)
                yield cluster.result_of(done)
        finally:
            for task in left:
                ray.cancel(task)


class _Values:
    """What a task is given beside its clients' samples: each value once in the object store, whoever asks for it."""

    def __init__(self, stored: dict[int, ObjectRef]) -> None:
        self._stored = stored
        self._place: dict[int, int] = {}
        self.refs: list[ObjectRef] = []

    def order(self, number: int, job: TrainJob) -> _Order:
        """A job in the form that travels."""
        first, second, third = (self._at(v) for v in (job.weights, job.shared, job.own))
        extra = tuple((self._at(x), y.numpy()) for x, y in job.extra)
        return _Order(number, job.bare(), (first, second, third), extra)

    def _at(self, value: Tensor | None) -> int:
        if value is None:
            return -1
        if id(value) not in self._place:
            if id(value) not in self._stored:
                self._stored[id(value)] = ray.put(value.numpy())
            self._place[id(value)] = len(self.refs)
            self.refs.append(self._stored[id(value)])
        return self._place[id(value)]


_trainers: dict[str, tuple[Trainer | DeviceTrainer, _Setup]] = {}  # of this process: that of the latest run


def _trainer(name: str, held: list[ObjectRef]) -> tuple[Trainer | DeviceTrainer, _Setup]:
    if name not in _trainers:
        torch.set_num_threads(1)
        around, named = ray.get(held[0])
        plugins.named.update(named)
        around.enter()
        setup: _Setup = ray.get(held[1])  # only now: the model may be of the user's modules
        _trainers.clear()
        nobody = TrainingData(torch.empty(0), torch.empty(0), [], setup.task)
        make = Trainer if setup.place.device.type == "cpu" else DeviceTrainer
        _trainers[name] = make(setup.module, nobody, setup.seed, setup.forward_flops, setup.place), setup
    return _trainers[name]


def _train(name: str, held: list[ObjectRef], clients: list[int], orders: list[_Order], *values: Any) -> Any:
    """A task: trains its share of a wave."""
    try:
        with plugins.blaming():
            trainer, setup = _trainer(name, held)
            vectors = [torch.from_numpy(np.array(v)) for v in values[len(clients) :]]
            found = []
            with reproducible(setup.place):
                data = _gathered(clients, values[: len(clients)])
                trainer.data = replace(data, task=setup.task).to(setup.place.device)
                for index, trained in trainer.train([_job(order, vectors) for order in orders]):
                    own = None if trained.own is None else trained.own.numpy()
                    found.append((orders[index].number, trained.state.numpy(), own))
    except HflError as error:
        return error
    return found


def _distil(
    name: str, held: list[ObjectRef], clients: list[int], jobs: list[tuple[int, DistilJob]], *values: Any
) -> Any:
    """A task: distils the data of its share of clients."""
    try:
        _, setup = _trainer(name, held)
        found = []
        with reproducible(setup.place):
            data = _gathered(clients, values).to(setup.place.device)
            for number, job in jobs:
                x, y = distil_client(data.x, data.y, data.parts, job, setup.seed)
                found.append((number, x.numpy(), y.numpy()))
    except HflError as error:
        return error
    return found


def _gathered(clients: list[int], samples: Sequence[tuple[np.ndarray, np.ndarray]]) -> TrainingData:
    """The samples of these clients one after another, and who has which."""
    ends = list(itertools.accumulate(len(y) for _, y in samples))
    parts = {c: np.arange(end - len(y), end) for c, end, (_, y) in zip(clients, ends, samples, strict=True)}
    x, y = (np.concatenate([each[k] for each in samples]) for k in (0, 1))
    return TrainingData(torch.from_numpy(x), torch.from_numpy(y), parts)


def _job(order: _Order, values: list[Tensor]) -> TrainJob:
    weights, shared, own = (None if at < 0 else values[at] for at in order.vectors)
    assert weights is not None
    extra = tuple((values[at], torch.from_numpy(np.array(y))) for at, y in order.extra)
    return replace(order.job, weights=weights, shared=shared, own=own, extra=extra)


def _clients(trainee: Trainee) -> tuple[int, ...]:
    return (trainee,) if isinstance(trainee, int) else trainee


def _own(array: np.ndarray) -> Tensor:
    """A tensor of this process, so that the object store can let go of the array."""
    return torch.from_numpy(np.array(array))
