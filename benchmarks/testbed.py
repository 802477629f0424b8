"""The emulator against processes on this host: the same scenario emulated and measured, and how far the clock is off.

    sudo .venv/bin/python benchmarks/testbed.py [--rounds 10] [--clients 8] [--out runs/testbed] [--only rounds order crash]

It first measures this host: seconds of a sample of the scenario's own network, by a core, and the constants of secure aggregation
here. From them it writes a device that is so many times slower (``--slowdown``), and runs

- ``rounds``: hierarchical FedAvg in clear and with secure aggregation: errors of the mean round, of each phase, of bytes;
- ``order``: three methods, and who is first at an accuracy, emulated and measured;
- ``crash``: a client whose process is killed in the middle of a round: who took part in each round, emulated and measured.

Run it on a host that does nothing else. Its figures are seconds of this machine: they differ from run to run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from devices.profile import Power
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.timing import TimingLab
from emulator.learning.trainer import TrainJob
from emulator.run import execute as emulate
from emulator.scenario import Loaded, dump
from emulator.scenario.load import check, override
from emulator.testbed.dry import rule_of
from emulator.testbed.nursery import Ground, Nursery
from emulator.testbed.run import How, execute
from emulator.yamlfile import parse

SCENARIO = """
name: testbed
seed: 1
data:
  set: digits
  partition: {kind: dirichlet, alpha: 0.5}
model: {kind: mlp, hidden: [512]}
topology:
  edges: 2
  clients: 8
  devices: raspberry-pi-4b
  links:
    access: {up: 10 Mbit/s, down: 20 Mbit/s, latency: 10 ms}
    backhaul: {up: 100 Mbit/s, down: 100 Mbit/s, latency: 5 ms}
method:
  preset: hierfavg
  group_rounds: 2
  group_operation: none
  local: {epochs: 4, batch_size: 10, learning_rate: 0.05}
stop: {rounds: 10}
output: {plot: false}
"""
SECURE = {"method.group_operation": {"kind": "secure-aggregation", "model": "protocol", "dropout": 0.0}}
LOCAL = {"epochs": 4, "batch_size": 10, "learning_rate": 0.05}
METHODS: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {"method": {"preset": "fedavg", "local": LOCAL}},
    "hierfavg": {"method": {"preset": "hierfavg", "group_operation": "none", "group_rounds": 2, "local": LOCAL}},
    "fedseq": {
        "method": {"preset": "fedseq", "formation": {"kind": "random", "size": 4}, "local": LOCAL},
        "data.public": 2,
    },
}
TARGET = 0.9
SERVER = "server.yaml"


def loaded(device: Path, changes: Mapping[str, Any]) -> Loaded:
    """The scenario with changes by key, on a device."""
    document = parse(SCENARIO, "benchmarks/testbed.py")
    server = str(device.with_name(SERVER))
    fleet = {"topology.devices": str(device), "topology.edge_device": server, "topology.cloud_device": server}
    for key, value in {**fleet, **changes}.items():
        override(document, f"{key}={json.dumps(value)}")
    return check(document)


def calibrate(folder: Path, slowdown: float, changes: Mapping[str, Any], constants: Path) -> Path:
    """The profile of a device that is so many times slower than a core here: by the scenario's own network and batches.

    Beside it stand that of a server, which is a core of this host, and the constants of secure aggregation here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    words = ["calibrate", "secure-aggregation", "--parameters", "40000", "--overwrite", "--out", str(constants)]
    subprocess.run([sys.executable, "-m", "emulator", *words], check=True, stdout=subprocess.DEVNULL)
    device, server = folder / "device.yaml", folder / SERVER
    profile: dict[str, Any] = {
        "title": "a core of this host",
        "source": "benchmarks/testbed.py",
        "effective_speed": "1 GFLOP/s",
        "batch_overhead": "0 s",
        "core_slowdown": 1.0,
        "power": dict.fromkeys(Power.model_fields, "1 W"),
        "group_operations": {},
    }
    server.write_text(json.dumps(profile))
    what = loaded(server, changes)
    with contextlib.closing(Memo(None)) as memo:
        lab = TimingLab(what.scenario, RunMemory(memo, {}))
        facts, held = lab.model_facts, lab.clients.samples
    rule = rule_of(what.scenario)
    batch = rule.params.batch_size
    scenario = folder / "scenario.yaml"
    scenario.write_text(dump(what.scenario))
    nursery = Nursery(Ground(scenario, sys.path, [], {}))
    try:
        nursery.ready()
        # Clients of few and of many samples: what a sample takes is the same for all in the model of the clock.
        order = np.argsort(held, kind="stable")
        seconds = [nursery.probe(TrainJob(torch.empty(0), int(c), rule, 1, 0)) for c in order]
    finally:
        nursery.close()
    sample_s = sum(seconds) / float(held.sum()) / rule.params.epochs
    print(f"a core of this host trains a sample in {1e6 * sample_s:.1f} us; devices are {slowdown:g} times slower")
    measured = {
        "model": what.scenario.model.kind,
        "forward_flops": facts.forward_flops,
        "parameters": facts.parameters,
        "batch_size": batch,
        "seconds": f"{sample_s * slowdown * 1e6:.5g} us",
        "source": "benchmarks/testbed.py",
    }
    slower = {"title": f"{slowdown:g} times slower than a core of this host", "core_slowdown": slowdown}
    device.write_text(json.dumps(profile | slower | {"measured": [measured]}))
    return device


