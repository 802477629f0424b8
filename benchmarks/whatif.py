"""How much faster a what-if is than the run that it asks about, both as whole commands.

    python benchmarks/whatif.py [--rounds 50]

The run has the size of one edge of Group-FEL's setting: 100 clients of 110 samples (20 to 200 there), K = 5 group rounds of E = 2
epochs, hierarchical FedAvg on 5 edges, samples of 28×28 and the CNN of 18,378 parameters. The what-if changes the bandwidth of
the clients' uplinks.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCENARIO = """
name: what-if benchmark
data:
  set: {{kind: synthetic, shape: [1, 28, 28], train_samples: 11000, test_samples: 2000}}
  partition: {{kind: dirichlet, alpha: 0.5, samples_per_client: 110}}
model: cnn-fashion-mnist
topology: {{edges: 5, clients: 100}}
method:
  preset: hierfavg
  group_rounds: 5
  local: {{epochs: 2, batch_size: 10}}
stop: {{rounds: {rounds}}}
"""


def timed(*words: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "emulator", *words, "--no-memo"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        scenario, run = Path(folder) / "scenario.yaml", Path(folder) / "run"
        scenario.write_text(SCENARIO.format(rounds=rounds))
        run_s = timed("run", str(scenario), "--out", str(run))
        change = "topology.links.access.up=2 Mbit/s"
        whatif_s = min(
            timed("whatif", str(run), "--set", change, "--out", str(Path(folder) / f"answer-{i}")) for i in range(3)
        )
    print(f"run {run_s:.1f} s, what-if {whatif_s:.2f} s: {run_s / whatif_s:.0f}×")


if __name__ == "__main__":
    main()
