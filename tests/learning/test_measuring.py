"""Evaluations and measurements in worker processes: the same bits and the same errors as in the run's own process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from patience import PATIENCE_S
from token_samples import LEARNING, register_texts
from torch import Tensor

from emulator import plugins
from emulator.contracts.learning import MeasurementChoice, measurements
from emulator.errors import HflError, InputError
from emulator.learning import engine as engine_module
from emulator.learning.clients import ClientData
from emulator.learning.engine import Engine
from emulator.learning.measuring import EVALUATION_BATCH
from emulator.learning.memo import Memo
from emulator.learning.workers import WorkerPool
from emulator.run import execute
from emulator.scenario import Loaded

Small = Callable[..., Loaded]
Asked = tuple[MeasurementChoice, Sequence[Tensor], int | None]
MANY = (
    "data.public=3",
    "data.set.test_samples=2500",
    "model={kind: mlp, hidden: [7]}",
)  # 2500 samples are three batches


@pytest.fixture(autouse=True)
def _workers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "WORKERS_AFTER_S", -1.0)


def make(loaded: Loaded, workers: int) -> Engine:
    """An engine; of the test samples every third is of nobody, and the others of two people in turn."""
    data = ClientData(loaded.scenario)
    data.arrays = replace(data.arrays, test_owners=np.arange(len(data.arrays.y_test)) % 3 - 1)
    return Engine(loaded.scenario, data, workers)


def choice(kind: str, **params: Any) -> MeasurementChoice:
    return MeasurementChoice(kind, measurements[kind].params(**params))


def asked_of(engine: Engine, kind: str, **params: Any) -> list[Asked]:
    """A measurement of several models each, with the samples of several clients where it wants some."""
    states = [engine.initial(number) for number in range(7)]
    clients = [2, 0, 5] if measurements[kind].facts.on in ("client", "everybody") else [None] * 3
    return [(choice(kind, **params), states[i : i + 5], client) for i, client in enumerate(clients)]


def values(engine: Engine, asked: Sequence[Asked]) -> list[bytes]:
    """What measurements give, bit for bit, in the order in which they were asked for."""
    found = dict(engine.measure(asked))
    return [found[n].tobytes() + str((found[n].dtype, found[n].shape)).encode() for n in range(len(asked))]


class Counted:
    """How many jobs workers were given to measure."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs = 0
        measure = WorkerPool.measure

        def counted(pool: WorkerPool, jobs: Any, measurer: Any) -> Any:
            self.jobs += len(jobs)
            return measure(pool, jobs, measurer)

        monkeypatch.setattr(WorkerPool, "measure", counted)


