"""The ready scenarios of sound, movement and text, cut down to a moment: they run from made-up files to a model that learns."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from emulator.learning.memo import Memo
from emulator.run import execute
from emulator.run_folder import COMPLETE, prepare
from emulator.scenario import load

FEW = {
    "group-fel/speech": (
        "data.set.generated={owners: 4, samples: 30}",
        "data.partition=iid",
        "topology.clients=6",
        "method.formation.min_size=2",
        "method.sampling.share=1.0",
        "stop={rounds: 8}",
    ),
    "hicfl/usc-had": ("data.set.generated={owners: 4, samples: 2}", "topology.clients=4", "stop={rounds: 5}"),
    "fedseq/shakespeare-small": (
        "data.set.generated={owners: 4, samples: 40}",
        "topology.clients=4",
        "method.formation={kind: kmeans-spread, max_clients: 2, clusters: 2}",
        "method.estimator.epochs=1",
        "stop={rounds: 4}",
    ),
}


@pytest.mark.parametrize("name", FEW)
def test_a_ready_scenario_learns(name: str, tmp_path: Path) -> None:
    loaded = load(name, list(FEW[name]))
    folder = tmp_path / "run"
    prepare(folder, loaded.scenario)
    summary = execute(loaded, folder, Memo(None), max_workers=1)
    assert summary["status"] == COMPLETE
    rows = csv.DictReader((folder / "metrics.csv").read_text(encoding="utf-8").splitlines())
    losses = [float(row["loss"]) for row in rows if row["loss"]]
    assert losses[-1] < losses[0] - 0.02
    # What the folder says of the scenario is read as it was written.
    assert load(str(folder / "scenario.yaml")).scenario == loaded.scenario
