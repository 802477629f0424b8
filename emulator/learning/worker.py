"""A worker process from the inside: what it is sent, and what it does with it (see `emulator.learning.workers`)."""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from emulator import plugins
from emulator.contracts.learning import MeasurementChoice, Subjects
from emulator.errors import HflError
from emulator.learning.device import Place
from emulator.learning.distillation import DistilJob, distil_client
from emulator.learning.measured_models import Samples
from emulator.learning.measuring import MeasureJob, Measurer
from emulator.learning.trainer import Trainer, TrainingData, TrainJob


@dataclass(frozen=True)
class TrainOrder:
    """A job whose vectors stand in the table: the rows of what it reads and of what it is to write (-1: none).

    ``job`` has no tensors itself; ``extra`` are the first rows of its blocks in the table of samples, and their labels.
    """

    number: int
    job: TrainJob
    reads: tuple[int, int, int]
    writes: tuple[int, int]
    extra: tuple[tuple[int, np.ndarray], ...]


@dataclass(frozen=True)
class DistilOrder:
    """A client's data, to be distilled."""

    number: int
    job: DistilJob


@dataclass(frozen=True)
class MeasureOrder:
    """A measurement, or a part of a test, whose models stand in the table at these rows (see `MeasureJob`)."""

    number: int
    rows: tuple[int, ...]
    measurement: MeasurementChoice | None
    client: int | None
    first: int


@dataclass(frozen=True)
class Tables:
    """The tables that orders refer to from now on: of vectors, and of samples that jobs bring."""

    vectors: Tensor
    samples: Tensor


@dataclass(frozen=True)
class ToMeasure:
    """What a worker needs to measure: a module of its own, the number of labels, and samples that are not a client's."""

    module: nn.Module
    classes: int
    samples: dict[Subjects, Samples]


class Ahead:
    """Stands before a model in a message: where that is of torchvision, it imports that by our own door when it arrives."""

    def __init__(self, module: nn.Module) -> None:
        self._needed = any(type(part).__module__.startswith("torchvision.") for part in module.modules())

    def __reduce__(self) -> tuple[Any, ...]:
        """What is called in the process in which it arrives."""
        return (importlib.import_module, ("emulator.learning.torchvision_cpu",)) if self._needed else (object, ())


@dataclass(frozen=True)
class Setup:
    """All that a worker needs to be a trainer."""

    ahead: Ahead
    module: nn.Module
    data: TrainingData
    seed: int
    forward_flops: float
    place: Place


def work(pipe: Connection, path: list[str], plug_ins: list[str], named: dict[str, str]) -> None:
    """A worker's whole life: says that it is there, waits for orders, says when each job is done; ends when the parent is gone.

    The user's modules are there before the model arrives, which may be of them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers itself
    torch.set_num_threads(1)
    sys.path[:] = path
    plugins.named.update(named)
    with contextlib.suppress(EOFError, ConnectionError):
        try:
            with plugins.blaming():
                plugins.load(plug_ins)
                pipe.send(None)  # it is there
                worker = _Worker(pipe.recv())
        except HflError as error:  # the answer to whatever is asked first; there will be no other
            pipe.send(error)
            while True:
                pipe.recv_bytes()
        while True:
            message = pipe.recv()
            try:
                with plugins.blaming():
                    worker.take(message, pipe.send)
            except HflError as error:
                pipe.send(error)


class _Worker:
    """What a worker process has: a trainer, and once it is to measure, a measurer."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._trainer = Trainer(setup.module, setup.data, setup.seed, setup.forward_flops, setup.place)
        self._tables = Tables(torch.empty(0), torch.empty(0))
        self._measurer: Measurer | None = None

    def take(self, message: Any, tell: Callable[[object], None]) -> None:
        """Takes what it is given, or follows orders, all of one kind, and tells of each that is done."""
        match message:
            case Tables():
                self._tables = message
            case ToMeasure():
                setup = self._setup
                self._measurer = Measurer(message.module, setup.data, message.classes, setup.seed, setup.place)
                self._measurer.samples.update(message.samples)
            case [TrainOrder(), *_]:
                self._train(message, tell)
            case [*orders]:
                for order in orders:
                    tell(self._done(order))

    def _done(self, order: DistilOrder | MeasureOrder) -> object:
        """What is to be told of an order."""
        if isinstance(order, MeasureOrder):
            assert self._measurer is not None
            # Copies: a row may begin anywhere (see `measuring`).
            states = [self._tables.vectors[row].clone() for row in order.rows]
            found = self._measurer.measure(MeasureJob(states, order.measurement, order.client, order.first))
            return order.number, found
        data = self._setup.data
        x, y = distil_client(data.x, data.y, data.parts, order.job, self._setup.seed)
        return order.number, x.numpy(), y.numpy()

    def _train(self, orders: Sequence[TrainOrder], tell: Callable[[object], None]) -> None:
        table = self._tables.vectors
        for index, trained in self._trainer.train([self._job(order) for order in orders]):
            order = orders[index]
            table[order.writes[0]].copy_(trained.state)
            if trained.own is not None:
                table[order.writes[1]].copy_(trained.own)
            tell(order.number)

    def _job(self, order: TrainOrder) -> TrainJob:
        weights, shared, own = (None if row < 0 else self._tables.vectors[row] for row in order.reads)
        assert weights is not None
        samples = self._tables.samples
        extra = tuple((samples[row : row + len(y)], torch.from_numpy(y)) for row, y in order.extra)
        return replace(order.job, weights=weights, shared=shared, own=own, extra=extra)
