"""Samples that lie in files: the same bits, the same pages in every process, and little of them in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from data_samples import choose, in_processes, own_npz, same
from scenario.command import TINY, hfl
from torch import nn

from emulator.contracts.learning import LocalRuleChoice, local_rules, models
from emulator.learning.clients import turned
from emulator.learning.data import ArraySet, mapped, prepared, read
from emulator.learning.data.arrays import standardise
from emulator.learning.data.mapped import arrays_in, is_mapped, map_array, new_array, sample_array, travelling
from emulator.learning.flat import FlatModel
from emulator.learning.trainer import TrainingData, TrainJob
from emulator.learning.workers import WorkerPool


@pytest.mark.parametrize(("shape", "axes"), [((700, 3, 9, 5), (0, 2, 3)), ((999, 1, 7, 11), (0, 1, 2, 3))])
def test_standardising_in_files_has_the_bits_of_numpy(
    shape: tuple[int, ...], axes: tuple[int, ...], tmp_path: Path
) -> None:
    x = np.random.default_rng(5).normal(3, 2, shape).astype(np.float32)
    mean = x.mean(axis=axes, dtype=np.float64, keepdims=True).astype(np.float32)
    expected = (x - mean) / x.std(axis=axes, dtype=np.float64, keepdims=True).astype(np.float32)
    in_memory = x.copy()
    standardise(in_memory, x[:1].copy(), axes)
    assert np.array_equal(in_memory, expected)
    with arrays_in(tmp_path) as room:
        in_file = sample_array(shape)
        in_file[:] = x
        standardise(in_file, x[:1].copy(), axes)
    assert len(room.made) == 2  # the samples, and the squares of their deviations
    assert np.array_equal(in_file, expected)


def test_writing_into_mapped_samples_changes_no_file(tmp_path: Path) -> None:
    chosen = own_npz(tmp_path / "own.npz")
    found = read(chosen)
    torch.from_numpy(found.x_test).clamp_(min=0)  # as a model that works in place does
    assert found.x_test.min() == 0
    assert same(read(chosen), chosen())


def test_rotated_images_of_a_mapped_set_are_mapped_too(tmp_path: Path) -> None:
    arrays = read(own_npz(tmp_path / "own.npz"))
    parts = [np.arange(10), np.arange(10, 40)]
    found, where = turned(arrays, parts, np.array([0, 1]))
    assert is_mapped(found.x_train)
    plain, _ = turned(
        ArraySet(*(a.copy() for a in (arrays.x_train, arrays.y_train, arrays.x_test, arrays.y_test)), 4),
        parts,
        np.array([0, 1]),
    )
    assert not is_mapped(plain.x_train)
    assert np.array_equal(found.x_train, plain.x_train)
    assert np.array_equal(found.x_train[where[1]], np.rot90(arrays.x_train[10:], 1, axes=(2, 3)))
    sent = travelling(torch.from_numpy(found.x_train))
    assert sent is not None  # although its file has no name
    assert [p.name for p in prepared.entries()[0].folder.parent.glob(".*")] == []


def test_files_that_are_no_longer_mapped_are_let_go(tmp_path: Path) -> None:
    before = dict(mapped._files)
    array = new_array(tmp_path / "a.npy", (3, 2), np.dtype(np.float32))
    view = array[1:]
    del array
    assert is_mapped(view)
    assert len(mapped._files) == len(before) + 1
    del view
    assert mapped._files == before
    np.save(tmp_path / "b.npy", np.zeros((2, 3), order="F"))
    with pytest.raises(ValueError, match="cannot be mapped"):
        map_array(tmp_path / "b.npy")


def test_workers_map_the_file_and_train_the_same(tmp_path: Path) -> None:
    arrays = read(own_npz(tmp_path / "own.npz", samples=200))
    parts = np.split(np.arange(200), 4)
    on_disk = torch.from_numpy(arrays.x_train), torch.from_numpy(arrays.y_train)
    prepared.clear()  # a worker needs no name to find the file by
    rule = local_rules["sgd"]
    local = LocalRuleChoice("sgd", rule.params(epochs=2, batch_size=8, learning_rate=0.1))
    states = []
    for x, y in (on_disk, tuple(t.clone() for t in on_disk)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            module: nn.Module = models["mlp"].function((1, 6, 6), 4, models["mlp"].params(hidden=[8]))
        jobs = [TrainJob(FlatModel(module).state.clone(), client, local, 1, 1) for client in range(4)]
        pool = WorkerPool(1, module, TrainingData(x, y, parts), 3, 0.0, [])
        try:
            found = dict(pool.train(jobs, [1] * 4))
            maps = Path(f"/proc/{pool._processes[0].pid}/maps").read_text()
        finally:
            pool.close()
        states.append(torch.stack([found[i].state for i in range(4)]))
        assert ("x_train.npy" in maps) == (x is on_disk[0])
        assert x.is_shared() == (x is not on_disk[0])
    assert torch.equal(*states)


def test_a_file_larger_than_memory_can_be_mapped(tmp_path: Path) -> None:
    if Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "2":
        pytest.skip("the system counts what could be written to")
    path, rows = tmp_path / "a.npy", 1 << 20
    row_bytes = 1 << 20  # a terabyte, of which nothing is on the disk
    with path.open("wb") as file:
        head = {"descr": "<f4", "fortran_order": False, "shape": (rows, row_bytes // 4)}
        np.lib.format.write_array_header_1_0(file, head)
        file.truncate(file.tell() + rows * row_bytes)
    found = map_array(path)
    assert found.nbytes == 1 << 40
    assert found[rows - 1].sum() == 0
    assert torch.from_numpy(found)[[3, rows // 2]].shape == (2, row_bytes // 4)


SCRIPT = """
import json, re
from emulator.learning.clients import ClientData
from emulator.learning.engine import Engine
from emulator.learning.trainer import TrainJob
from emulator.scenario.load import load

