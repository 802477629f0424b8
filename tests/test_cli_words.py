"""Words and names that are no text, or that a locale cannot show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scenario.command import ROOT, TINY, Done, hfl

NAME = os.fsdecode(b"x\xffy")  # as Python hands over what is not UTF-8


@pytest.mark.parametrize(
    "words",
    [
        ("run", "tiny.yaml", "--out", NAME),
        ("run", "tiny.yaml", f"--memo={NAME}"),
        ("study", NAME),
        ("report", NAME),
        ("export", ".", "--tensorboard", NAME),
        ("traces", "generate", "constant", f"{NAME}.csv", "--duration", "1 h", "--set", "level=1"),
    ],
    ids=lambda words: words[0],
)
def test_a_word_that_is_not_utf_8_is_refused_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    done = hfl(*words)
    assert (done.code, done.out) == (2, "")
    assert "x\\xffy" in done.err
    assert "is not text in UTF-8; give it another name" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


def in_locale(folder: Path, words: tuple[str, ...], **variables: str) -> Done:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder), "LC_ALL": "C", **variables}
    command = [sys.executable, "-m", "emulator", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("locale")
    (folder / "tiny.yaml").write_text(TINY)
    assert hfl("run", folder / "tiny.yaml", "--out", folder / "dé", "--no-memo", "--no-training").code == 0
    files = "name: s\nscenario: tiny.yaml\nseeds: [1]\nfigures: [{kind: cost-accuracy, file: é.png}]\n"
    (folder / "study.yaml").write_text(files, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("report", "dé"), 2, "'d\\xe9' cannot be read in this locale (ascii); set LC_ALL=C.UTF-8 or PYTHONUTF8=1\n"),
        (("plot", "--help"), 0, "Kinds:"),
        (("study", "study.yaml", "--no-memo"), 2, "'\\xe9' cannot stand in the name of a file here (ascii)\n"),
    ],
    ids=["report", "help", "study"],
)
def test_a_locale_that_knows_ascii_alone(folder: Path, words: tuple[str, ...], code: int, said: str) -> None:
    done = in_locale(folder, words, PYTHONUTF8="0")
    assert done.code == code
    assert said in done.out + done.err


def test_a_locale_without_a_language_is_taken_for_utf_8(folder: Path) -> None:
    done = in_locale(folder, ("report", "dé"))
    assert (done.code, done.out) == (0, "wrote dé/report.html\n")
