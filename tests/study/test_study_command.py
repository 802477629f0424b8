"""``hfl study`` from outside: what it runs, in how many processes, and how it goes on after whatever stopped it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest
from patience import PATIENCE_S
from scenario.command import Done, ended, hfl, started
from study_samples import STUDY, write_study

from emulator.files import held
from emulator.study.load import load
from emulator.study.runner import next_run

SAME = ("metrics.csv", "ledger.parquet", "summary.json", "scenario.yaml", "memory.json")
TABLES = ("study.json", "results.csv", "results.parquet", "summary.csv")
SMALL = STUDY.replace("[0.3, 3.0]", "[0.3]").replace("rounds: 3", "rounds: 1") + "target: 0.1\nfigures: [grid-table]\n"
# Slow enough to be stopped half-way, with a checkpoint after every round.
LONG = """
name: long
scenario: tiny.yaml
set: {stop.rounds: 25, evaluate.samples: 50, output.checkpoint: 0 s}
variants: {a: {method.group_rounds: 2}, b: {method.group_rounds: 3}}
seeds: 3
"""


def files(folder: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.name in names}


def status(folder: Path) -> dict[str, str]:
    """What the summaries of a study's runs say."""
    found = {}
    for path in sorted(folder.glob("*/summary.json")):
        found[path.parent.name] = json.loads(path.read_text())["status"]
    return found


