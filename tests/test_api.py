"""The emulator from Python: the same figures as the command, messages with keys, and a process that stays as it was."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from scenario.command import ROOT, TINY, hfl, script

import emulator
from emulator.cli.progress import RunProgress

SCENARIO: dict[str, Any] = yaml.safe_load(TINY)
FILES = ("metrics.csv", "ledger.parquet", "summary.json", "scenario.yaml")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A finished run, for tests that only read it."""
    return emulator.run_scenario(
        SCENARIO, tmp_path_factory.mktemp("api") / "run", memo=False, workers=1, progress=False
    )


def test_the_surface_is_small_typed_and_documented() -> None:
    for name in emulator.__all__:
        found = getattr(emulator, name)
        assert inspect.getdoc(found)
        if inspect.isfunction(found):
            hints = inspect.signature(found)
            assert hints.return_annotation is not inspect.Signature.empty
            assert all(each.annotation is not inspect.Parameter.empty for each in hints.parameters.values())
        assert name in dir(emulator)
        assert f"`{name}" in (ROOT / "docs" / "python.md").read_text()
        assert importlib.util.find_spec(f"emulator.{name}") is None, "a module of this name would take its place"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = emulator.nothing


def test_importing_the_package_and_loading_a_scenario_import_nothing_heavy(tmp_path: Path) -> None:
    code = """
    import sys, emulator
    print([name for name in ("pydantic", "yaml", "numpy", "simpy") if name in sys.modules])
    emulator.load_scenario("quickstart")
    print([name for name in ("torch", "pandas", "matplotlib", "typer") if name in sys.modules])
    """
    done = script(tmp_path, code)
    assert (done.stdout, done.stderr) == ("[]\n[]\n", "")


