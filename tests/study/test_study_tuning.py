"""``tune`` and ``claims`` of a study: what is chosen from which runs, what is judged, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from scenario.command import Done, hfl
from study_samples import write_study

from analysis.report import report
from analysis.runs import load_run
from analysis.studies import load_study
from analysis.worlds import load_worlds
from emulator.errors import ScenarioError
from emulator.standing import last_within, mean_of_last
from emulator.study.load import load

TUNED = """
name: tuned
scenario: tiny.yaml
set: {stop.rounds: 4, evaluate.last_rounds: 2, method.local: {batch_size: 4}}
variants:
  two: {method.group_rounds: 2}
  one: {method: fedavg}
tune: {key: method.local.learning_rate, values: [0.0001, 0.1, 0.02], seed: 9, set: {stop.rounds: 2}, by: best-accuracy}
seeds: 3
budget: {rounds: 3}
claims:
  - {better: two, than: one, in: accuracy-last-rounds, source: somebody}
  - {better: one, than: two, in: accuracy-at-budget}
whatif:
  worlds:
    near: {topology.links.backhaul.latency: 1 ms, stop: {rounds: 4, time: 100000 s}}
    far: {topology.links.backhaul.latency: 5 s, stop: {rounds: 4, time: 60 s}}
  claims:
    - {better: {world: near}, than: {world: far}, in: time, where: {variant: two}}
    - {better: two, than: one, in: accuracy-at-budget}
  figures: [claims]
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    folder = tmp_path_factory.mktemp("tuned")
    path = write_study(folder, TUNED)
    return folder, hfl("study", path, "--out", folder / "out", "--jobs", "2", "--no-memo")


def test_each_variant_has_the_value_that_was_best_with_another_seed(done: tuple[Path, Done]) -> None:
    folder, said = done
    assert said.code == 0, said.err
    chosen = {}
    for variant in ("two", "one"):
        tried = {}
        for value in (0.0001, 0.1, 0.02):
            place = folder / "out" / "tuning" / f"{variant}_learning-rate-{value:g}_seed-9"
            run = load_run(place)
            assert (run.seed, run.summary["rounds"]) == (9, 2)
            tried[value] = float(run.metrics["accuracy"].max())
        chosen[variant] = max(tried, key=lambda value: tried[value])
    told = json.loads((folder / "out" / "tuned.json").read_text())
    assert {each["variant"]: each["chosen"] for each in told["points"]} == chosen
    for variant, value in chosen.items():
        for seed in range(3):
            scenario = yaml.safe_load((folder / "out" / f"{variant}_seed-{seed}" / "scenario.yaml").read_text())
            assert scenario["method"]["local"]["learning_rate"] == value
            assert scenario["stop"]["rounds"] == 4
    results = load_study(folder / "out")
    assert dict(zip(results.summary["variant"], results.summary["tuned_learning_rate"], strict=True)) == chosen
    assert "tuning" not in set(results.table["run"].str.partition("/")[0])
    assert "Tuning of method.local.learning_rate by best accuracy, seed 9" in said.out


def test_claims_are_judged_by_what_the_run_folders_hold(done: tuple[Path, Done]) -> None:
    folder, said = done
    runs = {(v, s): load_run(folder / "out" / f"{v}_seed-{s}") for v in ("two", "one") for s in range(3)}
    at_end = {key: run.metrics["accuracy"].iloc[-2:].mean() for key, run in runs.items()}
    at_budget = {key: float(run.metrics.query("round <= 3")["accuracy"].iloc[-1]) for key, run in runs.items()}
    judged = pd.read_csv(folder / "out" / "claims.csv")
    assert judged["pairs"].to_list() == [3, 3]
    assert judged["advantage"][0] == pytest.approx(sum(at_end["two", s] - at_end["one", s] for s in range(3)) / 3)
    assert judged["advantage"][1] == pytest.approx(sum(at_budget["one", s] - at_budget["two", s] for s in range(3)) / 3)
    assert judged["source"][0] == "somebody"
    assert all(run.accuracy_last_rounds == pytest.approx(at_end[key]) for key, run in runs.items())
    assert "Claims, on pairs of runs with the same seed" in said.out


