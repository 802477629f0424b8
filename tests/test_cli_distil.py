"""``hfl distil`` and ``hfl topology``: what leaves clients, and to whom."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenario.command import TINY, hfl

HFLDD = (
    TINY.split("method:")[0]
    + """method:
  preset: hfldd
  estimator: label-counts
  training: {images: 4, steps: 3}
stop: {rounds: 1}
"""
)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "s.yaml"
    path.write_text(HFLDD)
    return path


def test_it_says_what_leaves_a_client_and_draws_it_beside_what_it_was(scenario: Path, tmp_path: Path) -> None:
    done = hfl("distil", scenario, "--client", "2", "--client", "5", "--plot", tmp_path / "d.png")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("client 2: 12 samples -> 4 images of 64 B, ")
    assert "correlation with the samples they began as" in lines[1]
    assert lines[-1] == f"wrote {tmp_path / 'd.png'}"
    assert (tmp_path / "d.png").stat().st_size > 1000


def test_who_sends_its_samples_as_they_are_is_told(scenario: Path) -> None:
    done = hfl("distil", scenario, "--set", "method.training.images=12", "--client", "0")
    assert done.code == 0, done.err
    assert "12 samples -> 12 images" in done.out
    assert "correlation with the samples they began as 1.00" in done.out
    assert "these are its samples as they are" in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--client", "8"), "there is no client 8; they are numbered from 0 to 7"),
        (("--set", "method=fedavg"), "the method distils nothing; 'hfldd' does"),
        (("--plot", "x.jpg"), "the name must end in one of"),
    ],
)
def test_what_cannot_be_distilled_is_refused(scenario: Path, words: tuple[str, ...], message: str) -> None:
    done = hfl("distil", scenario, *words)
    assert done.code == 2
    assert message in done.err


def test_the_topology_of_a_run_is_drawn(scenario: Path, tmp_path: Path) -> None:
    assert hfl("run", scenario, "--out", tmp_path / "run", "--no-memo").code == 0
    done = hfl("topology", tmp_path / "run", "--plot", tmp_path / "t.png")
    assert done.code == 0, done.err
    assert (tmp_path / "t.png").stat().st_size > 1000
    (tmp_path / "run" / "topology.csv").unlink()
    none = hfl("topology", tmp_path, "--plot", tmp_path / "u.png")  # the folder that holds the run will do
    assert none.code == 2
    assert "topology.csv" in none.err


def test_a_run_without_training_has_its_topology_too(scenario: Path, tmp_path: Path) -> None:
    trained, timed = tmp_path / "trained", tmp_path / "timed"
    assert hfl("run", scenario, "--out", trained, "--no-memo").code == 0
    assert hfl("run", scenario, "--out", timed, "--no-memo", "--no-training").code == 0
    assert (trained / "topology.csv").read_bytes() == (timed / "topology.csv").read_bytes()
    refused = hfl("run", scenario, "--set", "method.estimator=soft-labels", "--set", "data.public=2", "--no-training",
                  "--out", tmp_path / "x")  # fmt: skip
    assert refused.code == 2
    assert "cannot be run without training" in refused.err
