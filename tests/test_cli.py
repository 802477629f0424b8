"""``hfl run`` and ``hfl compare`` from outside: what they print, what they write, how they end."""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import torch
from patience import PATIENCE_S
from scenario.command import TINY, Done, ended, hfl, started

from emulator import __version__
from emulator.explore.explorer import Explorer
from emulator.scenario import dump, load, loads

# Byte for byte, for the same scenario.
SAME = [
    "metrics.csv", "groups.csv", "groupings.csv", "ledger.parquet", "energy.csv", "fleet.json", "summary.json", "scenario.yaml",
]  # fmt: skip


@dataclass(frozen=True)
class Study:
    """A folder with a scenario ``s.yaml`` and a complete run of it in ``first``."""

    folder: Path
    done: Done

    @property
    def scenario(self) -> Path:
        return self.folder / "s.yaml"

    @property
    def first(self) -> Path:
        return self.folder / "first"

    def run(self, out: str, *arguments: str | Path) -> Done:
        return hfl("run", self.scenario, "--out", self.folder / out, "--memo", self.folder / "memo.sqlite", *arguments)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Tiny models on a busy machine: threads that wait for each other take more time than they save."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("study")
    (folder / "s.yaml").write_text(TINY)
    return Study(folder, Study(folder, Done(0, "", "")).run("first"))


@pytest.fixture(scope="module")
def other_seed(study: Study) -> Path:
    assert study.run("seed-4", "--seed", "4", "--set", "output.plot=false").code == 0
    return study.folder / "seed-4"


# Runs.


