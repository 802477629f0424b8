"""Clients that are divided once into clusters with a model each (FedCLAR)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from emulator import ledger
from emulator.scenario import Loaded
from tests.methods.playing import played

Small = Callable[..., Loaded]

# Four clients have the labels 0 to 4, four the others; nobody says so.
BLOCKS = "data.partition={kind: label-blocks, blocks: [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]], samples_per_client: 40}"
FEDCLAR = (
    BLOCKS, "method=fedclar", "method.formation={size: 2}", "method.sampling=all", "method.group_rounds=1",
    "method.dividing={round: 3, clusters: 2}", "method.local={epochs: 2, batch_size: 4, learning_rate: 0.1}",
)  # fmt: skip


def test_similar_clients_come_together_and_groups_never_mix_them(small: Small) -> None:
    session = played(small(*FEDCLAR, "stop.rounds=5"))
    truth = session.lab.clients.clusters
    assert truth is not None
    rows = [r for r in session.world.ledger.rows if r.kind == ledger.COMPUTE and r.what == "training" and r.round > 3]
    groups: dict[tuple[int, int], set[int]] = {}
    for row in rows:
        groups.setdefault((row.round, row.group), set()).add(int(truth[int(row.who.removeprefix("client-"))]))
    assert groups
    assert all(len(clusters) == 1 for clusters in groups.values())


def test_a_mean_over_cluster_models_is_worse_for_everybody_than_one_model(small: Small) -> None:
    # Each cluster's model forgets the labels that its clients do not have: the global accuracy drops (S2 Fig. 10).
    divided = played(small(*FEDCLAR, "stop.rounds=8"))
    whole = played(small(*FEDCLAR, "method.dividing=null", "stop.rounds=8"))
    before, after = divided.metrics[3]["accuracy"], divided.metrics[-1]["accuracy"]
    assert [m["loss"] for m in divided.metrics[:4]] == [m["loss"] for m in whole.metrics[:4]]
    assert after < whole.metrics[-1]["accuracy"] - 0.1
    assert after < before + 0.1


def test_dividing_is_charged_and_every_cluster_has_its_model_sent(small: Small) -> None:
    session = played(small(*FEDCLAR, "stop.rounds=4"))
    size = session.world.workload.model_bytes
    dividing = [r for r in session.world.ledger.rows if r.what == "dividing"]
    down = [r for r in dividing if r.hop == ledger.SERVER_CLIENT]
    assert len(down) == 8
    assert all(r.bytes == size and r.round == 4 for r in down)
    assert {r.who for r in dividing if r.kind == ledger.COMPUTE} == {f"client-{c}" for c in range(8)}
    sent = [r for r in session.world.ledger.rows if r.hop == ledger.CLOUD_EDGE and r.what == "model" and r.round == 4]
    truth = session.lab.clients.clusters
    assert truth is not None
    here = [len(np.unique(truth[list(block)])) for block in session.world.fleet.blocks_at("edge")]
    assert len(sent) == sum(here)


def test_rules_with_a_memory_cannot_be_divided(small: Small) -> None:
    with pytest.raises(Exception, match="whose memory belongs to one global model"):
        small(*FEDCLAR, "method.local.kind=scaffold")


def test_only_models_that_have_come_back_divide_the_clients(small: Small) -> None:
    away = "faults=[{kind: client-crash, clients: [2, 5], at: [0 s]}]"
    session = played(small(*FEDCLAR, "stop.rounds=5", away))
    dividing = [r for r in session.world.ledger.rows if r.what == "dividing" and r.kind == ledger.COMPUTE]
    assert {r.who for r in dividing} == {f"client-{c}" for c in range(8) if c not in (2, 5)}
    done = [r for r in session.world.ledger.rows if r.kind == ledger.COMPUTE and r.status == ledger.DONE]
    assert session.lab.asked == len(done)
    truth = session.lab.clients.clusters
    assert truth is not None
    later = [r for r in session.world.ledger.rows if r.what == "training" and r.round > 3]
    groups: dict[tuple[int, int], set[int]] = {}
    for row in later:
        groups.setdefault((row.round, row.group), set()).add(int(truth[int(row.who.removeprefix("client-"))]))
    assert len(groups) > 2
    assert all(len(clusters) == 1 for clusters in groups.values())


def test_a_rule_that_computes_more_in_each_step_takes_longer_to_divide(small: Small) -> None:
    spans = []
    for rule in ("sgd", "fedprox"):
        session = played(small(*FEDCLAR, "stop.rounds=4", f"method.local.kind={rule}"))
        rows = [r for r in session.world.ledger.rows if r.kind == ledger.COMPUTE and r.round == 4]
        by_what = {
            what: {r.who: r.end_s - r.start_s for r in rows if r.what == what} for what in ("dividing", "training")
        }
        for who, seconds in by_what["training"].items():
            assert by_what["dividing"][who] == pytest.approx(seconds, rel=1e-9)
        spans.append(sum(by_what["dividing"].values()))
    assert spans[1] > spans[0]
