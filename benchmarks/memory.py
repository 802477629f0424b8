"""Whether memory stays flat, and how high it gets.

    python benchmarks/memory.py [--rounds 500] [--clients 1000]
    python benchmarks/memory.py --long [--rounds 2000]

Prints the resident memory of the process and its workers at round 50 and at the end of a long run on many small clients (the
aim: within 5 %), and the peak for one wave of 100 clients of a million parameters (the aim: below 2.5 GB). With ``--long``, that
of a whole run of a tiny scenario, with its folder, its checkpoints and a memo on disk, every 100 rounds (the aim: within 5 % of
what it is at round 200).
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import tempfile
from pathlib import Path

from emulator.assembly import assemble
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.ledger import Ledger
from emulator.methods.session import Metrics
from emulator.run import Watcher, execute
from emulator.scenario import loads

MANY = """
name: many small clients
data:
  set: {{kind: synthetic, train_samples: 20000, test_samples: 500}}
  partition: {{kind: dirichlet, alpha: 0.5, samples_per_client: 20}}
model: {{kind: mlp, hidden: [32]}}
topology: {{edges: 10, clients: {clients}}}
method: {{preset: hierfavg, group_rounds: 1, local: {{epochs: 1, batch_size: 20}}}}
stop: {{rounds: {rounds}}}
"""
LARGE = """
name: large models
data:
  set: {kind: synthetic, shape: [3, 32, 32], train_samples: 3200, test_samples: 100}
  partition: {kind: iid, samples_per_client: 32}
model: {kind: cnn, channels: [32, 64], kernel: 5, padding: none, hidden: [592]}
topology: {edges: 1, clients: 100}
method: {preset: hierfavg, group_rounds: 1, local: {epochs: 1, batch_size: 32}}
stop: {rounds: 3}
"""


TINY = """
name: tiny
data:
  set: {{kind: synthetic, train_samples: 400, test_samples: 100}}
  partition: {{kind: dirichlet, alpha: 0.5, samples_per_client: 20}}
model: {{kind: mlp, hidden: [16]}}
topology: {{edges: 2, clients: 8}}
method: {{preset: hierfavg, group_rounds: 2, local: {{epochs: 1, batch_size: 10}}}}
stop: {{rounds: {rounds}}}
output: {{checkpoint: 1 s, plot: false}}
"""
EVERY, SETTLED = 100, 200  # rounds between two looks, and after which everything is there that a run needs


def resident_bytes(process: int | None = None, what: str = "Pss") -> int:
    """Memory of a process (Linux): PSS, pages that it shares with others divided between them, or RSS, with all of these."""
    lines = Path(f"/proc/{process or os.getpid()}/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:"))


def everyone_bytes(what: str = "Pss") -> int:
    workers = sum(resident_bytes(p.pid, what) for p in multiprocessing.active_children())
    return resident_bytes(what=what) + workers


def run(text: str, folder: Path, seen: dict[int, int]) -> None:
    """Runs a scenario and notes the resident memory after every round."""
    scenario = loads(text).scenario
    lab = Lab(scenario, RunMemory(Memo(None)))
    session = assemble(scenario, lab, Ledger(folder / "rows.parquet"))

    def on_round(round: int, metrics: Metrics) -> None:  # noqa: A002
        seen[round] = everyone_bytes()

    session.on_round = on_round
    session.env.run(session.env.process(scenario.method(session)))
    lab.close()


def run_long(rounds: int, folder: Path) -> None:
    """Prints the memory of a long run every so many rounds, and how far it gets from what it was once all was there."""
    seen: dict[int, int] = {}

    def on_round(round: int, metrics: Metrics) -> None:  # noqa: A002
        if round % EVERY == 0:
            gc.collect()
            seen[round] = everyone_bytes("Rss")  # PSS would change with what else the machine does
            print(f"round {round:5}: {seen[round] / 1e6:7.1f} MB", flush=True)

    # In one process: when workers start depends on how fast the machine is.
    memo = Memo(folder / "memo.sqlite")
    execute(loads(TINY.format(rounds=rounds)), folder / "run", memo, Watcher(on_round), max_workers=1)
    settled = seen[min(SETTLED, max(seen))]
    off = max((seen[r] / settled - 1 for r in seen if r > SETTLED), key=abs, default=0.0)
    print(f"{rounds} rounds: at most {off:+.1%} from what it is at round {SETTLED}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--long", action="store_true")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    if args.long:
        run_long(args.rounds or 2000, folder)
        return
    args.rounds = args.rounds or 500
    seen: dict[int, int] = {}
    run(LARGE, folder, seen)
    print(f"100 clients of a million parameters: at most {max(seen.values()) / 1e9:.2f} GB with all workers")
    seen.clear()
    run(MANY.format(rounds=args.rounds, clients=args.clients), folder, seen)
    early, late = seen[min(50, args.rounds)], seen[args.rounds]
    span = f"{early / 1e6:.0f} MB at round 50, {late / 1e6:.0f} MB at the end ({late / early - 1:+.1%})"
    print(f"{args.clients} clients, {args.rounds} rounds: {span}")


if __name__ == "__main__":
    main()
