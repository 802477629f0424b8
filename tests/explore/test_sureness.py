"""The certificate beside the sliders: which one is taken, and what the panel says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from certificate_samples import two_lines

from analysis.certainty.certificate import load
from analysis.certainty.verdict import percent
from emulator.errors import InputError
from emulator.explore.sureness import certificate_of, panel


def about(folder: Path, runs: list[Path]) -> Path:
    """Makes a certificate be about these runs."""
    two_lines(folder, worlds=40, seeds=(1,))
    said = yaml.safe_load((folder / "certificate.yaml").read_text())
    for entry, run in zip(said["runs"], runs, strict=True):
        entry["folder"] = str(run.resolve())
    (folder / "certificate.yaml").write_text(yaml.safe_dump(said))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "runs" / name for name in ("a", "b")]
    for run in found:
        run.mkdir(parents=True)
    return found


@pytest.mark.parametrize("place", ["runs/certificate", "runs/a/sure", "mine", "runs"])
def test_a_certificate_in_or_beside_the_runs_is_taken(tmp_path: Path, runs: list[Path], place: str) -> None:
    folder = about(tmp_path / place, runs)
    found = certificate_of(runs[:1], None)
    assert found is not None
    assert found.folder.resolve() == folder.resolve()


def test_one_about_other_runs_is_not_taken_and_refused_when_given(tmp_path: Path, runs: list[Path]) -> None:
    folder = about(tmp_path / "runs" / "certificate", runs)
    other = tmp_path / "runs" / "other"
    other.mkdir()
    assert certificate_of([runs[0], other], None) is None
    with pytest.raises(InputError, match="is not about"):
        certificate_of([runs[0], other], folder)
    with pytest.raises(InputError, match="is no certificate"):
        certificate_of(runs, runs[0])


def test_a_damaged_one_that_nobody_asked_for_is_passed_over(tmp_path: Path, runs: list[Path]) -> None:
    folder = about(tmp_path / "runs" / "certificate", runs)
    (folder / "worlds.parquet").unlink()
    assert certificate_of(runs, None) is None
    with pytest.raises(InputError, match=r"worlds\.parquet"):
        certificate_of(runs, folder)


def test_the_panel_says_how_sure_and_what_decides(tmp_path: Path, runs: list[Path]) -> None:
    certificate = load(about(tmp_path / "c", runs))
    text = panel(certificate, certificate.measures[0])
    better = certificate.against("A", "B", certificate.measures[0]).better
    assert f"A beats B: {percent(better.value)}" in text
    assert "first-order Sobol index" in text
    assert "bandwidth" in text
    assert text.startswith("<p class='quiet'>In all 40 worlds every run trains as it did.</p>")
