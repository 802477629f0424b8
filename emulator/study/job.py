"""A job: a process that works through runs of a study, one after another, and tells its parent how they get on."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from emulator import interruption, plugins
from emulator.errors import HflError
from emulator.files import write_json
from emulator.learning.memo import Memo
from emulator.methods.session import Metrics
from emulator.replay import Source, describe_missing, open_source, replay, run_changed
from emulator.run import Watcher, execute
from emulator.scenario.load import check
from emulator.study.expand import Change
from emulator.study.results import as_json
from emulator.whatif import ChangedRun
from emulator.yamlfile import Document

TELL_EVERY_S = 0.2


@dataclass(frozen=True)
class Setup:
    """What a job needs to know at its start. ``memo`` None: nothing is remembered beyond the run folders."""

    memo: Path | None
    path: list[str]
    plugins: list[str]


@dataclass(frozen=True)
class Order:
    """A run that is to be done: a scenario as plain data, and the folder that is ready for it."""

    document: Document
    folder: Path
    workers: int
    known_from: Path | None = None  # the run folder that it is a what-if of


@dataclass(frozen=True)
class ReplayOrder:
    """A finished run that is to be replayed in a world, and the file for what comes of it (see `emulator.study.replays`)."""

    source: Path
    changes: tuple[Change, ...]
    file: Path
    about: dict[str, str]  # what stands in the file beside the result


class AnyOrder(Protocol):
    """Something else that is asked of a job. What it answers is sent back before the job says that it has ended."""

    def answer(self, memo: Memo) -> Any:
        """Does it."""


@dataclass(frozen=True)
class Answered:
    """What came of an order."""

    answer: Any


@dataclass(frozen=True)
class Progressed:
    """A round has ended."""

    round: int
    metrics: Metrics


@dataclass(frozen=True)
class Warned:
    """Something was logged that the user should read."""

    text: str


@dataclass(frozen=True)
class Ended:
    """A run is over. ``error`` is why it failed, or empty."""

    error: str = ""


def work(pipe: Connection, lifeline: Connection, setup: Setup) -> None:
    """A job's whole life: takes orders until there are none, or until it is told to stop (``SIGTERM``).

    Nobody writes to ``lifeline``: it ends when the parent does, and so does the job, at once. A run folder bears that.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then stops its jobs
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_die_with_parent, args=(lifeline,), daemon=True).start()
    logging.basicConfig(level=logging.WARNING, handlers=[Teller(pipe.send)], force=True)
    sys.path[:] = setup.path
    try:
        cannot = _missing_plugins(setup.plugins)
        memo = Memo(setup.memo)
        sources: dict[Path, Source] = {}
        while (order := pipe.recv()) is not None:
            if isinstance(order, ReplayOrder):
                action = partial(_replay, order, memo, sources)
            else:
                action = partial(_run if isinstance(order, Order) else _answer, order, memo, pipe)
            with interruption.heard():
                ended = Ended(cannot or error_of(action))
            pipe.send(ended)
    except (KeyboardInterrupt, EOFError, OSError):
        sys.exit(130)


def _missing_plugins(names: list[str]) -> str:
    """Imports the user's plug-ins as the parent did; returns why that does not work here, or nothing."""
    try:
        plugins.load(names)
    except HflError as error:
        return str(error)
    return ""


def error_of(action: Callable[[], str]) -> str:
    """Does something; returns why it failed, or nothing."""
    try:
        with plugins.blaming():
            return action()
    except HflError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or 'file'}: {error.strerror or error}"
    except Exception as error:  # noqa: BLE001 (the other runs are to go on)
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"


def tells_rounds(tell: Callable[[Progressed], None]) -> Watcher:
    """A watcher that tells of rounds, but not of all where they go by quickly."""
    told = 0.0

    def on_round(round: int, metrics: Metrics) -> None:  # noqa: A002
        nonlocal told
        if time.monotonic() - told >= TELL_EVERY_S:
            told = time.monotonic()
            tell(Progressed(round, metrics))

    return Watcher(on_round)


def _run(order: Order, memo: Memo, pipe: Connection) -> str:
    loaded, watcher = check(order.document), tells_rounds(pipe.send)
    if order.known_from is None:
        execute(loaded, order.folder, memo, watcher, max_workers=order.workers)
    else:
        run_changed(ChangedRun(order.known_from, loaded), order.folder, memo, watcher, order.workers)
    return ""


def _answer(order: AnyOrder, memo: Memo, pipe: Connection) -> str:
    pipe.send(Answered(order.answer(memo)))
    return ""


def _replay(order: ReplayOrder, memo: Memo, sources: dict[Path, Source]) -> str:
    """Replays a run; returns that it needs training, or nothing. The latest source is kept: orders come source by source."""
    source = sources.get(order.source)
    if source is None:
        sources.clear()
        source = sources[order.source] = open_source(order.source)
    result = replay(source, source.changed(order.changes), memo)
    write_json(order.file, order.about | as_json(result))
    return "" if result.known else f"needs training: {describe_missing(result)}"


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _die_with_parent(lifeline: Connection) -> None:
    try:
        lifeline.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)


class Teller(logging.Handler):
    """Hands warnings to whoever owns the screen."""

    def __init__(self, tell: Callable[[Warned], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """Sends one."""
        self._tell(Warned(f"{record.levelname}: {record.getMessage()}"))