def test_a_run_has_the_files_and_figures_of_the_command(run: Any, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    assert hfl("run", tmp_path / "tiny.yaml", "--out", tmp_path / "run", "--no-memo", "--workers", "1").code == 0
    for name in FILES:
        assert (run.folder / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    assert list(run.metrics["round"]) == [0, 1, 2]
    assert {"kind", "who", "bytes"} <= set(run.ledger.columns)
    assert list(run.groups["size"]) == [4, 4]
    assert run.summary["status"] == "complete"
    assert run.manifest["command"] == []  # not that of whoever runs these tests
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["command"][:2] == ["hfl", "run"]


def test_scenarios_from_files_names_and_mappings_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    built = emulator.load_scenario(SCENARIO)
    assert emulator.load_scenario(tmp_path / "tiny.yaml").text == built.text
    assert emulator.load_scenario(str(tmp_path / "tiny.yaml")).text == built.text
    numbers = {**SCENARIO, "model": {"kind": "mlp", "hidden": np.array([8])}, "stop": {"rounds": np.int64(2)}}
    assert emulator.load_scenario(numbers).text == built.text
    assert emulator.load_scenario("quickstart").name == "quickstart"
    assert repr(built) == "<Scenario 'tiny': hierfavg, seed 3>"
    assert (
        repr(emulator.load_scenario(SCENARIO, training=False))
        == "<Scenario 'tiny': hierfavg, seed 3, without training>"
    )


def test_a_scenario_does_not_change_with_what_is_made_of_it() -> None:
    built = emulator.load_scenario(SCENARIO)
    before = built.text
    other = built.changed({"stop.rounds": 3, "method.local.epochs": 2, "seed": 4})
    assert yaml.safe_load(other.text)["stop"]["rounds"] == 3
    assert (other.seed, built.seed, built.text) == (4, 3, before)
    assert built.against("fedavg").method == "fedavg"
    epochs = yaml.safe_load(before)["method"]["local"]["epochs"]
    assert other.changed({"stop.rounds": 2, "method.local.epochs": epochs, "seed": 3}).text == before
    assert yaml.safe_load(TINY) == SCENARIO


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"stopp": 1}, "scenario: stopp: unknown key; did you mean 'stop'?"),
        ({"stop": {"rounds": "many"}}, "scenario: stop.rounds: expected a whole number, not 'many'"),
        ({"stop": {"rounds": object()}}, "scenario: stop.rounds: expected text, a number, a list or a mapping, not object"),
        ({"stop": {3: 1}}, "scenario: stop: the key 3 is not text"),
        ({"notes": "\ud800"}, "scenario: notes: has a character that YAML does not allow"),
        ({"seed": 10**20}, "scenario: seed: the number is too large"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_mapping_is_said_with_its_key(wrong: dict[Any, Any], message: str) -> None:
    with pytest.raises(emulator.InputError) as error:
        emulator.load_scenario({**SCENARIO, **wrong})
    assert str(error.value) == message


def test_a_mapping_that_holds_itself_is_refused() -> None:
    endless: dict[str, Any] = dict(SCENARIO)
    endless["stop"] = endless
    with pytest.raises(emulator.InputError, match="is nested deeper than 30 levels"):
        emulator.load_scenario(endless)


def test_what_is_wrong_with_changes_folders_and_runs_is_said(run: Any, tmp_path: Path) -> None:
    built = emulator.load_scenario(SCENARIO)
    cases = {
        lambda: built.changed({"stop.rouds": 2}): "changes: stop.rouds: unknown key; did you mean 'rounds'?",
        lambda: built.changed({"stop..rounds": 2}): "changes: 'stop..rounds' is no key of a scenario, such as 'stop.rounds'",
        lambda: built.against("fedvg"): "unknown preset 'fedvg'; did you mean 'fedavg'?",
        lambda: emulator.load_scenario("quikstart"):
            "quikstart: there is no such file and no such bundled scenario; did you mean 'quickstart'?",
        lambda: emulator.run_scenario(built.changed({"seed": 9}), run.folder): "holds a run of another scenario",
        lambda: emulator.what_if(run, {}): "say what is to change",
        lambda: emulator.what_if(tmp_path, {"seed": 2}): "is not a run folder",
        lambda: emulator.sweep(built, {"stop.rouds": [1]}): "sweep: stop.rouds: unknown key; did you mean 'rounds'?",
        lambda: emulator.sweep(built, {"stop.rounds": 2}): "sweep: grid.stop.rounds: expected a list of values",
        lambda: emulator.sweep(emulator.load_scenario(SCENARIO, training=False)): "a sweep trains",
        lambda: emulator.compare([]): "give at least one run to compare",
        lambda: emulator.compare(run, target=85): "85",
        lambda: emulator.plot("braekdown", run): "unknown figure 'braekdown'; did you mean 'breakdown'?",
        lambda: emulator.plot("breakdown", run, colour="red"): "plot 'breakdown': colour: unknown key",
        lambda: emulator.plot("breakdown", run, "picture.gif"): "the name must end in one of",
    }  # fmt: skip
    for call, message in cases.items():
        with pytest.raises(emulator.InputError, match=re.escape(message)):
            call()
    assert not list(tmp_path.iterdir())


def test_what_if_is_that_of_the_command(run: Any, tmp_path: Path) -> None:
    change = {"topology.links.access.up": "1 Mbit/s"}
    after = emulator.what_if(run, change, tmp_path / "after", memo=False, progress=False)
    assert hfl("whatif", run.folder, "--set", "topology.links.access.up=1 Mbit/s", "--no-memo").code == 0
    (by_command,) = run.folder.glob("whatif-*")
    for name in FILES:
        assert (after.folder / name).read_bytes() == (by_command / name).read_bytes()
    assert after.manifest["trainings"] == {"asked": 32, "computed": 0}
    assert after.metrics["time_s"].iloc[-1] > run.metrics["time_s"].iloc[-1]
    assert after.metrics["accuracy"].equals(run.metrics["accuracy"])
    again = emulator.what_if(run.folder, change, memo=False, progress=False)
    assert again.folder == by_command


def test_a_sweep_is_a_study(tmp_path: Path) -> None:
    grid, seeds = {"stop.rounds": [1, 2]}, [3, 4]
    results = emulator.sweep(
        SCENARIO, grid, seeds, target=0.1, out=tmp_path / "sweep", jobs=1, memo=False, progress=False
    )
    (tmp_path / "tiny.yaml").write_text(TINY)
    study = {"name": "tiny", "scenario": "tiny.yaml", "grid": grid, "seeds": seeds, "target": 0.1}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    done = hfl("study", tmp_path / "study.yaml", "--out", tmp_path / "study", "--no-memo", "--jobs", "1")
    assert done.code == 0, done.err
    for name in ("results.csv", "summary.csv", "study.json"):
        assert (tmp_path / "sweep" / name).read_bytes() == (tmp_path / "study" / name).read_bytes()
    assert list(results.runs["stop.rounds"]) == [1, 1, 2, 2]
    assert list(results.summary["seeds"]) == [2, 2]
    assert len(emulator.compare(results)) == 4
    written = tmp_path / "sweep" / "rounds-1_seed-3" / "metrics.csv"
    before = written.stat().st_mtime_ns
    again = emulator.sweep(SCENARIO, grid, seeds, target=0.1, out=tmp_path / "sweep", memo=False, progress=False)
    assert again.table.equals(results.table)
    assert written.stat().st_mtime_ns == before


def test_a_sweep_says_which_runs_failed_and_why(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def model(shape, classes):\n    raise ValueError('not today')\n")
    model = {"kind": "module", "factory": "broken:model"}
    variants = {"good": {}, "bad": {"model": model}}
    before = list(sys.path)
    sys.path.append(str(tmp_path))
    try:
        with pytest.raises(emulator.HflError, match=r"1 of 2 runs failed\n  bad_seed-3: .*not today"):
            emulator.sweep(SCENARIO, variants=variants, out=tmp_path / "out", jobs=1, memo=False, progress=False)
    finally:
        sys.path[:] = before
        sys.modules.pop("broken", None)
    assert (tmp_path / "out" / "good_seed-3" / "summary.json").is_file()
    assert "not today" in (tmp_path / "out" / "failures.json").read_text()


def test_pictures_are_shown_and_written(run: Any, tmp_path: Path) -> None:
    picture = emulator.plot("cost-accuracy", run, tmp_path / "drawn.png", x=["time", "round"], title="Two axes")
    assert picture.png == (tmp_path / "drawn.png").read_bytes()
    shown, size = picture._repr_png_()
    assert shown == picture.png
    assert (size["width"], size["height"]) == (picture.pixels[0] // 2, picture.pixels[1] // 2)
    hfl(
        "plot",
        "cost-accuracy",
        run.folder,
        "--out",
        tmp_path / "other.png",
        "--set",
        "x=[time, round]",
        "--title",
        "Two axes",
    )
    assert picture.png == (tmp_path / "other.png").read_bytes()


def test_runs_without_training_are_compared_by_what_they_took(tmp_path: Path) -> None:
    scenario = emulator.load_scenario(SCENARIO, {"topology.clients": 5000}, training=False)
    timed = emulator.run_scenario(scenario, tmp_path / "timed", memo=False, progress=False)
    assert timed.metrics["accuracy"].isna().all()
    assert list(emulator.compare([timed.folder])["time_s"]) == [timed.metrics["time_s"].iloc[-1]]
    with pytest.raises(emulator.InputError, match="without training"):
        emulator.compare(timed, target=0.5)


def test_the_default_folders_tell_scenarios_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = emulator.load_scenario(SCENARIO, {"stop.rounds": 1}, training=False)
    runs = [
        emulator.run_scenario(each, memo=False, progress=False)
        for each in (first, first, first.changed({"topology.links.access.latency": "1 s"}))
    ]
    assert runs[0].folder == runs[1].folder != runs[2].folder
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == sorted({run.folder.name for run in runs})
    assert re.fullmatch(r"tiny-3-[0-9a-f]{8}-no-training", runs[0].folder.name)


def test_nothing_of_the_process_is_changed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def surroundings() -> tuple[Any, ...]:
        handlers = tuple(signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM))
        hooks = (sys.unraisablehook, sys.excepthook, sys.modules["__main__"])
        return handlers, hooks, list(sys.path), dict(os.environ), Path.cwd(), torch.get_num_threads(), list(sys.argv)

    torch.set_num_threads(3)
    try:
        before = surroundings()
        wrong = {"kind": "module", "factory": "json:loads"}
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # also an unclosed file or database
            runs = [
                emulator.run_scenario(
                    SCENARIO, tmp_path / name, memo=tmp_path / f"{name}.sqlite", workers=1, progress=False
                )
                for name in ("first", "second")
            ]
            emulator.sweep(SCENARIO, out=tmp_path / "sweep", jobs=1, memo=False, progress=False)
        assert surroundings() == before
        with pytest.raises(emulator.InputError):
            emulator.run_scenario({**SCENARIO, "model": wrong}, tmp_path / "wrong", memo=False, progress=False)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)
    pd.testing.assert_frame_equal(runs[0].metrics, runs[1].metrics, check_exact=True)
    pd.testing.assert_frame_equal(runs[0].ledger, runs[1].ledger, check_exact=True)
    assert capfd.readouterr() == ("", "")  # without progress the library is silent


def test_progress_goes_to_stderr(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    emulator.run_scenario(SCENARIO, tmp_path / "run", memo=False, workers=1)
    emulator.sweep(SCENARIO, seeds=[3], out=tmp_path / "sweep", jobs=1, memo=False)
    done = capfd.readouterr()
    assert done.out == ""
    assert done.err.splitlines()[0] == "hierfavg: started"
    assert done.err.splitlines()[-1] == "1/1  seed-3: complete"


def test_the_same_call_goes_on_after_an_interruption(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RunProgress, "_on_round", interrupt)
        with pytest.raises(KeyboardInterrupt):
            emulator.run_scenario(SCENARIO, tmp_path / "run", memo=False, workers=1)
    assert emulator.load_run(tmp_path / "run").status == "interrupted"
    finished = emulator.run_scenario(SCENARIO, tmp_path / "run", memo=False, workers=1, progress=False)
    assert finished.manifest["trainings"]["computed"] < finished.manifest["trainings"]["asked"]
    for name in FILES:
        assert (finished.folder / name).read_bytes() == (run.folder / name).read_bytes()
