"""Training and studies on a real Ray instance of this machine: the same files as without it, whatever is lost on the way."""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from certify import certify_samples
from patience import PATIENCE_S
from scenario.command import ended, started
from study.study_samples import write_study
from torch import nn

from emulator import checkpoint, cluster, interruption
from emulator.certify.certificate import Asked, Resources, certify
from emulator.errors import HflError
from emulator.learning.device import Place
from emulator.learning.distillation import DistilJob, DistillationParams
from emulator.learning.memo import Memo
from emulator.learning.trainer import TrainingData
from emulator.run import execute
from emulator.run_folder import FILES, prepare
from emulator.scenario import Loaded, dump
from emulator.study.folder import prepare_all
from emulator.study.load import load
from emulator.study.ray_runner import run_all
from tests.methods.test_hfldd import HFLDD
from tests.methods.test_sequential import CHAINS

ray = pytest.importorskip("ray")

SAME = [name for name in FILES if name != "manifest.json"]


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in SAME if (folder / name).exists()}


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        with contextlib.chdir(tmp_path_factory.mktemp("current")):
            stack.enter_context(cluster.joined(None, 2))
        yield


def children(of: int) -> dict[int, str]:
    """All processes below one, with their command lines."""
    parents, words = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                words[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:
                continue  # it has ended meanwhile

    def below(pid: int | None) -> bool:
        return pid is not None and (pid == of or below(parents.get(pid)))

    return {pid: words[pid] for pid in words if below(parents[pid])}


class Killer:
    """Kills a worker process while it does a task, as soon as there is one, once."""

    def __init__(self, task: str, of: int) -> None:
        self.killed: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(f"ray::{task}", of))

    def _watch(self, name: str, of: int) -> None:
        while not self._over.is_set() and not self.killed:
            for pid, words in children(of).items():
                if words.startswith(name):
                    time.sleep(0.1)  # it is in the middle now
                    os.kill(pid, signal.SIGKILL)
                    self.killed.append(pid)
                    break
            time.sleep(0.01)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)


LONGER = ("data.partition.samples_per_client=400", "data.set={kind: synthetic, train_samples: 20000}")


def test_tasks_do_not_look_for_modules_where_the_command_was_given(two_workers: None) -> None:
    path = ray.get(ray.remote(lambda: list(sys.path)).remote())
    assert str(Path(sys.prefix)) in path  # what Ray takes for the current folder
    assert not any(Path(each).name.startswith("current") for each in path)


@pytest.mark.parametrize(
    "changes",
    [
        ("method.local.kind=scaffold",),
        HFLDD,
        (*CHAINS, "method.formation={kind: random, size: 4}", "method.sampling={kind: uniform, groups: 2}"),
        ("attacks={kind: label-flip, superclients: 0.5, clients: 0.5, swap: [[0, 1]]}",),
        (
            "data.set={kind: leaf, task: shakespeare, generated: {owners: 8, samples: 10}}",
            "data.partition=natural",
            "model={kind: char-gru, embedding: 4, hidden: 8, layers: 1}",
        ),
    ],
    ids=["scaffold", "hfldd", "fedseq", "attacked", "text"],
)
def test_two_workers_give_the_files_of_one_process(
    two_workers: None, small: Callable[..., Loaded], tmp_path: Path, changes: tuple[str, ...]
) -> None:
    loaded = small(*changes)
    execute(loaded, tmp_path / "local", Memo(None), max_workers=1)
    execute(loaded, tmp_path / "ray", Memo(None), backend="ray")
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


def test_a_cluster_without_gpus_says_so(two_workers: None) -> None:
    from emulator.learning.ray_pool import RayPool

    data = TrainingData(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), [np.arange(2)])
    job = DistilJob(0, 2, DistillationParams())
    with pytest.raises(HflError, match="no machine of the Ray cluster has a GPU to compute on"):
        list(RayPool(None, nn.Linear(3, 2), data, 0, 0.0, Place(torch.device("cuda", 0))).distil([job], [1.0]))


def test_a_worker_that_is_killed_in_the_middle_changes_nothing(
    two_workers: None, small: Callable[..., Loaded], tmp_path: Path
) -> None:
    loaded = small(*LONGER)
    execute(loaded, tmp_path / "local", Memo(None), max_workers=1)
    with Killer("_train", os.getpid()) as killer:
        execute(loaded, tmp_path / "ray", Memo(None), backend="ray")
    assert len(killer.killed) == 1
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


