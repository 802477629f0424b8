from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis_samples import make_run, metrics, write_folder
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE_S

from analysis import load_run
from analysis.runs import COLUMNS, load_runs, unique_labels
from emulator.errors import InputError
from emulator.files import write_json

TABLE = metrics([0.1, 0.5, 0.75])


def test_a_run_comes_back_as_it_was_written(tmp_path: Path) -> None:
    table = metrics([0.1, 1 / 3, 0.7], time_s=[0, 0.1 + 0.2, 1e6 / 7])
    run = load_run(write_folder(tmp_path / "a", table, name="n", label="l", seed=7))
    assert (run.folder, run.name, run.label, run.seed, run.status) == (
        tmp_path / "a",
        "n",
        "l",
        7,
        "complete",
    )
    assert list(run.metrics.columns) == list(COLUMNS)
    for column in COLUMNS:
        assert run.metrics[column].tolist() == table[column].tolist()
    assert run.metrics["round"].dtype == np.int64


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_a_run_that_ended_badly_loads_with_its_status(tmp_path: Path, status: str) -> None:
    assert load_run(write_folder(tmp_path / "a", TABLE, status=status)).status == status


def test_a_killed_run_is_named_by_its_manifest_then_its_scenario_then_its_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "killed", TABLE, status=None)
    run = load_run(folder)
    assert (run.name, run.label, run.seed, run.status) == ("killed", "killed", None, "unfinished")
    (folder / "scenario.yaml").write_text("name: mine\nseed: 3\nmethod: {kind: x}\n")
    run = load_run(folder)
    assert (run.name, run.label, run.seed) == ("mine", "mine", 3)
    write_json(folder / "manifest.json", {"label": "group-fel", "seed": 4})
    run = load_run(folder)
    assert (run.name, run.label, run.seed) == ("mine", "group-fel", 4)


def test_the_row_that_a_killed_run_was_writing_is_left_out(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "a", metrics([0.1, 0.5, 0.7], energy_j=[0, 10, 1234]), status=None)
    text = (folder / "metrics.csv").read_text()
    assert text.endswith("1234.0\n") or text.endswith("1234\n")
    (folder / "metrics.csv").write_text(text.rstrip("\n")[:-3])
    assert load_run(folder).metrics["accuracy"].tolist() == [0.1, 0.5]
    (folder / "metrics.csv").write_text(text)
    assert load_run(folder).metrics["accuracy"].tolist() == [0.1, 0.5, 0.7]


def test_unknown_losses_and_energies_and_further_columns_are_kept(tmp_path: Path) -> None:
    table = metrics([0.1, 0.2], energy_j=[np.nan, np.nan]).assign(loss=[2.3, np.inf], cluster_accuracy=[0.3, 0.4])
    loaded = load_run(write_folder(tmp_path / "a", table)).metrics
    assert loaded["energy_j"].isna().all()
    assert loaded["loss"].tolist() == [2.3, np.inf]
    assert loaded["cluster_accuracy"].tolist() == [0.3, 0.4]


def message(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_run(folder)
    return str(caught.value)


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    assert message(tmp_path / "none") == f"there is no folder '{tmp_path / 'none'}'"
    (tmp_path / "file").write_text("")
    assert "is a file; give the folder of a run" in message(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert "is not a run folder: it has no metrics.csv" in message(tmp_path / "empty")
    write_folder(tmp_path / "all" / "b", TABLE)
    write_folder(tmp_path / "all" / "a", TABLE)
    assert message(tmp_path / "all").endswith("is not a run folder, but it holds some: 'a', 'b'")
    (tmp_path / "early").mkdir()
    write_json(tmp_path / "early" / "manifest.json", {})
    assert "has no metrics.csv: it ended before its first evaluation" in message(tmp_path / "early")


HEADER = ",".join(COLUMNS) + "\n"
ZERO = ",".join(["0"] * len(COLUMNS)) + "\n"


def row(**values: object) -> str:
    return ",".join(str(values.get(c, 0)) for c in COLUMNS) + "\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty: the run ended before its first evaluation"),
        ("\n\n", "is empty"),
        (HEADER + "\n", "has no rows: the run"),
        (HEADER, "has no rows: the run ended before its first evaluation"),
        (
            "round,time_s,accuracy\n0,0,0.1\n",
            "was written by another version: it has no column 'loss', 'bytes_s",
        ),
        (HEADER + ZERO + "1,2,3\n", "is damaged: row 2 has not as many fields as the header"),
        (HEADER + ZERO.replace("\n", ",0\n"), "is damaged: row 1 has not as many fields as the header"),
        (HEADER + row(cost_s="abc"), "is damaged: column 'cost_s' holds something that is not a number"),
        (HEADER + row(accuracy="True"), "is damaged: column 'accuracy' holds something that is not a number"),
        (HEADER + ZERO + row(time_s=""), "is damaged: column 'time_s' has nan in row 2"),
        (HEADER + row(bytes_total="inf"), "is damaged: column 'bytes_total' has inf in row 1"),
        (HEADER + row(energy_j="inf"), "is damaged: column 'energy_j' has inf in row 1"),
        (HEADER + row(cost_s=-1), "is damaged: column 'cost_s' has -1 in row 1"),
        (HEADER + row(accuracy=61.5), "is damaged: column 'accuracy' has 61.5 in row 1"),
        (HEADER + row(round=0.5), "is damaged: column 'round' has 0.5 in row 1"),
        (HEADER + row(round=2) + row(round=1), "is damaged: column 'round' goes back in row 2"),
        (
            HEADER + row(time_s=2) + row(time_s=3) + row(time_s=1),
            "is damaged: column 'time_s' goes back in row 3",
        ),
    ],
)
def test_a_bad_metrics_file_is_refused_with_its_reason(tmp_path: Path, text: str, expected: str) -> None:
    folder = write_folder(tmp_path / "a", TABLE)
    (folder / "metrics.csv").write_text(text)
    assert expected in message(folder)
    assert str(folder / "metrics.csv") in message(folder)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "a", TABLE)
    (folder / "metrics.csv").write_bytes(b"\xff\xfe\x00")
    assert "metrics.csv' is damaged" in message(folder)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "x"', "is damaged"),
        ("[]", "is damaged, or of another version: it does not end with its SHA-256"),
        ({"name": "x"}, "was written by another version: 'label' is missing or of another type"),
        ({"name": "x", "label": "l", "seed": "0"}, "was written by another version: 'seed' is missing"),
        ({"name": "x", "label": "l", "seed": 0, "status": "ok"}, "another version: 'status' is 'ok', not one of"),
    ],
)
def test_a_bad_summary_is_refused_with_its_reason(tmp_path: Path, text: str | dict[str, Any], expected: str) -> None:
    folder = write_folder(tmp_path / "a", TABLE)
    if isinstance(text, dict):
        write_json(folder / "summary.json", text)
    else:
        (folder / "summary.json").write_text(text)
    assert expected in message(folder)
    assert str(folder / "summary.json") in message(folder)


