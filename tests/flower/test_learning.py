"""Real apps of Flower, unchanged, that learn: current and older ones, with several methods, beside a method of our own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: ./dev test-flower")

from flower_apps import APPS, WORLD, Play, play  # noqa: F401 (a fixture)

from devices.compute import training_s
from emulator.assembly import workload_of
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.run import execute
from emulator.run_folder import prepare
from emulator.scenario import loads
from emulator.world.fleet import Fleet

DIGITS, FASHION = APPS / "digits", Path("/usr/share/datasets/fashion-mnist")
CONFIG = ("rounds=2", "fraction-evaluate=1.0", "epochs=1", "lr=0.1", "batch-size=10", 'data="digits"')


def digits(play: Play, server: str, client: str, monkeypatch: pytest.MonkeyPatch, *more: str, **how: object):  # type: ignore[no-untyped-def]  # noqa: F811
    monkeypatch.chdir(DIGITS)
    return play([f"digits.{server}", f"digits.{client}"], config=(*CONFIG, *more), **how)


def test_fedavg_by_relays_and_by_edges_that_aggregate(play: Play) -> None:  # noqa: F811
    """With one step on all samples, the mean of the edges' means is that of all clients, but for rounding."""
    config = ("rounds=2", "batch-size=10000", "lr=1.0")
    relay = play(DIGITS, config=config)
    run = relay.run
    assert run.training
    assert run.metrics["round"].tolist() == [0, 1, 2]
    assert run.metrics["loss"].iloc[-1] < run.metrics["loss"].iloc[0] - 0.05
    assert {"server_accuracy", "evaluate_eval_acc", "train_train_loss"} <= set(run.metrics.columns)
    assert set(run.ledger.query("kind == 'compute'")["what"]) == {"training (counted)", "evaluation (counted)"}
    edges = play(DIGITS, config=config, edges="fedavg")
    for column in ("loss", "evaluate_eval_loss", "train_train_loss"):
        np.testing.assert_allclose(edges.run.metrics[column], run.metrics[column], rtol=1e-4)
    # Half the messages on the backhaul: two edges and four clients.
    hops = [made.run.ledger.query("kind == 'transfer'").groupby("hop").size() for made in (relay, edges)]
    assert hops[0]["cloud-edge"] == hops[0]["server-client"] == hops[1]["server-client"] == 2 * hops[1]["cloud-edge"]


def test_counted_operations_are_those_of_the_formula(play: Play) -> None:  # noqa: F811
    """Three products of each layer's size a sample, without the one for the inputs' gradient, which nobody asks for."""
    made = play(DIGITS, "topology.clients=2", config=("rounds=1", "fraction-evaluate=0.0"))
    samples, steps = 750, 75
    flops = samples * (3 * 2 * (64 * 32 + 32 * 10) - 2 * 64 * 32)
    device = Fleet(made.scenario.topology, 1).client_devices[0]
    rows = made.run.ledger.query("kind == 'compute'")
    expected = flops / device.effective_speed + steps * device.batch_overhead
    np.testing.assert_allclose(rows["end_s"] - rows["start_s"], expected, rtol=1e-9)