def test_a_training_that_diverges_fails_the_run_with_its_own_words(
    two_workers: None, small: Callable[..., Loaded], tmp_path: Path
) -> None:
    loaded = small("method.local={learning_rate: 1e20, epochs: 5}")
    with pytest.raises(HflError, match="diverged in round 1"):
        execute(loaded, tmp_path / "ray", Memo(None), backend="ray")
    assert json.loads((tmp_path / "ray" / "summary.json").read_text())["status"] == "failed"


def test_a_driver_that_is_killed_goes_on_from_the_run_folder(
    two_workers: None, small: Callable[..., Loaded], tmp_path: Path
) -> None:
    loaded = small("stop.rounds=40", "output.checkpoint=0 s", "output.plot=false")
    execute(loaded, tmp_path / "local", Memo(None), max_workers=1)
    (tmp_path / "scenario.yaml").write_text(dump(loaded.scenario))
    words = ("run", str(tmp_path / "scenario.yaml"), "--out", str(tmp_path / "ray"), "--no-memo", "--backend", "ray")
    killed = started(tmp_path, *words, "--workers", "2")
    while not (tmp_path / "ray" / checkpoint.VALUES).exists():  # the last file of a checkpoint
        assert killed.poll() is None
        time.sleep(0.01)
    killed.kill()
    killed.communicate(timeout=PATIENCE_S)
    assert not (tmp_path / "ray" / "summary.json").exists()
    assert prepare(tmp_path / "ray", loaded.scenario)
    rest = execute(loaded, tmp_path / "ray", Memo(None), backend="ray")["trainings"]
    assert rest["computed"] < rest["asked"]
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


def test_an_interruption_that_falls_into_a_callback_of_a_task_is_heard(two_workers: None, tmp_path: Path) -> None:
    def interrupted_in_a_callback() -> None:
        class Thing:
            pass

        def works(file: str) -> None:
            (tmp_path / file).touch()
            for _ in range(600):  # Ray interrupts Python code, not one long sleep
                time.sleep(0.1)

        thing = Thing()
        held = weakref.ref(thing, lambda _: works("begun"))
        with interruption.heard(_thread.interrupt_main):
            del thing  # the callback is interrupted, and Python drops that
            works("dropped")
        raise AssertionError(f"{held} was not interrupted")

    task = ray.remote(interrupted_in_a_callback).remote()
    while not (tmp_path / "begun").exists():
        assert not ray.wait([task], timeout=0.05)[0]  # it is still under way
    ray.cancel(task)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(task, timeout=PATIENCE_S)
    assert (tmp_path / "dropped").exists()


STUDY = """
name: two seeds
scenario: tiny.yaml
set: {stop.rounds: 30, output.checkpoint: 0 s, method.group_rounds: 2}
seeds: 2
"""


@pytest.mark.slow
def test_a_study_goes_through_a_lost_worker_and_an_interruption(two_workers: None, tmp_path: Path) -> None:
    study, out = write_study(tmp_path, STUDY), tmp_path / "ray"
    words = ("study", study, "--out", out, "--memo", tmp_path / "memo", "--backend", "ray")
    first = started(tmp_path, *words)
    with Killer("_task", first.pid) as killer:
        while not killer.killed:
            assert first.poll() is None
            time.sleep(0.01)
        since = time.time()
        while all(file.stat().st_mtime < since for file in out.glob("*/metrics.csv")):  # nobody has gone on yet
            assert first.poll() is None
            time.sleep(0.01)
        first.send_signal(signal.SIGINT)
        stopped = ended(first)
    assert stopped.code == 130, stopped.err
    states = [json.loads(file.read_text())["status"] for file in out.glob("*/summary.json")]
    assert "interrupted" in states
    runs = load(study).runs
    assert run_all(prepare_all(out, runs), out, tmp_path / "memo") == {}
    for run in runs:
        execute(run.loaded, tmp_path / "local" / run.name, Memo(None), max_workers=1)
        assert contents(out / run.name) == contents(tmp_path / "local" / run.name)
    assert not (out / ".seen-by").exists()
    assert Memo(tmp_path / "memo").stats()["evaluation"][0] >= 2 * 30


@pytest.mark.timeout(300)
def test_a_certificate_is_the_same_on_ray(two_workers: None, tmp_path: Path) -> None:
    runs = [certify_samples.run(tmp_path, method) for method in ("group-fel", "hierfavg")]
    found = certify_samples.gathered(runs)
    asked = Asked("a", 12, base=0, tipping=False)
    for name, resources in (("here", Resources(jobs=1)), ("ray", Resources(backend="ray"))):
        certify(found, tmp_path / name, asked, resources)
    for name in ("outcomes.parquet", "worlds.parquet", "curves.parquet", "certificate.yaml"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
