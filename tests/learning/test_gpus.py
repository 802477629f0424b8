"""What runs on GPUs, as far as that can be told without one: shares of a wave, memory that does not suffice, precision, keys."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from scenario.command import TINY, hfl
from test_trainer import fresh, make_data, make_jobs, same

import emulator
from emulator.compute import Compute
from emulator.errors import HflError, InputError, ScenarioError
from emulator.learning.device import HOST, WORKSPACE, Place, check_there, reproducible
from emulator.learning.gpus import DevicePool, DeviceTrainer
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.trainer import TrainedState, Trainer, TrainJob
from emulator.run import execute
from emulator.scenario import Loaded

Small = Callable[..., Loaded]
MODEL: tuple[str, tuple[int, ...], dict[str, Any]] = ("cnn", (1, 8, 8), {"channels": (4,), "dropout": 0.5})
ALL = [*range(13), *range(13), 3, 5]  # three stacks of clients


def alone(jobs: list[TrainJob], data_from: Trainer) -> list[TrainedState]:
    return [next(state for _, state in data_from.train([job])) for job in jobs]


def make(count: int) -> DevicePool:
    return DevicePool([HOST] * count, fresh(*MODEL), make_data(MODEL[1]), 3, 0.0)


@pytest.mark.parametrize("devices", [1, 3])
def test_neither_stacks_nor_devices_change_a_result(devices: int) -> None:
    jobs = make_jobs(*MODEL, "scaffold", ALL)
    expected = alone(jobs, Trainer(fresh(*MODEL), make_data(MODEL[1]), 3, 0.0))
    found = dict(make(devices).train(jobs, []))
    assert sorted(found) == list(range(len(jobs)))
    assert all(same(found[n], each) for n, each in enumerate(expected))


def test_a_wave_is_as_wide_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, room, widths = Trainer.steps, 2, []

    def within_room(self: Trainer, jobs: list[TrainJob]) -> Iterator[tuple[int, TrainedState] | None]:
        widths.append(len(jobs))
        for number, result in enumerate(steps(self, jobs)):
            if number == 5 and len(trainer._trainers) > room:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
            yield result

    monkeypatch.setattr(Trainer, "steps", within_room)
    trainer = DeviceTrainer(fresh(*MODEL), make_data(MODEL[1]), 3, 0.0, HOST)
    jobs = make_jobs(*MODEL, "sgd", ALL)
    found = dict(trainer.train(jobs))
    assert sorted(found) == list(range(len(jobs)))
    assert len(trainer._trainers) == 1  # half of three
    room, expected = 9, make(1)
    assert all(same(found[n], each) for n, each in expected.train(jobs, []))
    assert len(dict(trainer.train(jobs))) == len(jobs)
    assert len(trainer._trainers) == 1  # what memory holds is known from now on
    room = 0
    with pytest.raises(HflError, match=r"cpu has too little memory for a training \(CUDA out of memory\)"):
        list(trainer.train(jobs))


def test_what_a_device_raises_ends_the_wave(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Trainer, jobs: list[TrainJob]) -> Iterator[None]:
        yield None
        raise HflError("diverged")

    monkeypatch.setattr(Trainer, "steps", fail)
    with pytest.raises(HflError, match="diverged"):
        list(make(2).train(make_jobs(*MODEL, "sgd", [1, 2, 3]), []))


def test_keys_know_the_kind_of_device_and_the_precision(small: Small) -> None:
    def key(*changes: str) -> str:
        return Lab(small(*changes).scenario, RunMemory(Memo(None))).initial().key

    assert key() == key("compute.device=cpu") == key("compute={device: auto, precision: float32}")
    assert key("compute.device=cuda") == key("compute.device=cuda:3")
    keys = [key(f"compute={{device: {d}, precision: {p}}}") for d in ("cpu", "cuda") for p in ("float32", "bfloat16")]
    assert len(set(keys)) == 4


def test_bfloat16_is_another_result_and_the_same_in_any_process(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def metrics(name: str, *changes: str, workers: int = 1) -> bytes:
        loaded = small("model={kind: cnn, channels: [4], hidden: [8], dropout: 0.2}", *changes)
        execute(loaded, tmp_path / name, Memo(None), max_workers=workers)
        return (tmp_path / name / "metrics.csv").read_bytes()

    exact, rounded = metrics("exact"), metrics("rounded", "compute.precision=bfloat16")
    assert exact != rounded
    monkeypatch.setattr("emulator.learning.engine.WORKERS_AFTER_S", 0.0)
    assert metrics("again", "compute.precision=bfloat16", workers=2) == rounded


def test_weights_stay_float32(small: Small) -> None:
    loaded = small("compute.precision=bfloat16")
    lab = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)
    found = lab._engine._trainer
    assert not found.stacks(1)
    assert found._single.state.dtype == torch.float32
    lab.close()


@pytest.mark.parametrize("name", ["mps", "xpu", "cuda:", "cuda:x", "gpu", "meta"])
def test_other_devices_are_refused(small: Small, name: str) -> None:
    with pytest.raises(ScenarioError, match=r"give auto, cpu, cuda \(all GPUs\) or cuda:N") as refused:
        small(f"compute.device='{name}'")
    assert refused.value.problems[0].key == "compute.device"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpus_that_are_not_there_are_refused(small: Small, tmp_path: Path) -> None:
    assert small("compute.device=auto").scenario.compute.device == "cpu"
    with pytest.raises(InputError, match=r"compute\.device: there is no GPU for 'cuda': torch .* sees none"):
        execute(small("compute.device=cuda"), tmp_path / "run", Memo(None))
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_commands_take_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(TINY, encoding="utf-8")
    Path("study.yaml").write_text("scenario: s.yaml\nseeds: 1\n", encoding="utf-8")
    assert hfl("run", "s.yaml", "--device", "auto", "--out", "run", "--no-memo").code == 0
    used = json.loads(Path("run/manifest.json").read_text(encoding="utf-8"))["compute"]
    assert used == {"device": "cpu", "precision": "float32", "gpus": []}
    for command in (("run", "s.yaml"), ("study", "study.yaml"), ("whatif", "run")):
        missing, other = (hfl(*command, "--device", name) for name in ("cuda:1", "mps"))
        assert (missing.code, other.code) == (2, 2)
        assert "there is no GPU for 'cuda:1'" in missing.err
        assert "--device: 'mps' is no device" in other.err
    with pytest.raises(InputError, match="there is no GPU for 'cuda'"):
        emulator.run_scenario("s.yaml", device="cuda", memo=False, progress=False)
    assert emulator.run_scenario("s.yaml", "run", device="cpu", progress=False).summary["status"] == "complete"


def test_a_number_that_no_gpu_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emulator.learning.device.gpu_names", lambda: ["A", "B"])
    check_there(Compute(device="cuda:1"))
    with pytest.raises(InputError, match=r"there is no 'cuda:2' here; torch sees cuda:0 \(A\), cuda:1 \(B\)"):
        check_there(Compute(device="cuda:2"))


def test_a_run_on_a_gpu_leaves_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def state() -> tuple[object, ...]:
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        flags = (matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark)
        return (*flags, torch.are_deterministic_algorithms_enabled(), os.environ.get(WORKSPACE))

    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    monkeypatch.setenv(WORKSPACE, ":0:0")
    before = state()
    with reproducible(Place(torch.device("cuda", 0))):
        assert state() == (False, False, False, True, ":4096:8")
    assert state() == before
    with reproducible(HOST):
        assert state() == before
