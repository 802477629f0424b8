"""How long a round of federated averaging takes here and in other simulators, on the same workload and the same cores.

    python benchmarks/peers.py [--only ours plain fluke] [--repeats 3] [--clients 100] [--envs DIR]

The workload is the first one of ``benchmarks/training.py``: 100 clients of 50 samples of 28×28, batch 10, a CNN of two 5×5
convolutions and one layer, SGD, one epoch, all clients in every round. Data and initial weights are the same for all. Every
system runs in a process of its own, one after the other in turn, so that all meet the same noise: a warm-up round, then six
that count. The best round of each is compared. The drivers are in ``benchmarks/peers/``.

Every peer is installed into an environment of its own, with the versions below, once. What cannot be installed or does not
run is skipped, and the table says why.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emulator.learning.memo import default_path
from emulator.machine import cores

ROOT = Path(__file__).resolve().parent.parent
DRIVERS = Path(__file__).resolve().parent / "peers"
ROUNDS = 7  # of a process, the warm-up among them; our own engine starts its workers in the fourth
PATIENCE_S = 900  # for a process; the slowest takes seconds on a machine that does nothing else
GOAL = 4.0  # times the best peer
TORCH = (
    "torch==2.13.0"  # among what pip is given with every peer of torch: another version may bring gigabytes for GPUs
)


class SkippedError(Exception):
    """A system cannot be had, or does not run; the message says why in one line."""


@dataclass(frozen=True)
class System:
    """Something that is measured. ``installs`` are what pip is given; without them it runs in our environment.

    ``environment`` are variables that its driver is started with, ``module`` one of Python's that starts it, with its words.
    """

    title: str
    driver: str
    installs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    module: tuple[str, ...] = ()


SYSTEMS = {
    "ours": System("this emulator", "run_ours.py", environment={"PYTHONPATH": str(ROOT)}),
    "plain": System("plain PyTorch loop", "run_plain.py"),
    "pfl": System(
        "pfl-research 0.6.0",
        "run_pfl.py",
        (TORCH, "pfl[pytorch]==0.6.0"),
        module=("torch.distributed.run", "--standalone", "--nproc-per-node", str(cores())),
    ),
    "fedjax": System(
        "FedJAX 0.0.17",
        "run_fedjax.py",
        ("fedjax==0.0.17", "jax==0.4.38", "jaxlib==0.4.38", "dm-haiku==0.0.13", "optax==0.2.4", "numpy==2.2.6"),
        {
            # A device for each core; XLA's older runtime, the faster one here; results of pmap as FedJAX takes them to be.
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={cores()} --xla_cpu_use_thunk_runtime=false",
            "JAX_PMAP_NO_RANK_REDUCTION": "0",
        },
    ),
    "fluke": System(
        "fluke 0.8.1",
        "run_fluke.py",
        (TORCH, "torchvision==0.28.0", "fluke-fl==0.8.1"),
        {"PYTHONPATH": str(ROOT)},  # for our way to import torchvision beside a CPU build of torch
    ),
    "flower": System(
        "Flower 1.41.0",
        "run_flower.py",
        (TORCH, "flwr[simulation]==1.41.0"),
        {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"},
    ),
}
OUR_OWN = ("ours", "plain")


@dataclass(frozen=True)
class Measured:
    """Seconds of every round that counts, and the loss on the test samples before and after the first round."""

    seconds: tuple[float, ...]
    losses: tuple[float, float]

    @property
    def best(self) -> float:
        """Seconds of the quickest round."""
        return min(self.seconds)


def read_answer(printed: str) -> Measured:
    """What a driver printed last. Raises `SkippedError` where that is no result, or nothing was learned."""
    lines = [line for line in printed.splitlines() if line.startswith('{"seconds"')]
    if not lines:
        raise SkippedError("its driver printed no times")
    told = json.loads(lines[-1])
    before, after = told["losses"]
    if not after < before:
        raise SkippedError(f"it does not learn: the loss went from {before:.3f} to {after:.3f}")
    if not told["seconds"]:
        raise SkippedError("its driver measured no round")
    return Measured(tuple(told["seconds"]), (before, after))


def last_words(printed: str) -> str:
    """The line of an output that says best what went wrong: pip's first error, or the last line."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or [line for line in lines if "Error: " in line]
    return (errors[-1] if errors else lines[-1] if lines else "it said nothing")[:200]


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """What a command printed. Raises `SkippedError` where it fails or takes too long."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean | dict(environment or {}),
        start_new_session=True,
    ) as process:
        try:
            told, complained = process.communicate(timeout=PATIENCE_S)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
            if isinstance(error, subprocess.TimeoutExpired):
                raise SkippedError(f"it took more than {PATIENCE_S} s") from None
            raise
    if process.returncode:
        raise SkippedError(last_words(told + complained))
    return told


def python_of(name: str, system: System, folder: Path) -> Path:
    """The Python that a system runs in, with an environment made for it where there is none with these versions.

    Raises `SkippedError` where something cannot be installed.
    """
    if not system.installs:
        return Path(sys.executable)
    place = folder / name
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    record, wanted = place / "installed.json", json.dumps(system.installs)
    if record.is_file() and record.read_text(encoding="utf-8") == wanted:
        return python
    print(f"installing {system.title} into {place}", flush=True)
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=True)
    try:
        run([str(python), "-m", "pip", "install", "--quiet", *system.installs])
    except SkippedError as error:
        raise SkippedError(f"cannot be installed: {error}") from None
    record.write_text(wanted, encoding="utf-8")
    return python


def measure(name: str, system: System, folder: Path, clients: int) -> Measured:
    """Runs the driver of a system once. Raises `SkippedError` where it cannot be installed or fails."""
    starts = ["-m", *system.module] if system.module else []
    words = ["--clients", str(clients), "--rounds", str(ROUNDS), "--cores", str(cores())]
    python = str(python_of(name, system, folder))
    return read_answer(run([python, *starts, str(DRIVERS / system.driver), *words], system.environment))


def rotate(
    names: Iterable[str], repeats: int, measure_one: Callable[[str], Measured]
) -> tuple[dict[str, list[Measured]], dict[str, str]]:
    """Measures all systems in turn, so many times; gives their results, and why others were skipped.

    A system that fails before it has any result is left out from then on. One that fails later keeps what it had.
    """
    results: dict[str, list[Measured]] = {name: [] for name in names}
    skipped: dict[str, str] = {}
    for _ in range(repeats):
        for name in [n for n in results if n not in skipped]:
            try:
                results[name].append(measure_one(name))
                print(f"{name:7} {results[name][-1].best:8.3f} s", flush=True)
            except SkippedError as error:
                if not results[name]:
                    skipped[name] = str(error)
                print(f"{name:7} {'failed' if results[name] else 'skipped'}: {error}", flush=True)
    return {n: found for n, found in results.items() if found}, skipped


def table(results: Mapping[str, Sequence[Measured]], skipped: Mapping[str, str]) -> str:
    """A table in Markdown, quickest first, with what was skipped and whether the goal is reached below it."""
    best = {name: min(m.best for m in found) for name, found in results.items()}
    lines = [
        "| system | seconds a round | speed, plain loop = 1 | test loss before and after one round |",
        "|---|---|---|---|",
    ]
    for name in sorted(best, key=lambda n: best[n]):
        ratio = f"{best['plain'] / best[name]:.2f}" if "plain" in best else ""
        before, after = results[name][0].losses
        lines.append(f"| {SYSTEMS[name].title} | {best[name]:.3f} | {ratio} | {before:.3f}, {after:.3f} |")
    lines += [f"| {SYSTEMS[name].title} | skipped: {why} | | |" for name, why in skipped.items()]
    return "\n".join([*lines, "", verdict(best)])


def verdict(best: Mapping[str, float]) -> str:
    """Whether our own round is so many times as quick as that of the best peer; ``best`` are seconds by system."""
    peers = {name: seconds for name, seconds in best.items() if name not in OUR_OWN}
    if "ours" not in best or not peers:
        return "Nothing to compare: our own engine and one peer at least must have run."
    quickest = min(peers, key=lambda n: peers[n])
    ratio = peers[quickest] / best["ours"]
    reached = "reached" if ratio >= GOAL else "not reached"
    return f"{ratio:.2f} times the speed of the best peer, {SYSTEMS[quickest].title}; the goal of {GOAL:g} times is {reached}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="systems to measure")
    parser.add_argument("--repeats", type=int, default=3, help="processes of each system")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--envs", type=Path, default=default_path().parent / "peers", help="folder of the environments")
    asked = parser.parse_args()
    folder = asked.envs.resolve()
    results, skipped = rotate(
        asked.only, asked.repeats, lambda name: measure(name, SYSTEMS[name], folder, asked.clients)
    )
    print(f"\n{asked.clients} clients, {cores()} cores, best of {asked.repeats} × {ROUNDS - 1} rounds\n")
    print(table(results, skipped))


if __name__ == "__main__":
    main()
