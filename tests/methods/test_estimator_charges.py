"""Estimators on the clock: bytes on every hop, time and cost, against closed forms."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from estimator_sessions import Small, asked

from devices.compute import inference_s, training_s
from emulator import ledger
from emulator.methods.session import Session


def booked(session: Session) -> dict[tuple[str, str], int]:
    """Bytes by purpose and hop."""
    totals: dict[tuple[str, str], int] = defaultdict(int)
    for row in session.world.ledger.rows:
        if row.kind == ledger.TRANSFER:
            totals[row.what, row.hop] += row.bytes
    return dict(totals)


SIZES = {"classifier-weights": 90, "confidence": 10, "signature": 10, "soft-labels": 30 * 10, "task2vec": 8}


@pytest.mark.parametrize("kind", SIZES)
def test_bytes_at_the_edges(small: Small, kind: str) -> None:
    session, _ = asked(small, kind)
    model = session.lab.model_facts.parameters * 4
    assert booked(session) == {
        ("pretraining", ledger.CLOUD_EDGE): 2 * model,  # once for each edge
        ("pretraining", ledger.SERVER_CLIENT): 8 * model,
        ("estimate", ledger.CLIENT_SERVER): 8 * 4 * SIZES[kind],
    }
    assert all(row.round == 0 for row in session.world.ledger.rows)


@pytest.mark.parametrize("kind", SIZES)
def test_bytes_under_the_cloud(small: Small, kind: str) -> None:
    session, _ = asked(small, kind, "method=fedavg")
    model = session.lab.model_facts.parameters * 4
    assert booked(session) == {
        ("pretraining", ledger.CLOUD_EDGE): 8 * model,  # a copy for each client
        ("pretraining", ledger.SERVER_CLIENT): 8 * model,
        ("estimate", ledger.CLIENT_SERVER): 8 * 4 * SIZES[kind],
        ("estimate", ledger.EDGE_CLOUD): 8 * 4 * SIZES[kind],
    }


def test_label_counts_go_to_whoever_forms_the_groups(small: Small) -> None:
    session, _ = asked(small, "label-counts")
    assert booked(session) == {("label-counts", ledger.CLIENT_SERVER): 8 * 40}
    session, _ = asked(small, "label-counts", "method=fedavg")
    assert booked(session) == {("label-counts", hop): 8 * 40 for hop in (ledger.CLIENT_SERVER, ledger.EDGE_CLOUD)}


def test_a_server_with_the_public_samples_gets_whole_models_and_predicts_itself(small: Small) -> None:
    at_client, here = asked(small, "signature")
    at_server, there = asked(small, "{kind: signature, predicted_by: server}")
    assert np.array_equal(here, there)
    model = at_server.lab.model_facts.parameters * 4
    assert booked(at_server)["estimate", ledger.CLIENT_SERVER] == 8 * model
    computed = [{r.what for r in s.world.ledger.rows if r.kind == ledger.COMPUTE} for s in (at_client, at_server)]
    assert computed == [{"pretraining", "estimate"}, {"pretraining"}]


def test_a_seeded_initial_model_goes_down_for_nothing(small: Small) -> None:
    session, _ = asked(small, "signature", "method.initial_model=seed")
    assert booked(session)["pretraining", ledger.SERVER_CLIENT] == 0
    assert booked(session)["pretraining", ledger.CLOUD_EDGE] == 0
    assert booked(session)["estimate", ledger.CLIENT_SERVER] == 8 * 40


@pytest.mark.parametrize("kind", SIZES)
def test_time_is_the_slowest_clients_way_from_model_to_estimate(small: Small, kind: str) -> None:
    session, _ = asked(small, f"{{kind: {kind}, epochs: 3, batch_size: 4}}")
    facts, samples = session.lab.model_facts, session.lab.clients.samples
    bits = facts.parameters * 32

    def computing(client: int) -> float:
        device, n = session.world.fleet.client_devices[client], int(samples[client])
        if kind == "task2vec":
            fine_tuning = 3 * inference_s(device, facts.forward_flops + 2 * 90, n, 4)
            return fine_tuning + training_s(device, facts.forward_flops, n, 4)
        predicting = 0 if kind == "classifier-weights" else inference_s(device, facts.forward_flops, 30, 4)
        return training_s(device, facts.forward_flops, n, 4, 3) + predicting

    down = 0.005 + bits / 160e6 + 0.020 + bits / 16e6
    up = 0.020 + SIZES[kind] * 32 / 8e6
    assert session.world.now == pytest.approx(down + max(computing(c) for c in range(8)) + up, rel=1e-9)
    cost = session.meter.totals().cost_training_s
    assert cost == pytest.approx(sum(computing(c) for c in range(8)), rel=1e-9)


def test_throttled_devices_work_longer(small: Small) -> None:
    fast, _ = asked(small, "task2vec")
    slow, _ = asked(small, "task2vec", "topology.speed={file: daily-load, start: together}")
    assert slow.world.now != fast.world.now
    rows = [
        [r for r in s.world.ledger.rows if r.kind == ledger.COMPUTE and r.what == "pretraining"] for s in (fast, slow)
    ]
    assert [r.samples for r in rows[0]] == [12 * 10] * 8
    assert sum(r.end_s - r.start_s for r in rows[1]) != pytest.approx(sum(r.end_s - r.start_s for r in rows[0]))
