"""Runs for other tools: what TensorBoard reads back, CSV files, and pandas access."""

from __future__ import annotations

import builtins
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ledger_samples import ROWS, write_run
from patience import PATIENCE_S

import emulator
from analysis.export import tag_of, to_csv, to_tensorboard
from analysis.runs import load_run
from emulator.errors import InputError


def test_csv_files_hold_every_table(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run"))
    written = to_csv(run, tmp_path / "out" / "deep")
    assert {p.name for p in written} == {"metrics.csv", "energy.csv", "groups.csv", "ledger.csv"}
    ledger = pd.read_csv(tmp_path / "out" / "deep" / "ledger.csv", keep_default_na=False)
    assert len(ledger) == len(ROWS)
    pd.testing.assert_frame_equal(ledger, run.ledger.astype(ledger.dtypes.to_dict()))
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "out" / "deep" / "metrics.csv"), run.metrics)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file; give a folder"):
        to_csv(run, tmp_path / "file")
    (run.folder / "ledger.parquet").write_bytes(b"nothing")
    with pytest.raises(InputError, match="is damaged or was written by another version"):
        to_csv(run, tmp_path / "again")
    assert not (tmp_path / "again" / "ledger.csv").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_rounds_and_emulated_time(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = load_run(write_run(tmp_path / "run"))
    to_tensorboard(run, tmp_path / "tb")
    events = EventAccumulator(str(tmp_path / "tb"), size_guidance={"tensors": 0, "scalars": 0})
    events.Reload()
    tags = set(events.Tags()["tensors"])
    assert {
        "test/accuracy",
        "test/loss",
        "bytes/total",
        "bytes/client_server",
        "cost/cost_s",
        "emulated/energy_j",
    } <= tags
    assert len(tags) == len(run.metrics.columns) - 1  # the round is the step
    accuracy = events.Tensors("test/accuracy")
    assert [(e.step, e.wall_time) for e in accuracy] == [(0, 0), (1, 10), (2, 20)]
    assert [e.tensor_proto.float_val[0] for e in accuracy] == pytest.approx([0.1, 0.4, 0.6])
    with pytest.raises(InputError, match="holds event files already"):
        to_tensorboard(run, tmp_path / "tb")


def test_without_tensorboard_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("tensorboard"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"pip install 'hfl-emulator\[tensorboard\]'"):
        to_tensorboard(load_run(write_run(tmp_path / "run")), tmp_path / "tb")
    assert not (tmp_path / "tb").exists()


def test_tags_stand_in_groups() -> None:
    tags = [tag_of(c) for c in ("bytes_total", "cost_group_s", "time_s", "my_own")]
    assert tags == ["bytes/total", "cost/cost_group_s", "emulated/time_s", "other/my_own"]


def test_a_run_in_pandas(tmp_path: Path) -> None:
    run = emulator.load_run(write_run(tmp_path / "run"))
    assert run.metrics["accuracy"].tolist() == [0.1, 0.4, 0.6]
    assert len(run.ledger) == len(ROWS)
    assert run.ledger["bytes"].sum() == 7 * 1000
    assert run.energy["idle_j"].sum() == 30
    assert run.groups["label_0"].tolist() == [10, 15, 8]
    assert run.scenario["data"]["set"]["kind"] == "digits"
    assert run.summary["stopped_by"] == "rounds"
    assert run.manifest == {}
    with pytest.raises(InputError, match=r"has no groupings\.csv"):
        _ = run.groupings
    (run.folder / "groups.csv").write_text("round,group\n1,0\n")
    with pytest.raises(InputError, match="was written by another version: it has no column 'aggregator'"):
        _ = load_run(run.folder).groups
    with pytest.raises(InputError, match="there is no folder"):
        emulator.load_run(tmp_path / "none")


def test_the_package_itself_imports_nothing_heavy() -> None:
    code = "import sys, emulator; print([m for m in ('analysis', 'pandas', 'numpy', 'pydantic') if m in sys.modules])"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root, timeout=PATIENCE_S
    )
    assert done.stdout == "[]\n"
