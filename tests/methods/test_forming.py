"""What forming groups is charged, and what a run folder says of the groups."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from devices.profile import find_profile
from emulator import ledger
from emulator.assembly import assemble
from emulator.grouping.diagnostics import diagnose, groupings_csv, groups_csv
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.ledger import Row
from emulator.methods.session import Session
from emulator.run import execute
from emulator.scenario import Loaded

Small = Callable[..., Loaded]
COV = "method.formation={kind: cov, min_size: 2, max_cov: 0.5}"


def played(loaded: Loaded) -> Session:
    session = assemble(loaded.scenario, Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1))
    session.env.run(session.env.process(loaded.scenario.method(session)))
    return session


def formations(session: Session) -> list[Row]:
    return [row for row in session.world.ledger.rows if row.what == "formation"]


def test_an_edge_computes_as_long_as_its_grouping_takes(small: Small) -> None:
    session = played(small(COV, "stop.rounds=1"))
    [grouping] = session.groupings
    rows = sorted(formations(session), key=lambda r: r.who)
    assert [(r.kind, r.who, r.round, r.bytes) for r in rows] == [
        (ledger.COMPUTE, "edge-0", 1, 0), (ledger.COMPUTE, "edge-1", 1, 0)
    ]  # fmt: skip
    for row in rows:
        groups = grouping.aggregators.count(row.who)
        # 4 clients, 10 labels: 4 - G steps see 2 clients on average; each is a product of 12 pairs and three operations.
        flops = (4 - groups) * 2 * (2 * 12 + 3)
        assert flops > 0
        assert row.end_s - row.start_s == pytest.approx(flops / 430e9, rel=1e-3)  # the clock's digits end at 1e-15
    sends = [r for r in session.world.ledger.rows if r.hop == ledger.CLOUD_EDGE and r.what == "model"]
    assert min(r.start_s for r in sends) == max(r.end_s for r in rows)


def test_it_is_the_aggregators_time_and_no_cost_of_the_clients(small: Small, tmp_path: Path) -> None:
    slow = tmp_path / "slow.yaml"
    text = (files("devices") / "profiles" / "edge-server.yaml").read_text()
    slow.write_text(text.replace("430 GFLOP/s", "1 kFLOP/s"))
    quick = played(small(COV))
    late = played(small(COV, f"topology.edge_device={slow}"))
    assert late.metrics[-1]["cost_s"] == pytest.approx(quick.metrics[-1]["cost_s"], rel=1e-12)
    assert late.metrics[-1]["energy_j"] > quick.metrics[-1]["energy_j"]  # the clients wait for it
    longest = max(r.end_s - r.start_s for r in formations(late))
    assert longest == pytest.approx(430e6 * max(r.end_s - r.start_s for r in formations(quick)), rel=1e-3)
    assert late.world.now - quick.world.now == pytest.approx(longest, rel=1e-6)


def test_forming_anew_is_charged_each_time_and_asks_the_clients_once(small: Small) -> None:
    session = played(small(COV, "method.schedule={kind: every, rounds: 2}", "stop.rounds=5"))
    assert [r.round for r in formations(session)] == [1, 1, 3, 3, 5, 5]
    assert [g.round for g in session.groupings] == [1, 3, 5]
    assert sum(r.what == "label-counts" for r in session.world.ledger.rows) == 8


def test_under_the_cloud_the_cloud_computes(small: Small) -> None:
    session = played(small("method=fedavg", COV, "stop.rounds=1"))
    [row] = formations(session)
    groups = len(session.groupings[0].sizes)
    assert row.who == "cloud"
    speed = find_profile("cloud-server").effective_speed
    assert row.end_s - row.start_s == pytest.approx((8 - groups) * 4 * 27 / speed, rel=1e-2)
    assert set(session.groupings[0].aggregators) == {"cloud"}


@pytest.mark.parametrize(
    "faults", [(), ("faults=[{kind: client-crash, at: [1000 d]}]",)], ids=["together", "one by one"]
)
def test_clients_that_stay_out_neither_train_nor_send_models(small: Small, faults: tuple[str, ...]) -> None:
    rule = (
        "method.formation={kind: cov, min_size: 3, max_cov: 9.0, leftover: out}"  # three of the four clients of an edge
    )
    session = played(small(rule, "method.sampling=all", "stop.rounds=3", *faults))
    assert [g.outside for g in session.groupings] == [2]
    inside = [set(), set()]
    for row in session.world.ledger.rows:
        if row.kind == ledger.COMPUTE and row.what == "training":
            inside[0].add(row.who)
        if row.hop == ledger.CLIENT_SERVER and row.what != "label-counts":
            inside[1].add(row.who)
    assert len(inside[0]) == len(inside[1]) == 6
    assert session.groupings[0].samples.sum() < session.lab.clients.label_counts.sum()
    anew = played(
        small(rule, "method.sampling=all", "stop.rounds=6", "method.schedule={kind: every, rounds: 1}", *faults)
    )
    trained = {r.who for r in anew.world.ledger.rows if r.kind == ledger.COMPUTE and r.what == "training"}
    assert len(trained) > 6  # formed anew, others are left


def test_rules_without_arithmetic_cost_nothing(small: Small) -> None:
    for formation in ("all", "single", "{kind: random, size: 2}"):
        assert formations(played(small(f"method.formation={formation}", "stop.rounds=1"))) == []


def test_the_mix_of_the_fleet_travels_over_the_edges_for_the_rule_that_needs_it(small: Small) -> None:
    session = played(small("method.formation={kind: kld, min_size: 2}", "stop.rounds=1"))
    rows = [r for r in session.world.ledger.rows if r.what == "label-mix"]
    classes = session.lab.clients.label_counts.shape[1]
    assert [(r.hop, r.bytes) for r in rows] == [(ledger.EDGE_CLOUD, 4 * classes)] * 2 + [
        (ledger.CLOUD_EDGE, 4 * classes)
    ] * 2
    counted = [r for r in session.world.ledger.rows if r.what == "label-counts"]
    assert max(r.end_s for r in counted) <= min(r.start_s for r in rows)
    alone = played(
        small(
            "method.formation={kind: kld, min_size: 2}", "stop.rounds=1", "topology.edges=0", "method.aggregator=cloud"
        )
    )
    assert [r for r in alone.world.ledger.rows if r.what == "label-mix"] == []


def test_run_folders_say_which_groups_were_formed(small: Small, tmp_path: Path) -> None:
    loaded = small(COV, "method.sampling={kind: rcov, share: 0.5}", "method.schedule={kind: every, rounds: 1}")
    execute(loaded, tmp_path / "run", Memo(None), max_workers=1)
    groups = pd.read_csv(tmp_path / "run" / "groups.csv")
    overall = pd.read_csv(tmp_path / "run" / "groupings.csv")
    counts = Lab(loaded.scenario, RunMemory(Memo(None))).clients.label_counts
    labels = [f"label_{j}" for j in range(counts.shape[1])]
    assert list(groups.columns) == [
        "round", "group", "aggregator", "size", "samples", "cov", "gamma", "p", "log_p", *labels
    ]  # fmt: skip
    assert list(overall["round"]) == [1, 2]
    for _, at in groups.groupby("round"):
        assert at["size"].sum() == 8
        assert at[labels].sum().tolist() == counts.sum(axis=0).tolist()
        assert (at["samples"] == at[labels].sum(axis=1)).all()
        by_labels = at[labels].to_numpy()
        np.testing.assert_allclose(at["cov"], by_labels.std(axis=1) / by_labels.mean(axis=1))
        np.testing.assert_allclose(at["p"], (1 / at["cov"]) / (1 / at["cov"]).sum())
        np.testing.assert_allclose(np.log(at["p"]), at["log_p"])
        assert list(at["group"]) == list(range(len(at)))
        assert set(at["aggregator"]) == {"edge-0", "edge-1"}
    for _, row in overall.iterrows():
        at = groups[groups["round"] == row["round"]]
        assert (row["groups"], row["smallest"], row["largest"]) == (len(at), at["size"].min(), at["size"].max())
        assert row["mean_cov"] == pytest.approx(at["cov"].mean())
        assert row["gamma_p"] == pytest.approx((1 / at["p"]).sum())
        assert row["gamma_groups"] == pytest.approx((at["samples"] ** 2).mean() / at["samples"].mean() ** 2)
        assert row["mean_gamma"] == pytest.approx(at["gamma"].mean())


def test_diagnostics_by_hand() -> None:
    counts = np.array([[10, 0], [0, 30], [5, 5], [0, 0]])
    grouping = diagnose(7, ["edge-0", "edge-1"], [[0, 1], [2, 3]], counts, np.log([3.0, 1.0]))
    assert grouping.samples.tolist() == [40, 10]
    assert grouping.cov.tolist() == [0.5, 0.0]
    assert grouping.gamma.tolist() == [1.25, 2.0]  # 10 and 30; 10 and nothing
    np.testing.assert_allclose(np.exp(grouping.log_p), [0.75, 0.25])
    assert (grouping.gamma_groups, grouping.gamma_p) == (pytest.approx(1.36), pytest.approx(4 / 3 + 4))
    assert groups_csv([grouping]).splitlines()[1].startswith("7,0,edge-0,2,40,0.5,1.25,0.75")
    assert groups_csv([grouping]).splitlines()[2].endswith(",5,5")
    assert groups_csv([]) == "round,group,aggregator,size,samples,cov,gamma,p,log_p\n"
    never = diagnose(1, ["cloud"] * 2, [[0, 1], [2, 3]], counts, np.array([0.0, -800.0]))
    table = pd.read_csv(io.StringIO(groups_csv([never])))
    assert (table["p"][1], table["log_p"][1]) == (0, -800)
    assert pd.read_csv(io.StringIO(groupings_csv([never])))["gamma_p"][0] == np.inf
