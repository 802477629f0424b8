"""Worker processes: as many trainers as there are cores, each with one thread, fed through shared memory.

The parent deals a wave out so that every worker has about the same number of steps. Vectors travel in one shared table of
rows that grows as needed, samples that jobs bring along in another that is made anew only where they are others than before;
messages carry row numbers only. Data and model go to a worker once, when it starts. Who trains what changes no result (see
`emulator.learning.trainer`). Workers distil clients' data too.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import multiprocessing
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from emulator import plugins, processes
from emulator.errors import HflError
from emulator.learning.data.mapped import travelling
from emulator.learning.device import HOST, Place
from emulator.learning.distillation import DistilJob, distil_client
from emulator.learning.extra_samples import Block
from emulator.learning.trainer import TrainedState, Trainer, TrainingData, TrainJob

UNEVEN = 0.1  # by how much of a fair share a machine may be loaded more, so that clients stay where their samples are


@dataclass(frozen=True)
class _Order:
    """A job whose vectors stand in the table: the rows of what it reads and of what it is to write (-1: none).

    ``job`` has no tensors itself; ``extra`` are the first rows of its blocks in the table of samples, and their labels.
    """

    number: int
    job: TrainJob
    reads: tuple[int, int, int]
    writes: tuple[int, int]
    extra: tuple[tuple[int, np.ndarray], ...]


@dataclass(frozen=True)
class _Setup:
    """All that a worker needs to be a trainer."""

    module: nn.Module
    data: TrainingData
    seed: int
    forward_flops: float
    place: Place


class WorkerPool:
    """Trainers in processes of their own. They end with the pool, or with this process.

    ``plug_ins`` are modules and files that they load first, by default those that were loaded here. They train on the CPU;
    ``place`` says how precisely.
    """

    def __init__(
        self,
        count: int,
        module: nn.Module,
        data: TrainingData,
        seed: int,
        forward_flops: float,
        plug_ins: Sequence[str] | None = None,
        place: Place = HOST,
    ) -> None:
        samples = travelling(data.x)
        shared = TrainingData(_shared(data.x) if samples is None else samples, _shared(data.y), data.parts)
        context = multiprocessing.get_context("spawn")
        self._table = torch.empty(0)
        self._blocks: list[Tensor] = []  # that stand in the table of samples, one after another
        self._samples = torch.empty(0)
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            given = (theirs, sys.path, list(plugins.loaded if plug_ins is None else plug_ins), dict(plugins.named))
            process = context.Process(target=_work, args=given, daemon=True)
            processes.start(process)
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        for pipe in self._pipes:
            self._send(pipe, _Setup(module, shared, seed, forward_flops, place))

    def close(self) -> None:
        """Ends the workers."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.terminate()
            process.join()

    def train(self, jobs: Sequence[TrainJob], steps: Sequence[int]) -> Iterator[tuple[int, TrainedState]]:
        """As `Trainer.train`; ``steps`` says how long each job is.

        Raises the `HflError` that a worker raised, or one of its own where a worker died.
        """
        orders = self._lay_out(jobs)
        shares = assign_jobs(steps, len(self._pipes))
        for number in self._answers(shares, lambda share: (self._table, self._samples, [orders[n] for n in share])):
            state, own = orders[number].writes
            yield number, TrainedState(self._table[state].clone(), None if own < 0 else self._table[own].clone())

    def distil(self, jobs: Sequence[DistilJob], sizes: Sequence[float]) -> Iterator[tuple[int, Block]]:
        """Distils clients' data; yields the number of each job and its result, in the order in which they end.

        ``sizes`` says how long each job is. Raises as `train`.
        """
        shares = assign_jobs(sizes, len(self._pipes))
        for number, x, y in self._answers(shares, lambda share: [(n, jobs[n]) for n in share]):
            yield number, (torch.from_numpy(x), torch.from_numpy(y))

    def _answers(self, shares: list[list[int]], message: Callable[[list[int]], object]) -> Iterator[Any]:
        """Sends every worker the message about its share; what they answer, one answer for each job."""
        for pipe, share in zip(self._pipes, shares, strict=True):
            self._send(pipe, message(share))
        left = {id(pipe): len(share) for pipe, share in zip(self._pipes, shares, strict=True)}
        while any(left.values()):
            for ready in wait([p for p in self._pipes if left[id(p)]]):
                assert isinstance(ready, Connection)
                answer = self._receive(ready)
                left[id(ready)] -= 1
                yield answer

    def _send(self, pipe: Connection, message: object) -> None:
        try:
            pipe.send(message)
        except (BrokenPipeError, ConnectionResetError):
            raise self._death(pipe) from None

    def _receive(self, pipe: Connection) -> Any:
        try:
            message = pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._death(pipe) from None
        if isinstance(message, BaseException):
            raise message
        return message

    def _death(self, pipe: Connection) -> HflError:
        process = self._processes[self._pipes.index(pipe)]
        process.join()
        code = process.exitcode
        perhaps = "; perhaps memory ran out" if code is not None and code < 0 else ""
        return HflError(f"a training process ended unexpectedly (exit code {code}){perhaps}")

    def _lay_out(self, jobs: Sequence[TrainJob]) -> list[_Order]:
        """Writes what the jobs read into the table, each vector once, and finds rows for what they write."""
        vectors = {id(v): v for job in jobs for v in (job.weights, job.shared, job.own) if v is not None}
        row_of = {key: row for row, key in enumerate(vectors)}
        outputs = sum(1 if job.own is None else 2 for job in jobs)
        rows, width = len(vectors) + outputs, len(jobs[0].weights)
        if len(self._table) < rows or self._table.shape[1] != width:
            self._table = _shared(torch.empty(rows + rows // 4, width))
        for key, vector in vectors.items():
            self._table[row_of[key]].copy_(vector)
        first_row = self._lay_out_samples(jobs)
        orders, free = [], len(vectors)
        for number, job in enumerate(jobs):
            first, second, third = (-1 if v is None else row_of[id(v)] for v in (job.weights, job.shared, job.own))
            writes = (free, -1 if job.own is None else free + 1)
            free += 1 if job.own is None else 2
            extra = tuple((first_row[id(x)], y.numpy()) for x, y in job.extra)
            orders.append(_Order(number, job.bare(), (first, second, third), writes, extra))
        return orders

    def _lay_out_samples(self, jobs: Sequence[TrainJob]) -> dict[int, int]:
        """Sees to it that the samples that jobs bring stand in their table; the first row of each block, by its id."""
        blocks = list({id(x): x for job in jobs for x, _ in job.extra}.values())
        if list(map(id, blocks)) != list(map(id, self._blocks)):
            self._samples = _shared(torch.cat(blocks)) if blocks else torch.empty(0)
            self._blocks = blocks
        ends = itertools.accumulate(map(len, blocks))
        return {id(block): end - len(block) for block, end in zip(blocks, ends, strict=True)}


def cannot_travel(module: nn.Module) -> str:
    """Why a model cannot be sent to another process, such as a class within a function; nothing where it can."""
    try:
        _Traveller(io.BytesIO()).dump(module)
    except Exception as error:  # noqa: BLE001 (pickle raises what it meets)
        return plugins.said(error)
    return ""


class _Traveller(pickle.Pickler):
    """Refuses what is defined in the main script or a notebook: other processes do not import it (see `emulator.processes`)."""

    def reducer_override(self, obj: Any) -> Any:
        """Looks at every class and function, and leaves the rest to pickle."""
        if isinstance(obj, type | FunctionType) and obj.__module__ == processes.MAIN:
            raise pickle.PicklingError(
                f"'{obj.__qualname__}' is not defined in a module, but in the script or notebook"
            )
        return NotImplemented


def assign_jobs(sizes: Sequence[float], workers: int) -> list[list[int]]:
    """Divides jobs so that the workers get about equal sums: the longest first, each to whoever has least so far."""
    return assign_jobs_near(sizes, [""] * len(sizes), ["here"] * workers)


def assign_jobs_near(sizes: Sequence[float], homes: Sequence[str], workers: Sequence[str]) -> list[list[int]]:
    """Divides jobs between workers that stand on machines: the sums about equal, and jobs at home as far as that goes.

    The longest jobs come first. Each goes to the worker on its home that has least so far, or, where that has its fair share
    already, to whoever has least. ``homes`` names a machine for each job, ``workers`` one for each worker.
    """
    shares: list[list[int]] = [[] for _ in workers]
    loads = [0.0] * len(workers)
    limit = sum(sizes) / len(workers) * (1 + UNEVEN)
    for number in sorted(range(len(sizes)), key=lambda n: -sizes[n]):
        at_home = [h for h, node in enumerate(workers) if node == homes[number] and loads[h] + sizes[number] <= limit]
        worker = min(at_home or range(len(workers)), key=loads.__getitem__)
        shares[worker].append(number)
        loads[worker] += sizes[number]
    return shares


def _work(pipe: Connection, path: list[str], plug_ins: list[str], named: dict[str, str]) -> None:
    """A worker's whole life: gets ready, waits for orders, says when each job is done; ends when the parent is gone.

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
                setup: _Setup = pipe.recv()
                trainer = Trainer(setup.module, setup.data, setup.seed, setup.forward_flops, setup.place)
        except HflError as error:  # the answer to the first order; there will be no other
            pipe.send(error)
            while True:
                pipe.recv_bytes()
        while True:
            message = pipe.recv()
            try:
                with plugins.blaming():
                    _obey(message, setup, trainer, pipe.send)
            except HflError as error:
                pipe.send(error)


def _obey(message: Any, setup: _Setup, trainer: Trainer, tell: Callable[[object], None]) -> None:
    """Trains or distils what a message says, and tells of each job that is done."""
    if isinstance(message, list):
        for number, job in message:
            x, y = distil_client(setup.data.x, setup.data.y, setup.data.parts, job, setup.seed)
            tell((number, x.numpy(), y.numpy()))
        return
    table, samples, orders = message
    for index, trained in trainer.train([_job(table, samples, order) for order in orders]):
        order = orders[index]
        table[order.writes[0]].copy_(trained.state)
        if trained.own is not None:
            table[order.writes[1]].copy_(trained.own)
        tell(order.number)


def _job(table: Tensor, samples: Tensor, order: _Order) -> TrainJob:
    weights, shared, own = (None if row < 0 else table[row] for row in order.reads)
    assert weights is not None
    extra = tuple((samples[row : row + len(y)], torch.from_numpy(y)) for row, y in order.extra)
    return replace(order.job, weights=weights, shared=shared, own=own, extra=extra)


def _shared(tensor: Tensor) -> Tensor:
    """The tensor, moved into memory that other processes can map."""
    return tensor.share_memory_()  # type: ignore[no-untyped-call, no-any-return]
