"""Addresses at which there is no Ray cluster: it is said what is there, and nobody waits for Ray."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenario.command import hfl

from emulator import cluster
from emulator.errors import InputError

ray = pytest.importorskip("ray")

RIGHT = "give auto on a machine of the cluster, or HOST:PORT as 'ray start --head' prints it"


@pytest.fixture(autouse=True)
def _never_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gets as far as to join would wait for ever."""

    def joins(**_: object) -> None:
        raise AssertionError("Ray was told to join")

    monkeypatch.setattr(ray, "init", joins)
    monkeypatch.setattr(cluster, "REACHED_WITHIN_S", 0.5)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture
def closed() -> Iterator[int]:
    """A port at which nobody listens, and nobody else can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def answering() -> Iterator[Callable[[Callable[[socket.socket], None]], int]]:
    """Makes a listener that does something with whoever calls; gives its port."""
    over = threading.Event()
    kept: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def listen(answer: Callable[[socket.socket], None]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(0.05)

        def serve() -> None:
            while not over.is_set():
                try:
                    caller, _ = listener.accept()
                except TimeoutError:
                    continue
                kept.append(caller)
                answer(caller)

        kept.append(listener)
        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return int(listener.getsockname()[1])

    yield listen
    over.set()
    for thread in threads:
        thread.join(30)
    for each in kept:
        each.close()


def refused(folder: Path, address: str, command: str = "run") -> str:
    """What the command says about an address, in one line."""
    name = "quickstart" if command == "run" else "studies/quickstart"
    done = hfl(command, name, "--out", folder / "run", "--backend", "ray", "--address", address)
    assert done.code == 2
    assert not (folder / "run").exists()
    return " ".join(done.err.split())


@pytest.mark.parametrize("command", ["run", "study"])
def test_where_nobody_listens(tmp_path: Path, closed: int, command: str) -> None:
    address = f"127.0.0.1:{closed}"
    expected = f"error: --address {address}: there is no Ray cluster: nobody answers (Connection refused); {RIGHT}"
    assert refused(tmp_path, address, command) == expected


ANSWERS = {
    "nothing": (lambda caller: None, "something listens there, but says nothing for 0.5 s"),
    "end": (lambda caller: caller.close(), "something listens there, but hangs up at once"),
    "web": (lambda caller: caller.sendall(b"HTTP/1.1 400 Bad Request\r\nX: y\r\n\r\n"),
            "a web server answers ('HTTP/1.1 400 Bad Request')"),
    "page": (lambda caller: caller.sendall(b"<!DOCTYPE HTML>\n<html>"), "a web server answers ('<!DOCTYPE HTML>')"),
    "ssh": (lambda caller: caller.sendall(b"SSH-2.0-OpenSSH_9.9\r\n"), "something else answers ('SSH-2.0-OpenSSH_9.9')"),
    "little": (lambda caller: caller.sendall(b"\xff"), "something else answers ('\\xff')"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ANSWERS)
def test_where_something_else_answers(
    tmp_path: Path, answering: Callable[[Callable[[socket.socket], None]], int], kind: str
) -> None:
    answer, said = ANSWERS[kind]
    address = f"localhost:{answering(answer)}"
    assert refused(tmp_path, address) == f"error: --address {address}: there is no Ray cluster: {said}; {RIGHT}"


def test_where_something_begins_as_ray_does_and_says_no_more(
    tmp_path: Path, answering: Callable[[Callable[[socket.socket], None]], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ANSWERED_WITHIN_S", 0.5)
    address = f"127.0.0.1:{answering(lambda caller: caller.sendall(cluster._SETTINGS))}"
    assert refused(tmp_path, address) == (
        f"error: --address {address}: no Ray cluster has answered there within 0.5 s; {RIGHT}"
    )


def test_where_another_server_speaks_as_ray_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grpc = pytest.importorskip("grpc")
    (tmp_path / "ray.py").write_text("raise SystemExit('code from the current folder')")
    monkeypatch.chdir(tmp_path)
    server = grpc.server(ThreadPoolExecutor(1))
    address = f"127.0.0.1:{server.add_insecure_port('0.0.0.0:0')}"  # Ray asks at the machine's own address
    server.start()
    try:
        said = refused(tmp_path, address)
    finally:
        server.stop(None).wait(30)
    assert said.startswith(f"error: --address {address}: there is no Ray cluster that lets us in: ray.exceptions.")
    assert f"{RIGHT}; if the cluster asks for a token" in said


def test_hosts_that_are_none(tmp_path: Path) -> None:
    assert "there is no Ray cluster: the host is not known (" in refused(tmp_path, "nowhere.invalid:6379")
    assert "there is no Ray cluster: nobody answers (" in refused(tmp_path, f"{'x' * 70}:6379")


def test_the_address_that_the_environment_gives_is_looked_at_too(
    tmp_path: Path, closed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{closed}")
    said = refused(tmp_path, "auto")
    assert f"--address auto (RAY_ADDRESS=127.0.0.1:{closed}): there is no Ray cluster: nobody answers" in said
    for wrong in ("ray://127.0.0.1:10001", "local"):
        monkeypatch.setenv("RAY_ADDRESS", wrong)
        assert f"--address auto (RAY_ADDRESS={wrong}): that is not HOST:PORT" in refused(tmp_path, "auto")


@given(
    st.one_of(
        st.sampled_from(["", "6379", "head", "head:", ":6379", "head:port", "head:99999", "head:65536", "head:0", "head:1023",
                         "head:-6379", "head:6379:6379", "ray://head:10001", "http://head:6379", "::1:6379", "[::1]", "[x]:6379",
                         "head:6379/", " head:6379", "head:6379\n", "head:６３７９", "head:²²²²", "local", "AUTO"]),
        st.text(st.characters(exclude_characters=":")),
        st.integers().filter(lambda port: not 1024 <= port <= 65535).map("head:{}".format),
    )
)  # fmt: skip
def test_words_that_are_no_address(address: str) -> None:
    if address != "auto":
        with pytest.raises(InputError) as refusal:
            cluster._check(address)
        assert str(refusal.value) == (
            f"--address {address}: that is not HOST:PORT with a port from 1024 to 65535; {RIGHT}"
        )
