"""A Ray cluster to compute on, or a Ray instance of this machine. Nothing else imports ray, and nothing imports it unasked.

Ray is an extra (``hfl-emulator[ray]``). What it gives here: processes on other machines, an object store that every machine
has a part of, and tasks that run again where their process or machine is lost.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal

from emulator import __version__, plugins
from emulator.errors import HflError, InputError
from emulator.machine import cores

if TYPE_CHECKING:
    from ray import ObjectRef

Backend = Literal["local", "ray"]  # where clients are trained: in processes of this machine, or on a Ray cluster

LOST_TIMES = 5  # a task whose process or machine was lost this often will not be tried again: it is perhaps to blame
REACHED_WITHIN_S = 5.0
ANSWERED_WITHIN_S = 20.0  # with the start of a process that imports Ray
_RIGHT = "give auto on a machine of the cluster, or HOST:PORT as 'ray start --head' prints it"
_TOKEN = "if the cluster asks for a token, this shell needs RAY_AUTH_MODE=token and the cluster's token"
# Length, type, flags and stream of the frame with which whoever speaks HTTP/2 begins (RFC 9113, 3.4), as gRPC does.
_SETTINGS = b"\0\0\0\4\0\0\0\0\0"
_SAME_EVERYWHERE = ("torch", "numpy", "scikit-learn", "scipy")  # other versions may round otherwise


@contextlib.contextmanager
def joined(address: str | None, cpus: int | None) -> Iterator[None]:
    """Connects to the cluster at an address (``auto``: the one that this machine belongs to) until the block ends.

    Without an address a Ray instance with so many CPUs (None: the number of cores) is started here and ended with the block.
    Raises `InputError` where Ray is not installed or the cluster cannot be reached.
    """
    try:
        import ray
    except ImportError:
        raise InputError("--backend ray needs Ray, which is not installed: pip install 'hfl-emulator[ray]'") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody about what is run here
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the coming default; Ray warns about the old one
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    main = threading.current_thread() is threading.main_thread()
    on_end = signal.getsignal(signal.SIGTERM)
    try:
        if address is not None:
            _check(address)
        # Ray puts the current folder before all others where its workers look for modules. This one has none.
        with contextlib.chdir(sys.prefix):
            if address is None:
                ray.init(address="local", num_cpus=cpus or cores(), include_dashboard=False, **quiet)
            else:
                ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        if address is None:
            raise InputError(f"Ray cannot be started here: {error}") from error
        raise InputError(f"--address {address}: there is no Ray cluster that lets us in: {error}; {_TOKEN}") from error
    if main:
        signal.signal(signal.SIGTERM, on_end)  # Ray's own would end this process before it has written anything
    try:
        yield
    finally:
        ray.shutdown()


def _check(address: str) -> None:
    """Finds out within seconds whether a Ray cluster answers there; Ray itself would wait for one for ever.

    Raises `InputError` that says what answers instead.
    """
    name = f"--address {address}"
    if address == "auto" and (named := os.environ.get("RAY_ADDRESS")):  # it is what Ray would look for
        name, address = f"--address auto (RAY_ADDRESS={named})", named
    if address != "auto":
        parts = re.fullmatch(r"(\[[\da-f:.]+\]|[^\s:/\[\]]+):([0-9]{4,5})", address, re.IGNORECASE)
        if parts is None or not 1024 <= int(parts[2]) <= 65535:
            raise InputError(f"{name}: that is not HOST:PORT with a port from 1024 to 65535; {_RIGHT}")
        if instead := _instead(parts[1].strip("[]"), int(parts[2])):
            raise InputError(f"{name}: there is no Ray cluster: {instead}; {_RIGHT}")
    # Asked in a process of its own, because a call into Ray that waits cannot be given up.
    words = [sys.executable, "-P", "-m", "ray.scripts.scripts", "status", "--address", address]
    try:
        asked = subprocess.run(words, capture_output=True, errors="replace", timeout=ANSWERED_WITHIN_S, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(
            f"{name}: no Ray cluster has answered there within {ANSWERED_WITHIN_S:g} s; {_RIGHT}"
        ) from None
    if asked.returncode:
        why = shorten(asked.stderr.strip().rpartition("\n")[2], 150, placeholder=" ...")
        raise InputError(f"{name}: there is no Ray cluster that lets us in: {why}; {_RIGHT}; {_TOKEN}")


def _instead(host: str, port: int) -> str:
    """What is there instead of a Ray cluster, as far as its first words tell; nothing where it speaks as one (HTTP/2)."""
    try:
        line = socket.create_connection((host, port), timeout=REACHED_WITHIN_S)
    except socket.gaierror as error:
        return f"the host is not known ({error.strerror})"
    except (OSError, UnicodeError) as error:
        return f"nobody answers ({getattr(error, 'strerror', None) or error})"
    with line:
        if os.environ.get("RAY_USE_TLS", "0") != "0":
            return ""  # whoever it is waits for a handshake: Ray itself will see
        heard = _first_words(line)
    if heard is None:
        return f"something listens there, but says nothing for {REACHED_WITHIN_S:g} s"
    if not heard:
        return "something listens there, but hangs up at once"
    if heard[3:4] + heard[5:9] == _SETTINGS[3:4] + _SETTINGS[5:9]:
        return ""
    kind = "a web server" if heard.lower().startswith((b"http/", b"<html", b"<!doctype html")) else "something else"
    return f"{kind} answers ({repr(heard.splitlines()[0][:60])[1:]})"


def _first_words(line: socket.socket) -> bytes | None:
    """What somebody says to one who begins to speak HTTP/2: nothing at the end of the line, None where nothing comes."""
    heard = b""
    until = time.monotonic() + REACHED_WITHIN_S
    try:
        line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS)
        while len(heard) < len(_SETTINGS):
            line.settimeout(max(until - time.monotonic(), 0.001))
            if not (more := line.recv(1024)):
                break
            heard += more
    except TimeoutError:
        return heard or None
    except OSError:
        pass  # it has hung up
    return heard


@dataclass(frozen=True)
class Surroundings:
    """What must be the same where tasks run: versions, the user's modules, and the command that was given (for manifests).

    ``folder`` is where relative paths begin, on machines that have it.
    """

    path: list[str] = field(default_factory=lambda: list(sys.path))  # where modules are looked for
    command: list[str] = field(default_factory=lambda: list(sys.argv))
    folder: Path = field(default_factory=Path.cwd)
    plugins: list[str] = field(default_factory=lambda: list(plugins.loaded))
    versions: dict[str, str] = field(default_factory=lambda: _versions())

    def enter(self) -> None:
        """Makes this process ready. Raises `HflError` where that cannot be."""
        here = _versions()
        for name, wanted in self.versions.items():
            if here[name] != wanted:
                raise HflError(
                    f"{socket.gethostname()} has {name} {here[name]}, but the run began with {wanted}: "
                    "every machine of the cluster needs the same versions"
                )
        sys.argv[:] = self.command
        if self.folder.is_dir():
            os.chdir(self.folder)
        sys.path += [p for p in self.path if p not in sys.path]
        plugins.load([name for name in self.plugins if name not in plugins.loaded])


def _versions() -> dict[str, str]:
    return {"hfl-emulator": __version__} | {name: importlib.metadata.version(name) for name in _SAME_EVERYWHERE}


def nodes(resource: Literal["CPU", "GPU"] = "CPU") -> dict[str, int]:
    """The machines of the cluster by their Ray ids, with their CPUs, or GPUs; those without any are left out.

    Raises `HflError` where there are none at all.
    """
    import ray

    found = {n["NodeID"]: int(n["Resources"].get(resource, 0)) for n in ray.nodes() if n["Alive"]}
    found = {node: count for node, count in sorted(found.items()) if count}
    if not found:
        raise HflError(f"no machine of the Ray cluster has a {resource} to compute on")
    return found


def this_node() -> str:
    """The Ray id of the machine that this process runs on."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def near(node: str) -> Any:
    """A wish to run on a machine, which Ray leaves aside where that machine is gone."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=True)


def result_of(task: ObjectRef) -> Any:
    """What a task returned. Raises the `HflError` that it returned, or one that says that it was lost."""
    import ray

    try:
        result = ray.get(task)
    except ray.exceptions.RayError as error:
        why = str(error).strip().splitlines()
        last = why[0] if isinstance(error, ray.exceptions.RayTaskError) and error.cause is None else why[-1]
        raise HflError(f"a task on the Ray cluster failed: {last}") from error
    if isinstance(result, HflError):
        raise result
    return result
