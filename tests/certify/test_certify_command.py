"""``hfl certify`` as a command: what it prints, and what it refuses."""

from __future__ import annotations

import shlex
from pathlib import Path

import pandas as pd
import pytest
from certify_samples import UNCERTAIN, run
from scenario.command import hfl

MATRIX = """
uncertain:
  quantities:
    topology.links.access.up: {kind: uniform, low: 1 Mbit/s, high: 2 Mbit/s}
    topology.links.access.down: {kind: uniform, low: 1 Mbit/s, high: 2 Mbit/s}
    topology.links.backhaul.up: {kind: uniform, low: 1 Mbit/s, high: 2 Mbit/s}
  correlations:
    - among: [topology.links.access.up, topology.links.access.down, topology.links.backhaul.up]
      matrix: [[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("command")
    for method in ("group-fel", "hierfavg"):
        run(folder / "runs", method)
    (folder / "uncertain.yaml").write_text(UNCERTAIN)
    (folder / "matrix.yaml").write_text(MATRIX)
    return folder


@pytest.fixture(autouse=True)
def _there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def test_a_folder_of_runs_is_certified_and_its_worlds_can_be_typed(place: Path) -> None:
    words = ["certify", "runs", "--uncertain", "uncertain.yaml", "--worlds", "4", "--indices", "0", "--no-tipping"]
    done = hfl(*words, "--jobs", "1", "--out", "made")
    assert done.code == 0, done.err
    assert "4 worlds, 8 outcomes" in done.out
    outcomes = pd.read_parquet("made/outcomes.parquet")
    shown = hfl(*words, "--show-world", "2")
    lines = [shlex.split(line) for line in shown.out.splitlines()]
    assert [line[:2] for line in lines] == [["hfl", "whatif"]] * 2
    # What the command says is the world: its what-if gives the same figures.
    typed = hfl(*lines[1][1:], "--out", "typed", "--no-memo")
    assert typed.code == 0, typed.err
    last = pd.read_csv("typed/metrics.csv")
    row = outcomes[(outcomes["world"] == 2) & (outcomes["method"] == "hierfavg")].iloc[0]
    column = next(name for name in outcomes.columns if name.startswith("time_to_"))
    reached = last[last["accuracy"] >= float(column.split("_")[2])]
    assert row[column] == (reached["time_s"].iloc[0] if len(reached) else float("inf"))
    beyond = hfl(*words, "--show-world", "4")
    assert beyond.code == 2
    assert "numbered from 0 to 3" in beyond.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("runs", "nowhere"), "'nowhere' is no folder"),
        (("nowhere",), "no such bundled study"),
        (("runs", "--uncertain", "runs/hierfavg-1/scenario.yaml"), "has no section 'uncertain'"),
        (("runs", "--budget", "time=60"), "--budget time=60: "),
        (("runs", "--budget", "patience=60 s"), "the axis is one of time"),
        (("runs", "--budget", "time=60 MB"), "is no amount of time"),
        (("runs", "--target", "80"), "for 80 per cent write 0.8"),
        (("runs", "--indices", "3"), "is a power of two"),
        (("runs", "--train-at-most", "2"), "has no unit"),
        (("runs", "--uncertain", "matrix.yaml"), "matrix.yaml:8:5: uncertain.correlations: these are no correlations"),
    ],
)
def test_bad_input_is_refused(words: tuple[str, ...], why: str) -> None:
    done = hfl("certify", *words, "--out", "refused")
    assert done.code == 2, done.out + done.err
    assert why in done.err
    assert not Path("refused/certificate.yaml").exists()
