"""How a study should divide the cores: as many runs at a time as there are cores, or one run after another on all cores.

    python benchmarks/studies.py [--repeats 3]

Four runs each, as whole commands: short ones of a small model (the quickstart), and longer ones of a
CNN. Prints the best wall-clock time of each way, and the CPU time that it took.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from emulator.machine import cores

STUDIES = {
    "small model, 20 rounds": "name: small\nscenario: quickstart\nseeds: 4\n",
    "CNN on 28x28, 36 clients, 2 rounds": """
name: larger
seeds: 4
scenario:
  data:
    set: {kind: synthetic, shape: [1, 28, 28], train_samples: 4000, test_samples: 1000}
    partition: {kind: dirichlet, alpha: 0.5, samples_per_client: 110}
  model: cnn-fashion-mnist
  topology: {edges: 2, clients: 36}
  method: {preset: hierfavg, group_rounds: 5, local: {epochs: 2, batch_size: 10}}
  stop: {rounds: 2}
""",
}


def timed(file: Path, *words: str) -> tuple[float, float]:
    """Seconds of the clock and of the processors that a study takes."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "emulator", "study", str(file), "--out", out, "--no-memo", *words]
        subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    ways = {
        f"{cores()} runs at a time, 1 worker each": ("--jobs", str(cores()), "--workers", "1"),
        f"1 run at a time, {cores()} workers": ("--jobs", "1", "--workers", str(cores())),
    }
    with tempfile.TemporaryDirectory() as folder:
        for title, text in STUDIES.items():
            file = Path(folder) / "study.yaml"
            file.write_text(text)
            print(f"4 runs: {title}")
            taken: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
            for _ in range(repeats):  # the ways in turn, so that what else the machine does disturbs both
                for way, words in ways.items():
                    taken[way].append(timed(file, *words))
            for way, pairs in taken.items():
                print(f"  {way:35} {min(p[0] for p in pairs):6.1f} s   (CPU {min(p[1] for p in pairs):.1f} s)")


if __name__ == "__main__":
    main()
