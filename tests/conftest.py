"""Shared fixtures: scenarios small enough to run in a moment, and a cache folder of the test's own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.scenario import Loaded
from emulator.scenario.load import check, override
from emulator.yamlfile import parse

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests run in as many processes as there are cores
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # begun in the background of a script: commands would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

SMALL = """
name: small
seed: 3
data:
  set: {kind: synthetic}
  partition: {kind: dirichlet, alpha: 0.3, samples_per_client: 12}
model: {kind: mlp, hidden: [8]}
topology:
  edges: 2
  clients: 8
  links:
    access: {up: 8 Mbit/s, down: 16 Mbit/s, latency: 20 ms}
    backhaul: {up: 80 Mbit/s, down: 160 Mbit/s, latency: 5 ms}
method:
  preset: hierfavg
  group_rounds: 2
  local: {epochs: 1, batch_size: 4, learning_rate: 0.1}
stop: {rounds: 2}
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def small() -> Callable[..., Loaded]:
    """Makes a small scenario; words such as ``"stop.rounds=3"`` change it as ``--set`` would."""

    def make(*changes: str) -> Loaded:
        document = parse(SMALL, "small.yaml")
        for change in changes:
            override(document, change)
        return check(document)

    return make
