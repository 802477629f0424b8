"""Runs of the testbed in user space against emulations of the same scenario: models, bytes, members; and what they leave."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from testbeds import emulated, ledger, measured, same, scenario, sums

from emulator.errors import InputError
from emulator.learning.memo import Memo
from emulator.run import execute as emulate
from emulator.testbed import leftovers
from emulator.testbed.run import How, execute, prepare
from emulator.testbed.secure import BITS, CLIP
from emulator.whatif import open_run


def test_models_that_are_averaged_in_clear_are_those_of_the_emulation_bit_for_bit(tmp_path: Path) -> None:
    loaded, folder = scenario(tmp_path), tmp_path / "run"
    with_clock = measured(loaded, folder)
    models, metrics = emulated(loaded)
    assert len(models) == 3
    assert same(with_clock["models"], models)
    rows = pd.read_csv(folder / "metrics.csv")
    for column in ("accuracy", "loss", "bytes_total", "bytes_server_client", "bytes_edge_cloud"):
        assert rows[column].tolist() == metrics[column].tolist()
    # What it measured are seconds: they pass, and nothing is quicker than its link.
    assert rows.time_s.is_monotonic_increasing
    assert rows.time_s.iloc[-1] > 0.5 * metrics.time_s.iloc[-1]
    found = ledger(folder)
    assert (found.end_s >= found.start_s).all()
    up = found[(found.kind == "transfer") & (found.hop == "client-server")]
    assert ((up.end_s - up.start_s) > 0.005).all()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["clock"] == "measured"
    assert manifest["testbed"]["links"] == "user space"
    assert manifest["testbed"]["brought_by_control_channel"] == 0
    assert not list(leftovers.home().glob(f"hfl-testbed-{__import__('os').getpid()}.json"))
    # Nobody goes on with it, or takes it for an emulation.
    with pytest.raises(InputError, match="measured on the testbed"):
        open_run(folder)
    memo = Memo(None)
    from emulator.run_folder import prepare as prepare_run

    with pytest.raises(InputError, match="measured on the testbed"):
        prepare_run(folder, loaded.scenario)
    with pytest.raises(InputError, match="holds a run already"):
        prepare(folder, loaded.scenario, overwrite=False)
    # What reads run folders reads it, beside an emulated one.
    from analysis import tables
    from analysis.runs import load_run

    emulate(loaded, tmp_path / "emulated", memo)
    both = [load_run(folder), load_run(tmp_path / "emulated")]
    assert len(tables.charges(both, ("measured", "emulated"))) == 2


def test_secure_sums_are_averages_within_the_fixed_point_step_and_a_killed_member_is_left_out(tmp_path: Path) -> None:
    fault = {"kind": "client-crash", "clients": [1], "at": ["1 ms"], "lasts": "1 d"}
    loaded = scenario(
        tmp_path,
        topology__clients=5,
        topology__edges=1,
        method__group_rounds=1,
        method__group_operation={"kind": "secure-aggregation", "model": "protocol", "adversary": "active"},
        stop__rounds=1,
        faults=[fault],
    )
    folder = tmp_path / "run"
    run = measured(loaded, folder)
    models, metrics = emulated(loaded)
    (first, mean), (theirs, average) = run["models"], models
    assert torch.equal(first, theirs)
    assert not torch.equal(mean, average)  # it is a sum of integers, not the emulation's average
    # Each of four members rounds by half a step, and float32 rounds once more.
    step = 5 * CLIP / 2 ** (BITS - 1)
    bound = 4 * step / 2 + float(average.abs().max()) * np.finfo(np.float32).eps
    assert float((mean - average).abs().max()) <= bound
    rows = ledger(folder)
    assert set(rows[rows.kind == "group-operation"].who) == {f"client-{n}" for n in (0, 2, 3, 4)}
    assert rows[rows.who == "client-1"].empty or set(rows[rows.who == "client-1"].status) == {"broken"}
    assert "secure-aggregation" in set(rows[rows.kind == "transfer"].what)
    said = pd.read_csv(folder / "metrics.csv")
    assert said.accuracy.iloc[-1] == pytest.approx(metrics.accuracy.iloc[-1])


def test_what_does_not_fit_is_refused_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(*_: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr("emulator.testbed.run.Nursery", no)
    op = "method.group_operation"
    cases = {
        "topology.clients": {"topology__clients": 2000, "data__partition": {"kind": "iid"}},
        "topology.links": {"topology__links__access__jitter": {"kind": "uniform", "scale": "1 ms"}},
        op: {"method__group_operation": "backdoor-detection"},
        "method.local": {"method__local": {"kind": "scaffold", "epochs": 1, "batch_size": 4, "learning_rate": 0.1}},
        "faults.0": {"faults": [{"kind": "slow-down", "clients": [1], "at": ["1 s"], "factor": 3}]},
        "stop": {"stop": {"accuracy": 0.9}},
        "method": {"method": {"preset": "centralized"}},
    }
    for key, changes in cases.items():
        with pytest.raises(InputError) as refused:
            execute(scenario(tmp_path, **changes), tmp_path / "run", How(kernel=False))
        assert f"{key}: " in str(refused.value)
        assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="may take 1 s") as refused:
        execute(scenario(tmp_path, stop__rounds=50), tmp_path / "run", How(kernel=False, at_most_s=1.0))
    assert "stop: " in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"method__encodings": {"client": {"up": ["delta", {"kind": "top-k", "share": 0.1}], "down": ["float16"]}}},
        {
            "method__encodings": {
                "client": {"up": ["delta", "error-feedback", {"kind": "random-k", "share": 0.2, "scale": False}]}
            }
        },
        {"method": {"preset": "fedavg", "local": {"epochs": 1, "batch_size": 4, "learning_rate": 0.1}}},
        {
            "method": {
                "preset": "fedseq",
                "formation": {"kind": "random", "size": 2},
                "local": {"epochs": 1, "batch_size": 4, "learning_rate": 0.1},
            },
            "data__public": 2,
        },
    ],
    ids=["delta", "error-feedback", "fedavg", "chains"],
)
def test_methods_whose_order_time_does_not_change_learn_the_same(tmp_path: Path, changes: dict[str, object]) -> None:
    loaded, folder = scenario(tmp_path, **changes), tmp_path / "run"
    run = measured(loaded, folder)
    models, metrics = emulated(loaded)
    assert same(run["models"], models)
    rows = ledger(folder)
    assert sum(sums(rows).values()) == metrics.bytes_total.iloc[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"method__wait_for_members": {"kind": "quorum", "count": 1}},
        {"method__wait_for_members": {"kind": "deadline", "after": "400 ms"}, "method__group_rounds": 1},
        {"method": {"preset": "fedbuff", "buffer": 2, "local": {"epochs": 1, "batch_size": 4, "learning_rate": 0.1}}},
    ],
    ids=["quorum", "deadline", "fedbuff"],
)
def test_methods_that_do_not_wait_for_everybody_run(tmp_path: Path, changes: dict[str, object]) -> None:
    run = measured(scenario(tmp_path, **changes), tmp_path / "run")
    assert (run["status"], run["rounds"]) == ("complete", 2)
    assert run["final"]["accuracy"] is not None
