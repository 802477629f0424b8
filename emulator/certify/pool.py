"""Who answers orders: processes of this machine, or tasks on a Ray cluster. Which of them it is changes no answer."""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from emulator import cluster, plugins
from emulator.certify.order import Answers, RunOf, WorldsOrder
from emulator.cluster import Backend
from emulator.errors import HflError
from emulator.learning.memo import Memo
from emulator.machine import cores
from emulator.study.job import Answered, Ended, Setup, Warned
from emulator.study.runner import Job

if TYPE_CHECKING:
    from ray import ObjectRef

log = logging.getLogger(__name__)

WAITING = 2  # orders on a cluster for each of its CPUs, so that none is idle


class Pool(Protocol):
    """Answers orders, in any order of its own."""

    def answers(self, orders: Iterable[WorldsOrder]) -> Iterator[tuple[int, Answers]]:
        """The answers, each with the number of its order. Raises `HflError` where one cannot be answered."""


class Here(AbstractContextManager["Here"]):
    """This process itself, one order after another."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left to end."""

    def answers(self, orders: Iterable[WorldsOrder]) -> Iterator[tuple[int, Answers]]:
        """See `Pool`."""
        memo = Memo(None)
        try:
            for number, order in enumerate(orders):
                yield number, order.answer(memo)
        finally:
            memo.close()


class Processes(AbstractContextManager["Processes"]):
    """Processes of this machine, which stay until the block ends. They end with this process, however it ends."""

    def __init__(self, jobs: int | None = None) -> None:
        self._most = jobs or cores()
        self._setup = Setup(None, sys.path, list(plugins.loaded))
        self._idle: list[Job] = []
        self._active: dict[Connection, tuple[Job, int]] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for job, _ in self._active.values():
            job.stop()
        for job in [*self._idle, *(job for job, _ in self._active.values())]:
            job.close()

    def answers(self, orders: Iterable[WorldsOrder]) -> Iterator[tuple[int, Answers]]:
        """See `Pool`."""
        waiting = enumerate(orders)
        while True:
            for number, order in itertools.islice(waiting, self._most - len(self._active)):
                job = self._idle.pop() if self._idle else Job(self._setup)
                self._active[job.pipe] = (job, number)
                job.send(order)
            if not self._active:
                return
            for ready in wait(list(self._active)):
                assert isinstance(ready, Connection)
                yield from self._hear(ready)

    def _hear(self, pipe: Connection) -> Iterator[tuple[int, Answers]]:
        job, number = self._active[pipe]
        message = job.receive()
        if isinstance(message, Warned):
            log.warning("%s", message.text)
        elif isinstance(message, Answered):
            yield number, message.answer
        elif isinstance(message, Ended):
            del self._active[pipe]
            if job.alive:
                self._idle.append(job)
            if message.error:
                raise HflError(message.error)


class Tasks(AbstractContextManager["Tasks"]):
    """Tasks on the Ray cluster that this process has joined. Run folders travel once to each machine that does not see them."""

    def __init__(self, runs: Sequence[RunOf]) -> None:
        import ray

        from emulator.study.ray_runner import pack

        self._packed = tuple(ray.put(pack(run.folder)) for run in runs)
        self._surroundings = cluster.Surroundings()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ray ends tasks with the connection."""

    def answers(self, orders: Iterable[WorldsOrder]) -> Iterator[tuple[int, Answers]]:
        """See `Pool`."""
        import ray

        waiting = enumerate(orders)
        active: dict[ObjectRef, int] = {}
        task = ray.remote(_task).options(num_cpus=1, max_retries=cluster.LOST_TIMES)
        while True:
            room = WAITING * sum(cluster.nodes().values()) - len(active)
            for number, order in itertools.islice(waiting, max(0, room)):
                active[task.remote(replace(order, packed=self._packed), self._surroundings)] = number
            if not active:
                return
            done, _ = ray.wait(list(active))
            for each in done:
                yield active.pop(each), cluster.result_of(each)


def _task(order: WorldsOrder, surroundings: cluster.Surroundings) -> Any:
    try:
        surroundings.enter()
        return order.answer(Memo(None))
    except HflError as error:
        return error  # whole, and not as an error of Ray's


def pool_of(backend: Backend, runs: Sequence[RunOf], jobs: int | None) -> Here | Processes | Tasks:
    """Whoever answers orders about these runs, as a context."""
    if backend == "ray":
        return Tasks(runs)
    return Here() if (jobs or cores()) == 1 else Processes(jobs)