@pytest.fixture(scope="module")
def done_in_two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A small study, done by two jobs into ``out``, and what the command said; ``memo`` remembers its results."""
    folder = tmp_path_factory.mktemp("two")
    path = write_study(folder, SMALL)
    return folder, hfl("study", path, "--out", folder / "out", "--jobs", "2", "--memo", folder / "memo")


def test_the_summary_has_what_clients_reach_by_fine_tuning(tmp_path: Path) -> None:
    text = "scenario: tiny.yaml\nset: {stop.rounds: 1, evaluate.personal: {epochs: 2}}\nseeds: 2\n"
    text += "variants: {a: {}, b: {method: fedavg}}\n"
    done = hfl("study", write_study(tmp_path, text), "--out", tmp_path / "out", "--jobs", "1")
    assert done.code == 0, done.err
    summary = pd.read_csv(tmp_path / "out" / "summary.csv").set_index("variant")
    for name in ("served_accuracy", "personal_accuracy", "personal_lowest"):
        for variant in ("a", "b"):
            runs = [
                pd.read_csv(tmp_path / "out" / f"{variant}_seed-{s}" / "metrics.csv")[name].iloc[-1] for s in (0, 1)
            ]
            assert summary[f"{name}_mean"][variant] == pytest.approx(sum(runs) / 2)


def test_a_study_writes_its_runs_tables_and_figures(done_in_two: tuple[Path, Done]) -> None:
    folder, done = done_in_two
    assert done.code == 0, done.err
    names = {"two_alpha-0.3_seed-0", "two_alpha-0.3_seed-1", "one_alpha-0.3_seed-0", "one_alpha-0.3_seed-1"}
    assert {p.name for p in (folder / "out").iterdir()} == {*names, *TABLES, "grid-table.png", ".lock"}
    assert status(folder / "out") == dict.fromkeys(sorted(names), "complete")
    assert done.err.count(": complete\n") == 4
    assert "4/4  " in done.err
    assert "To reach 10 %, over the seeds that did" in done.out
    written = ", ".join(("results.csv", "results.parquet", "summary.csv", "grid-table.png"))
    assert done.out.endswith(f"wrote {written} -> {folder / 'out'}\n")
    table = pd.read_csv(folder / "out" / "results.csv")
    assert list(table.columns[:5]) == ["run", "variant", "data.partition.alpha", "method", "seed"]
    assert len(table) == 4 * 2
    pd.testing.assert_frame_equal(table, pd.read_parquet(folder / "out" / "results.parquet"), check_dtype=False)
    own = pd.read_csv(folder / "out" / "one_alpha-0.3_seed-1" / "metrics.csv")
    of_run = table[table["run"] == "one_alpha-0.3_seed-1"]
    assert of_run["accuracy"].to_list() == own["accuracy"].to_list()
    assert set(of_run["method"]) == {"fedavg"}


def test_the_number_of_jobs_changes_no_bit(done_in_two: tuple[Path, Done], tmp_path: Path) -> None:
    folder, _ = done_in_two
    words = ("--jobs", "1", "--workers", "2", "--no-memo")
    assert hfl("study", folder / "study.yaml", "--out", tmp_path / "one", *words).code == 0
    for names in (SAME, TABLES, ("grid-table.png",)):
        assert len(files(folder / "out", names)) == len(names) * (4 if names is SAME else 1)
        assert files(tmp_path / "one", names) == files(folder / "out", names)


def test_what_is_complete_is_not_run_again(done_in_two: tuple[Path, Done]) -> None:
    folder, _ = done_in_two
    runs = folder / "out" / "two_alpha-0.3_seed-0"
    before = {p: p.stat().st_mtime_ns for p in runs.glob("[!.]*")}
    again = hfl("study", folder / "study.yaml", "--out", folder / "out")
    assert (again.code, again.err) == (0, "")
    assert again.out.startswith("4 of 4 runs are complete already\n")
    assert {p: p.stat().st_mtime_ns for p in runs.glob("[!.]*")} == before


def test_dry_run_lists_the_runs_and_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path)
    done = hfl("study", "study.yaml", "--dry-run")
    lines = done.out.split("\n")
    assert done.code == 0
    assert lines[0] == "8 runs: 2 variants x 2 alpha x 2 seeds"
    assert lines[4].split() == ["two_alpha-0.3_seed-0", "two", "0.3", "0", "to", "do"]
    assert lines[-2] == "-> studies/tiny-study"
    assert not (tmp_path / "studies").exists()


def test_a_study_whose_file_changed_keeps_what_is_still_wanted(done_in_two: tuple[Path, Done], tmp_path: Path) -> None:
    folder, _ = done_in_two
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out)
    memo = ("--memo", folder / "memo", "--jobs", "1")
    kept = (out / "two_alpha-0.3_seed-0" / "summary.json").stat().st_mtime_ns
    # Another variant instead of one. It differs in its links alone, so that nothing needs training.
    line = next(line for line in SMALL.splitlines() if line.startswith("  one: "))
    other = "  other: {method.group_rounds: 2, topology.links.access.latency: 30 ms}"
    changed = SMALL.replace(line, other)
    done = hfl("study", write_study(tmp_path, changed), "--out", out, *memo)
    assert done.code == 0
    assert done.out.startswith("2 of 4 runs are complete already\n")
    assert (out / "two_alpha-0.3_seed-0" / "summary.json").stat().st_mtime_ns == kept
    assert (out / "one_alpha-0.3_seed-1").is_dir()
    assert set(pd.read_csv(out / "results.csv")["variant"]) == {"two", "other"}
    trained = json.loads((out / "other_alpha-0.3_seed-1" / "manifest.json").read_text())["trainings"]
    assert trained == {"asked": 16, "computed": 0}  # the memo is shared

    path = write_study(tmp_path, changed.replace("30 ms", "40 ms"))
    refused = hfl("study", path, "--out", out)
    said = "holds a run of another scenario; choose another --out, or replace it with --overwrite"
    assert refused == Done(
        2, "", f"error: {out / 'other_alpha-0.3_seed-0'} {said}\n{out / 'other_alpha-0.3_seed-1'} {said}\n"
    )
    assert hfl("study", path, "--out", out, "--plot-only").code == 2
    assert "holds something else" in hfl("study", path, "--out", out, "--dry-run").out
    done = hfl("study", path, "--out", out, *memo, "--overwrite")
    assert done.code == 0
    assert done.err.count(": complete\n") == 2
    assert (out / "two_alpha-0.3_seed-0" / "summary.json").stat().st_mtime_ns == kept  # not replaced
    times = pd.read_csv(out / "results.csv").groupby("variant")["time_s"].max()
    assert times["other"] > times["two"]


PLUGIN = '''
import os
from emulator.errors import HflError
from emulator.contracts.learning import models
from emulator.registry import Params

class Params_(Params):
    how: str = "well"

@models.register("moody", Params_)
def moody(shape, classes, params):
    """A model with moods."""
    from torch import nn
    if params.how == "raise":
        raise RuntimeError("not today")
    if params.how == "fail":
        raise HflError("nothing can be done")
    if params.how == "die":
        os.kill(os.getpid(), 9)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
'''


def test_a_run_that_fails_does_not_stop_the_others_whatever_it_died_of(tmp_path: Path) -> None:
    (tmp_path / "plug.py").write_text(PLUGIN)
    text = "name: x\nscenario: tiny.yaml\nset: {stop.rounds: 1, model: moody}\ngrid: {model.how: [raise, die, fail, well]}\n"
    write_study(tmp_path, text)
    words = ("--no-memo", "--jobs", "1", "--plugin", "plug.py", "--out", "out")
    done = ended(started(tmp_path, "study", "study.yaml", *words))
    assert done.code == 1
    assert done.err.split("\n") == [
        "1/4  how-raise_seed-3: failed",
        "2/4  how-die_seed-3: failed",
        "3/4  how-fail_seed-3: failed",
        "4/4  how-well_seed-3: complete",
        "error: 3 of 4 runs failed",
        "  how-raise_seed-3: model 'moody' (plug.py:15, in moody): RuntimeError: not today",
        "  how-die_seed-3: its process ended unexpectedly (exit code -9); perhaps memory ran out",
        "  how-fail_seed-3: nothing can be done",
        "",
    ]
    assert status(tmp_path / "out") == {"how-well_seed-3": "complete"}
    assert "without 3 runs not complete: how-raise_seed-3, how-die_seed-3, how-fail_seed-3" in done.out
    assert set(pd.read_csv(tmp_path / "out" / "results.csv")["model.how"]) == {"well"}


def wait_for(process: subprocess.Popen[str], folder: Path, pattern: str, since: float = 0.0) -> None:
    """Waits until there is such a file that was written after an instant."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        if any(path.stat().st_mtime > since for path in folder.glob(pattern) if path.exists()):
            return
        time.sleep(0.01)
    process.kill()
    pytest.fail(f"the study did not get far enough: {ended(process)}")


