"""Works through the runs of a study on a Ray cluster, each as a task.

A run writes into its folder of the study where the task's machine sees that folder (on the machine that began the study, or on
a file system that all share). Elsewhere it begins from what the folder holds, works in a folder of its own, and is brought back
whole when it ends or is stopped. The memo is a file of one machine: runs on others are told what runs that train alike have
found, and what they find is remembered when they come back. A run whose process or machine is lost runs again, from the latest
checkpoint where its folder is still there.
"""

from __future__ import annotations

import _thread
import io
import logging
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator import checkpoint, cluster, interruption
from emulator.errors import HflError
from emulator.files import replacing, write_text
from emulator.learning.memo import Memo
from emulator.run import execute
from emulator.run_folder import FILES, files_of, prepare
from emulator.scenario.load import check, with_changes
from emulator.study.job import Progressed, Teller, Warned, error_of, tells_rounds
from emulator.study.load import Planned
from emulator.study.runner import StudyWatcher, next_run
from emulator.yamlfile import Document, from_data

if TYPE_CHECKING:
    from ray import ObjectRef
    from ray.util.queue import Queue

LOOK_EVERY_S = 0.2
STOPPED_WITHIN_S = 30.0  # so long does an interrupted study wait for runs to write what they need to go on
SAID_WITHIN_S = 2.0  # and so long for what they have to say when Ray says that they are over
MARKER = ".seen-by"


@dataclass(frozen=True)
class RunOrder:
    """A run as a task: a scenario as plain data, its folder, and what it needs where that folder is not seen."""

    name: str
    document: Document
    folder: Path
    workers: int
    marker: str  # the content of a file beside the folder; who reads it sees the study's folder
    node: str  # that began the study
    memo: Path | None  # a file of that node
    packed: bytes  # what the folder holds so far; empty: nothing
    known: dict[str, bytes]  # small results of runs that train alike
    surroundings: cluster.Surroundings


@dataclass(frozen=True)
class Begun:
    """A run has a process now."""


@dataclass(frozen=True)
class Stopped:
    """An interrupted run has written what it needs to go on; ``packed`` is its folder where it must be brought back."""

    packed: bytes


@dataclass(frozen=True)
class RunDelivery:
    """A run is over: why it failed, or nothing; its folder where it must be brought back; whether the memo has its results."""

    error: str
    packed: bytes
    remembered: bool


def run_all(
    runs: Sequence[Planned],
    folder: Path,
    memo: Path | None,
    jobs: int | None = None,
    workers: int | None = None,
    watcher: StudyWatcher = StudyWatcher(),  # noqa: B008
) -> dict[str, str]:
    """As `emulator.study.runner.run_all`, on the cluster that this process has joined.

    ``jobs`` are the runs at a time, by default as many as the cluster has CPUs; ``workers`` the CPUs of each, by default what
    that leaves. A run that computes on GPUs has one, whichever Ray gives it.
    """
    return _Study(runs, folder.resolve(), memo, jobs, workers, watcher).work_through()