def phases(folder: Path) -> pd.DataFrame:
    """Seconds of each phase in the mean over its rows, and of rounds."""
    rows = pd.read_parquet(folder / "ledger.parquet")
    rows = rows[(rows.status == "done") & (rows.kind != "evaluation")].assign(seconds=rows.end_s - rows.start_s)
    rows["phase"] = rows.hop.astype(str).where(rows.kind == "transfer", rows.what.astype(str))
    secure = (rows.kind == "transfer") & (rows.what == "secure-aggregation")
    rows.loc[secure, "phase"] = "messages of secure aggregation"
    found = rows.groupby("phase").seconds.agg(["mean", "count"])
    times = pd.read_csv(folder / "metrics.csv").time_s
    found.loc["round"] = [times.diff().mean(), len(times) - 1]
    return found


def both(name: str, what: Loaded, out: Path) -> tuple[Path, Path, dict[str, Any]]:
    """A scenario emulated and measured, each in a folder."""
    ours, theirs = out / f"{name}-emulated", out / f"{name}-measured"
    for folder in (ours, theirs):
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.closing(Memo(None)) as memo:
        emulate(what, ours, memo)
    began = time.monotonic()
    told = execute(what, theirs, How(), tell=lambda line: print("  ", line))
    print(f"  {name}: took {time.monotonic() - began:.0f} s in all")
    return ours, theirs, told


def error(measured: float, emulated: float) -> str:
    """By which share of what was measured the emulation is off."""
    return f"{100 * (emulated / measured - 1):+.1f} %" if measured else "-"


def compare_rounds(device: Path, constants: Path, rounds: int, clients: int, out: Path) -> None:
    """Rounds, phases and bytes, in clear and with secure aggregation."""
    secure = {"method.group_operation": {**SECURE["method.group_operation"], "constants": str(constants)}}
    for name, changes in (("clear", {}), ("secure", secure)):
        what = loaded(device, {**changes, "stop.rounds": rounds, "topology.clients": clients})
        ours, theirs, told = both(name, what, out)
        print(
            f"{name}: {clients} clients, {rounds} rounds, a device is {told['testbed']['shares_of_a_core']['client-0']} core"
        )
        table = pd.concat([phases(ours).add_suffix("_emulated"), phases(theirs).add_suffix("_measured")], axis=1)
        for phase, row in table.iterrows():
            means = row["mean_measured"], row["mean_emulated"]
            print(f"  {phase:32} {means[1]:9.4f} s emulated {means[0]:9.4f} s measured {error(*means):>9}")
        read = [pd.read_csv(folder / "metrics.csv") for folder in (ours, theirs)]
        sent = [int(each.bytes_total.iloc[-1]) for each in read]
        print(f"  bytes: {sent[0]:,} emulated, {sent[1]:,} measured, {error(sent[1], sent[0])}")
        wire = sum(told["testbed"]["bytes_on_the_wire"].values())
        print(f"  bytes on the wire, with all headers, over all links: {wire:,}")
        same = (read[0].accuracy == read[1].accuracy).all()
        off = (read[0].loss - read[1].loss).abs().max()
        print(f"  accuracy by round {'is the same' if same else 'DIFFERS'}; losses differ by {off:.1e} at most")


