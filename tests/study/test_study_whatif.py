"""``whatif:`` in a study: which worlds it means, what replaying finished runs in them gives, and how it goes on."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from scenario.command import Done, ended, hfl, started
from study_samples import write_study

from analysis.runs import load_run
from analysis.worlds import change_text, load_worlds
from emulator.errors import InputError, ScenarioError
from emulator.study.load import LoadedStudy, load
from emulator.study.whatif import source_names

RUNS = """
name: worlds
scenario: tiny.yaml
variants:
  two: {method.group_rounds: 2}
  one: {method: fedavg, method.local: {batch_size: 4, learning_rate: 0.1}}
seeds: 2
"""
WHATIF = """
whatif:
  set: {topology.links.access.down: 4 Mbit/s}
  worlds:
    near: {topology.links.backhaul.latency: 1 ms}
    far: {topology.links.backhaul.latency: 300 ms}
  grid:
    topology.links.access.up: [1 Mbit/s, 8 Mbit/s]
  targets: [0.05, 0.99]
  figures:
    - {kind: grid-table, value: time, rows: world, columns: up, where: {variant: two}}
    - {kind: cost-accuracy, x: time, by: up, where: {variant: one, world: far}, file: far.png}
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A study with a what-if, done into ``out``, and what the command said."""
    folder = tmp_path_factory.mktemp("whatif")
    path = write_study(folder, RUNS + WHATIF)
    return folder, hfl("study", path, "--out", folder / "out", "--jobs", "2", "--memo", folder / "memo")


def study(folder: Path, text: str) -> LoadedStudy:
    return load(write_study(folder, text))


def test_every_run_is_replayed_in_every_world_with_the_numbers_of_whatif(done: tuple[Path, Done]) -> None:
    folder, said = done
    assert said.code == 0, said.err
    table = pd.read_csv(folder / "out" / "whatif.csv")
    assert len(table) == 4 * 4
    assert list(table.columns[:6]) == ["run", "variant", "world", "topology.links.access.up", "method", "seed"]
    assert set(table["status"]) == {"replayed"}
    assert (table["trainings_reused"] == table["trainings_asked"]).all()
    assert (table[["trainings_trained", "trainings_missing"]] == 0).all(axis=None)
    pd.testing.assert_frame_equal(table, pd.read_parquet(folder / "out" / "whatif.parquet"), check_dtype=False)
    for name in ("two_seed-0", "one_seed-1"):
        for world, latency in (("near", "1 ms"), ("far", "300 ms")):
            change = {"backhaul.latency": latency, "access.up": "1 Mbit/s", "access.down": "4 Mbit/s"}
            words = [word for key, value in change.items() for word in ("--set", f"topology.links.{key}={value}")]
            place = folder / f"{name}-{world}"
            assert hfl("whatif", folder / "out" / name, *words, "--out", place, "--no-memo").code == 0
            own = load_run(place).metrics
            (file,) = (folder / "out" / "whatif" / name).glob(f"{world}_up-1-mbit-s.json")
            mine = pd.DataFrame(json.loads(file.read_text())["metrics"])
            pd.testing.assert_frame_equal(mine, own, check_dtype=False, check_exact=True)
            row = table[(table["run"] == name) & (table["world"] == world) & (table.iloc[:, 3] == "1 Mbit/s")].iloc[0]
            last, before = own.iloc[-1], pd.read_csv(folder / "out" / name / "metrics.csv").iloc[-1]
            assert row["time_s"] == pytest.approx(last["time_s"], rel=1e-12)
            assert row["final_accuracy"] == last["accuracy"]
            assert row["time_vs_run"] == pytest.approx(last["time_s"] / before["time_s"])
            assert row["bytes_vs_run"] == 1
            reached = own[own["accuracy"] >= 0.05].iloc[0]
            assert row["time_to_0.05_s"] == pytest.approx(reached["time_s"])
            assert pd.isna(row["time_to_0.99_s"])


def test_the_command_says_what_was_reused_and_draws_the_figures(done: tuple[Path, Done]) -> None:
    folder, said = done
    assert "16/16 replays" in said.err
    asked = int(pd.read_csv(folder / "out" / "whatif.csv")["trainings_asked"].sum())
    assert f"trainings reused {asked:,} of {asked:,}, 0 trained" in said.out
    assert said.out.endswith(f"wrote whatif.csv, whatif.parquet, whatif-grid-table.png, far.png -> {folder / 'out'}\n")
    assert (folder / "out" / "far.png").stat().st_size > 1000
    results = load_worlds(folder / "out")
    assert results.columns == ("variant", "world", "topology.links.access.up")
    assert results.study is not None
    assert results.study.target == 0.05
    assert set(results.study.table["run"]) == {
        f"{run} in {world}"
        for run in ("two_seed-0", "two_seed-1", "one_seed-0", "one_seed-1")
        for world in ("near_up-1-mbit-s", "near_up-8-mbit-s", "far_up-1-mbit-s", "far_up-8-mbit-s")
    }


def test_what_is_done_is_not_done_again(done: tuple[Path, Done], tmp_path: Path) -> None:
    folder, _ = done
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out)
    files = {p: p.stat().st_mtime_ns for p in sorted((out / "whatif").rglob("*.json"))}
    again = hfl("study", folder / "study.yaml", "--out", out, "--no-memo")
    assert (again.code, again.err) == (0, "")
    assert "16 of 16 replays are done already" in again.out
    assert {p: p.stat().st_mtime_ns for p in files} == files
    # A file that is damaged, one that is gone, and a world that is another now.
    first, second = list(files)[:2]
    first.write_text("{")
    second.unlink()
    text = (RUNS + WHATIF).replace("[1 Mbit/s, 8 Mbit/s]", "[1 Mbit/s, 9 Mbit/s]")
    again = hfl("study", write_study(tmp_path, text), "--out", out, "--no-memo", "--jobs", "1")
    assert again.code == 0, again.err
    left = 8 + len({first, second} & {p for p in files if "up-1-" in p.name})
    assert f"{16 - left} of 16 replays are done already" in again.out
    assert f"{left}/{left} replays" in again.err
    assert set(pd.read_csv(out / "whatif.csv")["topology.links.access.up"]) == {"1 Mbit/s", "9 Mbit/s"}
    plotted = hfl("study", tmp_path / "study.yaml", "--out", out, "--plot-only")
    assert (plotted.code, plotted.err) == (0, "")
    assert "wrote whatif.csv" in plotted.out


def test_figures_that_look_into_run_folders_are_refused(done: tuple[Path, Done], tmp_path: Path) -> None:
    folder, _ = done
    shutil.copytree(folder / "out" / "two_seed-0", tmp_path / "run")
    text = "name: x\nwhatif:\n  runs: run\n  worlds: {fast: {topology.devices: laptop}}\n  figures: [timeline]\n"
    refused = hfl("study", write_study(tmp_path, text), "--out", tmp_path / "out", "--no-memo", "--jobs", "1")
    assert refused.code == 2
    assert "study.yaml:5:13: whatif.figures[0]: this kind of figure looks into run folders" in refused.err


def test_replays_of_given_folders_that_need_training(done: tuple[Path, Done], tmp_path: Path) -> None:
    folder, _ = done
    shutil.copytree(folder / "out" / "two_seed-0", tmp_path / "runs" / "a")
    shutil.copytree(folder / "out" / "one_seed-1", tmp_path / "runs" / "b")
    text = """
