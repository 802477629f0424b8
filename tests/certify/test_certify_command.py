"""``hfl certify`` as a command: what it prints, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from certify_samples import UNCERTAIN, run
from patience import PATIENCE_S


def hfl(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "emulator", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("command")
    for method in ("group-fel", "hierfavg"):
        run(folder / "runs", method)
    (folder / "uncertain.yaml").write_text(UNCERTAIN)
    return folder


def test_a_folder_of_runs_is_certified_and_its_worlds_can_be_typed(place: Path) -> None:
    words = ["certify", "runs", "--uncertain", "uncertain.yaml", "--worlds", "4", "--indices", "0", "--no-tipping"]
    done = hfl(place, *words, "--jobs", "1", "--out", "made")
    assert done.returncode == 0, done.stderr
    assert "4 worlds, 8 outcomes" in done.stdout
    assert (place / "made" / "outcomes.parquet").is_file()
    shown = hfl(place, *words, "--show-world", "2")
    lines = shown.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("hfl whatif ") and "topology.links.access.up=" in line for line in lines)
    beyond = hfl(place, *words, "--show-world", "4")
    assert beyond.returncode == 2
    assert "numbered from 0 to 3" in beyond.stderr


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
        (("runs", "--uncertain", "matrix.yaml"), "matrix.yaml:5:3: uncertain.correlations: these are no correlations"),
    ],
)
def test_bad_input_is_refused(place: Path, words: tuple[str, ...], why: str) -> None:
    (place / "matrix.yaml").write_text(
        "uncertain:\n  quantities:\n    topology.links.access.up: {kind: uniform, low: 1 Mbit/s, high: 2 Mbit/s}\n"
        "    topology.links.access.down: {kind: uniform, low: 1 Mbit/s, high: 2 Mbit/s}\n"
        "  correlations:\n"
        "    - among: [topology.links.access.up, topology.links.access.down, topology.links.backhaul.up]\n"
        "      matrix: [[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]]\n"
        .replace("  correlations", "    topology.links.backhaul.up: {kind: uniform, low: 1 Mbit/s, high: 2 Mbit/s}\n  correlations")
    )  # fmt: skip
    done = hfl(place, "certify", *words, "--out", "refused")
    assert done.returncode == 2, done.stdout + done.stderr
    assert why.replace("5:3", "6:3") in done.stderr
    assert "Traceback" not in done.stderr
    assert not (place / "refused" / "certificate.yaml").exists()
