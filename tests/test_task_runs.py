"""Runs of every task, from data to report: the same files whoever trains, and analysis by the measure of the task."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenario.command import TINY, hfl

import emulator
from analysis.claims import judge_all
from analysis.plots.pareto import points
from analysis.runs import Run, load_run
from analysis.series import results_of
from analysis.studies import load_study
from analysis.tables import compare, first_reach
from emulator import checkpoint, yamlfile
from emulator.explore.charts import Charts, totals
from emulator.learning import engine
from emulator.learning.memo import Memo
from emulator.run import Watcher, execute
from emulator.scenario import Loaded
from emulator.scenario.load import check

FILES = ("metrics.csv", "ledger.parquet", "summary.json", "memory.json", "groups.csv")
FEATURES = 6
MLP = {"kind": "mlp", "hidden": [8]}


def arrays(kind: str) -> dict[str, np.ndarray]:
    """A small set that can be learned: what comes out is a function of what goes in."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(160, FEATURES)).astype(np.float32)
    if kind == "next-token":
        x = rng.integers(0, 5, (160, 7))
        y = (x[:, -1] + 1) % 5
    else:
        y = x @ rng.normal(size=(FEATURES, 3))
        y = y.astype(np.float32) if kind == "regression" else (y > 0.5).astype(np.int64)
    return {"x_train": x[:120], "y_train": y[:120], "x_test": x[120:], "y_test": y[120:]}


def scenario(tmp_path: Path, kind: str, **changes: Any) -> Loaded:
    """A tiny scenario of a task."""
    path = tmp_path / f"{kind}.npz"
    if not path.exists():
        np.savez(path, **arrays(kind))  # type: ignore[arg-type]
    document = yamlfile.parse(TINY, str(tmp_path / "s.yaml"))
    said = document.data | {
        "data": {"set": {"kind": "npz", "path": str(path)}, "partition": {"kind": "dirichlet", "alpha": 0.5}}
    }
    said["method"] = {"preset": "hierfavg", "group_rounds": 2, "local": {"batch_size": 4, "learning_rate": 0.1}}
    if kind == "next-token":
        said |= {"model": {"kind": "char-lstm", "embedding": 4, "hidden": 8, "layers": 1}, "task": kind}
        said["method"]["local"]["learning_rate"] = 1.0
    said |= {"stop": {"rounds": 6}, **changes}
    return check(yamlfile.from_data(said, str(tmp_path / "s.yaml")))


KINDS = {"regression": ("mae", "r2"), "multi-label": ("macro_f1", "accuracy"), "next-token": ("accuracy", "perplexity")}


@pytest.mark.parametrize("kind", KINDS)
def test_every_task_is_learned(tmp_path: Path, kind: str) -> None:
    loaded = scenario(tmp_path, kind)
    assert loaded.scenario.objective.kind == kind
    summary = execute(loaded, tmp_path / "run", Memo(None), max_workers=1)
    run = load_run(tmp_path / "run")
    first, second = KINDS[kind]
    assert list(run.metrics)[:5] == ["round", "time_s", first, second, "loss"]
    start, end = run.metrics.iloc[0], run.metrics.iloc[-1]
    assert end["loss"] < start["loss"]
    better = {"mae": -1, "perplexity": -1}
    for name in KINDS[kind]:
        assert better.get(name, 1) * (end[name] - start[name]) > 0, name
    assert summary[f"best_{first}"] == run.measure.best(run.metrics[first])
    assert run.measure.name == first
    assert ("measure" in summary) == (first != "accuracy")


