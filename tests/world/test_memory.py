"""What does not fit into a device's memory is refused before a run begins, or swapped."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from devices.profile import DeviceProfile, find_profile
from emulator.assembly import assemble, batch_sizes, workload_of
from emulator.errors import InputError
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.timing import TimingLab
from emulator.replay import open_source, replay
from emulator.run import execute
from emulator.scenario import Loaded
from emulator.world.memory import check_measured, check_memory, fits
from emulator.world.workload import Workload

Small = Callable[..., Loaded]
MIB = 2**20

TINY = """\
title: A tiny board
source: made up
effective_speed: 1 GFLOP/s
batch_overhead: 10 ms
power: {idle: 1 W, compute: 5 W, send: 2 W, receive: 2 W}
group_operations:
  secure-aggregation: {a: 1 s, b: 20 ms, c: 3 ms}
memory: 640.005 MiB
"""
MESSAGE = (
    r"method\.local\.batch_size: training in batches of \d+ needs 640 MiB of memory \(640 MiB system and framework, .*"
    r"and a 'tiny' has 640 MiB"
)


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """A device that has hardly more memory than system and framework take."""
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    return f"topology.devices={tmp_path / 'tiny.yaml'}"


def device(memory: str, **figures: object) -> DeviceProfile:
    pi = find_profile("raspberry-pi-4b").model_dump()
    return DeviceProfile.model_validate(pi | {"memory": memory, "reserve": "100 MiB"} | figures)


# Weights 40 MiB, gradients 40 MiB, two vectors of state 80 MiB, 1 MiB a sample.
LOAD = Workload(40 * MIB, 1e9, 10 * MIB, activation_bytes=MIB, state_vectors=2)


def test_the_need_is_the_sum_of_its_parts() -> None:
    need = LOAD.need(32)
    assert list(need.parts(device("1 GiB")).values()) == [size * MIB for size in (100, 40, 40, 80, 32)]
    assert need.training_bytes == 192 * MIB
    assert Workload(40 * MIB, 1e9, 10 * MIB, activation_bytes=MIB, most_samples=5).need(32).activations_bytes == 5 * MIB


@pytest.mark.parametrize(
    ("memory", "batch", "advice"),
    [
        ("291 MiB", 32, "a batch size of 31 would fit; otherwise give the clients devices with more memory"),
        ("291.6 MiB", 32, "a batch size of 31 would fit; "),  # as many digits as tell it from the 292 MiB that it needs
        ("261 MiB", 32, "a batch size of 1 would fit; "),
        ("260 MiB", 1, "no batch size would fit; give the clients devices with more memory, or a profile that swaps"),
        ("50 MiB", 1, "no batch size would fit; "),
    ],
)
def test_what_does_not_fit_is_refused_with_its_parts(memory: str, batch: int, advice: str) -> None:
    sizes = [("method.local.batch_size", batch)]
    assert not fits([device("1 GiB"), device(memory)], LOAD, sizes)
    with pytest.raises(InputError) as caught:
        check_memory([device("1 GiB"), device(memory)], LOAD, sizes)
    parts = (
        f"100 MiB system and framework, 40 MiB weights, 40 MiB gradients, 80 MiB optimiser and local rule, {batch} MiB"
    )
    assert caught.value.key == "method.local.batch_size"
    expected = (
        f"training in batches of {batch} needs {260 + batch} MiB of memory ({parts} activations), and a '' has {memory}"
    )
    assert caught.value.message.startswith(f"{expected}; {advice}")


def test_what_fits_exactly_is_not_refused() -> None:
    assert fits([device("292 MiB")], LOAD, [("x", 32)])
    check_memory([device("292 MiB")], LOAD, [("x", 32)])


def test_a_device_that_swaps_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_memory([device("196 MiB", out_of_memory={"swap": 11})], LOAD, [("x", 32)])
    assert "it swaps, and trains 6 times slower" in caplog.text  # half of its 192 MiB do not fit


def test_local_rules_keep_vectors_of_the_size_of_the_model(small: Small) -> None:
    rules = {
        "sgd": 0,
        "{kind: sgd, momentum: 0.9}": 1,
        "{kind: fedprox, momentum: 0.9}": 2,
        "scaffold": 3,
        "{kind: feddyn, momentum: 0.5}": 4,
        "{optimiser: adam}": 2,
        "{kind: fedprox, optimiser: adamw}": 3,
    }
    for rule, vectors in rules.items():
        scenario = small(f"method.local={rule}").scenario
        workload = workload_of(scenario, TimingLab(scenario, RunMemory(Memo(None))))
        assert workload.state_vectors == vectors
        assert workload.model == scenario.model.kind


def test_estimators_train_in_batches_of_their_own(small: Small) -> None:
    scenario = small("method.estimator={kind: classifier-weights, batch_size: 7}").scenario
    assert ("method.estimator.batch_size", 7) in list(batch_sizes(scenario))


@pytest.mark.parametrize("training", [False, True])
def test_a_run_is_refused_before_it_starts(small: Small, tmp_path: Path, tiny: str, training: bool) -> None:
    loaded = small(tiny, "method.local.batch_size=64")
    loaded = Loaded(loaded.scenario, loaded.document, training)
    with pytest.raises(InputError, match=MESSAGE):
        execute(loaded, tmp_path / "run", Memo(None), max_workers=1)
    assert not (tmp_path / "run").exists()


def test_a_replay_on_a_smaller_device_is_refused(small: Small, tmp_path: Path, tiny: str) -> None:
    execute(small("stop.rounds=1"), tmp_path / "run", Memo(None), max_workers=1)
    source = open_source(tmp_path / "run")
    with pytest.raises(InputError, match=MESSAGE):
        replay(source, source.what_if([tiny]), Memo(None))


def test_no_batch_is_larger_than_what_a_client_holds(small: Small, tmp_path: Path) -> None:
    (tmp_path / "roomy.yaml").write_text(TINY.replace("640.005", "641"), encoding="utf-8")
    loaded = small(f"topology.devices={tmp_path / 'roomy.yaml'}", "method.local.batch_size=100000")
    scenario = loaded.scenario
    lab = TimingLab(scenario, RunMemory(Memo(None)))
    session = assemble(scenario, lab)
    assert session.world.workload.most_samples == int(lab.clients.samples.max())


def test_a_run_on_a_device_that_swaps_takes_longer(small: Small, tmp_path: Path, tiny: str) -> None:
    times = []
    for name, more in (
        ("roomy", TINY.replace("640.005 MiB", "1 GiB")),
        ("swaps", f"{TINY}out_of_memory: {{swap: 50}}\n"),
    ):
        (tmp_path / f"{name}.yaml").write_text(more, encoding="utf-8")
        loaded = small(f"topology.devices={tmp_path / f'{name}.yaml'}", "method.local.batch_size=64", "stop.rounds=1")
        summary = execute(loaded, tmp_path / name, Memo(None), max_workers=1)
        times.append(summary["final"]["cost_training_s"])
    assert 1 < times[1] / times[0] < 50


def test_measured_seconds_of_another_network_of_the_same_kind_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    entry = {"model": "mlp", "parameters": 610, "batch_size": 4, "seconds": "1 ms", "source": "made up"}
    board = device("4 GiB", measured=[entry | {"forward_flops": 1136.0}])
    load = Workload(4 * 610, 1184.0, 610, model="mlp")
    check_measured([board, find_profile("raspberry-pi-4b")], load)
    (record,) = caplog.records
    assert "another network than this one, which has 1,184 forward FLOPs and 610 parameters" in record.getMessage()
    caplog.clear()
    check_measured([device("4 GiB", measured=[entry | {"forward_flops": 1184.0}])], load)
    check_measured([board], Workload(4 * 610, 1184.0, 610, model="cnn"))
    assert not caplog.records
