"""Links in user space: bytes over loopback, held back until the links that they stand for would have let them through.

Each link has its token bucket in one process, through which all go that cross it: whoever sends onto it, or for what is shared in
front of a receiver, that receiver. Bytes travel in chunks. A chunk says when its first link has let it go and is held back by its
receiver for the links' delay. Servers in between pass chunks on as they come.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from emulator.testbed.orders import Hop

HOST = "127.0.0.1"
CHUNK_BYTES = 4096
BURST_S = 0.002  # what a bucket holds: a process that wakes up late catches up
_CHUNK = struct.Struct("!dI")  # when it left, and its length
_LENGTH = struct.Struct("!I")


class Bucket:
    """A link of so many bits a second."""

    def __init__(self, rate_bps: float) -> None:
        self._rate_bps = rate_bps
        self._free_s = 0.0
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> None:
        """Waits until so many bytes have left."""
        with self._lock:
            self._free_s = max(self._free_s, time.monotonic() - BURST_S) + 8 * size_bytes / self._rate_bps
            until_s = self._free_s
        wait_until(until_s)


def wait_until(instant_s: float) -> None:
    """Waits until an instant of the monotonic clock."""
    left_s = instant_s - time.monotonic()
    if left_s > 0:
        time.sleep(left_s)


class Lanes:
    """The links that a process holds."""

    def __init__(self, rates_bps: Mapping[str, float]) -> None:
        self._buckets = {name: Bucket(rate) for name, rate in rates_bps.items()}

    def cross(self, names: Sequence[str], size_bytes: int) -> None:
        """Waits until so many bytes have left over links, one after another."""
        for name in names:
            self._buckets[name].take(size_bytes)

    def sending(self, hops: Sequence[Hop], opened: Callable[[socket.socket], None]) -> Sending:
        """A way over hops, from this process on. ``opened`` is told of its socket, which whoever wants may close."""
        return Sending(self, hops, opened)

    def receive(self, connection: socket.socket, opened: Callable[[socket.socket], None]) -> Receiving:
        """What comes over a connection that another process has opened; passed on where this is not its end."""
        return Receiving(self, connection, opened)


class Sending:
    """One end of a way: bytes that are put into it leave as its links let them."""

    def __init__(self, lanes: Lanes, hops: Sequence[Hop], opened: Callable[[socket.socket], None]) -> None:
        self._lanes, self._hop = lanes, hops[0]
        self._socket = socket.create_connection((HOST, self._hop.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened(self._socket)
        rest = json.dumps([asdict(hop) for hop in hops]).encode()
        self._socket.sendall(_LENGTH.pack(len(rest)) + rest)

    def send(self, data: memoryview | bytes) -> None:
        """Sends bytes. Raises ``OSError`` where the connection is gone."""
        whole = memoryview(data)
        for start in range(0, len(whole), CHUNK_BYTES):
            chunk = whole[start : start + CHUNK_BYTES]
            self._lanes.cross(self._hop.held_by_sender, len(chunk))
            self._socket.sendall(_CHUNK.pack(time.monotonic(), len(chunk)) + chunk)

    def close(self) -> None:
        """Says that there is nothing more."""
        self._socket.close()


class Receiving:
    """The other end of a way, or a place on it. Raises ``OSError`` where the connection is gone."""

    def __init__(self, lanes: Lanes, connection: socket.socket, opened: Callable[[socket.socket], None]) -> None:
        self._lanes, self._socket = lanes, connection
        (length,) = _LENGTH.unpack(read_exactly(connection, _LENGTH.size))
        told = json.loads(read_exactly(connection, length))
        hops = [Hop(h["port"], tuple(h["held_by_sender"]), tuple(h["held_by_receiver"]), h["delay_s"]) for h in told]
        self._hop = hops[0]
        self._next = Sending(lanes, hops[1:], opened) if len(hops) > 1 else None

    def pass_on(self) -> bool:
        """Passes everything on, where this is not the end of the way; False where it is."""
        if self._next is None:
            return False
        while chunk := self.chunk():
            self._next.send(chunk)
        self._next.close()
        return True

    def chunk(self) -> bytes:
        """The next bytes, when they are due; none at the end."""
        try:
            left_s, length = _CHUNK.unpack(read_exactly(self._socket, _CHUNK.size))
        except EOFError:
            return b""
        data = read_exactly(self._socket, length)
        wait_until(left_s + self._hop.delay_s)
        self._lanes.cross(self._hop.held_by_receiver, length)
        return data


def read_exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes. Raises `EOFError` where they end before that."""
    data = bytearray(count)
    view, done = memoryview(data), 0
    while done < count:
        got = connection.recv_into(view[done:])
        if not got:
            raise EOFError
        done += got
    return bytes(data)