@pytest.mark.parametrize("kind", KINDS)
def test_what_ifs_and_resumed_runs_and_workers_give_the_same_files(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = scenario(tmp_path, kind)
    execute(loaded, tmp_path / "run", Memo(None), max_workers=1)

    monkeypatch.setattr(engine, "WORKERS_AFTER_S", -1.0)
    execute(loaded, tmp_path / "workers", Memo(None), max_workers=2)
    monkeypatch.undo()
    kept = scenario(tmp_path, kind, output={"checkpoint": "0 s"})

    def stop(round: int, metrics: object) -> None:  # noqa: A002
        if round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(kept, tmp_path / "resumed", Memo(None), Watcher(on_round=stop), max_workers=1)
    execute(kept, tmp_path / "resumed", Memo(None), max_workers=1)
    for name in FILES:
        whole = (tmp_path / "run" / name).read_bytes()
        assert (tmp_path / "workers" / name).read_bytes() == whole, name
        if name != "summary.json":  # which says that it keeps checkpoints more often
            assert (tmp_path / "resumed" / name).read_bytes() == whole, name

    known = checkpoint.read_memory(tmp_path / "run")
    slow = scenario(tmp_path, kind, topology={**yamlfile.parse(TINY, "t").data["topology"], "edge_device": "laptop"})
    replayed = execute(slow, tmp_path / "slow", Memo(None), known=known, max_workers=1)
    assert replayed["trainings"] == {"asked": replayed["trainings"]["asked"], "computed": 0}
    columns = list(KINDS[kind])
    assert load_run(tmp_path / "slow").metrics[columns].equals(load_run(tmp_path / "run").metrics[columns])


def test_runs_stop_where_a_measure_is_good_enough(tmp_path: Path) -> None:
    execute(scenario(tmp_path, "regression"), tmp_path / "run", Memo(None), max_workers=1)
    third = load_run(tmp_path / "run").metrics["mae"].iloc[3]
    loaded = scenario(tmp_path, "regression", stop={"rounds": 6, "measure": {"mae": float(third)}})
    summary = execute(loaded, tmp_path / "short", Memo(None), max_workers=1)
    assert (summary["stopped_by"], summary["rounds"]) == ("mae", 3)


def test_without_training_nothing_is_measured(tmp_path: Path) -> None:
    loaded = replace(scenario(tmp_path, "regression"), training=False)
    execute(loaded, tmp_path / "run", Memo(None))
    run = load_run(tmp_path / "run")
    assert run.metrics[["mae", "r2", "loss"]].isna().all().all()
    assert run.metrics["time_s"].iloc[-1] > 0


@pytest.fixture
def regression(tmp_path: Path) -> tuple[Run, Run]:
    """Two runs on the diabetes table, the second with slower learning."""
    runs = []
    for name, rate in (("fast", 0.001), ("slow", 0.0001)):
        done = hfl(
            "run", "tables/diabetes", "--out", tmp_path / name, "--no-memo",
            "--set", "output.against=[]", "--set", "stop.rounds=8",
            "--set", f"method.local.learning_rate={rate}", "--set", "method=fedavg", "--set", "topology.clients=8",
        )  # fmt: skip
        assert done.code == 0, done.err
        assert "mean absolute error" in done.out
        assert (tmp_path / name / "measure.png").is_file()
        runs.append(load_run(tmp_path / name))
    return runs[0], runs[1]


def test_a_regression_is_analysed_by_its_error(regression: tuple[Run, Run], tmp_path: Path) -> None:
    fast, slow = regression
    table = compare(regression)
    best = {run: float(run.metrics["mae"].min()) for run in regression}
    assert table["best_mae"].tolist() == list(best.values())
    goal = table["target_mae"].iloc[0]
    assert max(best.values()) <= goal <= 1.01 * max(best.values())
    for run in regression:
        reach = first_reach(run.metrics, goal, run.measure)
        assert reach is not None
        before = run.metrics[run.metrics["round"] < reach["round"]]
        assert (before["mae"] > goal).all()
    assert table["mae_at_time"].tolist() == [
        float(run.metrics.loc[run.metrics["time_s"] <= table["budget_time_s"].iloc[0], "mae"].min())
        for run in regression
    ]
    done = hfl("compare", fast.folder, slow.folder, "--out", tmp_path / "compared", "--target", "60")
    assert done.code == 0, done.err
    assert "To reach 60" in done.out
    assert "final_mae" in (tmp_path / "compared" / "comparison.csv").read_text().splitlines()[0]
    # One that errs less for the same time is on the front; the other is not.
    found = points([fast, slow], "round")
    assert [point.front for point in found] == [point.accuracy == min(p.accuracy for p in found) for point in found]
    for kind, more in (("cost-accuracy", "target=60"), ("pareto", "x=time"), ("to-target", "targets=[60, 50]")):
        done = hfl("plot", kind, fast.folder, slow.folder, "--out", tmp_path / f"{kind}.svg", "--set", more)
        assert done.code == 0, done.err
        assert "mean absolute error" in (tmp_path / f"{kind}.svg").read_text().lower(), kind
    done = hfl("report", fast.folder, slow.folder, "--out", tmp_path / "report.html")
    assert done.code == 0, done.err
    text = (tmp_path / "report.html").read_text()
    assert "mean absolute error" in text
    for kind in ("totals", "cost-to-target"):
        done = hfl("table", kind, fast.folder, slow.folder, "--format", "csv")
        assert (done.code, "_mae" in done.out) == (0, True)
    done = hfl("whatif", fast.folder, "--set", "topology.links.access.up=1 Mbit/s", "--no-memo")
    assert done.code == 0, done.err
    assert "mean absolute error" in done.out
    charts = Charts(["a", "b"], True, fast.measure)
    rows = [
        [{str(name): value for name, value in row.items()} for row in run.metrics.to_dict("records")]
        for run in (fast, slow)
    ]
    charts.show(rows, rows[::-1])
    assert charts.plots[0].yaxis[0].axis_label == "Mean absolute error"
    said = totals(["a", "b"], rows, rows[::-1], fast.measure)
    assert "Mean absolute error at the end" in said
    assert f"{slow.metrics['mae'].iloc[-1] - fast.metrics['mae'].iloc[-1]:+.3g}" in said
    assert emulator.compare([fast.folder])["final_mae"].tolist() == [fast.metrics["mae"].iloc[-1]]


def test_runs_of_different_tasks_are_not_compared(regression: tuple[Run, Run], tmp_path: Path) -> None:
    execute(scenario(tmp_path, "next-token"), tmp_path / "other", Memo(None), max_workers=1)
    done = hfl("compare", regression[0].folder, tmp_path / "other")
    assert done.code == 2
    assert "is judged by mae" in done.err
    assert "by accuracy" in done.err


STUDY = """
name: rates
scenario: tables/diabetes
set: {output.plot: false, stop.rounds: 6, topology.clients: 8, method: fedavg, data.partition: iid}
variants:
  fast: {method.local.learning_rate: 0.0005}
  slow: {method.local.learning_rate: 0.00002}
seeds: 3
target: 100
claims:
  - {better: fast, than: slow, in: accuracy}
  - {better: slow, than: fast, in: best-accuracy}
  - {better: fast, than: slow, in: accuracy-last-rounds, by: 500}
"""


def test_a_study_of_a_regression(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    done = hfl("study", tmp_path / "study.yaml", "--out", tmp_path / "study", "--jobs", "1", "--no-memo")
    assert done.code == 0, done.err
    results = load_study(tmp_path / "study")
    assert results.claims["verdict"].tolist() == ["shown", "contradicted", "level"]
    assert judge_all(results, results.stated)["advantage"].iloc[0] > 0
    assert "fast better than slow in mean absolute error" in done.out
    assert "To reach 100, over the seeds that did" in done.out
    header = (tmp_path / "study" / "summary.csv").read_text().splitlines()[0]
    assert "final_mae_mean" in header
    assert "accuracy_clients_mean" in header
    assert "mae" in (tmp_path / "study" / "results.csv").read_text().splitlines()[0].split(",")
    assert hfl("report", tmp_path / "study", "--out", tmp_path / "r.html").code == 0
    for kind in ("grid-table", "claims", "cost-accuracy"):
        done = hfl("plot", kind, tmp_path / "study", "--out", tmp_path / f"{kind}.svg")
        assert done.code == 0, done.err
        assert "error" in (tmp_path / f"{kind}.svg").read_text(), kind


REFUSED: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (lambda s: s["stop"].update(accuracy=0.5), "stop.accuracy: 'accuracy' is not measured, with the task 'regression'; give '"),
    (lambda s: s["stop"].update(measure={"f1": 1}), "stop.measure: 'f1' is not measured"),
    (lambda s: s.update(attacks={"kind": "label-flip", "superclients": 1.0, "clients": 1.0, "swap": [[0, 2]]}),
     "attacks: 'label-flip' needs samples that have one class each"),
    (lambda s: s.update(attacks={"kind": "gan-recovery", "client": 0, "at": [0.5]}), "attacks: 'gan-recovery' needs samples"),
    (lambda s: s["data"].update(partition={"kind": "label-blocks", "blocks": [[0], [1]]}),
     "data.partition: 'label-blocks' needs samples"),
    (lambda s: s.update(evaluate={"clusters": True}), "evaluate.clusters: needs samples that have one class each"),
    (lambda s: s.update(evaluate={"personal": {}}), "evaluate.personal: needs samples that have one class each"),
    (lambda s: s["method"].update(local={"smoothing": 0.1}), "method.local.smoothing: needs samples that have one class each"),
    (lambda s: s["data"].update(public_set="diabetes", public=1), "data.public_set: the samples of 'diabetes' have numbers"),
    (lambda s: s.update(task="classification"), "task: 'classification' cannot be learned from the set 'npz'"),
    (lambda s: s.update(method={"preset": "hfldd"}), "method.training: 'distilled' needs samples that have one class each"),
    (lambda s: s.update(method={"preset": "visit"}), "needs samples that have one class each"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), REFUSED)
def test_what_needs_classes_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], None], said: str) -> None:
    np.savez(tmp_path / "r.npz", **arrays("regression"))  # type: ignore[arg-type]
    data = yamlfile.parse(TINY, "s").data
    data["data"] = {"set": {"kind": "npz", "path": str(tmp_path / "r.npz")}, "partition": {"kind": "iid"}}
    change(data)
    (tmp_path / "s.yaml").write_text(json.dumps(data))
    done = hfl("validate", tmp_path / "s.yaml")
    assert done.code == 2
    assert said in done.err