name: given
whatif:
  runs: runs/*
  worlds: {fast: {topology.devices: laptop}, longer: {stop.rounds: 3}, edges: {topology.edge_device: jetson-nano}}
"""
    path, out = write_study(tmp_path, text), tmp_path / "out"
    listed = hfl("study", path, "--out", out, "--dry-run")
    assert listed == Done(0, f"replays of 2 finished runs in 3 worlds\n-> {out}\n", "")
    valid = hfl("validate", path)
    assert valid.out == f"{path}: valid: study 'given', replays of 2 finished runs in 3 worlds\n"
    refused = hfl("study", path, "--out", out, "--no-memo", "--jobs", "1")
    assert refused.code == 1
    lines = refused.err.rstrip("\n").split("\n")
    since = r"; what is learned differs from \d+\.\d+ emulated seconds on \(round 3\)"
    assert [re.sub(since, " (3)", line) for line in lines[-4:]] == [
        "error: 2 of 6 replays gave no result",
        "  a in longer: needs training: 48 of 48 trainings are missing (3)",
        "  b in longer: needs training: 24 of 24 trainings are missing (3)",
        "say 'train: true' in 'whatif' to train what is missing",
    ]
    table = pd.read_csv(out / "whatif.csv").set_index(["source", "world"])
    assert list(table["status"]) == ["replayed", "needs training", "replayed"] * 2
    assert table.loc[("a", "longer"), "trainings_missing"] == 48
    assert pd.isna(table.loc[("a", "longer"), "final_accuracy"])
    assert table.loc[("a", "longer"), "time_s"] > table.loc[("a", "fast"), "time_s"]  # times are known all the same
    assert (table["method"] == ["hierfavg"] * 3 + ["fedavg"] * 3).all()

    write_study(tmp_path, text + "  train: true\n")
    trained = hfl("study", path, "--out", out, "--no-memo", "--jobs", "1")
    assert trained.code == 0, trained.err
    assert "4 of 6 replays are done already\n2 of 6 worlds need training, and the study allows it" in trained.out
    assert "72 trained" in trained.out
    table = pd.read_csv(out / "whatif.csv").set_index(["source", "world"])
    assert list(table["status"]) == ["replayed", "trained", "replayed"] * 2
    assert list(table["trainings_trained"]) == [0, 48, 0, 0, 24, 0]
    assert list(table["trainings_missing"]) == [0] * 6
    own = load_run(out / "whatif" / "a" / "longer").metrics
    assert table.loc[("a", "longer"), "final_accuracy"] == own["accuracy"].iloc[-1]
    again = hfl("study", path, "--out", out, "--no-memo")
    assert "6 of 6 replays are done already" in again.out
    assert hfl("study", path, "--out", out, "--set", "stop.rounds=1").code == 2


def test_a_world_that_fails_does_not_stop_the_others(done: tuple[Path, Done], tmp_path: Path) -> None:
    folder, _ = done
    shutil.copytree(folder / "out" / "two_seed-0", tmp_path / "run")
    # A curve that the device does not have shows only when the group meets.
    profile = tmp_path / "odd.yaml"
    text = (Path(__file__).parents[2] / "devices" / "profiles" / "laptop.yaml").read_text()
    profile.write_text(text[: text.index("group_operations:")] + "group_operations: {}\n")
    study_text = (
        "name: x\nwhatif:\n  runs: run\n  set: {method.group_operation: secure-aggregation}\n"
        f"  grid: {{topology.devices: [laptop, {profile}]}}\n"
    )
    write_study(tmp_path, study_text)
    said = ended(started(tmp_path, "study", "study.yaml", "--out", "out", "--no-memo"))
    assert said.code == 1
    assert "1 of 2 replays gave no result" in said.err
    assert "device 'odd' has no curve for secure-aggregation; give a, b and c" in said.err
    assert list(pd.read_csv(tmp_path / "out" / "whatif.csv")["topology.devices"]) == ["laptop"]


@pytest.mark.parametrize(
    ("whatif", "said"),
    [
        ("{}", "6:1: whatif: there is no world to replay; give 'grid' or 'worlds'"),
        ("{grid: {}}", "6:16: whatif.grid: the grid is empty; give keys of the scenario with lists of values, or leave it out"),
        ("{grid: {stop.rounds: []}}", "6:30: whatif.grid.stop.rounds: expected a list of values, or a mapping"),
        ("{grid: {topology.links.acces.up: [1 Mbit/s]}}", "topology.links.acces: unknown key; did you mean 'access'?"),
        ("{grid: {topology.links.access.up: [1 Mbit/s, 2]}}", "(in the world 'up-2')"),
        ("{grid: {topology.links.access.up: [1 Mbit/s, 1 Mbit/s]}}", "the value '1 Mbit/s' stands twice"),
        ("{grid: {seed: [1, 2]}}", "another seed is another run; replays are of finished runs"),
        ("{grid: {method: [fedavg]}}", "the study itself varies 'method.group_rounds'"),
        ("{worlds: {a: {output.against: [fedavg]}}}", "a replay is of one run"),
        ("{worlds: {}}", "whatif.worlds:"),
        ("{worlds: {a: }, targets: [0.5, 0.5]}", "the target 0.5 stands twice"),
        ("{worlds: {a: }, targets: [80]}", "whatif.targets[0]: is a share"),
        ("{worlds: {a: }, bananas: 3}", "whatif.bananas: unknown key"),
        ("{worlds: {a: , b: }, figures: [{kind: grid-table, rows: planet}]}", "'planet' is nothing that this study varies"),
        ("{worlds: {a: , b: }, figures: [{kind: cost-accuracy, by: variant}]}", "would be taken for one"),
        ("{worlds: {a: }, runs: nowhere}", "whatif.runs: there is no folder"),
        ("{worlds: {a: }, runs: ['no*']}", "no run folder is called 'no*'"),
        ("{worlds: {a: {topology.speed: {file: nowhere}}}}", "topology.speed.file: nowhere: there is no such file"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_whatif_is_said_with_its_place(tmp_path: Path, whatif: str, said: str) -> None:
    text = f"name: x\nscenario: tiny.yaml\nvariants:\n  two: {{method.group_rounds: 2}}\nseeds: 2\nwhatif: {whatif}\n"
    with pytest.raises(ScenarioError) as caught:
        study(tmp_path, text)
    assert said in str(caught.value)
    assert str(tmp_path / "study.yaml") in str(caught.value)


def test_folders_that_cannot_be_replayed_are_named(done: tuple[Path, Done], tmp_path: Path) -> None:
    folder, _ = done
    shutil.copytree(folder / "out" / "two_seed-0", tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    text = "name: x\nwhatif:\n  runs: [run]\n  grid: {topology.devices: [laptop]}\n"
    write_study(tmp_path, text)
    refused = hfl("study", tmp_path / "study.yaml")
    assert refused.code == 2
    assert "study.yaml:3:10: whatif.runs[0]: the run in" in refused.err
    assert "is not complete (it has no summary.json); finish it with 'hfl run'" in refused.err
    for text, said in (
        (
            "name: x\nwhatif: {grid: {topology.devices: [laptop]}}\n",
            "give a 'scenario' to run, or run folders to replay",
        ),
        (
            "name: x\ngrid: {stop.rounds: [1]}\nwhatif: {runs: a, worlds: {b: }}\n",
            "'grid': there is no 'scenario' to run",
        ),
        ("name: x\nscenario: tiny.yaml\ngrid: {}\n", "grid: the grid is empty"),
    ):
        write_study(tmp_path, text)
        assert said in hfl("study", tmp_path / "study.yaml").err
    with pytest.raises(InputError, match="holds no study with a what-if"):
        load_worlds(tmp_path)
    assert "this is a study, not a scenario" in hfl("run", tmp_path / "study.yaml").err


def test_names_and_changes_as_people_read_them() -> None:
    assert source_names([Path("/a/x/run"), Path("/a/y/run"), Path("/a/y/other")]) == ["x/run", "y/run", "y/other"]
    assert source_names([Path("/a/x"), Path("/b/y")]) == ["x", "y"]
    texts = [change_text(ratio) for ratio in (1.0, 1.0001, 1.034, 0.5, 9.99, 25.0, float("nan"))]
    assert texts == ["=", "=", "+3.4 %", "-50 %", "+899 %", "x 25", ""]
