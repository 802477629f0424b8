"""How long one synchronous round takes without training, and how much memory, from a thousand clients to a million.

    python benchmarks/scale.py [--clients 1000 10000 100000 1000000] [--per-edge 100] [--rounds 1] [--set KEY=VALUE ...]
    python benchmarks/scale.py --transports [--repeats 3]     tcp against fluid, in turn, best to best
    python benchmarks/scale.py --fleets [--repeats 3]         a fleet whose rows all differ against equal clients
    python benchmarks/scale.py --worlds port different tree   the same sizes where links are too narrow for all who cross them

Every size is a whole command, `hfl run SCENARIO --no-training`, in a process of its own: Python's start, the fleet, label counts
told to the servers, groups, the round, and the ledger's file. Clients of four kinds of devices stand behind edges in groups of
ten or more with secure aggregation; the clients of an edge share its cell, and its groups its backhaul, max-min fairly. Facts
about the model are remembered from a command before, which is not counted.

In the world `port` the cloud's own link, of 20 kbit/s a client, is too narrow for all edges that send at once. In `different`
every client has its own device, bandwidths and latency, in cells. In `tree` there are five tiers of servers between the cloud
and such clients, each server with a link of its own, and groups at the lowest tier send their models over all of them.

Growth is that of the seconds of processors, which depend least on what else runs on the machine.

The aims, on two cores and a quiet machine: 100,000 clients in the world `equal` in under 12 s, and in `port` and `tree` in under
15 s; a million equal ones in under 3 minutes and 6 GB; time grows no faster than n log n.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

SCENARIO = """
name: scale
seed: 1
data:
  set: {kind: synthetic, train_samples: 60000}
  partition: {kind: dirichlet, alpha: 0.5, sizes: normal, min_samples: 10, max_samples: 30}
model: {kind: mlp, hidden: [64]}
topology:
  edges: 10
  clients: 1000
  devices: {raspberry-pi-4b: 0.3, raspberry-pi-3b-plus: 0.2, android-mid: 0.3, android-high: 0.2}
  links:
    access: {up: 10 Mbit/s, down: 50 Mbit/s, latency: 15 ms}
    cell: {up: 200 Mbit/s, down: 400 Mbit/s}
    backhaul: {up: 1 Gbit/s, down: 1 Gbit/s, latency: 10 ms}
method:
  preset: hierfavg
  formation: {kind: random, size: 10}
  sampling: {kind: rcov, share: 1.0}
  group_rounds: 1
