"""Response times against closed forms, what profiling is charged, and the tiers that come of it."""

from __future__ import annotations

import numpy as np
import pytest
from estimator_sessions import Small, asked, session_of

from devices.compute import training_s
from emulator import ledger
from emulator.errors import InputError
from emulator.methods.session import Session

MIXED = "topology.devices={laptop: 0.5, raspberry-pi-3b-plus: 0.5}"
TIERS = ("method=fedavg", "method.formation={kind: speed-tiers, tiers: 4}", MIXED)


def closed_form(session: Session, backhaul: bool) -> list[float]:
    """Latency and bits over bandwidth down and up, and training of an epoch in batches of four in between."""
    facts, samples = session.lab.model_facts, session.lab.clients.samples
    bits = facts.parameters * 32
    ways = 2 * 0.020 + bits / 8e6 + bits / 16e6 + backhaul * 2 * 0.005
    devices = session.world.fleet.client_devices
    return [ways + training_s(d, facts.forward_flops, int(samples[c]), 4) for c, d in enumerate(devices)]


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("method", ["hierfavg", "fedavg"])
def test_it_is_the_time_from_sending_to_arrival(small: Small, method: str, rounds: int) -> None:
    local = "method.local={batch_size: 4}"
    session, found = asked(small, f"{{kind: response-time, rounds: {rounds}}}", f"method={method}", local, MIXED)
    expected = closed_form(session, backhaul=method == "fedavg")
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-9)
    first = 0.005 + session.lab.model_facts.parameters * 32 / 160e6 if method == "hierfavg" else 0.0
    assert session.world.now == pytest.approx(first + rounds * max(expected), rel=1e-9)  # a round waits for all
    assert session.lab.trained == 0


@pytest.mark.parametrize("rounds", [1, 3])
def test_models_and_training_are_charged_as_in_a_round(small: Small, rounds: int) -> None:
    session, _ = asked(small, f"{{kind: response-time, rounds: {rounds}}}")
    rows = session.world.ledger.rows
    assert {(row.what, row.round, row.status) for row in rows} == {("profiling", 0, ledger.DONE)}
    model = session.lab.model_facts.parameters * 4
    sent = {
        hop: sum(row.bytes for row in rows if row.hop == hop) for hop in ledger.HOPS if hop in {r.hop for r in rows}
    }
    assert sent == {
        ledger.CLOUD_EDGE: 2 * model,  # once for each edge
        ledger.SERVER_CLIENT: 8 * rounds * model,
        ledger.CLIENT_SERVER: 8 * rounds * model,
    }
    assert [row.samples for row in rows if row.kind == ledger.COMPUTE] == [12] * 8 * rounds


def test_who_is_later_than_the_timeout_has_it_as_estimate_and_is_given_up(small: Small) -> None:
    _, all_s = asked(small, "response-time", "method=fedavg", MIXED)
    limit_s = float(np.unique(all_s[:, 0].round(9)).mean())  # between the laptops and the boards
    session, found = asked(small, f"{{kind: response-time, rounds: 3, timeout: {limit_s!r} s}}", "method=fedavg", MIXED)
    late = all_s[:, 0] > limit_s
    assert 0 < late.sum() < 8
    assert (found[late, 0] == limit_s).all()
    np.testing.assert_allclose(found[~late], all_s[~late], rtol=1e-9)
    assert session.world.now == pytest.approx(3 * limit_s)
    broken = {row.who for row in session.world.ledger.rows if row.status == ledger.BROKEN}
    assert broken - {"edge-0", "edge-1"} == {f"client-{c}" for c in np.flatnonzero(late)}


def test_who_never_answers_counts_like_the_slowest_who_did(small: Small) -> None:
    crash = "faults=[{kind: client-crash, clients: [2], at: [1 ms]}]"
    _, found = asked(small, "{kind: response-time, rounds: 2}", "method=fedavg", MIXED, crash)
    assert found[2] == found[[c for c in range(8) if c != 2]].max()
    _, found = asked(small, "{kind: response-time, timeout: 90 s}", "method=fedavg", MIXED, crash)
    assert found[2] == 90
    assert found[[c for c in range(8) if c != 2]].max() < 90


def test_tiers_follow_from_profiling_whatever_estimator_is_chosen(small: Small) -> None:
    for estimator in ("label-counts", "{kind: response-time, rounds: 2}"):
        loaded = small(*TIERS, f"method.estimator={estimator}", "stop.rounds=1")
        session = session_of(loaded)
        session.env.run(session.env.process(loaded.scenario.method(session)))
        rows = session.world.ledger.rows
        groups = {(row.group, row.who) for row in rows if row.what == "training"}
        times = closed_form(session, backhaul=True)
        order = sorted(range(8), key=lambda c: (round(times[c], 9), c))
        assert groups == {(place // 2, f"client-{c}") for place, c in enumerate(order)}
        profiled = [row for row in rows if row.what == "profiling" and row.kind == ledger.COMPUTE]
        assert len(profiled) == (8 if estimator == "label-counts" else 16)
        assert not [row for row in rows if row.what == "label-counts"]


def test_more_tiers_than_clients_are_refused(small: Small) -> None:
    with pytest.raises(InputError, match=r"method\.formation\.tiers.*9 tiers cannot be formed from 8 clients"):
        small("method=fedavg", "method.formation={kind: speed-tiers, tiers: 9}")
    with pytest.raises(InputError, match=r"groups asked for need 5 clients, but .* has only 4"):
        small("method.formation={kind: speed-tiers, tiers: 5}")