def peak_bytes(name):
    scenario = load("s.yaml", [f"data.set={{kind: npz, path: {name}.npz}}"]).scenario
    engine = Engine(scenario, ClientData(scenario), 1)
    start = engine.initial()
    for _, trained in engine.train([TrainJob(start, 0, scenario.method.params.local, 1, 0)]):
        engine.evaluate(trained.state)
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024

print(json.dumps([peak_bytes("small"), peak_bytes("large")]))
"""


def test_training_has_little_of_a_large_set_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(TINY)
    for name, samples in (("small", 500), ("large", 50_000)):
        x = np.zeros((samples, 32, 32), np.uint8)
        x[:500] = np.random.default_rng(1).integers(0, 256, (500, 32, 32), dtype=np.uint8)
        y = np.arange(samples) % 10
        np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=y, x_test=x[:50], y_test=y[:50])
    large = read(choose("npz", path="large.npz"))
    ((small_bytes, large_bytes),) = in_processes(SCRIPT, 1)
    assert large.x_train.nbytes > 200e6
    assert large_bytes - small_bytes < 40e6  # pages around the samples of the clients; the system can drop them


def test_a_run_has_the_same_metrics_whether_its_samples_are_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_npz(tmp_path / "own.npz", samples=200)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(TINY)
    changes = ("data.set={kind: npz, path: own.npz}", "data.partition={kind: rotation, degrees: [0, 90], of: iid}")
    words = [word for change in changes for word in ("--set", change)]
    for out, place in (("memory", "off"), ("cold", "kept"), ("warm", "kept")):
        monkeypatch.setenv(prepared.PLACE, place)
        assert hfl("run", "s.yaml", "--no-memo", "--workers", "1", "--out", out, *words).code == 0
    metrics = {(tmp_path / out / "metrics.csv").read_bytes() for out in ("memory", "cold", "warm")}
    assert len(metrics) == 1
    assert len(list((tmp_path / "kept").glob("*/x_train.npy"))) == 1