def test_several_runs_load_in_order_and_not_twice(tmp_path: Path) -> None:
    folders = [write_folder(tmp_path / n, TABLE, label=n) for n in ("b", "a")]
    assert [r.label for r in load_runs(folders)] == ["b", "a"]
    with pytest.raises(InputError, match="is given twice"):
        load_runs([folders[0], tmp_path / "a" / ".." / "b"])


def test_labels_get_what_tells_them_apart_and_no_more() -> None:
    runs = [
        make_run(TABLE, "fedavg", "x", 0, folder="r/1"),
        make_run(TABLE, "cov", "x", 0, folder="r/2"),
        make_run(TABLE, "cov", "x", 1, folder="r/3"),
        make_run(TABLE, "seq", "x", 0, folder="r/4"),
        make_run(TABLE, "seq", "y", 0, folder="r/5"),
        make_run(TABLE, "seq", "y", 1, folder="r/6"),
        make_run(TABLE, "kld", "x", 0, folder="r/7"),
        make_run(TABLE, "kld", "x", 0, folder="r/8"),
        make_run(TABLE, "icg", "x", None, folder="r/9"),
        make_run(TABLE, "icg", "x", None, folder="s/9"),
    ]
    assert unique_labels(runs) == [
        "fedavg", "cov (seed 0)", "cov (seed 1)", "seq (x)", "seq (y, seed 0)", "seq (y, seed 1)",
        "kld (7)", "kld (8)", "icg (r/9)", "icg (s/9)",
    ]  # fmt: skip


def test_the_same_run_twice_is_numbered() -> None:
    run = make_run(TABLE, "fedavg")
    assert unique_labels([run, run, run]) == ["fedavg", "fedavg (no. 2)", "fedavg (no. 3)"]
    assert unique_labels([]) == []


WORDS = st.sampled_from(["a", "a (b)", "b", "a (no. 2)", "a (seed 1)"])


@given(st.lists(st.tuples(WORDS, WORDS, st.sampled_from([None, 0, 1]), WORDS), max_size=8))
def test_labels_are_always_unique(about: list[tuple[str, str, int | None, str]]) -> None:
    runs = [make_run(TABLE, label, name, seed, folder=folder) for label, name, seed, folder in about]
    labels = unique_labels(runs)
    assert len(set(labels)) == len(runs)
    assert all(text.startswith(run.label) for text, run in zip(labels, runs, strict=True))


def test_importing_the_analysis_is_cheap_and_needs_no_simulator() -> None:
    heavy = "('simpy', 'torch', 'pandas', 'matplotlib', 'pydantic')"
    code = f"import sys, analysis, analysis.tables; print([m for m in {heavy} if m in sys.modules])"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        timeout=PATIENCE_S,
    )
    assert shown.stdout == "[]\n"


def test_finding_the_plots_needs_no_simulator_and_no_matplotlib() -> None:
    code = (
        "import sys, analysis.plots.cost_accuracy; "
        "print([m for m in ('simpy', 'torch', 'matplotlib') if m in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        timeout=PATIENCE_S,
    )
    assert shown.stdout == "[]\n"