def test_claims_of_worlds_are_judged_in_each(done: tuple[Path, Done]) -> None:
    folder, _ = done
    study = load_worlds(folder / "out").study
    assert study is not None
    last = study.table.groupby(["variant", "world", "seed"])[["time_s", "accuracy"]].last()
    judged = pd.read_csv(folder / "out" / "whatif-claims.csv").set_index(["claim", "at"])
    assert list(judged.index) == [(1, "two"), (2, "near"), (2, "far")]
    gained = (last.loc["two", "far"] - last.loc["two", "near"])["time_s"].mean()
    assert judged["advantage"][1, "two"] == pytest.approx(gained)
    within = study.table.query("time_s <= 60 and world == 'far'").groupby(["variant", "seed"])["accuracy"].last()
    assert judged["advantage"][2, "far"] == pytest.approx((within["two"] - within["one"]).mean())
    assert (folder / "out" / "whatif-claims.png").is_file()


def test_the_report_has_what_was_tuned_and_the_claims_about_worlds(done: tuple[Path, Done]) -> None:
    page = report([done[0] / "out"])
    assert "Claims about the what-if" in page
    assert "Tuning of method.local.learning_rate by" in page


def test_a_tuned_study_goes_on_and_is_listed(done: tuple[Path, Done]) -> None:
    folder, _ = done
    again = hfl("study", folder / "study.yaml", "--out", folder / "out", "--jobs", "2", "--no-memo")
    assert again.code == 0
    assert "6 of 6 runs are complete already" in again.out
    listed = hfl("study", folder / "study.yaml", "--out", folder / "empty", "--dry-run").out
    assert listed.count("waits for tuning") == 6
    assert "6 runs of tuning before" in listed