class _Study:
    """The runs that wait and those under way."""

    def __init__(
        self,
        runs: Sequence[Planned],
        folder: Path,
        memo: Path | None,
        jobs: int | None,
        workers: int | None,
        watcher: StudyWatcher,
    ) -> None:
        from ray.util.queue import Queue

        self._waiting = list(runs)
        self._runs = list(runs)
        self._folder = folder
        self._memo = None if memo is None else memo.resolve()
        self._jobs = jobs
        self._workers = workers
        self._watcher = watcher
        self._failed: dict[str, str] = {}
        self._active: dict[ObjectRef, Planned] = {}
        self._begun: set[str] = set()
        self._queue: Queue = Queue(actor_options={"num_cpus": 0})
        self._surroundings = cluster.Surroundings()
        self._marker = f"{cluster.this_node()} {time.time_ns()}"

    def work_through(self) -> dict[str, str]:
        """Does all runs; returns why those failed that did, by name."""
        import ray

        Memo(self._memo).close()  # the file is there before several processes want to make it
        write_text(self._folder / MARKER, self._marker)
        try:
            while self._waiting or self._active:
                while self._waiting and len(self._active) < (self._jobs or sum(cluster.nodes().values())):
                    self._begin()
                done, _ = ray.wait(list(self._active), timeout=LOOK_EVERY_S)
                self._listen()
                for task in done:
                    self._end(task)
        except BaseException:
            self._stop()
            raise
        finally:
            (self._folder / MARKER).unlink(missing_ok=True)
            self._queue.shutdown()
        return self._failed

    def _begin(self) -> None:
        import ray

        run = next_run(self._waiting, list(self._active.values()))
        cpus = cluster.nodes()
        at_a_time = min(self._jobs or sum(cpus.values()), len(self._active) + len(self._waiting))
        share = min(self._workers or max(1, sum(cpus.values()) // at_a_time), max(cpus.values()))
        compute = run.loaded.scenario.compute
        # As it was resolved here: a scenario that says `auto` must be the same scenario on every machine.
        document = with_changes(run.loaded.document, [("compute.device", from_data(compute.device, "study"))])
        self._waiting.remove(run)
        self._watcher.on_start(run)
        place = self._folder / run.name
        order = RunOrder(
            run.name, document, place, share, self._marker, cluster.this_node(), self._memo,
            pack(place), self._known(run), self._surroundings,
        )  # fmt: skip
        task = ray.remote(_task).options(
            num_cpus=share, num_gpus=int(compute.kind != "cpu"), max_retries=cluster.LOST_TIMES
        )
        self._active[task.remote(order, self._queue)] = run

    def _known(self, run: Planned) -> dict[str, bytes]:
        """What a run may take as known where it does not see the memo."""
        alike = [
            r for r in self._runs if r.trains == run.trains and r not in (run, *self._waiting, *self._active.values())
        ]
        known: dict[str, bytes] = {}
        for place in [*([run.known_from] if run.known_from else []), *(self._folder / r.name for r in alike)]:
            known |= checkpoint.read_memory(place)
        return known

    def _messages(self) -> Iterator[tuple[str, Any]]:
        waiting = self._queue.qsize()
        yield from self._queue.get_nowait_batch(waiting) if waiting else ()

    def _listen(self) -> None:
        under_way = {run.name: run for run in self._active.values()}
        for name, message in self._messages():
            run = under_way.get(name)
            if isinstance(message, Begun):
                self._begun.add(name)
            elif isinstance(message, Progressed) and run is not None:
                self._watcher.on_round(run, message.round, message.metrics)
            elif isinstance(message, Warned) and run is not None:
                self._watcher.on_warning(run, message.text)

    def _end(self, task: ObjectRef) -> None:
        run = self._active.pop(task)
        try:
            outcome: RunDelivery = cluster.result_of(task)
            error = outcome.error
            self._bring_back(run.name, outcome.packed)
            if not outcome.remembered:
                self._remember(run.name)
        except HflError as lost:
            error = str(lost)
        if error:
            self._failed[run.name] = error
        self._watcher.on_end(run, error)

    def _bring_back(self, name: str, packed: bytes) -> None:
        if packed:
            unpack(packed, self._folder / name)

    def _remember(self, name: str) -> None:
        memo = Memo(self._memo)
        for key, value in checkpoint.read_memory(self._folder / name).items():
            memo.put(key, key.partition(":")[0], value)
        memo.close()

    def _stop(self) -> None:
        """Interrupts all runs under way and waits until they have written what they need to go on."""
        import ray

        self._listen()
        for task in self._active:
            ray.cancel(task)
        left, tasks = self._begun & {run.name for run in self._active.values()}, list(self._active)
        until = time.monotonic() + STOPPED_WITHIN_S
        while left and time.monotonic() < until:
            if tasks:
                _, tasks = ray.wait(tasks, num_returns=len(tasks), timeout=LOOK_EVERY_S)
                until = until if tasks else time.monotonic() + SAID_WITHIN_S
            else:
                time.sleep(LOOK_EVERY_S)
            for name, message in self._messages():
                if isinstance(message, Stopped):
                    self._bring_back(name, message.packed)
                    left.discard(name)


def _task(order: RunOrder, queue: Queue) -> RunDelivery:
    """A run of a study, as a task."""
    with interruption.heard(_thread.interrupt_main):  # which is how Ray interrupts a task; its workers block signals
        return do_run(order, cluster.this_node(), lambda message: queue.put((order.name, message)))


def do_run(order: RunOrder, node: str, tell: Callable[[Any], None]) -> RunDelivery:
    """Does a run on a machine of the cluster; says how it gets on. An interruption is told and raised again."""
    seen = order.node == node or _reads(order.folder.parent / MARKER) == order.marker
    folder = order.folder if seen else Path(tempfile.mkdtemp(prefix="hfl-run-"))
    memo = Memo(order.memo if order.node == node else None)
    teller = Teller(tell)
    logging.getLogger().addHandler(teller)
    tell(Begun())
    try:
        if not seen and order.packed:
            unpack(order.packed, folder)
        error = error_of(lambda: _execute(order, folder, memo, tell))
        return RunDelivery(error, b"" if seen else pack(folder), remembered=order.node == node)
    except KeyboardInterrupt:
        tell(Stopped(b"" if seen else pack(folder)))
        raise
    finally:
        logging.getLogger().removeHandler(teller)
        memo.close()
        if not seen:
            shutil.rmtree(folder, ignore_errors=True)


def _execute(order: RunOrder, folder: Path, memo: Memo, tell: Callable[[Any], None]) -> str:
    order.surroundings.enter()
    loaded = check(order.document)
    if prepare(folder, loaded.scenario, training=loaded.training):  # else a lost task had just completed it
        execute(loaded, folder, memo, tells_rounds(tell), order.known, max_workers=order.workers)
    return ""


def pack(folder: Path) -> bytes:
    """The files of a run folder as one archive; empty where there are none."""
    files = [folder / name for name in files_of(folder) if (folder / name).is_file()]
    if not files:
        return b""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for file in files:
            tar.add(file, arcname=file.name)
    return archive.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """Makes a run folder what it was when `pack` packed it: each file whole or not at all, and the summary last."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        members = {m.name: m for m in tar.getmembers() if m.isfile() and Path(m.name).name == m.name}
        tables = {*members, *files_of(folder)} - set(FILES)
        for name in (*sorted(tables), *reversed(FILES)):  # the summary comes first in the list
            if name not in members:
                (folder / name).unlink(missing_ok=True)
                continue
            content = tar.extractfile(members[name])
            assert content is not None
            with replacing(folder / name) as aside:
                aside.write_bytes(content.read())


def _reads(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
