"""Servers between groups and cloud that average too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from emulator.ledger import GROUP_OPERATION, TRANSFER
from emulator.scenario import Loaded
from tests.methods.playing import played

Small = Callable[..., Loaded]

TREE = (
    "topology.edges=null",
    "topology.tiers=[{name: region, count: 2}, {name: edge, count: 2}, {name: gateway, count: 4}]",
    "method.aggregator=gateway",
    "method.formation=all",
    "method.group_operation=none",
)


def test_one_round_at_every_tier_gives_the_model_of_a_cloud_that_averages_all(small: Small) -> None:
    flat = played(small(*TREE, "stop.rounds=2"))
    tiered = played(small(*TREE, "method.tiers={edge: {}, region: {}}", "stop.rounds=2"))
    assert [row["loss"] for row in tiered.metrics] == pytest.approx([row["loss"] for row in flat.metrics], rel=1e-5)
    # Where the cloud averages, every gateway's model reaches it; where regions do, theirs.
    size = flat.world.workload.model_bytes
    assert flat.metrics[-1]["bytes_region_cloud"] == 2 * 4 * size
    assert tiered.metrics[-1]["bytes_region_cloud"] == 2 * 2 * size
    assert tiered.metrics[-1]["bytes_gateway_edge"] == flat.metrics[-1]["bytes_gateway_edge"] == 2 * 4 * size


def test_rounds_of_tiers_multiply(small: Small) -> None:
    loaded = small(
        *TREE, "method.tiers={edge: {rounds: 3}, region: {rounds: 2}}", "method.group_rounds=2", "stop.rounds=1"
    )
    session = played(loaded)
    model = [r for r in session.world.ledger.rows if r.kind == TRANSFER and r.what == "model"]
    hops = Counter(r.hop for r in model)
    assert hops["region-cloud"] == hops["cloud-region"] == 2
    assert hops["edge-region"] == hops["region-edge"] == 2 * 2
    assert hops["gateway-edge"] == hops["edge-gateway"] == 4 * 2 * 3
    assert hops["client-server"] == hops["server-client"] == 8 * 2 * 3 * 2
    turns = {r.group_round for r in model if r.hop == "client-server"}
    assert turns == set(range(2 * 3 * 2))  # no turn trains on the batches of another


def test_later_turns_train_on_other_batches(small: Small) -> None:
    once = played(small(*TREE, "method.tiers={edge: {rounds: 1}}", "stop.rounds=1"))
    twice = played(small(*TREE, "method.tiers={edge: {rounds: 2}}", "stop.rounds=1"))
    assert twice.metrics[-1]["cost_training_s"] == pytest.approx(2 * once.metrics[-1]["cost_training_s"])
    assert twice.metrics[-1]["loss"] != once.metrics[-1]["loss"]


def test_a_group_operation_of_a_tier_is_paid_by_those_right_below(small: Small) -> None:
    operation = "group_operation: {kind: secure-aggregation, a: 0 s, b: 0 s, c: 1 s}"
    plain = played(small(*TREE, "method.tiers={edge: {}}", "stop.rounds=1"))
    secure = played(small(*TREE, f"method.tiers={{edge: {{{operation}}}}}", "stop.rounds=1"))
    rows = [r for r in secure.world.ledger.rows if r.kind == GROUP_OPERATION]
    assert sorted(r.who for r in rows) == [f"gateway-{g}" for g in range(4)]
    assert secure.metrics[-1]["time_s"] > plain.metrics[-1]["time_s"] + 0.99
    assert (
        secure.metrics[-1]["cost_group_s"] == plain.metrics[-1]["cost_group_s"]
    )  # client-seconds: servers are no clients