BASE = "name: x\nscenario: tiny.yaml\nseeds: 2\nvariants: {a: {}, b: {stop.rounds: 1}}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tune: {key: method.local.learning_rate, values: [0.1], seed: 0}\n",
         ["tune.values: there is nothing to choose; give at least two values",
          "tune.seed: the seed 0 is one of the study's; choose another"]),
        ("tune: {key: stop.rounds, values: [1, 2], seed: 5}\n",
         ["tune.key: the variant 'b' sets 'stop.rounds' itself; leave one of them out"]),
        ("tune: {key: method.local.learning_rate, values: [0.1, 0.2], seed: 5, by: accuracy-at-budget}\n",
         ["tune.by: needs a 'budget' of the study, or one in 'stop' of every run"]),
        ("tune: {key: data.partition.alpha, values: [0.1, 0.2], seed: 5, set: {data.partition.alpha: 3, seed: 1}}\n",
         ["tune.set.seed: the seeds of a study stand in 'seeds'"]),
        ("tune: {key: data.partition.alpha, values: [0.1, 0.2], seed: 5, set: {stop.rounds: 3}}\n",
         ["tune.set.stop.rounds: the study varies 'stop.rounds'"]),
        ("claims: [{better: {method: fedavg}, than: {method: x}, in: time}, {better: a, than: b, in: time, by: .nan}]\n",
         ["claims[1].by: expected a number, or a quantity with its unit"]),
        ("claims: [{better: {method: fedavg}, than: {method: x}, in: time}]\nfigures: [claims]\n",
         ["claims[0].better: 'method' is nothing that this study varies beside the seed; "]),
        ("figures: [claims]\n", ["figures[0]: there are no 'claims' to draw"]),
        ("set: {stop: {rounds: 2, time: 5 s}}\ngrid: {stop.time: [5 s, 6 s]}\n"
         "claims: [{better: a, than: b, in: accuracy-at-budget}]\n",
         ["claims[0].in: 'accuracy-at-budget' needs a 'budget', of the claim or of the study, or the same limit"]),
        ("tune: {key: method.local.learning_rate, values: [0.1, 0.2], seed: 5}\n"
         "whatif: {worlds: {w: {method.local.learning_rate: 1.0}}}\n",
         ["whatif.worlds.w.method.local.learning_rate: the study itself varies 'method.local.learning_rate'"]),
        ("claims: [{better: a, than: c, in: accuracy}, {better: a, than: b, in: speed}]\n",
         ["claims[1].in: unknown quantity 'speed'; "]),
        ("claims: [{better: a, than: c, in: accuracy}, {better: a, than: b, in: time-to-target}, "
         "{better: a, than: a, in: time}, {better: a, than: b, in: time, by: 3}]\n",
         ["claims[0].than: no run has 'c'; there are: 'a', 'b'",
          "claims[1].in: 'time-to-target' needs a 'target', of the claim or of the study",
          "claims[2].than: both sides are the same",
          "claims[3].by: 3 has no unit; write for example '"]),
        ("whatif: {worlds: {w: {topology.links.backhaul.latency: 1 s}}, "
         "claims: [{better: a, than: b, in: accuracy-at-budget}, {better: w, than: v, in: time}]}\n",
         ["whatif.claims[0].in: 'accuracy-at-budget' needs a 'budget', of the claim, or a limit",
          "whatif.claims[1].than: no run has 'v'; there are: 'a', 'b', 'w'"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, text: str, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path, BASE + text)
    with pytest.raises(ScenarioError) as caught:
        load("study.yaml")
    found = [line.split(": ", 1)[1] for line in str(caught.value).split("\n")]
    assert [line[: len(expected)] for line, expected in zip(found, said, strict=True)] == said


evaluations = st.lists(
    st.tuples(st.integers(1, 5), st.one_of(st.just(math.nan), st.floats(0, 1))), min_size=1, max_size=12
)


@given(evaluations, st.integers(1, 40))
def test_the_last_rounds_and_the_budget_are_those_of_a_direct_search(steps: list[tuple[int, float]], n: int) -> None:
    rows, done = [], 0
    for step, accuracy in steps:
        done += step
        rows.append({"round": done, "accuracy": accuracy, "time_s": 2.0 * done})
    known = [row for row in rows if row["accuracy"] == row["accuracy"]]
    late = [row["accuracy"] for row in known if known[-1]["round"] - row["round"] < n]
    expected = sum(late) / len(late) if late else math.nan
    assert mean_of_last(rows, n) == pytest.approx(expected, nan_ok=True)
    within = [row for row in rows if row["time_s"] <= n]
    assert last_within(rows, {"time": float(n)}) == (within[-1] if within else None)


@pytest.mark.slow
def test_a_value_with_which_training_diverges_loses_and_is_not_tried_again(tmp_path: Path) -> None:
    text = (
        "name: wild\nscenario: tiny.yaml\nset: {stop.rounds: 3}\nseeds: 1\n"
        "tune: {key: method.local.learning_rate, values: [VALUES], seed: 9}\n"
    )
    study = write_study(tmp_path, text.replace("VALUES", "1.0e+30, 0.05"))
    for _ in range(2):
        done = hfl("study", study, "--out", tmp_path / "out", "--jobs", "1", "--no-memo")
        assert done.code == 0, done.err
    assert "diverged" not in done.err  # the second time nothing is left
    (point,) = json.loads((tmp_path / "out" / "tuned.json").read_text())["points"]
    assert point["chosen"] == 0.05
    assert [tried["accuracy"] is None for tried in point["tried"]] == [True, False]
    study.write_text(text.replace("VALUES", "1.0e+30, 2.0e+30"))
    wild = hfl("study", study, "--out", tmp_path / "wild", "--jobs", "1", "--no-memo")
    assert wild.code == 1
    assert "seed-0: not begun: not all runs of its tuning are complete, or training diverged" in wild.err


def test_a_study_that_is_refused_leaves_its_folder_as_it_was(tmp_path: Path) -> None:
    text = (
        "name: again\nscenario: tiny.yaml\nset: {stop.rounds: 1}\nseeds: 1\n"
        "tune: {key: method.local.learning_rate, values: [VALUES], seed: 9}\n"
    )
    words = ("--out", tmp_path / "out", "--jobs", "1", "--no-memo")
    assert hfl("study", write_study(tmp_path, text.replace("VALUES", "1.0e+30, 0.05")), *words).code == 0
    before = {name: (tmp_path / "out" / name).read_bytes() for name in ("study.json", "tuned.json", "results.csv")}
    refused = hfl("study", write_study(tmp_path, text.replace("VALUES", "1.0e+30, 0.06")), *words)
    assert refused.code == 2
    assert "holds a run of another scenario" in refused.err
    assert {name: (tmp_path / "out" / name).read_bytes() for name in before} == before