def test_results_of_runs_know_their_measure(regression: tuple[Run, Run]) -> None:
    results = results_of(list(regression))
    assert results.measure.name == "mae"
    assert results.runs["best_accuracy"].tolist() == [float(run.metrics["mae"].min()) for run in regression]


METHODS: dict[str, dict[str, Any]] = {
    "ifca": {"method": {"preset": "ifca", "clusters": 2}},
    "hicfl": {"method": {"preset": "hicfl"}},
    "scaffold": {"method": {"preset": "fedavg", "local": {"kind": "scaffold"}}},
    "chains": {"method": {"preset": "fedseq", "estimator": "label-counts", "formation": {"kind": "random", "size": 2}}},
    "centralized": {"method": {"preset": "centralized"}},
    "public": {"method": {"preset": "fedavg"}, "public": 1},
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_learn_numbers_too(tmp_path: Path, name: str) -> None:
    given = dict(METHODS[name])
    given["method"] = {
        **given["method"],
        "local": {"batch_size": 4, "learning_rate": 0.05, **given["method"].get("local", {})},
    }
    plain = scenario(tmp_path, "regression").scenario.data
    data = {"set": plain.set.dump(), "partition": {"kind": "iid"}, "public": given.pop("public", 0)}
    execute(scenario(tmp_path, "regression", data=data, **given), tmp_path / "run", Memo(None), max_workers=1)
    errors = load_run(tmp_path / "run").metrics["mae"]
    assert errors.min() < errors.iloc[0]
