"""A path is measured for real, over loopback; what can be wrong at the other end is said. No assertion on how quick a host is."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from scenario.command import TINY, hfl
from scipy.stats import gamma

from devices import path_probe
from emulator.cli.calibrate_links import as_yaml
from emulator.errors import HflError, InputError
from emulator.scenario import load


@contextlib.contextmanager
def serving() -> Iterator[tuple[int, list[str]]]:
    ports: queue.Queue[int] = queue.Queue()
    said: list[str] = []
    done = threading.Event()
    thread = threading.Thread(
        target=path_probe.serve, args=(0, "127.0.0.1", 60.0, ports.put, said.append, done.is_set), daemon=True
    )
    thread.start()
    try:
        yield ports.get(timeout=20), said
    finally:
        done.set()
        thread.join(20)
    assert not thread.is_alive()


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Something else that listens on a port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
    thread.join(20)


def test_a_path_is_measured_within_its_bounds() -> None:
    with serving() as (port, said):
        found = path_probe.measure("127.0.0.1", port, seconds=1.0, most_bytes=20_000_000, repeats=3)
    assert found.up.bps > 0
    assert found.down.bps > 0
    assert 1 <= found.up.repeats <= 3
    assert 3 <= len(found.trips_s) <= path_probe.PINGS
    assert 0 < found.latency_s <= found.latency_s + found.jitter_s
    assert 0 < found.sent_bytes <= 20_000_000
    assert said == [f"127.0.0.1: measured, {found.sent_bytes:,} bytes"]


def test_few_bytes_are_enough() -> None:
    with serving() as (port, _):
        assert path_probe.measure("127.0.0.1", port, 1.0, 100_000, 2).sent_bytes <= 100_000 + 4 * path_probe.FIRST_BYTES


def test_what_was_measured_is_a_link(tmp_path: Path) -> None:
    trips = (0.021, 0.020, 0.023, 0.030)
    found = path_probe.Path(trips, path_probe.Rate(9.56e6, 0.02, 5), path_probe.Rate(4.78e7, 0.01, 5), 1000)
    assert found.latency_s == 0.01
    assert found.jitter_s == pytest.approx(0.002 / gamma(2).median())
    text = as_yaml(found, "access", "there:1")
    link = yaml.safe_load(text)["topology"]["links"]["access"]
    assert link["latency"] == "10 ms"
    assert link["jitter"] == {"kind": "exponential", "scale": "1.192 ms"}
    assert "relative standard deviation 0.02" in text
    (tmp_path / "link.yaml").write_text(text)
    (tmp_path / "s.yaml").write_text(TINY)
    access = load(tmp_path / "s.yaml", [f"@{tmp_path / 'link.yaml'}"]).scenario.topology.links.access
    assert access.up == pytest.approx(9.56e6 * 1514 / 1448, rel=1e-3)
    assert access.down == pytest.approx(4.78e7 * 1514 / 1448, rel=1e-3)


def test_nobody_another_version_and_something_else_are_told_apart() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(InputError, match="nobody serves there"):
        path_probe.measure("127.0.0.1", port, 1.0)
    with pytest.raises(InputError, match="there is no host"):
        path_probe.measure("no-such-host.invalid", 1, 1.0)
    newer = b"hfl-links" + struct.pack("!H", path_probe.VERSION + 1)
    with answering(lambda c: c.sendall(newer)) as port, pytest.raises(InputError, match="speaks version 2"):
        path_probe.measure("127.0.0.1", port, 1.0)
    with answering(lambda c: c.sendall(b"HTTP/1.1 400 Bad")) as port, pytest.raises(InputError, match="is no 'hfl"):
        path_probe.measure("127.0.0.1", port, 1.0)
    with answering(lambda c: None) as port, pytest.raises(InputError, match="is no 'hfl"):
        path_probe.measure("127.0.0.1", port, 1.0)


def test_an_end_that_breaks_off_is_a_failure() -> None:
    def greet_and_go(connection: socket.socket) -> None:
        connection.recv(64)
        connection.sendall(b"hfl-links" + struct.pack("!H", path_probe.VERSION))
        connection.recv(9)

    with answering(greet_and_go) as port, pytest.raises(HflError):
        path_probe.measure("127.0.0.1", port, 1.0)


@pytest.mark.parametrize(
    ("greeting", "said"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "not an hfl"),
        (b"hfl-links" + struct.pack("!H", 7), "version 7"),
        (b"hfl-links" + struct.pack("!H", 1) + b"X" + bytes(8), "a command that there is not"),
        (b"hfl-links" + struct.pack("!H", 1) + b"D" + b"\xff" * 8, "at most 2,000,000,000 bytes"),
        (b"hfl-links" + struct.pack("!H", 1) + b"U" + struct.pack("!Q", 9) + b"abc", "hung up"),
    ],
)
def test_whoever_comes_the_serving_end_goes_on(greeting: bytes, said: str) -> None:
    with serving() as (port, lines):
        with socket.create_connection(("127.0.0.1", port)) as other:
            other.sendall(greeting)
            with contextlib.suppress(OSError):
                other.shutdown(socket.SHUT_WR)
                while other.recv(1000):
                    pass
        path_probe.measure("127.0.0.1", port, 1.0, 100_000, 1)
    assert said in lines[0]
    assert "measured" in lines[1]


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} is in use"):
            path_probe.serve(port, lasts_s=1.0)
        done = hfl("calibrate", "links", "--serve", "--port", str(port))
    assert done.code == 2
    assert "in use" in done.err
    with pytest.raises(InputError, match="no address of this host"):
        path_probe.serve(0, "203.0.113.1", 1.0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "--serve to be the other end"),
        (["somewhere", "--serve"], "--serve to be the other end"),
        (["somewhere", "--most", "3"], "has no unit"),
        (["somewhere", "--most", "1 B"], "between 100 kB and 2 GB"),
        (["somewhere", "--out", "link.txt"], "must end in .yaml"),
        (["127.0.0.1", "--port", "1"], "nobody serves there"),
    ],
)
def test_bad_words_are_refused(words: list[str], says: str) -> None:
    done = hfl("calibrate", "links", *words)
    assert done.code == 2
    assert says in done.err


def test_the_command_measures_and_writes_links(tmp_path: Path) -> None:
    with serving() as (port, _):
        words = [
            "calibrate",
            "links",
            "127.0.0.1",
            "--port",
            str(port),
            "--seconds",
            "1",
            "--most",
            "200 kB",
            "--kind",
            "backhaul",
        ]
        done = hfl(*words, "--out", tmp_path / "l.yaml")
        again = hfl(*words, "--out", tmp_path / "l.yaml")
    assert done.code == 0, done.err
    assert set(yaml.safe_load((tmp_path / "l.yaml").read_text())["topology"]["links"]["backhaul"]) >= {
        "up",
        "down",
        "latency",
    }
    assert again.code == 2
    assert "exists already" in again.err
