"""Studies that run in a moment."""

from __future__ import annotations

from pathlib import Path

from scenario.command import TINY

STUDY = """
name: tiny study
scenario: tiny.yaml
set: {stop.rounds: 3}
variants:
  two: {method.group_rounds: 2}
  one: {method: fedavg, method.local: {batch_size: 4, learning_rate: 0.1}}
grid:
  data.partition.alpha: [0.3, 3.0]
seeds: 2
"""


def write_study(folder: Path, text: str = STUDY, scenario: str = TINY) -> Path:
    """A study file beside its scenario ``tiny.yaml``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tiny.yaml").write_text(scenario)
    path = folder / "study.yaml"
    path.write_text(text)
    return path