def complete(folder: Path) -> set[str]:
    return {name for name, is_now in status(folder).items() if is_now == "complete"}


@pytest.mark.timeout(300)  # six runs, twice, and twice cut off
@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_study_that_was_killed_and_interrupted_does_the_rest_only(tmp_path: Path) -> None:
    path, out = write_study(tmp_path, LONG), tmp_path / "out"
    command = ("study", path, "--out", out, "--no-memo", "--jobs", "2")
    process = started(tmp_path, *command)
    wait_for(process, out, "*/summary.json")
    process.kill()
    process.communicate(timeout=PATIENCE_S)  # returns when its jobs, which hold its pipes, are gone too
    first = complete(out)
    assert 1 <= len(first) < 6
    before = {p: p.stat().st_mtime_ns for name in first for p in (out / name).glob("[!.]*")}

    begun = time.time()
    process = started(tmp_path, *command)
    wait_for(process, out, "*/checkpoint.safetensors", since=begun)
    process.send_signal(signal.SIGINT)
    done = ended(process)
    assert (done.code, done.out) == (130, f"{len(first)} of 6 runs are complete already\n")
    assert done.err.endswith(f"interrupted; the same command goes on from {out}\n")
    assert "interrupted" in status(out).values()
    assert not (out / "results.csv").exists()
    assert "begun" in hfl("study", path, "--out", out, "--dry-run").out

    second = complete(out)
    assert second >= first
    done = hfl(*command)
    assert done.code == 0, done.err
    assert done.out.startswith(f"{len(second)} of 6 runs are complete already\n")
    assert done.err.count(": complete\n") == 6 - len(second)
    assert {p: p.stat().st_mtime_ns for name in first for p in (out / name).glob("[!.]*")} == before
    assert not list(out.glob("*/.*.part*"))  # nothing half-written
    assert hfl("study", path, "--out", tmp_path / "undisturbed", "--no-memo", "--jobs", "1").code == 0
    assert files(out, (*SAME, *TABLES)) == files(tmp_path / "undisturbed", (*SAME, *TABLES))


def test_one_study_at_a_time_in_a_folder(tmp_path: Path) -> None:
    path = write_study(tmp_path, SMALL)
    with held(tmp_path / "out"):
        done = hfl("study", path, "--out", tmp_path / "out")
    assert (done.code, done.out) == (2, "")
    assert f"error: {tmp_path / 'out'} is being written by process {os.getpid()} on " in done.err


def test_plot_only_draws_what_the_file_says_now(done_in_two: tuple[Path, Done], tmp_path: Path) -> None:
    folder, _ = done_in_two
    figure = "{kind: cost-accuracy, x: [round, cost], file: [curves.svg, curves.pdf], title: Two ways}"
    path = tmp_path / "study.yaml"
    write_study(tmp_path, SMALL.replace("[grid-table]", f"[{figure}]"))
    out = folder / "out"
    before = {p: p.stat().st_mtime_ns for p in out.glob("*/[!.]*")}
    assert hfl("study", path, "--out", out, "--plot-only").code == 0
    assert {p: p.stat().st_mtime_ns for p in out.glob("*/[!.]*")} == before
    assert "Two ways" in (out / "curves.svg").read_text()
    assert (out / "curves.pdf").read_bytes().startswith(b"%PDF")
    for name in ("curves.svg", "curves.pdf"):
        (out / name).unlink()
    assert hfl("study", path, "--out", tmp_path / "no", "--plot-only") == Done(
        2, "", f"error: there is no study in {tmp_path / 'no'} yet; run it first, without --plot-only\n"
    )


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    path = write_study(tmp_path, SMALL)
    assert hfl("study", path, "--out", path).err == f"error: {path} is a file; --out must name a folder\n"
    mine = tmp_path / "out" / "two_alpha-0.3_seed-0"
    mine.mkdir(parents=True)
    (mine / "x").write_text("mine")
    for extra in ((), ("--overwrite",)):
        done = hfl("study", path, "--out", tmp_path / "out", *extra)
        assert done == Done(2, "", f"error: {mine} is not empty and is no run folder; choose another --out\n")
    assert (mine / "x").read_text() == "mine"


def test_runs_that_share_their_trainings_are_better_done_one_after_another(tmp_path: Path) -> None:
    text = "name: x\nscenario: tiny.yaml\ngrid: {topology.links.access.up: [1 Mbit/s, 2 Mbit/s]}\nseeds: 2\n"
    runs = load(write_study(tmp_path, text)).runs
    assert [run.name for run in runs][:2] == ["up-1-mbit-s_seed-0", "up-1-mbit-s_seed-1"]
    assert next_run(runs, []) is runs[0]
    assert next_run(runs[1:], runs[:1]) is runs[1]
    assert next_run(runs[2:], [runs[1]]) is runs[2]
    assert next_run([runs[2]], [runs[0]]) is runs[2]  # rather than nothing
