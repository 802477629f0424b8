"""The examples of the pages on extending do what these say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from examples import FILES, SECTIONS
from scenario.command import hfl

from analysis.runs import load_run
from emulator import extend

Check = Callable[[Sequence[str]], None]  # gets what each command wrote
CHECKS: dict[str, Check] = {}


def of(title: str) -> Callable[[Check], Check]:
    """Registers what is true after the commands of a section."""

    def add(check: Check) -> Check:
        CHECKS[title] = check
        return check

    return add


@of("How it works")
def how_it_works(said: Sequence[str]) -> None:
    assert "dealt" in said[0]
    groups = load_run("dealt").groups
    assert groups["size"].tolist() == [2, 2, 2, 2]
    for _, there in groups.groupby("aggregator"):
        assert there["samples"].max() - there["samples"].min() <= 10
    assert load_run(next(Path("dealt").glob("whatif-*"))).manifest["plugins"][0]["name"] == "dealt"


@of("What a plug-in is made of")
def made_of(said: Sequence[str]) -> None:
    assert said == [""]


@of("Model")
def model(said: Sequence[str]) -> None:
    ledger = load_run("conv").ledger
    assert set(ledger["bytes"][ledger["what"] == "model"]) == {4 * (4 * 9 + 4 + 64 * 10 + 10)}


@of("Data set")
def data_set(said: Sequence[str]) -> None:
    groups = load_run("wine").groups
    labels = [name for name in groups if name.startswith("label_")]
    assert labels == ["label_0", "label_1", "label_2"]
    assert groups[labels].sum().sum() == 138


@of("Partition")
def partition(said: Sequence[str]) -> None:
    ledger = load_run("zipf").ledger
    held = ledger[ledger["what"] == "training"].groupby("who")["samples"].max()
    assert held.sort_values(ascending=False).index.tolist() == [f"client-{c}" for c in range(8)]
    assert held["client-0"] > 10 * held["client-7"]


@of("Local rule")
def local_rule(said: Sequence[str]) -> None:
    loss = load_run("sign").metrics["loss"]
    assert loss.iloc[-1] < loss.iloc[0]


@of("Optimiser")
def optimiser(said: Sequence[str]) -> None:
    run = load_run("lion")
    loss = run.metrics["loss"]
    assert loss.iloc[-1] < loss.iloc[0]
    assert run.manifest["plugins"][0]["name"] == "lion"


@of("Learning-rate schedule")
def learning_rate_schedule(said: Sequence[str]) -> None:
    loss = load_run("falling").metrics["loss"]
    assert loss.iloc[-1] < loss.iloc[0]


@of("Formation")
def formation(said: Sequence[str]) -> None:
    assert "dealt" in said[0]


@of("Sampling")
def sampling(said: Sequence[str]) -> None:
    groups = load_run("sampled").groups
    weights = groups["samples"] ** 2
    assert np.allclose(groups["p"], weights / weights.sum())


@of("Aggregation")
def aggregation(said: Sequence[str]) -> None:
    groups = extend.SampledGroups(np.array([9, 36]), 45, np.zeros(2), [0, 1])
    weights = extend.aggregations["square-root"].function(groups, extend.NoParams())
    assert np.allclose(weights, [1 / 3, 2 / 3])
    assert load_run("roots").scenario["method"]["aggregation"]["kind"] == "square-root"


@of("In-group training")
def training(said: Sequence[str]) -> None:
    run = load_run("damped")
    assert run.scenario["method"]["training"] == {"kind": "damped", "rate": 0.3}
    assert run.metrics["loss"].nunique() == 4


@of("A synchronous method")
def synchronous(said: Sequence[str]) -> None:
    ledger = load_run("flat").ledger
    uploads = ledger[(ledger["what"] == "model") & (ledger["hop"] == "client-server") & (ledger["status"] == "done")]
    assert uploads.groupby("round").size().tolist() == [6, 6, 6]
    assert (ledger["status"] == "broken").any()


@of("An asynchronous method")
def asynchronous(said: Sequence[str]) -> None:
    run = load_run("fedbuff")
    arrived = run.table("staleness")
    means = arrived[arrived["used"] == 1].groupby("round")["staleness"].mean()
    on = arrived["client"].map(lambda client: run.energy["device"][client])
    by_device = arrived.groupby(on)["staleness"].mean()
    assert by_device["raspberry-pi-4b"] > by_device["laptop"]
    assert np.allclose(run.metrics["mean_staleness"].iloc[1:], means)
    assert run.metrics["round"].tolist() == list(range(13))
    assert run.metrics["loss"].iloc[-1] < run.metrics["loss"].iloc[0]
    assert load_run("crashed").summary["stopped_by"] == "nobody left"


@of("Plot and table")
def views(said: Sequence[str]) -> None:
    arrived = load_run("timed").table("staleness")
    assert f"fedbuff  {len(arrived)} ".split() == said[1].splitlines()[-1].split()[:2]
    assert Path("staleness.png").read_bytes().startswith(b"\x89PNG")


@of("Trace format")
def trace_format(said: Sequence[str]) -> None:
    assert "rates, 1 series" in said[0]
    assert "4 s in 2 steps" in said[0]
    plain = hfl("run", "small.yaml", "--no-training", "--out", "plain")
    assert plain.code == 0
    assert load_run("walked").metrics["time_s"].iloc[-1] > load_run("plain").metrics["time_s"].iloc[-1]


@of("Device")
def device(said: Sequence[str]) -> None:
    slow, mixed = (load_run(name).metrics["cost_training_s"].iloc[-1] for name in ("phones", "mixed"))
    assert slow > mixed


@of("Estimator")
def estimator(said: Sequence[str]) -> None:
    ledger = load_run("probed").ledger
    probes = ledger[ledger["what"] == "probe"]
    assert (len(probes), set(probes["bytes"])) == (8, {100_000})
    assert load_run("probed").groups["size"].tolist() == [2, 2, 2, 2]


@of("Distance")
def distance(said: Sequence[str]) -> None:
    assert load_run("gaps").groups["size"].tolist() == [2, 2, 2, 2]


@of("Schedule")
def schedule(said: Sequence[str]) -> None:
    assert load_run("doubling").groupings["round"].tolist() == [1, 2, 3, 5]


@of("Group operation")
def group_operation(said: Sequence[str]) -> None:
    ledger = load_run("masks").ledger
    masks = ledger[(ledger["what"] == "pair-masks") & (ledger["kind"] == "transfer")]
    assert set(masks["bytes"]) == {3 * 32}


@of("Combination")
def combination(said: Sequence[str]) -> None:
    rows = load_run("bounded").ledger.query("what == 'combination'")
    assert sorted(rows["who"]) == ["edge-0"] * 6 + ["edge-1"] * 6
    received = extend.Received(np.zeros(2), [np.ones(2), 3 * np.ones(2), -9 * np.ones(2)], np.full(3, 1 / 3))
    found = extend.combinations["median-norm"].function(received, extend.NoParams())
    assert np.allclose(found, (1 + 3 - 3) / 3)


@of("Server optimiser")
def server_optimiser(said: Sequence[str]) -> None:
    rows = load_run("signed").ledger.query("what == 'server-optimiser'")
    assert rows["who"].tolist() == ["cloud"] * 3
    step = extend.server_optimisers["sign-step"]
    after, (kept,) = step.function(np.zeros(2), np.array([5.0, -1.0]), [np.zeros(2)], step.params())
    assert after.tolist() == [0.01, -0.01]
    assert np.allclose(kept, [0.5, -0.1])


@of("Client selection")
def selection(said: Sequence[str]) -> None:
    chosen = load_run("quick").table("selections").query("chosen == 1")
    first = set(chosen.query("round == 1")["client"])
    assert first
    assert first.isdisjoint(chosen.query("round == 2")["client"])


@of("Waiting")
def waiting(said: Sequence[str]) -> None:
    ledger = load_run("late").ledger
    assert (ledger["status"] == "broken").any()


@of("Staleness function")
def staleness(said: Sequence[str]) -> None:
    assert "half-life" in said[0]
    found = extend.stalenesses["half-life"]
    assert [found.function(tau, found.params(versions=2)) for tau in (0, 2, 4)] == [1.0, 0.5, 0.25]


@of("Distribution")
def distribution(said: Sequence[str]) -> None:
    assert "pareto" in said[0]
    found = extend.distributions["pareto"]
    params = found.params.model_validate({"at": "2 Mbit/s", "shape": 1.0})
    chosen = extend.distributions.choice("pareto", params)
    assert np.allclose(chosen(np.array([0.0, 0.5, 0.75])), [2e6, 4e6, 8e6])


@of("Split time and bipartition")
def splitting(said: Sequence[str]) -> None:
    assert (load_run("split").clusters["reason"] == "split").any()


@of("Transport")
def transport(said: Sequence[str]) -> None:
    known, unknown = (load_run(folder).ledger for folder in ("quic", "quic-unknown"))
    assert unknown["end_s"].max() > known["end_s"].max()
    assert unknown["bytes"].sum() == known["bytes"].sum()


@of("Encoding")
def encoding(said: Sequence[str]) -> None:
    ledger = load_run("half").ledger
    models = ledger[ledger["what"] == "model"]
    up, down = (set(models[models["hop"] == hop]["bytes"]) for hop in ("client-server", "server-client"))
    assert len(up) == len(down) == 1
    assert 2 * up.pop() == down.pop()


@of("Fault")
def fault(said: Sequence[str]) -> None:
    ledger = load_run("blackout").ledger
    broken = ledger[ledger["status"] == "broken"]
    assert broken.groupby("end_s")["who"].nunique().max() > 1


@of("Movement")
def movement(said: Sequence[str]) -> None:
    ledger = load_run("shifts").ledger
    handovers = ledger[ledger["what"] == "handover"]
    assert set(handovers["hop"]) == {"edge-cloud", "cloud-edge"}
    assert handovers["start_s"].min() == pytest.approx(0.3)


@of("Attack and measurement")
def attack(said: Sequence[str]) -> None:
    margins = load_run("confused").table("margins")
    assert margins["round"].tolist() == [0, 1, 2, 3]
    assert (margins["margin"] > 0).all()


@of("Task")
def task(said: Sequence[str]) -> None:
    run = load_run("huber")
    assert (run.measure.name, run.measure.better) == ("mae", "lower")
    assert run.metrics["mae"].iloc[-1] < run.metrics["mae"].iloc[0]


@of("Trace generator")
def generator(said: Sequence[str]) -> None:
    assert "5 steps" in said[1]


def test_every_section_with_commands_is_checked() -> None:
    assert {title for title, section in SECTIONS.items() if section.commands} == set(CHECKS)


@pytest.mark.parametrize("title", CHECKS)
def test_the_examples_of_a_section_do_what_it_says(plugin_home: Path, title: str) -> None:
    for name, text in FILES.items():
        (plugin_home / name).write_text(text, encoding="utf-8")
    said = []
    for command in SECTIONS[title].commands:
        done = hfl(*command.words)
        assert done.code == (2 if command.error else 0), done.err
        assert command.error in done.err
        said.append(done.out)
    CHECKS[title](said)
