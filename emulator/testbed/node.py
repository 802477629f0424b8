"""A node of the testbed from the inside: it keeps models, trains and combines them, and exchanges them with other nodes.

Its main thread computes, one order after another. Other threads read orders, listen for transfers, and send. So a transfer
arrives while the node computes, as on a real machine.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import Tensor

from devices.secagg.errors import ProtocolAborted
from emulator import plugins
from emulator.errors import HflError
from emulator.learning.engine import Engine
from emulator.testbed import secure
from emulator.testbed.namespaces import enter
from emulator.testbed.orders import (
    NUMBER_BYTES,
    Decode,
    Draw,
    Drop,
    Encode,
    Expect,
    Give,
    Meet,
    Order,
    Report,
    Run,
    Same,
    Send,
    Step,
    Stop,
    Tell,
    Train,
    Weigh,
    Work,
)
from emulator.testbed.pacing import HOST, Lanes, read_exactly

PORT = 7000
HEADER = struct.Struct("!QQ")  # number of the transfer, and its bytes
ONCE_BYTES = 1 << 16
_FILLER = bytes(ONCE_BYTES)
_LINGER = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Site:
    """Where a node stands: its name, the namespaces in which it listens and sends (none: loopback), what links it holds.

    ``speed`` is the share of a core that it computes with, where no quota of the system sees to that; ``trains``: it is a client.
    """

    name: str
    listens_in: str = ""
    sends_in: str = ""
    rates_bps: Mapping[str, float] = field(default_factory=dict)
    speed: float = 1.0
    trains: bool = False


class Stopped(Exception):  # noqa: N818 (no error: somebody asked for it)
    """Nobody waits any longer for what is being computed."""


class Node:
    """The life of a node, in `live`."""

    def __init__(self, site: Site, pipe: Connection, engine: Engine) -> None:
        self._site = site
        self._pipe = pipe
        self._engine = engine
        self._store: dict[str, Tensor | bytes] = {}
        self._todo: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._telling = threading.Lock()
        self._doing = -1  # the number of the order that is being computed
        self._stopped: set[int] = set()
        self._open: dict[int, list[socket.socket]] = {}  # the sockets of transfers under way, by number
        self._gone: dict[int, int] = {}  # bytes of transfers so far, by number
        self._came: dict[int, bytes] = {}  # whole transfers of which it is not known yet what they bring
        self._expected: dict[int, Expect] = {}
        self._parties: dict[str, secure.Member | secure.Aggregator] = {}
        self._lanes = Lanes(site.rates_bps)

    def live(self) -> None:
        """Computes what it is asked for until the driver is gone."""
        signal.signal(signal.SIGUSR1, self._interrupted)
        listening = threading.Event()
        threading.Thread(target=self._listen, args=(listening,), daemon=True).start()
        listening.wait()
        threading.Thread(target=self._read, daemon=True).start()
        while (order := self._todo.get()) is not None:
            self._compute(order)

    def _interrupted(self, *_: object) -> None:
        if self._doing in self._stopped:
            self._doing = -1
            raise Stopped("nobody waits for it")

    # The control channel.

    def _tell(self, report: Report) -> None:
        with self._telling, contextlib.suppress(OSError):
            self._pipe.send(report)

    def _read(self) -> None:
        """Reads orders. What needs no computing is done at once."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                order = self._pipe.recv()
                try:
                    self._take(order)
                except Exception as error:  # noqa: BLE001 (whatever it is, the driver is to know)
                    self._fail(order.number, time.monotonic(), error)
        os._exit(0)  # the driver is gone

    def _take(self, order: Order) -> None:
        match order:
            case Send(steps=(), content=content) if not content or content in self._store:
                threading.Thread(target=self._send, args=(order,), daemon=True).start()
            case Expect():
                with self._lock:
                    self._expected[order.number] = order
                    self._merge(order.number)
            case Tell(key=key):
                value = self._store[key]
                now_s = time.monotonic()
                told = value if isinstance(value, bytes) else value.numpy().tobytes()
                self._tell(Report(order.number, now_s, now_s, told))
            case Give(key=key, value=data, is_state=is_state):
                self._store[key] = _state(data) if is_state else data
            case Drop(keys=keys):
                for key in keys:
                    self._store.pop(key, None)
            case Stop(other=other):
                self._stop(order.number, other)
            case _:
                self._todo.put(order)

    def _fail(self, number: int, began_s: float, error: BaseException) -> None:
        lost = isinstance(error, OSError | EOFError | ProtocolAborted | Stopped) or number in self._stopped
        blamed = error if isinstance(error, HflError) else plugins.blamed(error)
        text = str(blamed) if blamed is not None else f"{type(error).__name__}: {error}"
        self._tell(Report(number, began_s, time.monotonic(), failed=text, lost=lost))

    def _stop(self, number: int, other: int) -> None:
        with self._lock:
            self._stopped.add(other)
            for each in self._open.pop(other, []):
                _break(each)
            if self._doing == other:
                # The main thread gets it between two instructions of Python; see `_interrupted`.
                _raise_in_main()
            gone = self._gone.get(other, 0)
        now_s = time.monotonic()
        self._tell(Report(number, now_s, now_s, gone))

    # Computing.

    def _compute(self, order: Order) -> None:
        began_s = time.monotonic()
        try:
            with self._lock:
                if order.number in self._stopped:
                    return
                self._doing = order.number
            try:
                value = self._done(order)
            finally:
                with self._lock:
                    self._doing = -1
        except Exception as error:  # noqa: BLE001
            self._fail(order.number, began_s, error)
            return
        if isinstance(order, Send):
            threading.Thread(target=self._send, args=(order,), daemon=True).start()
        else:
            self._tell(Report(order.number, began_s, time.monotonic(), value))

    def _done(self, order: Order) -> Any:
        began_s, spent_s = time.monotonic(), time.thread_time()
        value = None
        if isinstance(order, Meet):
            value = self._meet(order)
        elif isinstance(order, Work | Send):
            for step in order.steps:
                self._follow(step)
        if self._site.speed < 1:
            left_s = began_s + (time.thread_time() - spent_s) / self._site.speed - time.monotonic()
            if left_s > 0:
                time.sleep(left_s)
        return value

    def _follow(self, step: Step) -> None:
        if all(key in self._store for key in step.gives):
            return
        for key, value in zip(step.gives, self._made(step), strict=True):
            self._store[key] = value

    def _made(self, step: Step) -> list[Tensor | bytes]:
        needed = [self._store[key] for key in step.needs]
        states = [value for value in needed if isinstance(value, Tensor)]
        match step.how:
            case Draw(number=None):
                return [self._engine.zeros()]
            case Draw(number=number):
                return [self._engine.initial(number or 0)]
            case Weigh(weights=weights):
                return [self._engine.combine(states, weights)]
            case Run(function=function):
                return list(function(*states))
            case Train(job=job):
                with plugins.blaming(f"local update '{job.rule.kind}'"):
                    ((_, trained),) = self._engine.train([replace(job, weights=states[0])])
                return [trained.state]
            case Encode(transmission=transmission):
                return [transmission.encoded(*states)]
            case Decode(transmission=transmission):
                data = next(value for value in needed if isinstance(value, bytes))
                return [transmission.received(data, torch.zeros(transmission.layout.count), *states)]
            case Same():
                return list(needed)

    def _meet(self, order: Meet) -> Any:
        if isinstance(order.about, secure.Joining):
            state = self._store[order.needs[order.about.number]]
            assert isinstance(state, Tensor)
            self._parties[order.meeting] = secure.Member(order.about, state.numpy())
        elif isinstance(order.about, secure.Opening):
            self._parties[order.meeting] = secure.Aggregator(order.about)
        party = self._parties[order.meeting]
        messages = {number: self._store[key] for number, key in order.needs.items()}
        told = {number: data for number, data in messages.items() if isinstance(data, bytes)}
        if isinstance(party, secure.Member):
            answer = secure.MEMBER_CALLS[order.call](party, next(iter(told.values()), b""))
            self._store[order.gives] = answer
            return len(answer)
        if order.call == "unmask":
            self._store[order.gives] = torch.from_numpy(party.unmask(told, order.about))
            del self._parties[order.meeting]
            return None
        answers = secure.SERVER_CALLS[order.call](party, told)
        for number, data in answers.items():
            self._store[f"{order.gives}{number}"] = data
        return {number: len(data) for number, data in answers.items()}

    # Transfers.

    def _opened(self, number: int) -> Callable[[socket.socket], None]:
        def note(opened: socket.socket) -> None:
            with self._lock:
                self._open.setdefault(number, []).append(opened)
                if number in self._stopped:
                    _break(opened)

        return note

    def _send(self, order: Send) -> None:
        began_s, way = time.monotonic(), order.way
        try:
            content = self._content(order)
            if way.hops:
                sending = self._lanes.sending(way.hops, self._opened(order.number))
                send: Callable[[memoryview | bytes], None] = sending.send
                close = sending.close
            else:
                enter(self._site.sends_in)
                plain = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                self._opened(order.number)(plain)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                plain.bind((way.sender, 0))
                plain.connect((way.receiver, PORT))
                send, close = plain.sendall, plain.close
            send(HEADER.pack(order.number, order.size_bytes))
            for start in range(0, len(content), ONCE_BYTES):
                send(content[start : start + ONCE_BYTES])
            left = order.size_bytes - len(content)
            while left > 0:
                send(_FILLER[: min(left, ONCE_BYTES)])
                left -= ONCE_BYTES
            close()
        except Exception as error:  # noqa: BLE001
            self._fail(order.number, began_s, error)
        finally:
            with self._lock:
                self._open.pop(order.number, None)

    def _content(self, order: Send) -> memoryview:
        if not order.content or not order.size_bytes:
            return memoryview(b"")
        value = self._store[order.content]
        data = memoryview(value if isinstance(value, bytes) else value.numpy().tobytes())
        if len(data) > order.size_bytes:
            raise HflError(f"{len(data)} bytes were to travel, and {order.size_bytes} were booked ({order.content})")
        return data

    def _listen(self, listening: threading.Event) -> None:
        """Takes connections, in the namespace in which this node listens."""
        enter(self._site.listens_in)
        listener = socket.create_server(
            ("0.0.0.0" if self._site.listens_in else HOST, PORT if self._site.listens_in else 0)
        )
        self._tell(Report(0, 0.0, 0.0, listener.getsockname()[1]))
        listening.set()
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._receive, args=(connection,), daemon=True).start()

    def _receive(self, connection: socket.socket) -> None:
        opened: list[socket.socket] = [connection]
        with contextlib.suppress(OSError, EOFError, struct.error), contextlib.ExitStack() as undone:
            undone.callback(lambda: deque(map(_break, opened), maxlen=0))
            if not self._site.listens_in:
                receiving = self._lanes.receive(connection, opened.append)
                if receiving.pass_on():
                    return
                number, size = HEADER.unpack(receiving.chunk())
                chunk = receiving.chunk
            else:
                number, size = HEADER.unpack(read_exactly(connection, HEADER.size))
                chunk = lambda: connection.recv(ONCE_BYTES)  # noqa: E731
            self._opened(number)(connection)
            data = bytearray()
            self._gone[number] = 0
            while len(data) < size:
                more = chunk()
                if not more:
                    return
                data += more
                self._gone[number] = len(data)
            now_s = time.monotonic()
            with self._lock:
                self._open.pop(number, None)
                self._came[number] = bytes(data)
                self._merge(number)
            self._tell(Report(number, now_s, now_s, len(data)))
            undone.pop_all()
            connection.close()

    def _merge(self, number: int) -> None:
        """Keeps what a transfer brought, once it is there and it is known what it is."""
        if number not in self._came or number not in self._expected:
            return
        data, expected = self._came.pop(number), self._expected.pop(number)
        if expected.content and expected.numbers:
            self._store[expected.content] = _state(data[: NUMBER_BYTES * expected.numbers])
        elif expected.content:
            self._store[expected.content] = data if expected.length < 0 else data[: expected.length]


def _state(data: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(data, np.float32).copy())


def _break(connection: socket.socket) -> None:
    """Ends a connection at once, also where a thread waits for it."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _raise_in_main() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
