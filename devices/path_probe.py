"""Measures a real path between two hosts: round-trip times and bandwidth in both directions, over one TCP connection.

One end serves (`serve`), the other measures (`measure`). The two say first which version of this protocol they speak. There is no
authentication: whoever reaches the port can have at most `SESSION_BYTES` sent to or taken from it, in at most `SESSION_S`. One
measurement at a time, so that two do not measure each other.

After the greeting the measuring end sends commands of nine bytes, a letter and a number: ``P`` is answered by the same bytes;
``U`` is followed by so many bytes, which are answered with the nanoseconds between the first and the last of them; ``D`` asks
for so many bytes; ``Q`` ends it.
"""

from __future__ import annotations

import contextlib
import errno
import math
import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from emulator.errors import HflError, InputError

VERSION = 1
PORT = 47815
SESSION_S = 300.0
SESSION_BYTES = 2_000_000_000
PATIENCE_S = 10.0  # for an answer
PINGS = 50
FIRST_BYTES = 16_384
SHORT = 8  # the shorter of two transfers is so many times shorter
CHUNK = 65_536
GAMMA_MEDIAN = 1.6783469900166605  # of the sum of two exponential variables whose mean is 1

_MAGIC = b"hfl-links"
_COMMAND = struct.Struct("!cQ")
_PING, _UP, _DOWN, _QUIT = b"P", b"U", b"D", b"Q"


@dataclass(frozen=True)
class Rate:
    """Bits a second of what is sent, without headers: the median over repeats, and their relative standard deviation."""

    bps: float
    spread: float
    repeats: int


@dataclass(frozen=True)
class Path:
    """What was measured of a path. ``trips_s`` are round-trip times of a few bytes; ``sent_bytes`` went over it in all."""

    trips_s: tuple[float, ...]
    up: Rate
    down: Rate
    sent_bytes: int

    @property
    def latency_s(self) -> float:
        """Half of the shortest round trip."""
        return min(self.trips_s) / 2

    @property
    def jitter_s(self) -> float:
        """The mean of what each way takes beside the latency, were it exponential; by the median, which outliers do not move."""
        return (statistics.median(self.trips_s) - min(self.trips_s)) / GAMMA_MEDIAN


def serve(
    port: int = PORT,
    host: str = "",
    lasts_s: float = math.inf,
    ready: Callable[[int], None] = lambda _: None,
    served: Callable[[str], None] = lambda _: None,
    ended: Callable[[], bool] = lambda: False,
) -> None:
    """Serves measurements, one at a time, for so many seconds or until ``ended``.

    ``ready`` is called with the port (0 takes any that is free), ``served`` with a line about each measurement. Raises
    `InputError` where the port is taken or may not be used.
    """
    with _listening(host, port) as listener:
        ready(listener.getsockname()[1])
        until = time.monotonic() + lasts_s
        while time.monotonic() < until and not ended():
            listener.settimeout(min(0.2, max(0.01, until - time.monotonic())))
            try:
                connection, address = listener.accept()
            except TimeoutError:
                continue
            with connection:
                try:
                    said = _session(_Talk(connection, time.monotonic() + SESSION_S))
                except (OSError, HflError) as error:
                    said = str(error)
            served(f"{address[0].removeprefix('::ffff:')}: {said}")


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    try:
        dual = not host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual or ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family, dualstack_ipv6=dual) as listener:
            yield listener
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)
        if number == errno.EADDRINUSE:
            raise InputError(f"port {port} is in use; choose another with --port") from None
        if number == errno.EACCES:
            raise InputError(f"port {port} may not be used by this user; choose one from 1024 with --port") from None
        if isinstance(error, socket.gaierror) or number == errno.EADDRNOTAVAIL:
            raise InputError(f"'{host[:80]}' is no address of this host") from None
        raise


class _Talk:
    """A connection with an end in time."""

    def __init__(self, connection: socket.socket, until_s: float) -> None:
        self._socket = connection
        self._until_s = until_s
        self.moved_bytes = 0
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _wait(self, longest_s: float = PATIENCE_S) -> None:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise HflError("the measurement took longer than it may; the path is too slow for it, or was cut off")
        self._socket.settimeout(min(longest_s, left_s))

    def send(self, data: bytes) -> None:
        """Sends a few bytes."""
        self._wait()
        self._socket.sendall(data)

    def receive(self, count: int) -> bytes:
        """Exactly so many bytes; fewer where the other end hangs up."""
        parts: list[bytes] = []
        while count and (part := self._read(count)):
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _read(self, most: int) -> bytes:
        self._wait()
        return self._socket.recv(min(most, CHUNK))

    def pour(self, count: int) -> None:
        """Sends so many bytes that mean nothing."""
        block = bytes(CHUNK)
        self._count(count)
        while count:
            self._wait()
            count -= self._socket.send(block[: min(count, CHUNK)])

    def drain(self, count: int) -> float:
        """Takes so many bytes; returns the seconds from the first part of them that came to the last."""
        self._count(count)
        left = count - len(first := self._read(count))
        began = time.perf_counter()
        while left:
            part = self._read(left)
            if not part or not first:
                raise HflError("the other end hung up in the middle of a transfer")
            left -= len(part)
        return time.perf_counter() - began

    def _count(self, count: int) -> None:
        self.moved_bytes += count
        if self.moved_bytes > SESSION_BYTES:
            raise HflError(f"a measurement moves at most {SESSION_BYTES:,} bytes")


