"""Works through the runs of a study, several at a time, each in a process of its own.

Runs do not depend on each other, so neither their number at a time nor their order changes a result. The cores are divided
between the runs under way: where there are more runs than cores, each trains in one process (see benchmarks/studies.py).
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TypeVar

from emulator import plugins, processes
from emulator.errors import InputError
from emulator.files import held, write_json
from emulator.learning.memo import Memo
from emulator.machine import cores
from emulator.methods.session import Metrics
from emulator.study.folder import INDEX, prepare_all, write_index
from emulator.study.job import Answered, AnyOrder, Ended, Order, Progressed, ReplayOrder, Setup, Warned, work
from emulator.study.load import LoadedStudy, Planned
from emulator.study.names import FAILURES
from emulator.study.results import WorldReplay
from emulator.study.tuning import diverged, settled, untuned, write_choices

log = logging.getLogger(__name__)

T = TypeVar("T")
Message = Progressed | Warned | Answered | Ended


@dataclass(frozen=True)
class StudyWatcher:
    """Who wants to hear how a study is getting on. ``on_end`` is told why a run failed, or nothing."""

    on_start: Callable[[Planned], None] = lambda _run: None
    on_round: Callable[[Planned, int, Metrics], None] = lambda _run, _round, _metrics: None
    on_warning: Callable[[Planned, str], None] = lambda _run, _text: None
    on_end: Callable[[Planned, str], None] = lambda _run, _error: None


def run_left(
    loaded: LoadedStudy,
    folder: Path,
    show: Callable[[int, int], AbstractContextManager[StudyWatcher]],
    run: Callable[[Sequence[Planned], StudyWatcher], dict[str, str]],
    overwrite: bool = False,
) -> dict[str, str]:
    """Does in a study's folder what is left to do there; returns why runs failed, by name, and keeps it in `FAILURES`.

    Runs of tuning come first. Where one of them fails otherwise than by diverging, the runs that wait for it are not begun and
    count as failed; others go on. ``show(left, done)`` is a block that lasts as long as the runs, ``run`` does them (as
    `run_all`). Raises `InputError` where another process is at work in the folder, or it holds something else (`prepare_all`).
    """

    def work_through(runs: Sequence[Planned], left: Sequence[Planned]) -> dict[str, str]:
        with show(len(left), len(runs) - len(left)) as watcher:
            return run(left, watcher)

    with held(folder):
        failed: dict[str, str] = {}
        if loaded.tuning:
            # What the folder says of an earlier choice stays until this one is made.
            left = [each for each in prepare_all(folder, loaded.tuning, overwrite) if not diverged(folder, each)]
            if not (folder / INDEX).is_file():
                write_index(folder, loaded)
            found = work_through(loaded.tuning, left)
            failed = {r.name: found[r.name] for r in loaded.tuning if r.name in found and not diverged(folder, r)}
            loaded = settled(loaded, folder)
        left = prepare_all(folder, loaded.ready, overwrite)
        write_choices(loaded, folder)
        write_index(folder, loaded)
        failed |= untuned(loaded) | work_through(loaded.ready, left)
        if failed:
            write_json(folder / FAILURES, failed)  # a run that fails early has no folder to say so
        else:
            (folder / FAILURES).unlink(missing_ok=True)
    return failed


def run_all(
    runs: Sequence[Planned],
    folder: Path,
    memo: Path | None,
    jobs: int | None = None,
    workers: int | None = None,
    watcher: StudyWatcher = StudyWatcher(),  # noqa: B008
) -> dict[str, str]:
    """Does runs whose folders `prepare_all` made ready; returns why those failed that did, by name.

    ``jobs`` are the runs at a time, by default as many as there are cores, or one where they compute on GPUs; ``workers`` the
    training processes of each, by default what that leaves of the cores. An interruption (``KeyboardInterrupt``) stops all runs,
    whose folders keep what was done, and is raised again. Raises `InputError` where a run needs a plug-in that its process could
    not find.
    """
    for run in runs:
        if why := plugins.only_here(run.loaded.scenario):
            raise InputError(f"{why}, which other processes do not import; put it into a module of its own")
    on_gpus = any(run.loaded.scenario.compute.kind != "cpu" for run in runs)
    most = jobs or (1 if on_gpus else cores())
    failed: dict[str, str] = {}
    waiting = list(runs)

    def begin(under_way: Sequence[Planned]) -> tuple[Planned, Order]:
        run = next_run(waiting, under_way)
        share = max(1, cores() // min(most, len(under_way) + len(waiting)))
        waiting.remove(run)
        watcher.on_start(run)
        return run, Order(run.loaded.document, folder / run.name, workers or share, run.known_from)

    def heard(run: Planned, message: Message) -> None:
        if isinstance(message, Progressed):
            watcher.on_round(run, message.round, message.metrics)
        elif isinstance(message, Warned):
            watcher.on_warning(run, message.text)
        elif isinstance(message, Ended):
            if message.error:
                failed[run.name] = message.error
            watcher.on_end(run, message.error)

    needed = dict.fromkeys(name for run in runs for name in plugins.modules_of(run.loaded.scenario))
    _work_through(lambda: len(waiting), begin, heard, most, memo, list(needed))
    return failed


def replay_all(
    replays: Sequence[WorldReplay],
    memo: Path | None,
    jobs: int | None = None,
    on_end: Callable[[WorldReplay, str], None] = lambda _replay, _error: None,
) -> dict[str, str]:
    """Replays finished runs, several at a time; returns why there is no result of some, by name.

    ``jobs`` is how many go at a time, by default as many as there are cores. Each process reads a run once as long as replays of
    one run stand together. ``on_end`` is told why there is no result, or nothing.
    """
    failed: dict[str, str] = {}
    waiting = list(reversed(replays))

    def begin(under_way: Sequence[WorldReplay]) -> tuple[WorldReplay, ReplayOrder]:
        each = waiting.pop()
        return each, ReplayOrder(each.source, each.world.changes, each.file, {"key": each.key})

    def heard(each: WorldReplay, message: Message) -> None:
        if isinstance(message, Warned):
            log.warning("%s: %s", each.name, message.text)
        elif isinstance(message, Ended):
            if message.error:
                failed[each.name] = message.error
            on_end(each, message.error)

    _work_through(lambda: len(waiting), begin, heard, jobs or cores(), memo, list(plugins.loaded))
    return failed


def _work_through(
    left: Callable[[], int],
    begin: Callable[[Sequence[T]], tuple[T, Order | ReplayOrder]],
    heard: Callable[[T, Message], None],
    most: int,
    memo: Path | None,
    plug_ins: list[str],
) -> None:
    """Does what `begin` hands out, at most so many at a time, each in a process of its own, while anything is left.

    ``begin`` is told what is under way; ``heard`` hears all that the processes say. An interruption stops all of them.
    """
    Memo(memo).close()  # the file is there before several processes want to make it
    setup = Setup(memo, sys.path, plug_ins)
    idle: list[Job] = []
    active: dict[Connection, tuple[Job, T]] = {}
    try:
        while left() or active:
            while left() and len(active) < most:
                each, order = begin([each for _, each in active.values()])
                job = idle.pop() if idle else Job(setup)
                active[job.pipe] = (job, each)
                job.send(order)
            for ready in wait(list(active)):
                assert isinstance(ready, Connection)
                job, each = active[ready]
                message = job.receive()
                if isinstance(message, Ended):
                    del active[ready]
                    if job.alive:
                        idle.append(job)
                heard(each, message)
    except BaseException:
        for job, _ in active.values():
            job.stop()
        raise
    finally:
        for job in [*idle, *(job for job, _ in active.values())]:
            job.close()


class Job:
    """A process that does runs, seen from its parent."""

    def __init__(self, setup: Setup) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        ending, self._lifeline = context.Pipe(duplex=False)
        # No daemon: those may have no training processes of their own.
        self._process = context.Process(target=work, args=(theirs, ending, setup), daemon=False)
        # The child must not take a Ctrl-C before it can say that it ignores it. It inherits that much.
        main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
        try:
            processes.start(self._process)
        finally:
            if main:
                signal.signal(signal.SIGINT, before)
        theirs.close()
        ending.close()
        self.alive = True

    def send(self, order: Order | ReplayOrder | AnyOrder | None) -> None:
        """Hands over a run. If the process is dead, `receive` says so."""
        try:
            self.pipe.send(order)
        except OSError:
            self.alive = False

    def receive(self) -> Message:
        """What the process has to say; that its run failed, where it says nothing any more."""
        try:
            message: Message = self.pipe.recv()
        except (EOFError, OSError):
            self.alive = False
            self._process.join()
            code = self._process.exitcode
            return Ended(f"its process ended unexpectedly (exit code {code}); perhaps memory ran out")
        return message

    def stop(self) -> None:
        """Asks the process to break off; `close` waits for it."""
        if self._process.is_alive():
            self._process.terminate()

    def close(self) -> None:
        """Ends the process, which may first write what its run needs to go on. A second interruption kills it."""
        try:
            if self.alive:
                self.send(None)
            self._process.join()
        except BaseException:
            self._process.kill()
            raise
        finally:
            self.pipe.close()
            self._lifeline.close()


def next_run(waiting: Sequence[Planned], under_way: Sequence[Planned]) -> Planned:
    """Which of the waiting runs to begin: the first, but rather one that trains something else than those under way.

    Runs that differ only in their world share their trainings through the memo, if one has them when another asks.
    """
    trained = {run.trains for run in under_way}
    return next((run for run in waiting if run.trains not in trained), waiting[0])
