"""Worker processes: as many trainers as there are cores, each with one thread, fed through shared memory.

The parent deals a wave out so that every worker has about the same number of steps. Vectors travel in one shared table of
rows that grows as needed, samples that jobs bring along in another that is made anew only where they are others than before;
messages carry row numbers only. Data and model go to a worker once, when it starts, and test and public samples when they are
first needed; samples stand in shared memory or in files, once for all processes. Who trains what changes no result (see
`emulator.learning.trainer`). Workers distil clients' data, and evaluate and measure models, too.

They start in the background: importing torch takes them a second or two, in which their parent may do what it likes.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import multiprocessing
import pickle
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from emulator import plugins, processes
from emulator.contracts.learning import Subjects
from emulator.errors import HflError
from emulator.learning.data.mapped import travelling
from emulator.learning.device import HOST, Place
from emulator.learning.distillation import DistilJob
from emulator.learning.extra_samples import Block
from emulator.learning.measuring import MeasureJob, Measurer
from emulator.learning.trainer import TrainedState, TrainingData, TrainJob
from emulator.learning.worker import (
    Ahead,
    DistilOrder,
    MeasureOrder,
    Setup,
    Tables,
    ToMeasure,
    TrainOrder,
    work,
)

UNEVEN = 0.1  # by how much of a fair share a machine may be loaded more, so that clients stay where their samples are


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
        shared = replace(data, x=_samples(data.x), y=_shared(data.y))
        context = multiprocessing.get_context("spawn")
        names = list(plugins.loaded if plug_ins is None else plug_ins)
        self._modules = {Path(name).stem if name.endswith(".py") else name for name in names}
        self._setup = Setup(Ahead(module), module, shared, seed, forward_flops, place)
        self._tables = Tables(torch.empty(0), torch.empty(0))
        self._blocks: list[Tensor] = []  # that stand in the table of samples, one after another
        self._on: set[Subjects] | None = None  # the samples that workers have to measure on, once they measure
        self._pipes: list[Connection] = []
        self._left: list[int] = [0] * count  # answers that each of them owes
        self._processes = []
        with _interrupts_blocked():
            for _ in range(count):
                ours, theirs = context.Pipe()
                given = (theirs, sys.path, names, dict(plugins.named))
                process = context.Process(target=work, args=given, daemon=True)
                processes.start(process)
                theirs.close()
                self._pipes.append(ours)
                self._processes.append(process)
        self._absent = list(self._pipes)  # of those who have not said yet that they are there

    def ready(self, wait_s: float | None = 0.0) -> bool:
        """Whether all workers are there, after waiting for them so long (None: for as long as it takes).

        Raises as `train` where one of them could not start.
        """
        while self._absent and (here := wait(self._absent, wait_s)):
            for pipe in here:
                assert isinstance(pipe, Connection)
                self._receive(pipe)
                self._absent.remove(pipe)
                self._send(pipe, self._setup)
        return not self._absent

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
        self._settle()
        orders = self._lay_out(jobs)
        for number in self._answers(orders, steps):
            state, own = orders[number].writes
            table = self._tables.vectors
            yield number, TrainedState(table[state].clone(), None if own < 0 else table[own].clone())

    def distil(self, jobs: Sequence[DistilJob], sizes: Sequence[float]) -> Iterator[tuple[int, Block]]:
        """Distils clients' data; yields the number of each job and its result, in the order in which they end.

        ``sizes`` says how long each job is. Raises as `train`.
        """
        self._settle()
        for number, x, y in self._answers([DistilOrder(number, job) for number, job in enumerate(jobs)], sizes):
            yield number, (torch.from_numpy(x), torch.from_numpy(y))

    def can_measure(self, jobs: Sequence[MeasureJob]) -> bool:
        """Whether workers can do these jobs: they have the measurements, and none needs features, which take a training."""
        used = {job.measurement.kind: job.measurement.plugin for job in jobs if job.measurement is not None}.values()
        here = [p for p in used if p.facts.on == "everybody" or not (p.ours or p.function.__module__ in self._modules)]
        return not here

    def measure(self, jobs: Sequence[MeasureJob], measurer: Measurer) -> Iterator[tuple[int, np.ndarray]]:
        """Does what `Measurer.measure` does; yields the number of each job and its result, in the order in which they end.

        ``measurer`` is this process's, and has the samples. Raises as `train`.
        """
        self._settle()
        wanted = {job.on for job in jobs} & measurer.samples.keys()
        if self._on is None or not wanted <= self._on:
            self._on = wanted | (self._on or set())
            samples = {
                on: replace(s, x=_samples(s.x), y=_shared(s.y)) for on, s in measurer.samples.items() if on in self._on
            }
            self._tell(ToMeasure(self._setup.module, measurer.classes, samples))
        row_of = self._put([state for job in jobs for state in job.states], 0)
        orders = []
        for number, job in enumerate(jobs):
            rows = tuple(row_of[id(state)] for state in job.states)
            orders.append(MeasureOrder(number, rows, job.measurement, job.client, job.first))
        yield from self._answers(orders, [measurer.size(job) for job in jobs])

    def _tell(self, message: object) -> None:
        for pipe in self._pipes:
            self._send(pipe, message)

    def _answers(self, orders: Sequence[object], sizes: Sequence[float]) -> Iterator[Any]:
        """Deals orders out to the workers by their sizes; what they answer, one answer for each order."""
        for worker, share in enumerate(assign_jobs(sizes, len(self._pipes))):
            if share:
                self._left[worker] = len(share)
                self._send(self._pipes[worker], [orders[number] for number in share])
        yield from self._owed()

    def _settle(self) -> None:
        """Waits until all workers are there, and none is at work for a wave that an error ended. What these answer is dropped."""
        self.ready(None)
        while any(self._left):
            with contextlib.suppress(HflError):
                for _ in self._owed():
                    pass

    def _owed(self) -> Iterator[Any]:
        while owing := [pipe for pipe, left in zip(self._pipes, self._left, strict=True) if left]:
            for ready in wait(owing):
                assert isinstance(ready, Connection)
                worker = self._pipes.index(ready)
                self._left[worker] -= 1
                try:
                    answer = self._receive(ready)
                except HflError:
                    self._left[worker] = 0  # it dropped the rest of its share
                    raise
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

    def _lay_out(self, jobs: Sequence[TrainJob]) -> list[TrainOrder]:
        """Writes what the jobs read into the tables, and finds rows for what they write."""
        first_row = self._lay_out_samples(jobs)
        outputs = sum(1 if job.own is None else 2 for job in jobs)
        row_of = self._put([v for job in jobs for v in (job.weights, job.shared, job.own) if v is not None], outputs)
        orders, free = [], len(row_of)
        for number, job in enumerate(jobs):
            first, second, third = (-1 if v is None else row_of[id(v)] for v in (job.weights, job.shared, job.own))
            writes = (free, -1 if job.own is None else free + 1)
            free += 1 if job.own is None else 2
            extra = tuple((first_row[id(x)], y.numpy()) for x, y in job.extra)
            orders.append(TrainOrder(number, job.bare(), (first, second, third), writes, extra))
        return orders

    def _put(self, vectors: Sequence[Tensor], outputs: int) -> dict[int, int]:
        """Writes vectors into the table, each once, with so many rows left behind them; the row of each, by its id."""
        once = {id(v): v for v in vectors}
        table, rows, width = self._tables.vectors, len(once) + outputs, len(vectors[0]) if vectors else 0
        if rows and (len(table) < rows or table.shape[1] != width):
            table = _shared(torch.empty(rows + rows // 4, width))
            self._change_tables(replace(self._tables, vectors=table))
        for row, vector in enumerate(once.values()):
            table[row].copy_(vector)
        return {key: row for row, key in enumerate(once)}

    def _change_tables(self, tables: Tables) -> None:
        self._tables = tables
        self._tell(tables)

    def _lay_out_samples(self, jobs: Sequence[TrainJob]) -> dict[int, int]:
        """Sees to it that the samples that jobs bring stand in their table; the first row of each block, by its id."""
        blocks = list({id(x): x for job in jobs for x, _ in job.extra}.values())
        if list(map(id, blocks)) != list(map(id, self._blocks)):
            samples = _shared(torch.cat(blocks)) if blocks else torch.empty(0)
            self._change_tables(replace(self._tables, samples=samples))
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


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """A block that starts processes which Ctrl-C does not reach, not even while they import; here it comes after the block."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # which would undo the block, if it began in it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _shared(tensor: Tensor) -> Tensor:
    """The tensor, moved into memory that other processes can map."""
    return tensor.share_memory_()  # type: ignore[no-untyped-call, no-any-return]


def _samples(x: Tensor) -> Tensor:
    """Samples as they are sent to other processes, which map the same file, or the same memory."""
    found = travelling(x)
    return _shared(x) if found is None else found
