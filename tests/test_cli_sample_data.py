"""``hfl sample-data`` from outside, and a run on what it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenario.command import TINY, Done, hfl

from emulator.learning.data.generated import KINDS


def test_it_writes_a_set_that_a_run_reads(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "[set]"
    made = hfl("sample-data", "usc-had", folder, "--owners", "3", "--samples", "2", "--seed", "5")
    what = f"wrote {folder}: 72 files, 3 people to train, about 2 trials of each activity a person\n"
    assert made == Done(0, what, "")
    assert sorted(p.name for p in folder.iterdir()) == ["Subject1", "Subject2", "Subject3"]
    scenario = tmp_path / "s.yaml"
    scenario.write_text(TINY)
    changes = [
        f"data.set={{kind: usc-had, path: '{folder}', window: 50}}",
        "data.partition=natural",
        "topology.clients=3",
        "topology.edges=1",
        "stop.rounds=1",
    ]
    words = [word for change in changes for word in ("--set", change)]
    assert hfl("validate", scenario, *words).code == 0
    done = hfl("run", scenario, "--out", tmp_path / "run", "--workers", "1", *words)
    assert done.code == 0, done.err
    assert "accuracy" in done.out


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_folder_will_do(tmp_path: Path, kind: str) -> None:
    (tmp_path / "set").mkdir()
    made = hfl("sample-data", kind, tmp_path / "set", "--owners", "2", "--samples", "1")
    assert (made.code, made.err) == (0, "")
    assert "2 people to train, about 1 " in made.out
    assert [p.name for p in tmp_path.iterdir()] == ["set"]
    assert any((tmp_path / "set").iterdir())


def test_what_is_there_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "set" / "mine.txt"
    file.parent.mkdir()
    file.write_text("mine")
    full = hfl("sample-data", "usc-had", tmp_path / "set")
    assert full == Done(2, "", f"error: {tmp_path / 'set'} is not empty; name a new folder\n")
    assert hfl("sample-data", "usc-had", file) == Done(2, "", f"error: {file} is a file; name a folder\n")
    assert file.read_text() == "mine"
    below = hfl("sample-data", "usc-had", file / "set")
    assert below.code == 2
    assert str(file) in below.err


def test_an_unknown_kind_is_said(tmp_path: Path) -> None:
    said = hfl("sample-data", "leaf", tmp_path / "set")
    assert said.code == 2
    assert said.err.startswith("error: unknown kind of sample data 'leaf'; ")
    assert not (tmp_path / "set").exists()


def test_the_help_names_every_kind() -> None:
    said = hfl("sample-data", "--help")
    assert said.code == 0
    for kind in KINDS:
        assert kind in said.out
