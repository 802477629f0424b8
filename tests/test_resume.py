"""A run that is killed at any instant goes on where it was, and ends with the very files of one that was not."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from patience import PATIENCE_S
from scenario.command import ended, started

from emulator import checkpoint
from emulator.files import aside_of
from emulator.learning.memo import Memo
from emulator.run import Watcher, execute
from emulator.run_folder import prepare
from emulator.scenario import Loaded, dump, load

FILES = ("metrics.csv", "ledger.parquet", "energy.csv", "fleet.json", "summary.json", "scenario.yaml", "memory.json")
KILLS = 20


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def scenario_for(small: Callable[..., Loaded], tmp_path: Path, rule: str) -> Path:
    loaded = small(
        f"method.local.kind={rule}", "method.group_rounds=3", "stop.rounds=30", "output.checkpoint=0 s", "output.plot=false",
        "method.sampling={kind: uniform, groups: 1}",
    )  # fmt: skip
    path = tmp_path / "scenario.yaml"
    path.write_text(dump(loaded.scenario))
    return path


# Children of the fork server have everything imported already: what is killed is the run, not Python's start.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["emulator.run", "emulator.cli", "emulator.learning.engine", "safetensors.torch", "pyarrow.parquet"]
)


def run_to_the_end(scenario: Path, out: Path) -> None:
    loaded = load(scenario)
    if prepare(out, loaded.scenario):
        execute(loaded, out, Memo(None), max_workers=1)


@pytest.mark.parametrize("rule", ["sgd", pytest.param("scaffold", marks=pytest.mark.slow)])
def test_killed_at_random_instants_it_ends_the_same(small: Callable[..., Loaded], tmp_path: Path, rule: str) -> None:
    scenario, whole, broken = scenario_for(small, tmp_path, rule), tmp_path / "whole", tmp_path / "broken"

    def start_process(out: Path) -> ForkServerProcess:
        process = PROCESSES.Process(target=run_to_the_end, args=(scenario, out), daemon=True)
        process.start()
        return process

    start_process(tmp_path / "warm").join(PATIENCE_S)  # the fork server imports now
    began = time.monotonic()
    first = start_process(whole)
    first.join(PATIENCE_S)
    assert first.exitcode == 0
    length = time.monotonic() - began
    chance = random.Random(11)
    killed = endings = 0
    while killed < KILLS:
        process = start_process(broken)
        process.join(chance.uniform(0.02, 0.9) * length)
        if process.exitcode is None:
            process.kill()
            process.join(PATIENCE_S)
            killed += 1
        else:  # it came to its end between two kills: begin anew and go on killing
            assert process.exitcode == 0
            assert contents(broken) == contents(whole)
            endings += 1
            for file in broken.iterdir():
                file.unlink()
    final = start_process(broken)
    final.join(PATIENCE_S)
    assert final.exitcode == 0
    assert contents(broken) == contents(whole)
    assert not (broken / "checkpoint.safetensors").exists()
    assert not [f for f in broken.iterdir() if f.name.startswith(".ledger")]


@pytest.mark.parametrize("rule", ["sgd", "scaffold", "feddyn"])
def test_goes_on_without_training_again(small: Callable[..., Loaded], tmp_path: Path, rule: str) -> None:
    loaded = small(f"method.local.kind={rule}", "stop.rounds=6", "output.checkpoint=0 s")
    whole = execute(loaded, tmp_path / "whole", Memo(None), max_workers=1)

    def stop_after_round_4(round: int, metrics: dict[str, float]) -> None:  # noqa: A002
        if round == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(loaded, tmp_path / "part", Memo(None), Watcher(on_round=stop_after_round_4), max_workers=1)
    summary = json.loads((tmp_path / "part" / "summary.json").read_text())
    assert (summary["status"], summary["rounds"]) == ("interrupted", 4)
    assert prepare(tmp_path / "part", loaded.scenario)
    rest = execute(loaded, tmp_path / "part", Memo(None), max_workers=1)
    assert rest["trainings"]["asked"] == whole["trainings"]["asked"] == whole["trainings"]["computed"]
    assert rest["trainings"]["computed"] == whole["trainings"]["computed"] // 6 * 2
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")
    assert not prepare(tmp_path / "part", loaded.scenario)


def test_a_run_killed_while_it_wrote_its_first_file_begins_anew(small: Callable[..., Loaded], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    half_written = aside_of(folder / "scenario.yaml")
    for path in (folder / ".lock", half_written):
        path.touch()
    assert prepare(folder, small().scenario)
    assert not half_written.exists()


def test_damaged_checkpoints_cost_time_only(
    small: Callable[..., Loaded], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = small("stop.rounds=3", "output.checkpoint=0 s")
    execute(loaded, tmp_path / "whole", Memo(None), max_workers=1)

    def stop(round: int, metrics: dict[str, float]) -> None:  # noqa: A002
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(loaded, tmp_path / "part", Memo(None), Watcher(on_round=stop), max_workers=1)
    (tmp_path / "part" / checkpoint.VALUES).write_bytes(b"rubbish")
    (tmp_path / "part" / checkpoint.MEMORY).write_text('{"evaluation:x": 3')
    execute(loaded, tmp_path / "part", Memo(None), max_workers=1)
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")
    assert caplog.text.count("is damaged") == 2


def test_an_interrupted_process_leaves_a_valid_folder(small: Callable[..., Loaded], tmp_path: Path) -> None:
    scenario = scenario_for(small, tmp_path, "sgd")
    process = started(tmp_path, "run", scenario, "--out", tmp_path / "out", "--no-memo")
    while not (tmp_path / "out" / "metrics.csv").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    done = ended(process)
    assert done.code == 130, done.err
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["status"] == "interrupted"
