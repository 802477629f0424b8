"""Two methods, two seeds, a few rounds: what certificates are made of in these tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emulator import yamlfile
from emulator.certify.gathering import Gathered, Stated, gather, read_uncertain
from emulator.learning.memo import Memo
from emulator.run import execute
from emulator.scenario.load import check
from emulator.yamlfile import parse

SCENARIO = """
name: small
seed: {seed}
data:
  set: {{kind: synthetic}}
  partition: {{kind: dirichlet, alpha: 0.3, samples_per_client: 12}}
model: {{kind: mlp, hidden: [8]}}
topology:
  edges: 2
  clients: 8
  transport: fluid
  links:
    access: {{up: 8 Mbit/s, down: 16 Mbit/s, latency: 20 ms}}
method: {method}
stop: {{rounds: 3}}
output: {{plot: false}}
"""
LOCAL = "local: {epochs: 1, batch_size: 4, learning_rate: 0.1}"
METHODS = {
    "group-fel": f"{{preset: group-fel, formation: {{min_size: 2, max_cov: 1}}, sampling: all, group_rounds: 1, {LOCAL}}}",
    "hierfavg": f"{{preset: hierfavg, group_rounds: 2, group_operation: none, {LOCAL}}}",
    "fedasync": f"{{preset: fedasync, {LOCAL}}}",
}
UNCERTAIN = """
uncertain:
  quantities:
    topology.links.access.up: {kind: log-normal, median: 8 Mbit/s, spread: 3}
    topology.links.access.down: {name: lines, factor: {kind: uniform, low: 0.5, high: 1.5}}
    topology.links.backhaul.latency: {kind: normal, mean: 10 ms, sd: 2 ms}
    topology.devices: {kind: choice, of: [raspberry-pi-4b, {laptop: 0.5, raspberry-pi-3b-plus: 0.5}]}
  correlations:
    - {between: [topology.links.access.up, topology.links.backhaul.latency], value: -0.5}
"""


def run(folder: Path, method: str = "hierfavg", seed: int = 1, *changes: tuple[str, str]) -> Path:
    """A finished run in a folder."""
    text = SCENARIO.format(seed=seed, method=METHODS.get(method, method))
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    place = folder / f"{method.partition(':')[0].strip('{')}-{seed}"
    execute(check(parse(text, "small.yaml")), place, Memo(None), max_workers=1)
    return place


def stated(text: str = UNCERTAIN) -> Stated:
    """A section as a file has it."""
    return read_uncertain(yamlfile.parse(text, "uncertain.yaml"))


def gathered(folders: Sequence[Path], text: str = UNCERTAIN) -> Gathered:
    """Runs, and what is uncertain about them."""
    return gather(folders, stated(text))
