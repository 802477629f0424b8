"""How long other worlds of a finished run take: 1,000 random ones, one as the page of ``hfl explore`` replays
it, and a grid of 100.

    python benchmarks/worlds.py [--rounds 50] [--run DIR] [--worlds 1000]

The run has the shape of benchmarks/whatif.py (100 clients, 5 edges, K = 5 group rounds with secure aggregation) with a small
model, so that it is trained within two minutes: a replay takes as long whatever the model. ``--run`` takes a finished run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from whatif import SCENARIO

from emulator.explore.explorer import Explorer
from emulator.learning.memo import Memo
from emulator.replay import Replay, open_source, replay_worlds

CHANGES = {
    "bandwidth": "topology.links.access.up={} Mbit/s",
    "latency": "topology.links.backhaul.latency={} ms",
    "device mix": "topology.devices={{laptop: 0.{0}, raspberry-pi-4b: 0.{1}}}",
    "phones": "topology.devices={{mix: phone-mix, bandwidth: true}}",
    "overhead curve": "method.group_operation.c={} ms",
    "trace on access": "topology.links.access.trace={{file: lte-like}}",
    "trace on backhaul": "topology.links.backhaul.trace={{file: wifi-with-drops}}",
    "trace of speed": "topology.speed={{file: daily-load}}",
}
GRID = """
name: hundred worlds
whatif:
  runs: {run}
  grid:
    topology.links.access.up: [1 Mbit/s, 2 Mbit/s, 5 Mbit/s, 10 Mbit/s, 50 Mbit/s]
    topology.links.access.latency: [1 ms, 10 ms, 50 ms, 200 ms, 1 s]
    topology.devices: [raspberry-pi-4b, laptop, jetson-nano, {{mix: phone-mix}}]
"""


def hfl(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "emulator", *words, "--no-memo"], check=True, stdout=subprocess.DEVNULL)


def random_worlds(count: int) -> list[dict[str, object]]:
    """Worlds with links, devices and an overhead of their own, drawn from a seed."""
    draw = random.Random(1)
    devices: tuple[object, ...] = ({"mix": "phone-mix"}, {"raspberry-pi-4b": 0.7, "laptop": 0.3}, "jetson-nano")
    return [
        {
            "topology.links.access.up": f"{draw.uniform(1, 50)!r} Mbit/s",
            "topology.links.access.latency": f"{draw.uniform(1, 300)!r} ms",
            "topology.links.backhaul.up": f"{draw.uniform(20, 500)!r} Mbit/s",
            "topology.devices": draw.choice(devices),
            "method.group_operation.c": f"{draw.uniform(0.1, 9)!r} ms",
        }
        for _ in range(count)
    ]


def some_worlds(run: Path, worlds: list[dict[str, object]]) -> tuple[int, float]:
    """Replays worlds in this process; how many were known, and the seconds of its core."""
    began, memo = time.process_time(), Memo(None)
    known = sum(isinstance(each, Replay) and each.known for each in replay_worlds(open_source(run), worlds, memo))
    memo.close()
    return known, time.process_time() - began


def side_by_side(run: Path, count: int) -> None:
    worlds, began, most = random_worlds(count), time.perf_counter(), os.cpu_count() or 1
    with ProcessPoolExecutor(most, multiprocessing.get_context("spawn")) as pool:
        parts = list(pool.map(some_worlds, [run] * most, [worlds[part::most] for part in range(most)]))
    took_s, core_s = time.perf_counter() - began, sum(seconds for _, seconds in parts)
    assert sum(known for known, _ in parts) == count
    print(f"{count} random worlds in {most} processes: {took_s:.1f} s; a replay takes {core_s / count:.3f} s of a core")


def one_by_one(run: Path) -> None:
    explorer = Explorer([run], None)
    explorer.ask([], lambda: True).result()
    for name, change in CHANGES.items():
        took = []
        for i in range(1, 6):
            (answer,) = explorer.ask([change.format(i, 10 - i)], lambda: True).result()
            assert answer.replay is not None
            assert answer.replay.known
            took.append(answer.took_s)
        print(f"{name:18} median {statistics.median(took):.2f} s, longest {max(took):.2f} s")
    explorer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--worlds", type=int, default=1000, help="random worlds, several processes at a time")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = given.run
        if run is None:
            scenario, run = Path(folder) / "scenario.yaml", Path(folder) / "run"
            text = SCENARIO.format(rounds=given.rounds).replace("[1, 28, 28]", "[1, 8, 8]")
            scenario.write_text(text.replace("cnn-fashion-mnist", "{kind: mlp, hidden: [16]}"))
            hfl("run", str(scenario), "--out", str(run), "--set", "output.plot=false")
        print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        side_by_side(run, given.worlds)
        one_by_one(run)
        study = Path(folder) / "study.yaml"
        study.write_text(GRID.format(run=run.resolve()))
        began = time.perf_counter()
        hfl("study", str(study), "--out", str(Path(folder) / "out"))
        print(f"100 worlds: {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