stop: {rounds: 1}
"""


def measured(folder: Path, scenario: Path, out: str, *changes: str) -> tuple[float, float, float, float, int]:
    """Seconds of a whole command, of the run in it and of processors; its peak memory in bytes, and the rows of its ledger."""
    words = [word for change in changes for word in ("--set", change)]
    command = [sys.executable, "-m", "emulator", "run", str(scenario), "--no-training", "--out", str(folder / out)]
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--memo", str(folder / "memo.sqlite"), *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(errors.decode())
    run_s = json.loads((folder / out / "manifest.json").read_text())["wall_s"]
    rows = pq.ParquetFile(folder / out / "ledger.parquet").metadata.num_rows
    return seconds, run_s, usage.ru_utime + usage.ru_stime, 1024 * usage.ru_maxrss, rows


def compare(
    folder: Path, scenario: Path, clients: int, repeats: int, common: list[str], both: dict[str, list[str]]
) -> None:
    """Prints how many times longer the second of two takes than the first: the whole command, the run in it, and processors.

    They take turns, and the best of each counts. Seconds of processors depend least on what else runs on the machine.
    """
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in both}
    for repeat in range(repeats):
        for name, times in found.items():
            times.append(measured(folder, scenario, f"{name}-{repeat}", *common, *both[name])[:3])
    (one, first), (other, second) = (
        (name, [min(each) for each in zip(*times, strict=True)]) for name, times in found.items()
    )
    print(f"{clients:,} clients, load {os.getloadavg()[0]:.1f}")
    for what, a_s, b_s in zip(("command", "run", "processors"), first, second, strict=True):
        print(f"{what:>10}: {one} {a_s:.2f} s, {other} {b_s:.2f} s: {b_s / a_s:.2f} times")


def different(clients: int, edges: int, file: Path, tier: str = "edge") -> list[str]:
    """Changes that read clients from a file in which every row has its own device, bandwidths and latency."""
    rng = np.random.default_rng(0)
    devices = ("raspberry-pi-4b", "raspberry-pi-3b-plus", "android-mid", "android-high")
    homes = np.sort(np.arange(clients) * edges // clients)
    drawn = [rng.uniform(*limits, clients).tolist() for limits in ((5, 15), (30, 70), (5, 30))]
    columns = zip(homes.tolist(), rng.choice(devices, clients), *drawn, strict=True)
    rows = [f"client-{c},{tier}-{e},{d},{up},{down},{ms}" for c, (e, d, up, down, ms) in enumerate(columns)]
    file.write_text("\n".join(["name,parent,device,up [Mbit/s],down [Mbit/s],latency [ms]", *rows]) + "\n")
    return ["topology.clients=null", f"topology.fleet={file}"]


def tree(clients: int, folder: Path) -> list[str]:
    """Changes that read five tiers of servers and clients below them from files in which all rows differ."""
    rng = np.random.default_rng(1)
    rows = ["name,parent,tier,up [Mbit/s],down [Mbit/s],latency [ms],cell_up [Mbit/s],cell_down [Mbit/s]"]
    above, parents = "cloud", 1
    # How many clients are below a server of the tier, and what its link has to carry for a client, in Mbit/s.
    of_tiers = {
        "region": (20_000, 0.1),
        "metro": (5000, 0.2),
        "edge": (1000, 0.4),
        "site": (300, 1),
        "gateway": (100, 2),
    }
    for tier, (below, each) in of_tiers.items():
        count = max(parents, clients // below)
        for number in range(count):
            parent = "cloud" if above == "cloud" else f"{above}-{number * parents // count}"
            up, down = (rng.uniform(0.5, 1.5, 2) * each * clients / count).tolist()
            cell = rng.uniform(150, 450, 2).tolist() if tier == "gateway" else ["", ""]
            rows.append(f"{tier}-{number},{parent},{tier},{up},{down},{rng.uniform(1, 5)},{cell[0]},{cell[1]}")
        above, parents = tier, count
    (folder / "servers.csv").write_text("\n".join(rows) + "\n")
    changes = different(clients, parents, folder / "clients.csv", above)
    return [*changes, f"topology.servers={folder / 'servers.csv'}", "topology.edges=null", f"method.aggregator={above}"]


def world(name: str, clients: int, edges: int, folder: Path) -> list[str]:
    """The changes that make a world of some size."""
    equal = [f"topology.clients={clients}", f"topology.edges={edges}"]
    if name == "port":
        return [*equal, f"topology.links.cloud={{up: {20 * clients} kbit/s, down: {20 * clients} kbit/s}}"]
    if name == "different":
        return [*equal, *different(clients, edges, folder / "clients.csv")]
    return tree(clients, folder) if name == "tree" else equal


def growth(folder: Path, scenario: Path, name: str, args: argparse.Namespace) -> None:
    """Prints what commands take in a world, by the number of clients."""
    sizes, times = sorted(args.clients), []
    print(f"{name}: load {os.getloadavg()[0]:.1f}")
    print(f"{'clients':>9} {'edges':>7} {'seconds':>8} {'processors':>10} {'rows':>10} {'µs/client':>10} {'MB':>7}")
    for n in sizes:
        edges = max(1, n // args.per_edge)
        changes = [*world(name, n, edges, folder), f"stop.rounds={args.rounds}", *args.changes]
        seconds, _, processors_s, memory_bytes, rows = measured(folder, scenario, f"{name}-{n}", *changes)
        times.append(processors_s)
        each_us = seconds / n / args.rounds * 1e6
        row = f"{n:>9,} {edges:>7,} {seconds:>8.2f} {processors_s:>10.2f} {rows:>10,} {each_us:>10.1f}"
        print(f"{row} {memory_bytes / 1e6:>7,.0f}", flush=True)
        shutil.rmtree(folder / f"{name}-{n}")
    if len(sizes) > 1:
        exponent = np.polyfit(np.log(sizes), np.log(times), 1)[0]
        reference = np.polyfit(np.log(sizes), np.log([n * math.log(n) for n in sizes]), 1)[0]
        steps = zip(sizes, sizes[1:], times, times[1:], strict=False)
        last = ", ".join(f"{math.log(b / a) / math.log(m / n):.2f}" for n, m, a, b in steps)
        print(
            f"seconds of processors grow as n^{exponent:.2f}, from size to size {last} (n log n over these: n^{reference:.2f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 3000, 10_000, 30_000, 100_000])
    parser.add_argument("--per-edge", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--worlds", nargs="+", default=["equal"], choices=["equal", "port", "different", "tree"])
    parser.add_argument("--transports", action="store_true", help="compare the transports")
    parser.add_argument("--fleets", action="store_true", help="compare equal clients with clients that all differ")
    parser.add_argument("--repeats", type=int, default=3, help="of each transport")
    args = parser.parse_args()
    if args.transports or args.fleets:
        with tempfile.TemporaryDirectory() as name:
            scenario = Path(name) / "scale.yaml"
            scenario.write_text(SCENARIO)
            measured(Path(name), scenario, "first", *args.changes)
            n, edges = max(args.clients), max(args.clients) // args.per_edge
            changes = [f"topology.clients={n}", f"topology.edges={edges}", *args.changes]
            both = {"fluid": ["topology.transport=fluid"], "tcp": ["topology.transport=tcp"]}
            if args.fleets:
                both = {"equal": [], "different": different(n, edges, Path(name) / "fleet.csv")}
            compare(Path(name), scenario, n, args.repeats, changes, both)
        return
    with tempfile.TemporaryDirectory() as name:
        folder, scenario = Path(name), Path(name) / "scale.yaml"
        scenario.write_text(SCENARIO)
        measured(folder, scenario, "first", *args.changes)  # works out the facts of the model
        for each in args.worlds:
            growth(folder, scenario, each, args)


if __name__ == "__main__":
    main()
