"""What Ray costs on one machine: the same run with two local workers, and with two workers of a Ray instance.

    python benchmarks/cluster.py [--repeats 3] [--rounds 12] [--workers 2]

Whole commands, one after the other in turn, so that both meet the same noise: starting Ray, importing everything in its
processes and ending it are counted. Prints every time, the ratio of the best ones, and whether the results are the same.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCENARIO = """
name: minute
data:
  set: {kind: synthetic, shape: [1, 28, 28], train_samples: 12000, test_samples: 1000}
  partition: {kind: dirichlet, alpha: 0.5, samples_per_client: 200}
model: cnn-fashion-mnist
topology: {edges: 2, clients: 40}
method: {preset: hierfavg, group_rounds: 5, local: {epochs: 2, batch_size: 10}}
output: {plot: false}
"""


def timed(folder: Path, name: str, *words: str) -> float:
    """Seconds that a run takes as a command."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "emulator", "run", str(folder / "minute.yaml"), "--out", str(folder / name)]
    subprocess.run([*command, "--no-memo", "--overwrite", *words], check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    words = ("--set", f"stop.rounds={asked.rounds}", "--workers", str(asked.workers))
    ways = {"local": words, "ray": (*words, "--backend", "ray")}
    times: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "minute.yaml").write_text(SCENARIO)
        for _ in range(asked.repeats):
            for name, given in ways.items():
                times[name].append(timed(folder, name, *given))
                print(f"{name:6} {times[name][-1]:6.1f} s", flush=True)
        ratio = min(times["ray"]) / min(times["local"])
        same = all(
            (folder / "local" / file).read_bytes() == (folder / "ray" / file).read_bytes()
            for file in ("metrics.csv", "ledger.parquet", "summary.json", "memory.json")
        )
    print(f"ray / local: {ratio:.2f}; results {'the same, bit for bit' if same else 'DIFFER'}")


if __name__ == "__main__":
    main()
