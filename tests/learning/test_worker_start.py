"""Worker processes start in the background: the parent goes on, hands over in the middle of a wave, and leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from patience import PATIENCE_S

from emulator.errors import HflError
from emulator.learning import engine as engine_module
from emulator.learning.clients import ClientData
from emulator.learning.engine import Engine
from emulator.learning.trainer import COPIES, TrainingData, TrainJob
from emulator.learning.workers import WorkerPool
from emulator.scenario import Loaded

Small = Callable[..., Loaded]
CLIENTS = 5 * COPIES


def jobs_of(engine: Engine, loaded: Loaded) -> list[TrainJob]:
    local = loaded.scenario.method.params.local
    return [TrainJob(engine.initial(), client, local, 1, 0) for client in range(CLIENTS)]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])  # side by side, and one after another
def test_workers_take_over_in_the_middle_of_a_wave_and_change_no_bit(
    small: Small, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    loaded = small(f"topology.clients={CLIENTS}", f"compute.precision={precision}")
    monkeypatch.setattr(engine_module, "WORKERS_AFTER_S", 1e-9)
    alone, divided = (Engine(loaded.scenario, ClientData(loaded.scenario), count) for count in (1, 2))
    ready, train = WorkerPool.ready, WorkerPool.train
    asked, taken = [], []

    def at_the_fourth(pool: WorkerPool, wait_s: float | None = 0.0) -> bool:
        asked.append(wait_s)
        return len(asked) > 3 and ready(pool, None)

    monkeypatch.setattr(WorkerPool, "ready", at_the_fourth)
    monkeypatch.setattr(
        WorkerPool, "train", lambda pool, jobs, steps: taken.append(len(jobs)) or train(pool, jobs, steps)
    )
    here, there = (dict(engine.train(jobs_of(engine, loaded))) for engine in (alone, divided))
    assert asked[:4] == [0.0] * 4  # nobody waited for them
    assert taken == [CLIENTS - 4]
    assert sorted(there) == list(range(CLIENTS))
    assert all(torch.equal(here[n].state, there[n].state) for n in here)
    divided.close()
    alone.close()


@pytest.mark.parametrize(
    ("stop", "long"), [("{rounds: 2}", False), ("{rounds: 10000000}", True), ("{accuracy: 0.9}", False)]
)
def test_workers_start_at_once_where_the_run_is_known_to_be_long(
    small: Small, monkeypatch: pytest.MonkeyPatch, stop: str, long: bool
) -> None:
    monkeypatch.setattr(engine_module, "WORKERS_AFTER_S", 1000.0)  # whatever the machine has to do beside
    loaded = small(f"topology.clients={CLIENTS}", f"stop={stop}")
    engine = Engine(loaded.scenario, ClientData(loaded.scenario), 2)
    assert len(dict(engine.train(jobs_of(engine, loaded)))) == CLIENTS
    assert isinstance(engine._pool, WorkerPool) is long
    engine.close()


def made(count: int = 2) -> WorkerPool:
    data = TrainingData(torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64), {0: torch.arange(4).numpy()})
    return WorkerPool(count, torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3)), data, 3, 1.0)


def test_an_interrupt_does_not_reach_workers_that_start() -> None:
    pool = made()
    for process in pool._processes:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGINT)
    assert pool.ready(PATIENCE_S)
    assert all(process.is_alive() for process in pool._processes)
    pool.close()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


LOST = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_worker_start import made
print(*(process.pid for process in made()._processes), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_workers_that_start_end_when_their_parent_is_killed() -> None:
    folder = str(Path(__file__).parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path(folder).parent)])}
    done = subprocess.run(
        [sys.executable, "-c", LOST, folder], capture_output=True, text=True, timeout=PATIENCE_S, env=environment
    )
    numbers = done.stdout.split()
    assert len(numbers) == 2, done.stderr
    end = time.monotonic() + PATIENCE_S
    while any(Path("/proc", number).exists() for number in numbers):
        assert time.monotonic() < end, "workers are left behind"
        time.sleep(0.1)


def test_a_worker_that_dies_while_it_starts_is_reported() -> None:
    pool = made()
    pool._processes[1].kill()
    with pytest.raises(HflError, match=r"a training process ended unexpectedly \(exit code -9\)"):
        pool.ready(None)
    pool.close()
