"""Who trains what on a cluster, and what a run of a study does on a machine that sees neither its folder nor the memo."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scenario.command import hfl
from study.study_samples import write_study

from emulator import cluster
from emulator.errors import HflError
from emulator.learning.memo import Memo
from emulator.run import Watcher
from emulator.run_folder import FILES
from emulator.study import ray_runner
from emulator.study.job import Progressed
from emulator.study.load import load
from emulator.study.ray_runner import Begun, RunDelivery, RunOrder, Stopped, do_run, pack, unpack

SAME = [name for name in FILES if name != "manifest.json"]


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in SAME if (folder / name).exists()}


def test_shares_are_even_and_clients_stay_at_home_as_far_as_that_goes() -> None:
    from emulator.learning.workers import assign_jobs_near

    workers = ["a", "a", "b", "b"]
    assert assign_jobs_near([1.0] * 8, [""] * 8, workers) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert assign_jobs_near([1.0] * 8, ["b", "a"] * 4, workers) == [[1, 5], [3, 7], [0, 4], [2, 6]]
    everybody_at_a = assign_jobs_near([1.0] * 8, ["a"] * 8, workers)
    assert sorted(map(len, everybody_at_a)) == [2, 2, 2, 2]
    gone = assign_jobs_near([3.0, 2.0, 2.0, 1.0], ["gone"] * 4, ["a", "b"])
    assert gone == [[0, 3], [1, 2]]
    # One that is longer than a fair share goes to anybody.
    assert assign_jobs_near([5.0], ["b"], ["a", "b"]) == [[0], []]


@pytest.fixture
def order(tmp_path: Path) -> RunOrder:
    """A run whose folder only the machine 'driver' sees."""
    run = load(str(write_study(tmp_path, STUDY))).runs[0]
    folder = tmp_path / "study" / run.name
    folder.mkdir(parents=True)
    memo = tmp_path / "memo"
    return RunOrder(
        run.name, run.loaded.document, folder, 1, "marker", "driver", memo, b"", {}, cluster.Surroundings()
    )  # fmt: skip


STUDY = """
name: one
scenario: tiny.yaml
set: {stop.rounds: 4, output.checkpoint: 0 s}
"""


def nobody(message: Any) -> None:
    pass


def test_a_run_elsewhere_is_brought_back_whole(order: RunOrder, tmp_path: Path) -> None:
    told: list[Any] = []
    there = do_run(order, "elsewhere", told.append)
    assert (there.error, there.remembered) == ("", False)
    assert isinstance(told[0], Begun)
    assert any(isinstance(message, Progressed) for message in told)
    assert not any(order.folder.iterdir())
    unpack(there.packed, order.folder)
    assert json.loads((order.folder / "summary.json").read_text())["status"] == "complete"
    here = replace(order, folder=tmp_path / "here")
    assert do_run(here, "driver", nobody) == RunDelivery("", b"", remembered=True)
    assert contents(order.folder) == contents(here.folder)
    assert (
        Memo(order.memo).stats()["evaluation"][0] == 5
    )  # the untrained model, and four rounds of the second run alone


def test_a_run_that_sees_the_marker_writes_into_the_folder_itself(order: RunOrder) -> None:
    (order.folder.parent / ray_runner.MARKER).write_text("marker")
    assert do_run(order, "elsewhere", nobody) == RunDelivery("", b"", remembered=False)
    assert json.loads((order.folder / "summary.json").read_text())["status"] == "complete"
    assert not Memo(order.memo).stats()
    assert do_run(order, "elsewhere", nobody).error == ""  # complete already: a task that was lost at its very end


def test_an_interrupted_run_elsewhere_brings_back_what_it_needs_to_go_on(order: RunOrder) -> None:
    told: list[Any] = []

    def interrupted(message: Any) -> None:
        told.append(message)
        if isinstance(message, Progressed):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        do_run(order, "elsewhere", interrupted)
    (stopped,) = (message for message in told if isinstance(message, Stopped))
    unpack(stopped.packed, order.folder)
    assert json.loads((order.folder / "summary.json").read_text())["status"] == "interrupted"
    assert (order.folder / "checkpoint.safetensors").exists()
    rest = do_run(replace(order, packed=pack(order.folder)), "elsewhere", nobody)
    unpack(rest.packed, order.folder)
    whole = do_run(order, "elsewhere", nobody)
    unpack(whole.packed, order.folder.parent / "whole")
    assert contents(order.folder) == contents(order.folder.parent / "whole")


def test_what_runs_that_train_alike_have_found_is_not_trained_again(
    order: RunOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from emulator.checkpoint import read_memory

    whole = do_run(order, "elsewhere", nobody)
    unpack(whole.packed, order.folder)
    trained: list[int] = []

    def watcher(tell: Callable[[Progressed], None]) -> Watcher:
        return Watcher(on_trained=lambda done, waiting: trained.append(done))

    monkeypatch.setattr(ray_runner, "tells_rounds", watcher)
    do_run(order, "elsewhere", nobody)
    assert trained
    trained.clear()
    do_run(replace(order, known=read_memory(order.folder)), "elsewhere", nobody)
    assert not trained


def test_other_versions_elsewhere_are_refused(order: RunOrder) -> None:
    versions = order.surroundings.versions | {"torch": "1.0"}
    other = replace(order, surroundings=replace(order.surroundings, versions=versions))
    assert "began with 1.0: every machine of the cluster needs the same versions" in do_run(other, "x", nobody).error
    with pytest.raises(HflError, match="has torch"):
        other.surroundings.enter()


def test_relative_paths_begin_where_the_command_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["other"])
    here = cluster.Surroundings(command=["hfl", "study"], folder=tmp_path / "there")
    here.enter()
    assert Path.cwd() == tmp_path / "there"
    assert sys.argv == ["hfl", "study"]
    replace(here, folder=tmp_path / "nowhere").enter()
    assert Path.cwd() == tmp_path / "there"


def test_backends_and_addresses_that_do_not_go_together(tmp_path: Path) -> None:
    for words, message in (
        (("--address", "auto"), "--address names a Ray cluster; it goes with --backend ray"),
        (("--backend", "rai"), "'rai' is not one of"),
    ):
        done = hfl("run", "quickstart", "--out", tmp_path / "run", *words)
        assert done.code == 2
        assert message in " ".join(done.err.split())
        assert not (tmp_path / "run").exists()


def test_without_ray_one_is_told_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = hfl("study", "studies/quickstart", "--out", tmp_path / "study", "--backend", "ray")
    assert (done.code, "pip install 'hfl-emulator[ray]'" in done.err) == (2, True)


def test_the_default_does_without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # whoever imports it now fails
    write_study(tmp_path, STUDY)
    done = hfl("run", tmp_path / "tiny.yaml", "--out", tmp_path / "run", "--no-memo", "--set", "output.plot=false")
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "complete"
