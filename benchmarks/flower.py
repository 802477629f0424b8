"""A Flower app of 100 clients and 20 rounds: wall-clock of ``hfl flower`` and of Flower's own simulation, and memory over rounds.

Needs an environment with the extra ``flower`` and, for the comparison, ``flwr[simulation]`` with the Ray that it asks for;
without it only our side is measured. Both use the same number of processes. Both are started anew, and imports count.

    python benchmarks/flower.py [--clients 100] [--rounds 20] [--processes 2] [--by-rate]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
APP = ROOT / "tests" / "flower" / "apps" / "digits"
WORLD = """
name: bench
seed: 1
topology:
  edges: 4
  clients: {clients}
  devices: raspberry-pi-4b
  links:
    access: {{up: 10 Mbit/s, down: 50 Mbit/s, latency: 15 ms}}
    backhaul: {{up: 1 Gbit/s, down: 1 Gbit/s, latency: 10 ms}}
"""
THEIRS = """
import sys
from pathlib import Path
from flwr.app import Context, RecordDict
from flwr.supercore.constant import NOOP_FEDERATION_ID
from flwr.simulation.run_simulation import _run_simulation
from flwr.supercore.run import Run
from flwr.simulation.run_simulation import EventType
from flwr.supercore.object_ref import load_app
from flwr.common.config import get_fused_config_from_dir
app, clients, rounds, processes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
run = Run.create_empty(1)
run.primary_task_id, run.federation_id = 1, NOOP_FEDERATION_ID
run.override_config = {"rounds": rounds}
config = get_fused_config_from_dir(app, run.override_config)
context = Context(1, 1, {}, RecordDict(), config)
from flwr.supercore.task_identity import TaskIdentity
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
_run_simulation(
    num_supernodes=clients,
    exit_event=EventType.PYTHON_API_RUN_SIMULATION_LEAVE,
    server_app_attr="digits.server_fedavg:app",
    client_app_attr="digits.client:app",
    server_app_context=context,
    app_dir=str(app),
    run=run,
    is_app=True,
    backend_name="ray",
    backend_config={"init_args": {"num_cpus": processes}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
)
"""


def measured(command: list[str], where: Path) -> tuple[float, float]:
    """Wall-clock seconds of a command, and the most memory of any of its processes in MB. Its output goes to a log."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
    started = time.perf_counter()
    with (where / "log.txt").open("w") as log:
        done = subprocess.run(command, cwd=where, env=environment, stdout=log, stderr=log, check=False)
    took_s = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{command[:3]} failed:\n{(where / 'log.txt').read_text()[-3000:]}")
    return took_s, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def ours(where: Path, clients: int, rounds: int, processes: int, *more: str) -> list[str]:
    (where / "world.yaml").write_text(WORLD.format(clients=clients))
    hfl = [sys.executable, "-m", "emulator", "flower", str(APP), "--world", "world.yaml", "--no-replies", "--overwrite"]
    return [*hfl, "--run-config", f"rounds={rounds}", "--workers", str(processes), "--out", "out", *more]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--by-rate", action="store_true", help="also without counting operations")
    given = parser.parse_args()
    size = given.clients, given.rounds, given.processes
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        _, mb = measured(ours(where, given.clients, 2, given.processes), where)
        tell("most memory of a process, 2 rounds (MB)", mb)
        took_s, mb = measured(ours(where, *size), where)
        tell(f"most memory of a process, {given.rounds} rounds (MB)", mb)
        tell("hfl flower (s)", took_s)
        without_s = measured(ours(where, *size, "--client-time", "samples:1000"), where)[0] if given.by_rate else None
        if without_s is not None:
            tell("hfl flower, nothing counted (s)", without_s)
        if importlib.util.find_spec("ray") is None:
            tell("Flower's simulation: Ray is not installed", float("nan"))
            return
        script = where / "theirs.py"
        script.write_text(THEIRS)
        theirs_s, _ = measured([sys.executable, str(script), str(APP), *map(str, size)], where)
        tell("Flower's simulation (s)", theirs_s)
        tell("ratio", took_s / theirs_s)
        if without_s is not None:
            tell("ratio, nothing counted", without_s / theirs_s)


def tell(what: str, value: float) -> None:
    print(f"{what}: {value:.3f}", flush=True)


if __name__ == "__main__":
    main()