def test_a_run_writes_its_folder_and_says_what_came_of_it(study: Study) -> None:
    assert study.done.code == 0
    names = {path.name for path in study.first.iterdir()}
    assert names == {*SAME, "manifest.json", "accuracy.png", "memory.json", ".lock"}
    summary = json.loads((study.first / "summary.json").read_text())
    metrics = pd.read_csv(study.first / "metrics.csv")
    assert (summary["status"], summary["stopped_by"], summary["rounds"]) == ("complete", "rounds", 2)
    assert (summary["name"], summary["label"], summary["seed"]) == ("tiny", "hierfavg", 3)
    assert list(metrics["round"]) == [0, 1, 2]
    assert metrics.iloc[-1].to_dict() == summary["final"]
    assert summary["best_accuracy"] == metrics["accuracy"].max()
    rows = pd.read_parquet(study.first / "ledger.parquet")
    assert rows["bytes"].sum() == summary["final"]["bytes_total"]
    assert (study.first / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    accuracy = f"{summary['final']['accuracy']:.1%}"
    assert study.done.out.startswith(f"hierfavg: accuracy {accuracy} after 2 rounds (stopped by rounds), ")
    assert study.done.out.endswith(f" -> {study.first}\n")


def test_a_run_folder_holds_the_resolved_scenario_and_how_it_was_made(study: Study) -> None:
    stored = (study.first / "scenario.yaml").read_text(encoding="utf-8")
    assert loads(stored).scenario == load(study.scenario).scenario
    assert stored == dump(load(study.scenario).scenario)
    manifest = json.loads((study.first / "manifest.json").read_text())
    assert manifest["hfl_emulator"] == __version__
    assert manifest["command"][:2] == ["hfl", "run"]
    assert manifest["trainings"] == {"asked": 32, "computed": 32}  # 2 rounds, 2 group rounds, 8 clients
    assert manifest["packages"]["torch"]


def test_a_complete_run_is_not_run_again(study: Study) -> None:
    before = {path: path.stat().st_mtime_ns for path in study.first.glob("[!.]*")}
    assert study.run("first") == Done(0, f"hierfavg: {study.first} holds this run already, complete\n", "")
    assert {path: path.stat().st_mtime_ns for path in study.first.glob("[!.]*")} == before


@pytest.mark.parametrize(
    "change", [["--seed", "4"], ["--set", "stop.rounds=3"], ["--set", "topology.links.access.up=9 Mbit/s"]]
)
def test_another_scenario_in_the_same_folder_is_refused(study: Study, change: list[str]) -> None:
    before = (study.first / "summary.json").read_bytes()
    assert study.run("first", *change) == Done(
        2,
        "",
        f"error: {study.first} holds a run of another scenario; choose another --out, or replace it with --overwrite\n",
    )
    assert (study.first / "summary.json").read_bytes() == before


def test_overwrite_replaces_a_run_and_nothing_else(study: Study) -> None:
    assert study.run("replaced", "--set", "output.plot=false").code == 0
    folder = study.folder / "replaced"
    (folder / "mine.txt").write_text("keep")
    assert study.run("replaced", "--set", "output.plot=false", "--set", "stop.rounds=1", "--overwrite").code == 0
    assert json.loads((folder / "summary.json").read_text())["rounds"] == 1
    assert (folder / "mine.txt").read_text() == "keep"
    assert not (folder / "accuracy.png").exists()


def test_folders_that_are_no_run_folders_are_left_alone(study: Study, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    message = f"error: {tmp_path / 'full'} is not empty and is no run folder; choose another --out\n"
    for extra in ([], ["--overwrite"]):
        assert hfl("run", study.scenario, "--out", tmp_path / "full", *extra) == Done(2, "", message)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["x"]
    done = hfl("run", study.scenario, "--out", study.scenario)
    assert done == Done(2, "", f"error: {study.scenario} is a file; --out must name a folder\n")


def test_the_default_folder_is_named_by_scenario_and_seed(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    changes = ["--set", "output.plot=false", "--set", "name=My Run", "--seed", "4"]
    done = hfl("run", study.scenario, "--memo", study.folder / "memo.sqlite", *changes)
    assert done.code == 0
    assert (tmp_path / "runs" / "my-run-4" / "summary.json").is_file()


def test_the_same_scenario_gives_the_same_bytes_in_another_process(study: Study) -> None:
    done = ended(started(study.folder, "run", "s.yaml", "--out", "again", "--no-memo"))
    assert done.code == 0, done.err
    assert filecmp.cmpfiles(study.first, study.folder / "again", SAME, shallow=False) == (SAME, [], [])


def test_another_seed_gives_other_results(study: Study, other_seed: Path) -> None:
    assert json.loads((other_seed / "summary.json").read_text())["seed"] == 4
    assert (other_seed / "metrics.csv").read_bytes() != (study.first / "metrics.csv").read_bytes()


def test_set_changes_the_run(study: Study) -> None:
    changes = ["--set", "output.plot=false", "--set", "topology.links.access.up=80 Mbit/s", "--set", "stop.rounds=1"]
    assert study.run("faster", *changes).code == 0
    slow, fast = (pd.read_csv(folder / "metrics.csv") for folder in (study.first, study.folder / "faster"))
    assert len(fast) == 2
    assert fast["accuracy"][1] == slow["accuracy"][1]
    assert fast["time_s"][1] < slow["time_s"][1]


def test_against_runs_presets_side_by_side_and_compares_them(study: Study) -> None:
    done = study.run("both", "--against", "fedavg", "--set", "output.plot=false")
    assert done.code == 0
    assert {path.name for path in (study.folder / "both").iterdir()} == {
        "hierfavg",
        "fedavg",
        "comparison.csv",
        "comparison.png",
    }
    table = pd.read_csv(study.folder / "both" / "comparison.csv")
    assert list(table["label"]) == ["hierfavg", "fedavg"]
    assert "To reach" in done.out
    other = loads((study.folder / "both" / "fedavg" / "scenario.yaml").read_text()).scenario
    own = load(study.scenario).scenario
    assert (other.method.params.preset, other.method.params.local) == ("fedavg", own.method.params.local)
    again = study.run("both", "--against", "fedavg", "--set", "output.plot=false")
    assert again.out.count("holds this run already, complete") == 2


def test_the_folder_of_a_comparison_stands_for_its_runs(study: Study, tmp_path: Path) -> None:
    folder = study.folder / "both"
    study.run("both", "--against", "fedavg", "--set", "output.plot=false")
    runs = [folder / "hierfavg", folder / "fedavg"]
    for words in (("compare",), ("energy",), ("table", "totals")):
        done = hfl(*words, folder)
        assert done == hfl(*words, *runs)
        assert done.code == 0
    assert hfl("plot", "breakdown", folder, "--out", tmp_path / "a.svg").code == 0
    assert hfl("plot", "breakdown", *runs, "--out", tmp_path / "b.svg").code == 0
    assert filecmp.cmp(tmp_path / "a.svg", tmp_path / "b.svg", shallow=False)
    assert hfl("report", folder, "--out", tmp_path / "page.html").code == 0
    assert hfl("export", folder, "--csv", tmp_path / "csv").code == 0
    assert {path.name for path in (tmp_path / "csv").iterdir()} == {"hierfavg", "fedavg"}
    explorer = Explorer([folder], None)
    assert [source.folder for source in explorer.sources] == runs
    explorer.close()
    said = f"error: '{folder}' holds 2 runs, and this command takes one: give '{runs[0]}', '{runs[1]}'\n"
    assert hfl("whatif", folder, "--set", "seed=5") == Done(2, "", said)
    assert hfl("topology", folder, "--plot", tmp_path / "t.png") == Done(2, "", said)


def test_against_must_name_another_preset_that_there_is(study: Study) -> None:
    assert study.run("x", "--against", "fedavgg") == Done(
        2, "", "error: --against: unknown preset 'fedavgg'; did you mean 'fedavg'?\n"
    )
    done = study.run("x", "--against", "hierfavg")
    assert done == Done(
        2, "", "error: the same method stands twice; --against must name other presets than the scenario's own\n"
    )
    assert not (study.folder / "x").exists()


def test_a_run_that_fails_ends_with_1_and_leaves_a_valid_folder(study: Study) -> None:
    done = study.run("diverged", "--set", "method.local.learning_rate=1e30")
    assert done.code == 1
    assert "diverged in round 1" in done.err
    folder = study.folder / "diverged"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert "diverged in round 1" in summary["error"]
    assert list(pd.read_csv(folder / "metrics.csv")["round"]) == [0]
    assert len(pd.read_parquet(folder / "ledger.parquet")) > 0


def test_what_turns_out_wrong_when_data_is_read_still_has_its_place(study: Study) -> None:
    done = study.run("small-images", "--set", "model=lenet5")
    assert done.code == 2
    assert "error: --set model=lenet5: model: lenet5 needs images of at least 16×16 pixels" in done.err


# Comparisons.


def test_compare_prints_a_table_and_writes_it(study: Study, other_seed: Path, tmp_path: Path) -> None:
    done = hfl("compare", study.first, other_seed, "--by", "time,bytes", "--target", "0.12", "--out", tmp_path)
    assert done.code == 0
    for text in (
        "hierfavg",
        "To reach 12 %",
        "Best accuracy within equal budgets",
        f"wrote {tmp_path / 'comparison.csv'}",
    ):
        assert text in done.out
    table = pd.read_csv(tmp_path / "comparison.csv")
    assert list(table["seed"]) == [3, 4]
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("target", ["0", "1.5", "85", "-0.1", "nan"])
def test_compare_refuses_a_target_that_is_no_share(study: Study, target: str) -> None:
    done = hfl("compare", study.first, "--target", target)
    assert done.code == 2
    assert done.err.startswith("error: --target is a share between 0 and 1, for example 0.85, not ")


def test_compare_refuses_unknown_axes_and_what_is_no_run_folder(study: Study, tmp_path: Path) -> None:
    assert hfl("compare", study.first, "--by", "cost,tiem") == Done(
        2, "", "error: unknown axis 'tiem'; did you mean 'time'?\n"
    )
    for place in (tmp_path / "nothing", tmp_path, study.scenario):
        done = hfl("compare", study.first, place)
        assert (done.code, done.out) == (2, "")
        assert str(place) in done.err


# Interruptions.


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_a_valid_folder_and_goes_on_when_started_again(
    study: Study, tmp_path: Path, number: int
) -> None:
    changes = ("--set", "stop.rounds=40", "--set", "evaluate.samples=50", "--set", "output.plot=false")
    command = ("run", study.scenario, "--out", tmp_path / "run", "--memo", tmp_path / "memo.sqlite", *changes)
    process = started(tmp_path, *command)
    wait_for_evaluations(process, tmp_path / "memo.sqlite", 3)
    process.send_signal(number)
    done = ended(process)
    assert (done.code, done.out) == (130, "")
    assert done.err.endswith(f"hierfavg: interrupted; the same command goes on from {tmp_path / 'run'}\n")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    metrics = pd.read_csv(tmp_path / "run" / "metrics.csv")
    assert summary["status"] == "interrupted"
    assert 2 <= summary["rounds"] < 40
    assert metrics.iloc[-1].to_dict() == summary["final"]
    assert pd.read_parquet(tmp_path / "run" / "ledger.parquet")["bytes"].sum() >= summary["final"]["bytes_total"]
    assert not list((tmp_path / "run").glob(".*.part*"))  # nothing half-written is left behind

    assert hfl(*command).code == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "complete"
    assert study.run("uninterrupted", *changes).code == 0  # of the two signals, the second finds it complete
    assert filecmp.cmpfiles(tmp_path / "run", study.folder / "uninterrupted", SAME, shallow=False) == (SAME, [], [])


def wait_for_evaluations(process: subprocess.Popen[str], file: Path, count: int) -> None:
    """Waits until a running process has remembered so many evaluations."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        if file.exists() and evaluations(file) >= count:
            return
        time.sleep(0.02)
    process.kill()
    pytest.fail(f"the run did not get far enough: {ended(process)}")


def evaluations(file: Path) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM memo WHERE kind = 'evaluation'").fetchone()[0])
        except sqlite3.OperationalError:  # the table is not there yet
            return 0


def test_a_run_with_clusters_tells_both_accuracies(study: Study) -> None:
    done = study.run(
        "clusters", "--set", "method={preset: ifca, clusters: 2, local: {batch_size: 8}}", "--set", "output.plot=false"
    )  # fmt: skip
    assert done.code == 0, done.err
    final = json.loads((study.folder / "clusters" / "summary.json").read_text())["final"]
    said = f"accuracy {final['accuracy']:.1%}"
    if final["clusters"] > 1:
        said += f" ({final['accuracy_clusters']:.1%} in the mean over {final['clusters']:.0f} clusters)"
    assert said in done.out.replace("\n", " ")
