"""Fine-tuning before a test: against a transcription, outside emulated time, and remembered as all else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from methods.playing import cut_off_and_finished, played
from torch import Tensor, nn

from emulator import checkpoint
from emulator.contracts.learning import LocalParams
from emulator.errors import DivergedError, InputError
from emulator.learning import engine
from emulator.learning.clients import ClientData
from emulator.learning.engine import untrained
from emulator.learning.flat import FlatModel
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.methods.cluster_models import Clusters
from emulator.methods.personal import PERSONAL_METRICS, fine_tuning, personal_metrics
from emulator.replay import open_source, replay
from emulator.rng import stream
from emulator.run import execute
from emulator.scenario import Loaded

Small = Callable[..., Loaded]

TUNED = "evaluate.personal={epochs: 2}"
ADAM = "method.local={epochs: 1, batch_size: 4, learning_rate: 0.02, optimiser: adam, smoothing: 0.1}"


def transcribed(scenario: Any, states: list[Tensor], t: int, epochs: int, rate: float) -> dict[str, float]:
    """The figures for one model for each client, with plain SGD by torch."""
    data = ClientData(scenario)
    arrays, found = data.arrays, []
    x, y = torch.from_numpy(arrays.x_train), torch.from_numpy(arrays.y_train)
    x_test, y_test = torch.from_numpy(arrays.x_test), torch.from_numpy(arrays.y_test)
    for client, state in enumerate(states):
        module = untrained(scenario, arrays.shape, arrays.classes)
        flat = FlatModel(module)
        flat.state.copy_(state)
        optimiser = torch.optim.SGD(module.parameters(), rate)
        before: Tensor | None = None
        for epoch in range(epochs + 1):
            with torch.inference_mode():
                scores = module.eval()(x_test)
            before = (scores.argmax(1) == y_test).double() if before is None else before
            if epoch == epochs:
                break
            order = stream(scenario.seed, "batches", client, t, epoch - epochs).permutation(data.parts[client])
            for rows in torch.from_numpy(order).split(4):
                loss = nn.functional.cross_entropy(module.train()(x[rows]), y[rows])
                for p, each in zip(
                    module.parameters(), torch.autograd.grad(loss, list(module.parameters())), strict=True
                ):
                    p.grad = each
                optimiser.step()
        right = (scores.argmax(1) == y_test).double()
        losses = nn.functional.cross_entropy(scores, y_test, reduction="none").double()
        shares = np.bincount(arrays.y_train[data.parts[client]], minlength=arrays.classes) / len(data.parts[client])

        def expected(values: Tensor, shares: np.ndarray = shares) -> float:
            return sum(share * float(values[y_test == label].mean()) for label, share in enumerate(shares) if share)

        found.append([expected(values) for values in (before, right, losses)])
    served, accuracy, loss = np.array(found).T
    lowest = np.sort(accuracy)[: -(-len(accuracy) // 10)].mean()
    return dict(zip(PERSONAL_METRICS, (served.mean(), accuracy.mean(), lowest, loss.mean()), strict=True))


def test_every_client_tunes_the_model_that_it_is_served(small: Small) -> None:
    scenario = small(TUNED, "topology.clients=12").scenario
    lab = Lab(scenario, RunMemory(Memo(None)), max_workers=1)
    of = np.arange(12) % 2
    models = (lab.initial(), lab.initial(1))
    assert scenario.evaluate.personal is not None
    found = personal_metrics(lab, scenario, scenario.evaluate.personal, Clusters(models, of), 3)
    states = [lab.value(models[cluster]) for cluster in of]
    assert found == pytest.approx(transcribed(scenario, states, 3, epochs=2, rate=0.1), abs=1e-5)
    assert found["personal_accuracy"] > found["served_accuracy"] + 0.1
    assert found["personal_lowest"] < found["personal_accuracy"]


def test_it_takes_no_emulated_time_and_changes_nothing_else(small: Small) -> None:
    plain, own = played(small()), played(small(TUNED))
    assert [row | dict.fromkeys(PERSONAL_METRICS) for row in plain.metrics] == [
        row | dict.fromkeys(PERSONAL_METRICS) for row in own.metrics
    ]
    assert not set(PERSONAL_METRICS) & set(plain.metrics[0])
    assert [list(row)[-4:] for row in own.metrics] == [list(PERSONAL_METRICS)] * 3
    assert own.world.now == plain.world.now
    assert all(np.isfinite([row[name] for name in PERSONAL_METRICS]).all() for row in own.metrics)


@pytest.mark.parametrize(
    "changes",
    [
        (
            "method={preset: sd-feel, local: {batch_size: 10}}", "topology.sharing=max-min",
            "topology.links.direct=[{shape: ring, bandwidth: 80 Mbit/s, latency: 7 ms}]", "evaluate.clusters=true",
        ),
        ("method={preset: ifca, local: {batch_size: 10}}",),
    ],
    ids=["gossip", "ifca"],
)  # fmt: skip
def test_clients_are_served_the_model_of_their_server_or_cluster(small: Small, changes: tuple[str, ...]) -> None:
    rows = played(small(TUNED, *changes)).metrics
    assert [row["served_accuracy"] for row in rows] == pytest.approx([row["accuracy_clients"] for row in rows])
    assert rows[-1]["personal_accuracy"] > rows[-1]["served_accuracy"]


@pytest.mark.parametrize(
    "rule", ["scaffold", "{kind: feddyn, batch_size: 4}", "{kind: fedprox, mu: 0.5, momentum: 0.5}"]
)
def test_rules_with_memory_give_way_to_sgd(small: Small, rule: str) -> None:
    scenario = small(f"method.local={rule}", "method.local.learning_rate_decay=0.5", TUNED).scenario
    assert scenario.evaluate.personal is not None
    local, tuning = scenario.method.params.local, fine_tuning(scenario, scenario.evaluate.personal)
    assert tuning.kind == ("fedprox" if local.kind == "fedprox" else "sgd")
    assert tuning.params.epochs == 2
    for name in set(LocalParams.model_fields) - {"epochs"}:
        assert getattr(tuning.params, name) == getattr(local.params, name)
    own = scenario.evaluate.personal.model_copy(update={"learning_rate": 0.3})
    assert [fine_tuning(scenario, own).params.step_size(t) for t in (1, 9)] == [0.3, 0.3]


def test_some_clients_can_stand_for_all(small: Small) -> None:
    lab = Lab(small(TUNED).scenario, RunMemory(Memo(None)), max_workers=1)

    def asked(change: str) -> int:
        scenario = small(change).scenario
        before, one = lab.asked, Clusters((lab.initial(),), np.zeros(8, dtype=np.int64))
        assert scenario.evaluate.personal is not None
        personal_metrics(lab, scenario, scenario.evaluate.personal, one, 1)
        return lab.asked - before

    assert asked("evaluate.personal={clients: 3}") == 3
    assert asked("evaluate.personal={clients: 99}") == asked("evaluate.personal={}") == 8


def test_what_was_tuned_is_remembered(small: Small, tmp_path: Path) -> None:
    changes = ("stop.rounds=3", ADAM, TUNED)
    execute(small(*changes), tmp_path / "run", Memo(None), max_workers=1)
    slow = small(*changes, "topology.links.access.latency=5 s")
    known = checkpoint.read_memory(tmp_path / "run")
    found = execute(slow, tmp_path / "slow", Memo(None), known=known, max_workers=1)
    assert found["trainings"]["computed"] == 0
    tables = [pd.read_csv(tmp_path / name / "metrics.csv") for name in ("run", "slow")]
    assert tables[0][list(PERSONAL_METRICS)].equals(tables[1][list(PERSONAL_METRICS)])
    assert (tables[0]["time_s"] < tables[1]["time_s"])[1:].all()
    source = open_source(tmp_path / "run")
    again = replay(source, source.what_if(["topology.links.access.latency=5 s"]), Memo(None))
    assert again.missing == 0
    longer = replay(source, source.what_if(["evaluate.personal.epochs=3"]), Memo(None))
    assert longer.missing == 4 * 8 + 3 * 2 * 8  # in four tests, and what leads to the models of these


def test_it_is_the_same_after_an_interruption_and_with_two_workers(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = small("stop.rounds=4", "output.checkpoint=0 s", "output.plot=false", ADAM, TUNED)
    execute(loaded, tmp_path / "whole", Memo(None), max_workers=1)
    cut_off_and_finished(loaded, tmp_path / "cut", 2)
    monkeypatch.setattr(engine, "WORKERS_AFTER_S", -1.0)
    execute(loaded, tmp_path / "two", Memo(None), max_workers=2)
    for name in ("metrics.csv", "ledger.parquet"):
        whole = (tmp_path / "whole" / name).read_bytes()
        assert (tmp_path / "cut" / name).read_bytes() == whole
        assert (tmp_path / "two" / name).read_bytes() == whole


def test_tuning_that_diverges_names_its_own_key(small: Small) -> None:
    with pytest.raises(DivergedError, match=r"evaluate\.personal\.learning_rate"):
        played(small("evaluate.personal={epochs: 30, learning_rate: 1e30}"))


@pytest.mark.parametrize("wrong", ["{epochs: 0}", "{learning_rate: 0}", "{clients: 0}", "{rate: 1}"])
def test_bad_keys_are_refused(small: Small, wrong: str) -> None:
    with pytest.raises(InputError, match=r"evaluate\.personal"):
        small(f"evaluate.personal={wrong}")
