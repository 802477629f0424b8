"""A Ray cluster to compute on, or a Ray instance of this machine. Nothing else imports ray, and nothing imports it unasked.

Ray is an extra (``hfl-emulator[ray]``). What it gives here: processes on other machines, an object store that every machine
has a part of, and tasks that run again where their process or machine is lost.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from emulator import __version__, plugins
from emulator.errors import HflError, InputError
from emulator.machine import cores

if TYPE_CHECKING:
    from ray import ObjectRef

Backend = Literal["local", "ray"]  # where clients are trained: in processes of this machine, or on a Ray cluster

LOST_TIMES = 5  # a task whose process or machine was lost this often will not be tried again: it is perhaps to blame
REACHED_WITHIN_S = 5.0
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
        hint = "if the cluster asks for a token, this shell needs RAY_AUTH_MODE=token and the cluster's token"
        raise InputError(f"--address {address}: there is no Ray cluster that lets us in: {error}; {hint}") from error
    if main:
        signal.signal(signal.SIGTERM, on_end)  # Ray's own would end this process before it has written anything
    try:
        yield
    finally:
        ray.shutdown()


def _check(address: str) -> None:
    """Finds out quickly whether anybody answers there; Ray itself would try for a long time."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if "//" in address or not colon or not port.isdigit():
        raise InputError(
            f"--address {address}: give auto on a machine of the cluster, or HOST:PORT as 'ray start --head' prints it"
        )
    with socket.create_connection((host, int(port)), timeout=REACHED_WITHIN_S):
        pass


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


def nodes() -> dict[str, int]:
    """The machines of the cluster by their Ray ids, with their CPUs; those without any are left out.

    Raises `HflError` where there are no CPUs at all.
    """
    import ray

    found = {n["NodeID"]: int(n["Resources"].get("CPU", 0)) for n in ray.nodes() if n["Alive"]}
    found = {node: cpus for node, cpus in sorted(found.items()) if cpus}
    if not found:
        raise HflError("no machine of the Ray cluster has a CPU to compute on")
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
