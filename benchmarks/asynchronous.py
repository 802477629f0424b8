"""How much longer asynchronous runs take on this machine than a synchronous one with as many trainings, as whole commands.

    python benchmarks/asynchronous.py [--rounds 20] [--repeats 3]

100 clients of 50 samples of 28×28 and the CNN of 18,378 parameters, on phones of seven-fold different speeds and twenty-fold
different bandwidths. FedAvg trains all of them in every round. FedAsync, FedBuff and edges under an asynchronous cloud go on
until as many results were taken in; they are evaluated as often, so as seldom in versions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from emulator.machine import cores

CLIENTS, EDGES = 100, 5
SCENARIO = """
name: asynchronous benchmark
data:
  set: {{kind: synthetic, shape: [1, 28, 28], train_samples: 5000, test_samples: 1000}}
  partition: {{kind: dirichlet, alpha: 0.5, samples_per_client: 50}}
model: cnn-fashion-mnist
topology: {{edges: 5, clients: 100, devices: {{mix: phone-mix, median: raspberry-pi-4b, bandwidth: true}}}}
method: {{{method}, local: {{batch_size: 10}}}}
stop: {{rounds: {rounds}}}
evaluate: {{every: {every}}}
"""
# The words of the method, and how many results a version of the global model takes in.
METHODS = {
    "fedavg": ("preset: fedavg", CLIENTS),
    "fedasync": ("preset: fedasync", 1),
    "fedasync, 10 at work": ("preset: fedasync, at_work: 10", 1),
    "fedbuff": ("preset: fedbuff, at_work: 50", 10),
    "async-cloud": ("preset: async-cloud", CLIENTS // EDGES),
}


def timed(scenario: Path, folder: Path) -> tuple[float, int]:
    """Seconds of a whole command, and the trainings that it made."""
    began = time.perf_counter()
    words = ["run", str(scenario), "--out", str(folder), "--no-memo"]
    subprocess.run([sys.executable, "-m", "emulator", *words], check=True, stdout=subprocess.DEVNULL)
    taken_s = time.perf_counter() - began
    return taken_s, json.loads((folder / "manifest.json").read_text())["trainings"]["computed"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="rounds of FedAvg")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    best: dict[str, float] = {}
    trainings: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as place:
        for repeat in range(given.repeats):
            for number, (name, (method, results)) in enumerate(METHODS.items()):
                every = CLIENTS // results
                scenario = Path(place) / f"{number}.yaml"
                scenario.write_text(SCENARIO.format(method=method, rounds=given.rounds * every, every=every))
                taken_s, trainings[name] = timed(scenario, Path(place) / f"run-{number}-{repeat}")
                best[name] = min(best.get(name, taken_s), taken_s)
    print(f"{cores()} cores, best of {given.repeats}")
    for name, seconds in best.items():
        ratio = seconds / best["fedavg"]
        print(f"{name:22} {seconds:7.2f} s   {ratio:5.2f}× of FedAvg   {trainings[name]:,} trainings")


if __name__ == "__main__":
    main()
