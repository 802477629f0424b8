"""Scenarios small enough for a testbed of a few processes, and runs of them."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from emulator.assembly import assemble, play
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.scenario import Loaded
from emulator.scenario.load import check, override
from emulator.testbed.run import How, execute
from emulator.testbed.world import MeasuredSession
from emulator.yamlfile import parse

DEVICE = """
title: slow enough for a few of them to be on one host
source: made up
effective_speed: 1 GFLOP/s
batch_overhead: 20 ms
core_slowdown: 20
power: {idle: 1 W, compute: 3 W, send: 2 W, receive: 2 W}
group_operations:
  secure-aggregation: {a: 10 ms, b: 5 ms, c: 1 ms}
"""

SCENARIO = """
name: bench
seed: 3
data:
  set: {kind: synthetic}
  partition: {kind: dirichlet, alpha: 0.5, samples_per_client: 12}
model: {kind: mlp, hidden: [8]}
topology:
  edges: 2
  clients: 4
  devices: device.yaml
  links:
    access: {up: 8 Mbit/s, down: 16 Mbit/s, latency: 5 ms}
    backhaul: {up: 80 Mbit/s, down: 160 Mbit/s, latency: 2 ms}
method:
  preset: hierfavg
  group_rounds: 2
  group_operation: none
  local: {epochs: 1, batch_size: 4, learning_rate: 0.1}
stop: {rounds: 2}
output: {plot: false}
"""


def scenario(folder: Path, **changes: Any) -> Loaded:
    """The scenario above with changes by key (``__`` for a dot)."""
    (folder / "device.yaml").write_text(DEVICE)
    path = folder / "scenario.yaml"
    path.write_text(SCENARIO.replace("device.yaml", str(folder / "device.yaml")))
    document = parse(path.read_text(), str(path))
    given = {"topology.devices": str(folder / "device.yaml")}
    given |= {key.replace("__", "."): value for key, value in changes.items()}
    for key, value in given.items():
        override(document, f"{key}={json.dumps(value)}")
    return check(document)


def measured(loaded: Loaded, folder: Path, how: How = How(kernel=False)) -> dict[str, Any]:  # noqa: B008
    """A run on the testbed; ``models`` in what it returns are the global models of its evaluations, the first one first."""
    models: list[Tensor] = []
    before = MeasuredSession.evaluate_now

    @functools.wraps(before)
    def evaluate_now(self: MeasuredSession) -> None:
        models.extend(value for _, clusters in self._waiting for value in map(self.lab.value, clusters.models))
        before(self)

    MeasuredSession.evaluate_now = evaluate_now  # type: ignore[method-assign]
    try:
        return execute(loaded, folder, how) | {"models": models}
    finally:
        MeasuredSession.evaluate_now = before  # type: ignore[method-assign]


def emulated(loaded: Loaded) -> tuple[list[Tensor], pd.DataFrame]:
    """The same, emulated: the global models of evaluations, and the metrics."""
    models: list[Tensor] = []
    memo = Memo(None)
    lab = Lab(loaded.scenario, RunMemory(memo, {}))
    try:
        session = assemble(loaded.scenario, lab)
        tested = session.tested

        def note(number: int, clusters: Any) -> dict[str, float]:
            models.extend(map(lab.value, clusters.models))
            return tested(number, clusters)

        session.tested = note  # type: ignore[method-assign]
        session.world.watch()
        play(session)
        return models, pd.DataFrame(session.metrics)
    finally:
        lab.close()
        memo.close()


def same(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    """Whether two lists of models are equal, bit for bit."""
    return len(ours) == len(theirs) and all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def ledger(folder: Path) -> pd.DataFrame:
    """The rows of a run."""
    return pd.read_parquet(folder / "ledger.parquet")


def sums(rows: pd.DataFrame) -> Mapping[str, int]:
    """Bytes of done transfers by hop."""
    done = rows[(rows.kind == "transfer") & (rows.status == "done")]
    found: dict[str, int] = done.groupby("hop", observed=True).bytes.sum().to_dict()
    return found
