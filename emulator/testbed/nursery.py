"""Where nodes come from: a process that has read data and model, and forks a node whenever it is asked for one.

So a node is there at once, also one whose process was killed and that comes back. The nursery ends with the driver, and its nodes
with it, however the driver ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator import plugins, processes
from emulator.errors import HflError

if TYPE_CHECKING:
    from emulator.learning.engine import Engine
    from emulator.learning.trainer import TrainJob
    from emulator.testbed.node import Site

START_S = 120.0  # that it may take to import torch and to read the data
FORK_S = 20.0
PR_SET_PDEATHSIG = 1
PROBES = 5


@dataclass(frozen=True)
class Ground:
    """What a nursery needs to know: the file of the resolved scenario, and what the user's modules are."""

    scenario: Path
    path: list[str]
    plug_ins: list[str]
    named: dict[str, str]


@dataclass(frozen=True)
class Child:
    """A node's process: its id, and the driver's end of the control channel."""

    pid: int
    pipe: Connection


class Nursery:
    """The driver's side. Raises `HflError` where it cannot be had, and what the user's own code raises in it."""

    def __init__(self, ground: Ground) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._socket, theirs_too = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._process = context.Process(target=_serve, args=(theirs, theirs_too, ground, os.getpid()), daemon=True)
        before = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = "1"  # it is to have one thread when it forks
        try:
            processes.start(self._process)
        finally:
            if before is None:
                del os.environ["OMP_NUM_THREADS"]
            else:
                os.environ["OMP_NUM_THREADS"] = before
        theirs.close()
        theirs_too.close()

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid or 0

    def ready(self) -> None:
        """Waits until it has read data and model."""
        self._answer(START_S)

    def probe(self, job: TrainJob) -> float:
        """Seconds of a core that a training takes on this host: the least of a few times."""
        self._pipe.send(job)
        seconds: float = self._answer(10 * START_S)
        return seconds

    def fork(self, site: Site) -> Child:
        """A new node."""
        self._pipe.send(site)
        pid: int = self._answer(FORK_S)
        _, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        return Child(pid, Connection(descriptors[0]))

    def _answer(self, within_s: float) -> Any:
        try:
            if not wait([self._pipe], within_s):
                raise HflError(f"the process that starts nodes has not answered for {within_s:g} seconds")
            answer = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise HflError(
                "the process that starts nodes ended; was it killed, or is there too little memory?"
            ) from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        """Ends it, and all nodes."""
        self._pipe.close()
        self._socket.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def die_with_parent(parent: int) -> None:
    """Asks the kernel to kill this process when its parent ends, where it can be asked; ends now where that is over."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def _serve(pipe: Connection, passing: socket.socket, ground: Ground, parent: int) -> None:
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which ends its nodes itself
    sys.path[:] = ground.path
    plugins.named.update(ground.named)
    children: set[int] = set()
    job: TrainJob | None = None  # the latest that was timed
    try:
        with plugins.blaming():
            plugins.load(ground.plug_ins)
            engine = _engine(ground.scenario)
        pipe.send(None)
    except HflError as error:
        pipe.send(error)
        return
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            asked = pipe.recv()
            _reap(children)
            if hasattr(asked, "weights"):
                job = asked
                pipe.send(_probe(engine, asked))
                continue
            pid = _fork(asked, engine, job if asked.trains else None, pipe, passing)
            children.add(pid)
            pipe.send(pid)
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in children:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _reap(children: set[int]) -> None:
    for pid in list(children):
        if os.waitpid(pid, os.WNOHANG)[0]:
            children.discard(pid)


def _engine(scenario: Path) -> Engine:
    from emulator import yamlfile
    from emulator.learning.clients import ClientData
    from emulator.learning.engine import Engine
    from emulator.scenario.load import check

    loaded = check(yamlfile.load(scenario))
    with loaded.locating():
        return Engine(loaded.scenario, ClientData(loaded.scenario), max_workers=1)


def _probe(engine: Engine, job: TrainJob) -> float | HflError:
    try:
        with plugins.blaming():
            return min(_trained(engine, job) for _ in range(PROBES))
    except HflError as error:
        return error


def _trained(engine: Engine, job: TrainJob) -> float:
    """Seconds of a core that a training from the initial model takes."""
    began_s = time.thread_time()
    list(engine.train([replace(job, weights=engine.initial())]))
    return time.thread_time() - began_s


def _fork(site: Site, engine: Engine, job: TrainJob | None, pipe: Connection, passing: socket.socket) -> int:
    """A node of its own process, which has trained once before it says that it is there: its memory is its own then."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    nursery = os.getpid()
    pid = os.fork()
    if pid:
        theirs.close()
        socket.send_fds(passing, [b"."], [ours.fileno()])
        ours.close()
        return pid
    code = 1
    try:
        die_with_parent(nursery)
        for each in (ours, passing):
            each.close()
        pipe.close()
        from emulator.testbed.node import Node

        if job is not None:
            _trained(engine, job)
        Node(site, Connection(theirs.detach()), engine).live()
        code = 0
    finally:
        os._exit(code)
