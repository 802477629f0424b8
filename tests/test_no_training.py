"""``hfl run --no-training``: the world of a run with training, row for row, without an accuracy."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from scenario.command import TINY, Done, hfl, stated

from analysis import tables, whatif
from analysis.plots import cost_accuracy
from analysis.runs import load_run
from emulator.errors import InputError
from emulator.files import write_json
from emulator.learning.memo import Memo
from emulator.ledger import read
from emulator.run import Watcher, execute
from emulator.run_folder import prepare
from emulator.scenario import Loaded

Small = Callable[..., Loaded]

LEARNED = ["accuracy", "loss"]


def both(loaded: Loaded, folder: Path) -> tuple[Path, Path]:
    """A run with training and one without."""
    execute(loaded, folder / "real", Memo(None), max_workers=1)
    execute(dataclasses.replace(loaded, training=False), folder / "timing", Memo(None))
    return folder / "real", folder / "timing"


@pytest.mark.parametrize(
    "changes",
    [
        ["method.group_operation=none"],
        [
            "method.group_operation={kind: secure-aggregation, a: 1 s, b: 100 ms, c: 10 ms}"
        ],  # hierfavg, two group rounds
        ["method=group-fel", "method.formation.min_size=2", "topology.links.cell={up: 9 Mbit/s, down: 20 Mbit/s}"],
        ["method.local.kind=scaffold", "stop={bytes: 300 kB}"],
        ["method.local.kind=feddyn", "stop={time: 30 s}"],
        ["method=fedavg", "method.participation=0.5", "evaluate.every=2", "stop.rounds=3"],
        ["topology.devices={laptop: 0.5, jetson-nano: 0.5}", "topology.links.access.trace={file: lte-like}"],
    ],
)
def test_everything_but_what_is_learned_is_the_same(small: Small, tmp_path: Path, changes: list[str]) -> None:
    real, timing = both(small(*changes), tmp_path)
    assert (real / "ledger.parquet").read_bytes() == (timing / "ledger.parquet").read_bytes()
    assert len(read(timing / "ledger.parquet")) > 50
    ours, theirs = (pd.read_csv(folder / "metrics.csv") for folder in (timing, real))
    assert ours.drop(columns=LEARNED).equals(theirs.drop(columns=LEARNED))
    assert ours[LEARNED].isna().all(axis=None)
    assert theirs[LEARNED].notna().all(axis=None)
    ended, expected = (stated(folder) for folder in (timing, real))
    assert (ended["training"], expected["training"]) == (False, True)
    assert (ended["final"]["accuracy"], ended["final"]["loss"], ended["best_accuracy"]) == (None, None, None)
    assert ended["last_rounds"]["accuracy"] is None
    assert expected["last_rounds"]["accuracy"] > 0
    for summary in (ended, expected):
        del summary["training"], summary["best_accuracy"], summary["final"]["accuracy"], summary["final"]["loss"]
        del summary["last_rounds"]["accuracy"]
        assert (summary.pop("accuracy_at_budget", 1.0) is None) == (summary is ended and "budget" in summary)
    assert ended == expected


def test_scaffold_sends_two_vectors(small: Small, tmp_path: Path) -> None:
    double, single = small("method.local.kind=scaffold"), small()
    for name, loaded in (("double", double), ("single", single)):
        execute(dataclasses.replace(loaded, training=False), tmp_path / name, Memo(None))
    models = []
    for name in ("double", "single"):
        rows = read(tmp_path / name / "ledger.parquet")
        models.append(rows.loc[rows["what"] == "model", "bytes"].sum())
    assert models[0] == 2 * models[1] > 0


# From outside.


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a scenario and its two kinds of runs."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "s.yaml").write_text(TINY)
    assert hfl("run", folder / "s.yaml", "--out", folder / "real", "--no-memo").code == 0
    done = hfl("run", folder / "s.yaml", "--out", folder / "timing", "--no-memo", "--no-training")
    assert done.code == 0
    assert done.out.startswith("hierfavg: no training after 2 rounds (stopped by rounds), ")
    return folder


def test_a_folder_knows_which_kind_of_run_it_holds(study: Path) -> None:
    assert not (study / "timing" / "accuracy.png").exists()
    assert json.loads((study / "timing" / "manifest.json").read_text())["training"] is False
    for kind, other, extra in (("timing", "with", ["--no-training"]), ("real", "without", [])):
        again = hfl("run", study / "s.yaml", "--out", study / kind, "--no-memo", *extra)
        assert again == Done(0, f"hierfavg: {study / kind} holds this run already, complete\n", "")
        wrong = [] if extra else ["--no-training"]
        refused = hfl("run", study / "s.yaml", "--out", study / kind, "--no-memo", *wrong)
        message = (
            f"holds a run of this scenario {'without' if other == 'with' else 'with'} training; choose another --out"
        )
        assert refused.code == 2
        assert message in refused.err


def test_a_run_that_was_cut_off_knows_it_too(small: Small, tmp_path: Path) -> None:
    timing = dataclasses.replace(small("stop.rounds=3"), training=False)

    def stop(round: int, metrics: dict[str, float]) -> None:  # noqa: A002
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(timing, tmp_path / "part", Memo(None), Watcher(on_round=stop))
    (tmp_path / "part" / "summary.json").unlink()  # as if it had been killed
    with pytest.raises(InputError, match="without training"):
        prepare(tmp_path / "part", timing.scenario)
    assert load_run(tmp_path / "part").training is False
    assert prepare(tmp_path / "part", timing.scenario, training=False)
    execute(timing, tmp_path / "part", Memo(None))
    execute(timing, tmp_path / "whole", Memo(None))
    for name in ("metrics.csv", "ledger.parquet", "summary.json"):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert prepare(tmp_path / "part", timing.scenario, overwrite=True)
    assert not (tmp_path / "part" / "manifest.json").exists()


def test_the_default_folder_is_another_one(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert hfl("run", study / "s.yaml", "--no-memo", "--no-training").code == 0
    assert (tmp_path / "runs" / "tiny-3-no-training" / "summary.json").is_file()


def test_a_what_if_stays_without_training(study: Path, tmp_path: Path) -> None:
    change = ["--set", "topology.links.access.up=1 Mbit/s", "--no-memo", "--out", tmp_path / "slow"]
    done = hfl("whatif", study / "timing", *change)
    assert done.code == 0, done.err
    assert done.out.endswith(f"no training -> {tmp_path / 'slow'}\n")
    assert json.loads((tmp_path / "slow" / "summary.json").read_text())["training"] is False
    table = pd.read_csv(tmp_path / "slow" / "comparison.csv")
    assert list(table["label"]) == ["before", "what if"]
    assert table["time_s"][1] > table["time_s"][0]
    assert table["bytes_total"][1] == table["bytes_total"][0]


def test_a_fleet_larger_than_its_data_runs_without_training_alone(study: Path, tmp_path: Path) -> None:
    fleet = ["--set", "topology.clients=6000", "--no-memo", "--out", tmp_path / "large"]
    refused = hfl("run", study / "s.yaml", *fleet)
    assert refused.code == 2
    assert "topology.clients" in refused.err
    assert hfl("validate", study / "s.yaml", *fleet[:2]).code == 2
    assert hfl("validate", study / "s.yaml", *fleet[:2], "--no-training").code == 0
    done = hfl(
        "run", study / "s.yaml", *fleet, "--no-training", "--set", "stop.rounds=1", "--set", "method.group_rounds=1"
    )
    assert done.code == 0, done.err
    rows = read(tmp_path / "large" / "ledger.parquet")
    assert rows.loc[rows["kind"] == "compute", "who"].nunique() == 6000


def test_accuracy_alone_cannot_end_it(study: Path) -> None:
    done = hfl("run", study / "s.yaml", "--set", "stop={accuracy: 0.9}", "--no-training", "--out", study / "never")
    assert done.code == 2
    message = "accuracy is not measured without training; give 'rounds', 'time', 'cost' or 'bytes' too"
    assert f"stop: {message}" in done.err
    assert not (study / "never").exists()
    assert hfl("validate", study / "s.yaml", "--set", "stop={accuracy: 0.9}").code == 0
    assert hfl("validate", study / "s.yaml", "--set", "stop={accuracy: 0.9, rounds: 2}", "--no-training").code == 0


# Tables and pictures.


def test_runs_without_training_are_compared_by_what_they_took(study: Path, tmp_path: Path) -> None:
    done = hfl("compare", study / "timing", "--out", tmp_path)
    assert done.code == 0, done.err
    assert "What it took" in done.out
    table, final = pd.read_csv(tmp_path / "comparison.csv"), load_run(study / "timing").metrics.iloc[-1]
    assert table["time_s"].tolist() == [final["time_s"]]
    assert table["energy_j"].tolist() == [final["energy_j"]]
    assert not (tmp_path / "comparison.png").exists()
    both_kinds = hfl("compare", study / "timing", study / "real")
    assert both_kinds.code == 2
    assert f"the run in '{study / 'timing'}' is one without training: it has no accuracy" in both_kinds.err
    assert hfl("compare", study / "timing", "--target", "0.5").code == 2


def test_against_runs_without_training_too(study: Path, tmp_path: Path) -> None:
    done = hfl("run", study / "s.yaml", "--no-training", "--against", "fedavg", "--no-memo", "--out", tmp_path / "both")
    assert done.code == 0, done.err
    assert list(pd.read_csv(tmp_path / "both" / "comparison.csv")["label"]) == ["hierfavg", "fedavg"]


def test_tables_and_plots_say_what_is_missing(study: Path) -> None:
    run = load_run(study / "timing")
    assert run.metrics["accuracy"].isna().all()
    for use in (
        lambda: tables.compare([run]),
        lambda: whatif.side_by_side(run, run),
        lambda: cost_accuracy.plot([run]),
    ):
        with pytest.raises(InputError, match="without training: it has no accuracy"):
            use()


def test_a_run_with_training_may_not_lack_an_accuracy(study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    summary = json.loads((study / "timing" / "summary.json").read_text()) | {"training": True}
    write_json(folder / "summary.json", summary)
    (folder / "metrics.csv").write_bytes((study / "timing" / "metrics.csv").read_bytes())
    with pytest.raises(InputError, match="column 'accuracy' has nan in row 1"):
        load_run(folder)