def _session(talk: _Talk) -> str:
    """Serves one measurement; returns a line about it."""
    greeting = talk.receive(len(_MAGIC) + 2)
    if greeting[: len(_MAGIC)] != _MAGIC or len(greeting) < len(_MAGIC) + 2:
        return "not an hfl that measures links"
    talk.send(_MAGIC + struct.pack("!H", VERSION))
    (version,) = struct.unpack("!H", greeting[-2:])
    if version != VERSION:
        return f"it speaks version {version} of the protocol, and this end version {VERSION}"
    while len(raw := talk.receive(_COMMAND.size)) == _COMMAND.size:
        command, number = _COMMAND.unpack(raw)
        if command == _PING:
            talk.send(raw)
        elif command == _UP and number:
            talk.send(_COMMAND.pack(_UP, round(talk.drain(number) * 1e9)))
        elif command == _DOWN and number:
            talk.pour(number)
        elif command == _QUIT:
            return f"measured, {talk.moved_bytes:,} bytes"
        else:
            return f"sent a command that there is not: {command!r}"
    return "hung up before it was done"


def measure(
    host: str, port: int = PORT, seconds: float = 10.0, most_bytes: int = 100_000_000, repeats: int = 5
) -> Path:
    """Measures the path to a host where somebody serves.

    It aims at ``seconds`` in all and never moves more than ``most_bytes`` (of which each transfer is a part). Raises
    `InputError` where nobody serves there, or in another version, and `HflError` where the connection breaks or takes three
    times as long as it may.
    """
    try:
        connection = socket.create_connection((host, port), timeout=PATIENCE_S)
    except socket.gaierror:
        raise InputError(f"there is no host '{host[:80]}'") from None
    except (ConnectionRefusedError, TimeoutError, OverflowError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else "nobody serves there"
        raise InputError(
            f"{host}:{port}: {why}; run 'hfl calibrate links --serve --port {port}' at the other end, and let it through "
            "firewalls"
        ) from None
    except OSError as error:
        raise InputError(f"{host}:{port} cannot be reached: {error.strerror or error}") from None
    with connection:
        talk = _Talk(connection, time.monotonic() + 3 * seconds + PATIENCE_S)
        try:
            _greet(talk, f"{host}:{port}")
            trips = tuple(_trips(talk, PINGS, seconds / 5))
            share_s, share_bytes = 0.4 * seconds, most_bytes // 2
            up = _rate(lambda size: _up_s(talk, size), share_s, share_bytes, repeats)
            down = _rate(lambda size: _down_s(talk, size), share_s, share_bytes, repeats)
            talk.send(_COMMAND.pack(_QUIT, 0))
        except TimeoutError:
            raise HflError(f"{host}:{port} stopped answering") from None
        except OSError as error:
            raise HflError(f"the connection to {host}:{port} broke: {error.strerror or error}") from None
        return Path(trips, up, down, talk.moved_bytes)


def _greet(talk: _Talk, where: str) -> None:
    talk.send(_MAGIC + struct.pack("!H", VERSION))
    try:
        answer = talk.receive(len(_MAGIC) + 2)
    except TimeoutError:
        raise InputError(
            f"{where} takes connections and does not answer: another measurement is going on, or it is no 'hfl calibrate links "
            "--serve'"
        ) from None
    except ConnectionResetError:
        answer = b""
    if answer[: len(_MAGIC)] != _MAGIC or len(answer) < len(_MAGIC) + 2:
        raise InputError(f"what answers at {where} is no 'hfl calibrate links --serve'")
    (version,) = struct.unpack("!H", answer[-2:])
    if version != VERSION:
        raise InputError(
            f"{where} speaks version {version} of the protocol, and this end version {VERSION}; use the same hfl-emulator on both"
        )


def _trips(talk: _Talk, count: int, seconds: float) -> Iterator[float]:
    """Round-trip times, at least three."""
    until = time.monotonic() + seconds
    for number in range(count):
        if number >= 3 and time.monotonic() > until:
            return
        ping = _COMMAND.pack(_PING, number)
        began = time.perf_counter()
        talk.send(ping)
        if talk.receive(len(ping)) != ping:
            raise HflError("the other end answered with something else than what it was sent")
        yield time.perf_counter() - began


def _up_s(talk: _Talk, size: int) -> float:
    talk.send(_COMMAND.pack(_UP, size))
    talk.pour(size)
    raw = talk.receive(_COMMAND.size)
    if len(raw) < _COMMAND.size or raw[:1] != _UP:
        raise HflError("the other end hung up in the middle of a transfer")
    return float(_COMMAND.unpack(raw)[1]) / 1e9


def _down_s(talk: _Talk, size: int) -> float:
    talk.send(_COMMAND.pack(_DOWN, size))
    return talk.drain(size)


def _rate(seconds_of: Callable[[int], float], span_s: float, most_bytes: int, repeats: int) -> Rate:
    """The rate by pairs of a long and a short transfer, whose difference has neither set-up nor slow start in it."""
    until = time.monotonic() + span_s
    largest = max(FIRST_BYTES, int(most_bytes / (repeats * (1 + 1 / SHORT) + 2)))
    size, wanted_s = min(FIRST_BYTES, largest), span_s / (2 * repeats)
    took_s = seconds_of(size)
    while took_s < wanted_s and size < largest:
        size = min(largest, 2 * size if took_s <= 0 else int(size * min(8.0, max(2.0, wanted_s / took_s))))
        took_s = seconds_of(size)
    rates: list[float] = []
    for number in range(repeats):
        if number and time.monotonic() > until:
            break
        short_s, long_s = seconds_of(max(1, size // SHORT)), seconds_of(size)
        apart_s, apart = long_s - short_s, size - max(1, size // SHORT)
        rates.append(8 * apart / apart_s if apart_s > 0 else 8 * size / max(long_s, 1e-9))
    middle = statistics.median(rates)
    spread = statistics.stdev(rates) / middle if len(rates) > 1 else math.nan
    return Rate(middle, spread, len(rates))
