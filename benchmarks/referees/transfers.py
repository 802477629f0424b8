"""TCP connections between namespaces, all in one thread: who sends how much when, and when its last byte was read."""

from __future__ import annotations

import heapq
import os
import selectors
import socket
import struct
import time
from collections.abc import Sequence

from case import Case, RefusedError

from emulator.testbed.kernel_links import Ends

PORT = 7000
ZEROS = memoryview(bytes(1 << 20))
AHEAD_S = 0.02  # from the preparations of a repeat to its second 0
PROBES, PROBE_S = 11, 2.0  # packets there and back, and how long one may take


def listen(ends: Ends) -> socket.socket:
    """A socket that waits for a flow's connections."""
    with ends.receiver:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((ends.receiver_address, PORT))
    listener.listen()
    listener.setblocking(False)
    return listener


class Transfer:
    """One flow of one repeat."""

    def __init__(self, name: str, ends: Ends, listener: socket.socket, size: int, congestion: str) -> None:
        self.name, self.ends, self.listener = name, ends, listener
        self.to_send = self.to_read = size
        self.finished_s = 0.0
        self.connected = False
        with ends.sender:
            self.sender = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.sender.setblocking(False)
        self.sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        self.sender.bind((ends.sender_address, 0))
        self.receiver: socket.socket | None = None

    def connect(self, selector: selectors.BaseSelector) -> None:
        """Begins the handshake."""
        self.sender.connect_ex((self.ends.receiver_address, PORT))
        selector.register(self.sender, selectors.EVENT_WRITE, self)
        selector.register(self.listener, selectors.EVENT_READ, self)

    def ready(self, selector: selectors.BaseSelector, ready: object, may_send: bool) -> None:
        """Does what one of the sockets is ready for. Raises `RefusedError` where the connection broke."""
        try:
            if ready is self.listener:
                self.receiver, _ = self.listener.accept()
                self.receiver.setblocking(False)
                selector.unregister(self.listener)
                selector.register(self.receiver, selectors.EVENT_READ, self)
            elif ready is self.sender:
                self._send(selector, may_send)
            else:
                self._read(selector)
        except BlockingIOError:
            return
        except OSError as error:
            raise RefusedError(f"{self.name} broke: {error.strerror}") from None

    def _send(self, selector: selectors.BaseSelector, may_send: bool) -> None:
        if not self.connected:
            if code := self.sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(code, os.strerror(code))
            self.connected = True
        if may_send:
            self.to_send -= self.sender.send(ZEROS[: self.to_send])
        if not may_send or not self.to_send:
            selector.unregister(self.sender)

    def _read(self, selector: selectors.BaseSelector) -> None:
        assert self.receiver is not None
        got = len(self.receiver.recv(len(ZEROS)))
        now_s = time.monotonic()
        if not got:
            raise RefusedError(f"{self.name} ended {self.to_read} bytes early")
        self.to_read -= got
        if not self.to_read:
            self.finished_s = now_s
            selector.unregister(self.receiver)

    def close(self) -> None:
        """Ends the connection at once, without a farewell that would be in the way of the next repeat."""
        for end in (self.sender, self.receiver):
            if end is not None:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.close()


def play(case: Case, repeat: int, ends: Sequence[Ends], listeners: Sequence[socket.socket]) -> list[float]:
    """Seconds from each flow's nominal start until its last byte was read.

    Raises `RefusedError` where a flow has not ended after the case's limit.
    """
    transfers = [
        Transfer(f"flow {i}", ends[i], listeners[i], flow.bytes, case.congestion) for i, flow in enumerate(case.flows)
    ]
    try:
        with selectors.SelectSelector() as selector:  # whose waiting ends to the microsecond, unlike that of epoll
            return _play(case, repeat, transfers, selector)
    finally:
        for transfer in transfers:
            transfer.close()


def _play(case: Case, repeat: int, transfers: list[Transfer], selector: selectors.BaseSelector) -> list[float]:
    if not case.handshake:
        until_s = time.monotonic() + case.limit_s
        for transfer in transfers:
            transfer.connect(selector)
        while any(not t.connected or t.receiver is None for t in transfers):
            _turn(selector, until_s, until_s, may_send=False)
    zero_s = time.monotonic() + AHEAD_S
    until_s = zero_s + case.limit_s
    late_s = case.late_s(repeat)
    starts = [(zero_s + flow.start_s + late_s[i], i) for i, flow in enumerate(case.flows)]
    heapq.heapify(starts)
    while any(t.to_read for t in transfers):
        while starts and starts[0][0] <= time.monotonic():
            transfer = transfers[heapq.heappop(starts)[1]]
            if case.handshake:
                transfer.connect(selector)
            else:
                selector.register(transfer.sender, selectors.EVENT_WRITE, transfer)
        _turn(selector, starts[0][0] if starts else until_s, until_s, may_send=True)
    return [t.finished_s - zero_s - flow.start_s for t, flow in zip(transfers, case.flows, strict=True)]


def _turn(selector: selectors.BaseSelector, wake_s: float, until_s: float, may_send: bool) -> None:
    now_s = time.monotonic()
    if now_s >= until_s:
        raise RefusedError("a flow has not ended within limit_s")
    for key, _ in selector.select(max(0.0, min(wake_s, until_s) - now_s)):
        key.data.ready(selector, key.fileobj, may_send)


def probe(ends: Ends, delay_s: float) -> list[float]:
    """Seconds that small packets take there and back. Raises `RefusedError` where none comes back."""
    with ends.sender:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with ends.receiver:
        other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    trips = []
    with one, other:
        for end, address in ((one, ends.sender_address), (other, ends.receiver_address)):
            end.bind((address, PORT))
            end.settimeout(delay_s + PROBE_S)
        for _ in range(PROBES):
            start_s = time.monotonic()
            try:
                one.sendto(b"there", (ends.receiver_address, PORT))
                other.recv(16)
                other.sendto(b"back", (ends.sender_address, PORT))
                one.recv(16)
            except OSError as error:
                raise RefusedError(f"no packet comes through: {error}") from None
            trips.append(time.monotonic() - start_s)
    return trips[1:]  # the first one wakes everything up