@pytest.mark.parametrize("server", ["server_fedprox:app", "server_fedadam:app"])
def test_fedprox_and_fedadam(play: Play, server: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    metrics = digits(play, server, "client:app", monkeypatch).run.metrics
    assert metrics["accuracy"].iloc[-1] > metrics["accuracy"].iloc[0]


def test_a_mod_for_differential_privacy(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    made = digits(play, "server_fedavg:app", "client_dp:app", monkeypatch)
    assert made.summary["rounds"] == 2
    assert made.summary["replies"]["deterministic"]  # its noise comes from numpy, which begins anew for each message


def test_secure_aggregation_and_the_older_kind_of_app(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    whole = ("batch-size=10000",)  # one step on all samples, so that the order of batches does not matter
    plain = digits(play, "legacy:server", "legacy:client", monkeypatch, *whole)
    secret = digits(play, "legacy:secret_server", "legacy:secret_client", monkeypatch, *whole)
    losses = [made.run.metrics["loss"].iloc[-1] for made in (plain, secret)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)  # what the quantisation under the masks leaves
    replies = [pd.read_csv(made.folder / "replies.csv") for made in (plain, secret)]
    assert [len(each) for each in replies] == [2 * 8, 2 * (4 * 4 + 4)]
    assert secret.summary["replies"]["deterministic"] is False  # its keys are drawn from the system
    assert secret.run.metrics["bytes_total"].iloc[-1] > plain.run.metrics["bytes_total"].iloc[-1]


def test_an_asynchronous_server_that_pushes_and_pulls(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    half = WORLD.replace("devices: raspberry-pi-4b", "devices: {raspberry-pi-4b: 0.5, raspberry-pi-3b-plus: 0.5}")
    made = digits(play, "server_async:app", "client:app", monkeypatch, "rounds=5", world=half)
    done = pd.read_csv(made.folder / "replies.csv").query("type == 'train'").groupby("node").size()
    assert done.sum() == 20
    assert done.max() > done.min()  # the quick ones are asked more often
    assert made.run.metrics["accuracy"].iloc[-1] > 0.1  # the mean of what its clients report


def test_flowers_own_quickstart(play: Play, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # noqa: F811
    monkeypatch.chdir(tmp_path)  # it saves its model where it is started
    made = play(APPS / "quickstart")
    assert (tmp_path / "final_model.pt").is_file()
    assert made.run.metrics["accuracy"].iloc[-1] > 0.2


@pytest.mark.skipif(not FASHION.is_dir(), reason="Fashion-MNIST is not on this machine")
def test_fashion_mnist(play: Play) -> None:  # noqa: F811
    made = play(DIGITS, config=("rounds=2", f'data="{FASHION}"'))
    assert made.run.metrics["accuracy"].iloc[-1] > 0.4


OURS = (
    WORLD
    + """
data: {set: digits, partition: iid}
model: {kind: mlp, hidden: [32]}
method: {preset: fedavg, local: {epochs: 1, batch_size: 10000, learning_rate: 0.1}}
stop: {rounds: 3}
"""
)


def test_the_same_as_our_preset(play: Play, tmp_path: Path) -> None:  # noqa: F811
    """FedAvg of Flower and ours, on the same data, from the same model: bytes within the framing, time, accuracies.

    A client takes one step on all its samples, so that nothing depends on the order of batches.
    """
    loaded = loads(OURS)
    scenario = loaded.scenario
    lab = Lab(scenario, RunMemory(Memo(None)), max_workers=1)
    data, first = lab._data.arrays, lab.value(lab.initial()).numpy()
    parts = lab._data.parts
    owner = np.full(len(data.y_train), -1)
    for client, part in enumerate(parts):
        owner[part] = client
    shapes = [(32, 64), (32,), (10, 32), (10,)]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    assert ends[-1] == len(first)
    weights = {f"p{n}": each.reshape(shapes[n]) for n, each in enumerate(np.split(first, ends[:-1]))}
    x, test_x = (np.asarray(each, np.float32).reshape(len(each), -1) for each in (data.x_train, data.x_test))
    file = tmp_path / "given.npz"
    np.savez(
        file, x=x, y=np.asarray(data.y_train), test_x=test_x, test_y=np.asarray(data.y_test), owner=owner, **weights
    )
    held = np.array([len(part) for part in parts])
    device = Fleet(scenario.topology, scenario.seed).client_devices[0]
    rate = 1000 / training_s(device, workload_of(scenario, lab).training(10_000), 1000, 10_000)
    lab.close()
    assert prepare(tmp_path / "ours", scenario)
    execute(loaded, tmp_path / "ours", Memo(None), max_workers=1)
    ours = pd.read_csv(tmp_path / "ours" / "metrics.csv")
    made = play(APPS / "given", config=(f'file="{file}"',), client_time=f"samples:{rate!r}")
    theirs = made.run.metrics
    np.testing.assert_allclose(theirs["accuracy"], ours["accuracy"], atol=1.5 / len(test_x))
    np.testing.assert_allclose(theirs["loss"], ours["loss"], rtol=1e-4)
    replies = pd.read_csv(made.folder / "replies.csv")
    model = 4 * len(first)
    frames = [replies[way] - model for way in ("down_bytes", "up_bytes")]
    assert all(((frame > 0) & (frame < 1500)).all() for frame in frames)
    extra = theirs["bytes_total"].iloc[-1] - ours["bytes_total"].iloc[-1]
    assert extra == 2 * sum(frame.sum() for frame in frames)
    # Alone on its own link, each client's framing takes its bits over it, and nothing else differs.
    slowest = replies.assign(framing_s=8 * frames[0] / 16e6 + 8 * frames[1] / 8e6).groupby("round")["framing_s"].max()
    spent = theirs["time_s"].diff().iloc[1:].to_numpy() - ours["time_s"].diff().iloc[1:].to_numpy()
    np.testing.assert_allclose(spent, slowest.to_numpy(), rtol=1e-6, atol=1e-9)
    assert held.sum() == len(x)
