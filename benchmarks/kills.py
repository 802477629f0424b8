"""Whether runs that are killed at any instant end with the very files of runs that were not.

    python benchmarks/kills.py [--kills 20] [--only asynchronous] [--seed 11] [--folder DIR]

For six kinds of runs: kills the process and its workers at random instants, half of the time anywhere in the run and half of the
time after a checkpoint was there; then the same command goes on, now and then to its end, where every file but manifest.json is
compared byte by byte with those of a run that nobody killed. Prints the counts for each kind; exits with 1 where a file differs.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from emulator import checkpoint

COMMON = """
data:
  set: digits
  partition: {{kind: {partition}}}
{data}
model: {{kind: mlp, hidden: [48]}}
topology: {{edges: {edges}, clients: {clients}, devices: raspberry-pi-4b{links}}}
method: {{{method}}}
stop: {{rounds: {rounds}}}
output: {{checkpoint: 0.1 s, plot: false}}
{more}
"""
LOCAL = "local: {{kind: {rule}, epochs: 4, batch_size: 8, learning_rate: 0.05}}"
SGD = LOCAL.format(rule="sgd")
KINDS: dict[str, dict[str, str]] = {
    "synchronous": {"method": f"preset: hierfavg, group_rounds: 2, {SGD}", "rounds": "12"},
    "stateful": {"method": f"preset: scaffold, group_rounds: 2, {LOCAL.format(rule='scaffold')}", "rounds": "20"},
    "asynchronous": {"data": "  public: 10", "method": f"preset: fedasyncseq, {SGD}", "rounds": "40"},
    "clustered": {
        "partition": "rotation, of: iid",
        "method": "preset: hicfl, local: {epochs: 5, batch_size: 16, learning_rate: 0.1}",
        "edges": "0",
        "clients": "8",
        "rounds": "16",
    },
    "distilling": {
        "partition": "classes-per-client, classes: 1",
        "data": "  public: 20\n  public_set: {kind: synthetic, shape: [1, 8, 8]}",
        "method": f"preset: hfldd, training: {{images: 10, steps: 60}}, {SGD}",
        "edges": "0",
        "links": ", links: {peer: {bandwidth: 20 Mbit/s, latency: 5 ms}}",
        "rounds": "16",
    },
    "quorum-with-faults": {
        "method": f"preset: hierfavg, group_rounds: 2, wait_for_members: {{kind: quorum, share: 0.6}}, {SGD}",
        "rounds": "12",
        "more": "faults: [{kind: client-crash, every: 20 s, lasts: 8 s}, {kind: edge-outage, every: 90 s, lasts: 20 s}]",
    },
}
USUAL = {"partition": "dirichlet, alpha: 0.5", "data": "", "edges": "2", "clients": "24", "links": "", "more": ""}
# Workers begin early, so that they are there to be killed.
RUN = "from emulator.learning import engine; engine.WORKERS_AFTER_S = 0.5; from emulator.cli import main; main()"
NOT_COMPARED = ("manifest.json", ".lock")  # how a run was made; what tells others to keep away


@dataclass
class Counts:
    """What was done to runs of one kind."""

    kills: int = 0
    after_checkpoint: int = 0  # kills of runs that had a checkpoint
    ends: int = 0  # of runs that were killed before, all compared
    differing: set[str] = field(default_factory=set)


def start(scenario: Path, out: Path) -> subprocess.Popen[bytes]:
    """The command, in a process group of its own."""
    words = [sys.executable, "-c", RUN, "run", str(scenario), "--out", str(out), "--no-memo", "--workers", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with (out.parent / f"{out.name}.log").open("wb") as log:
        return subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> bool:
    """Kills a process with its workers. False: it had ended by itself."""
    if process.poll() is not None:
        return False
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return True


def to_the_end(scenario: Path, out: Path) -> float:
    """Runs the command to its end; the seconds that it took."""
    began = time.monotonic()
    process = start(scenario, out)
    if process.wait():
        raise SystemExit(f"the run failed:\n{(out.parent / f'{out.name}.log').read_text()}")
    return time.monotonic() - began


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.iterdir()) if not path.name.endswith(NOT_COMPARED))
    return {path.name: path.read_bytes() for path in files}


def compare(whole: Path, broken: Path, counts: Counts) -> None:
    wanted, found = contents(whole), contents(broken)
    counts.differing |= {name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)}
    counts.ends += 1
    shutil.rmtree(broken)


def wait_for_checkpoint(process: subprocess.Popen[bytes], folder: Path, since: float) -> None:
    """Waits until the run has written a checkpoint since an instant, or has ended."""
    file = folder / checkpoint.VALUES
    while process.poll() is None and not (file.exists() and file.stat().st_mtime > since):
        time.sleep(0.005)


def study(kind: str, folder: Path, kills: int, chance: random.Random) -> Counts:
    """Kills runs of one kind so often."""
    scenario, whole, broken = folder / "scenario.yaml", folder / "whole", folder / "broken"
    folder.mkdir(parents=True)
    scenario.write_text(f"name: {kind}\nseed: 5\n" + COMMON.format(**USUAL | KINDS[kind]))
    length = to_the_end(scenario, whole)
    counts = Counts()
    while counts.kills < kills:
        since, process = time.time(), start(scenario, broken)
        if counts.kills % 2:
            wait_for_checkpoint(process, broken, since)
            time.sleep(chance.uniform(0, 0.5) * length)
        else:
            time.sleep(chance.uniform(0, 1) * length)
        if kill(process):
            counts.kills += 1
            counts.after_checkpoint += (broken / checkpoint.VALUES).exists()
            if counts.kills % 4 and counts.kills < kills:
                continue  # and is killed again on its way
            to_the_end(scenario, broken)
        compare(whole, broken, counts)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--only", choices=KINDS, action="append")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--folder", type=Path, help="where the runs are kept; an empty one, or none yet")
    args = parser.parse_args()
    root, chance = args.folder or Path(tempfile.mkdtemp()), random.Random(args.seed)
    print(f"{'kind':20}{'kills':>7}{'after a checkpoint':>20}{'ends compared':>15}{'differing files':>17}")
    differing = set()
    for kind in args.only or KINDS:
        counts = study(kind, root / kind, args.kills, chance)
        differing |= counts.differing
        named = ", ".join(sorted(counts.differing)) or "none"
        print(f"{kind:20}{counts.kills:7}{counts.after_checkpoint:20}{counts.ends:15}{named:>17}", flush=True)
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