def compare_order(device: Path, rounds: int, clients: int, out: Path) -> None:
    """Who is first at an accuracy."""
    reached: dict[str, list[float]] = {}
    for name, changes in METHODS.items():
        what = loaded(device, {**changes, "stop.rounds": 3 * rounds, "topology.clients": clients})
        folders = both(name, what, out)[:2]
        for folder in folders:
            rows = pd.read_csv(folder / "metrics.csv")
            first = rows[rows.accuracy >= TARGET].time_s
            reached.setdefault(name, []).append(float(first.iloc[0]) if len(first) else float("inf"))
    for name, (emulated, measured) in reached.items():
        print(f"  {name:10} {TARGET:.0%} after {emulated:.2f} s emulated, {measured:.2f} s measured")
    orders = [sorted(reached, key=lambda name, i=i: reached[name][i]) for i in (0, 1)]  # type: ignore[misc]
    print(f"  order emulated {' < '.join(orders[0])}; measured {' < '.join(orders[1])}")


def members(folder: Path) -> dict[int, list[str]]:
    """Whose models came in, by round."""
    rows = pd.read_parquet(folder / "ledger.parquet")
    ups = rows[(rows.hop == "client-server") & (rows.status == "done") & (rows.what == "model")]
    return {int(number): sorted(set(own.who.astype(str))) for number, own in ups.groupby("round")}


def compare_crash(device: Path, clients: int, out: Path) -> None:
    """A client that is killed in the middle of the second round and comes back in the fourth."""
    plain = loaded(device, {"stop.rounds": 2, "topology.clients": clients})
    folder = out / "crash-plan"
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.closing(Memo(None)) as memo:
        emulate(plain, folder, memo)
    ends = pd.read_csv(folder / "metrics.csv").time_s.tolist()
    round_s = ends[2] - ends[1]
    fault = {
        "kind": "client-crash",
        "clients": [1],
        "at": [f"{ends[1] + round_s / 4} s"],
        "lasts": f"{1.8 * round_s} s",
    }
    what = loaded(device, {"stop.rounds": 6, "topology.clients": clients, "faults": [fault]})
    ours, theirs, _ = both("crash", what, out)
    emulated, measured = members(ours), members(theirs)
    for number in sorted({*emulated, *measured}):
        same = emulated.get(number) == measured.get(number)
        gone = sorted(set(emulated.get(number, [])) ^ set(measured.get(number, [])))
        print(
            f"  round {number}: {len(measured.get(number, []))} clients, {'the same' if same else f'DIFFERENT: {gone}'}"
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Says how busy the host was."""
    before = os.getloadavg()[0]
    yield
    print(f"load average {before:.2f} before, {os.getloadavg()[0]:.2f} after (the run itself is part of the latter)")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--slowdown", type=float, default=8.0, help="of devices against a core of this host")
    parser.add_argument("--out", type=Path, default=Path("runs/testbed"))
    parser.add_argument("--only", nargs="+", choices=("rounds", "order", "crash"), default=("rounds", "order", "crash"))
    asked = parser.parse_args()
    constants = asked.out / "secagg.yaml"
    with quiet():
        device = calibrate(asked.out, asked.slowdown, {"topology.clients": asked.clients}, constants)
        if "rounds" in asked.only:
            compare_rounds(device, constants, asked.rounds, asked.clients, asked.out)
        if "order" in asked.only:
            compare_order(device, asked.rounds, asked.clients, asked.out)
        if "crash" in asked.only:
            compare_crash(device, asked.clients, asked.out)


if __name__ == "__main__":
    main()