def test_workers_evaluate_and_measure_to_the_same_bits(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, loaded = Counted(monkeypatch), small(*MANY)
    alone, divided = make(loaded, 1), make(loaded, 2)
    states = [alone.initial(number) for number in range(3)]
    assert divided.evaluate(states) == alone.evaluate(states)
    assert counted.jobs == 3 * -(-2500 // EVALUATION_BATCH)
    assert divided.evaluate(states[:1]) == alone.evaluate(states[:1])
    assert counted.jobs == 4 * 3
    for kind in set(measurements.names()) - {"text-fisher", "gan-recovery"}:
        before = counted.jobs
        asked = asked_of(alone, kind)
        assert values(divided, asked) == values(alone, asked), kind
        assert counted.jobs == before + len(asked)
    turned = asked_of(alone, "by-label", turns=1) + asked_of(alone, "by-label")
    assert values(divided, turned) == values(alone, turned)
    assert values(divided, turned[::-1]) == values(alone, turned)[::-1]
    divided.close()
    alone.close()


def test_texts_are_measured_by_workers_too(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    register_texts(monkeypatch)
    counted, loaded = Counted(monkeypatch), small(*LEARNING)
    alone, divided = make(loaded, 1), make(loaded, 2)
    asked: list[Asked] = [(choice("text-fisher", epochs=1), [], client) for client in (3, 1)]
    assert values(divided, asked) == values(alone, asked)
    assert counted.jobs == 2
    divided.close()
    alone.close()


def test_what_needs_features_stays_here(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, engine = Counted(monkeypatch), make(small(*MANY), 2)
    monkeypatch.setattr("emulator.learning.gan.FEATURE_EPOCHS", (1, 1))
    short = {"steps": 2, "batch_size": 3, "samples": 4, "images": 2}
    assert len(values(engine, asked_of(engine, "gan-recovery", **short)[:2])) == 2
    assert counted.jobs == 0
    engine.close()


def test_a_worker_that_dies_while_it_measures_is_reported(small: Small) -> None:
    engine = make(small(*MANY), 2)
    values(engine, asked_of(engine, "length"))
    assert isinstance(engine._pool, WorkerPool)
    killing = threading.Timer(0.2, engine._pool._processes[1].kill)
    killing.start()
    with pytest.raises(HflError, match=r"a training process ended unexpectedly \(exit code -9\)"):
        values(engine, asked_of(engine, "fisher", passes=1000) * 20)
    killing.join(PATIENCE_S)
    engine.close()


def test_an_error_of_ours_passes_and_the_next_wave_is_right(small: Small) -> None:
    loaded = small(*MANY, "model={kind: mlp, hidden: []}")
    alone, divided = make(loaded, 1), make(loaded, 2)
    asked = asked_of(alone, "fisher")
    texts = []
    for engine in (alone, divided):
        with pytest.raises(InputError) as caught:
            values(engine, asked)
        texts.append((caught.value.args, str(caught.value)))
    assert texts[0] == texts[1]
    after = asked_of(alone, "class-scores")
    assert values(divided, after) == values(alone, after)
    divided.close()
    alone.close()


MINE = '''
import torch
from emulator.extend import MeasurementFacts, measurements

@measurements.register("mine", facts=MeasurementFacts(on="client", version=1))
def mine(measured, params):
    """Raises for a client that has something of class 0."""
    if bool((measured.samples.y == 0).any()):
        raise ValueError("a nought")
    return measured.weights(measured.states[0])[:3].numpy() * measured.rng.random()
'''


@pytest.mark.parametrize("travels", [True, False])
def test_measurements_of_the_user(
    plugin_home: Path, small: Small, monkeypatch: pytest.MonkeyPatch, travels: bool
) -> None:
    (plugin_home / "measured.py").write_text(MINE)
    plugins.load([str(plugin_home / "measured.py")])
    counted, loaded = Counted(monkeypatch), small(*MANY)
    alone, divided = make(loaded, 1), make(loaded, 2)
    if not travels:  # as if the main script had defined it
        monkeypatch.setattr(measurements["mine"].function, "__module__", "__main__")
    held = ClientData(loaded.scenario).label_counts[:, 0]
    states = [alone.initial()]
    asked: list[Asked] = [(choice("mine"), states, c) for c in np.flatnonzero(held == 0).tolist()]
    assert values(divided, asked) == values(alone, asked)
    assert counted.jobs == (len(asked) if travels else 0)
    texts = []
    for engine in (alone, divided):
        with pytest.raises(HflError) as caught, plugins.blaming():
            values(engine, [*asked[:1], (choice("mine"), states, int(held.argmax()))])
        texts.append(str(caught.value))
    owner = "measurement 'mine'" if travels else "plug-in"  # the module that it claims to be of has no such function
    assert texts == [f"{owner} (measured.py:9, in mine): ValueError: a nought"] * 2
    divided.close()
    alone.close()


@pytest.mark.parametrize(
    "method",
    [
        "{preset: visit, estimator: {kind: signature, epochs: 1}}",
        "{preset: visit, estimator: {kind: signature, epochs: 1, predicted_by: server}}",
        "{preset: hicfl}",
        "{preset: ifca, clusters: 2}",
    ],
)
def test_runs_that_measure_many_models_are_the_same_with_workers(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    counted = Counted(monkeypatch)
    for workers in (1, 2):
        loaded = small(*MANY, f"method={method}", "data.partition={kind: rotation}")
        execute(loaded, tmp_path / str(workers), Memo(None), max_workers=workers)
    assert counted.jobs > 0
    assert (tmp_path / "1" / "metrics.csv").read_bytes() == (tmp_path / "2" / "metrics.csv").read_bytes()
