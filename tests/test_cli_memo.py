from __future__ import annotations

import sys
from pathlib import Path

import pytest

from emulator.cli import main
from emulator.learning.memo import Memo


def hfl(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["hfl", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_stats_clear_and_gc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "memo.sqlite"
    assert hfl(monkeypatch, "memo", "stats", "--memo", str(path)) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["nothing is remembered yet"]
    memo = Memo(path)
    memo.put("a", "evaluation", b"1234")
    memo.close()
    assert hfl(monkeypatch, "memo", "stats", "--memo", str(path)) == 0
    assert "evaluation" in capsys.readouterr().out
    assert hfl(monkeypatch, "memo", "gc", "--memo", str(path)) == 0
    assert capsys.readouterr().out == "0 entries forgotten\n"
    assert hfl(monkeypatch, "memo", "clear", "--memo", str(path)) == 0
    assert capsys.readouterr().out == "1 entries forgotten\n"


def test_a_path_that_cannot_be_written_to_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert hfl(monkeypatch, "schema", str(tmp_path / "file" / "schema.json")) == 2
    assert capsys.readouterr().err == f"error: cannot write '{tmp_path / 'file' / 'schema.json'}': File exists\n"
    assert hfl(monkeypatch, "schema", str(tmp_path)) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert hfl(monkeypatch, "run", "quickstart", "--out", str(tmp_path / "file" / "run"), "--no-memo") == 2
    assert "Traceback" not in capsys.readouterr().err
