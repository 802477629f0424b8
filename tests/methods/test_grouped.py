"""Grouped rounds against the closed forms for bytes and cost, and the ways in which one method is another."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from devices.compute import training_s
from emulator import ledger
from emulator.accounting import totals_of
from emulator.methods.session import Session
from emulator.scenario import Loaded
from tests.methods.playing import played

Small = Callable[..., Loaded]


def exchanges(session: Session) -> Counter[str]:
    return Counter(r.hop for r in session.world.ledger.rows if r.kind == ledger.TRANSFER and r.what == "model")


@pytest.mark.parametrize(("share", "rounds"), [(1.0, 3), (0.5, 2)])
def test_fedavg_makes_2cn_exchanges_a_round(small: Small, share: float, rounds: int) -> None:
    # S4 Table 3: 2CN exchanges a round; here also every model's way between edge and cloud.
    loaded = small("method=fedavg", f"method.participation={share}", f"stop.rounds={rounds}")
    session = played(loaded)
    each = int(share * 8) * rounds
    assert exchanges(session) == dict.fromkeys(
        (ledger.SERVER_CLIENT, ledger.CLIENT_SERVER, ledger.CLOUD_EDGE, ledger.EDGE_CLOUD), each
    )
    size = session.lab.model_facts.parameters * 4
    assert session.metrics[-1]["bytes_server_client"] == each * size
    assert session.metrics[-1]["bytes_total"] == 4 * each * size


@pytest.mark.parametrize("rounds", [1, 4])
def test_fedavg_with_a_seeded_initial_model_sends_n_2t_minus_1_models(small: Small, rounds: int) -> None:
    # S5 Eq. 3: N(2T - 1)|w|B1, the first download being a seed.
    loaded = small(
        "topology.edges=0",
        "method=fedavg",
        "method.initial_model=seed",
        "method.group_rounds=1",
        f"stop.rounds={rounds}",
    )
    session = played(loaded)
    parameters = session.lab.model_facts.parameters
    assert session.metrics[-1]["bytes_total"] == 8 * (2 * rounds - 1) * parameters * 4


@pytest.mark.parametrize(("size", "k", "e"), list(itertools.product([2, 4], [1, 3], [1, 2])))
def test_cost_is_equation_5(small: Small, size: int, k: int, e: int) -> None:
    loaded = small(
        "method=group-fel", f"method.formation={{kind: random, size: {size}}}", "method.sampling={kind: uniform, groups: 2}",
        f"method.group_rounds={k}", f"method.local={{epochs: {e}, batch_size: 4}}",
        "method.group_operation={kind: secure-aggregation, a: 100 ms, b: 20 ms, c: 5 ms}", "stop.rounds=2",
    )  # fmt: skip
    session = played(loaded)
    samples, facts, devices = session.lab.clients.samples, session.lab.model_facts, session.world.fleet.client_devices
    groups: dict[tuple[int, int], set[int]] = {}
    for row in session.world.ledger.rows:
        if row.kind == ledger.COMPUTE:
            groups.setdefault((row.round, row.group), set()).add(int(row.who.removeprefix("client-")))
    training = group = 0.0
    for members in groups.values():
        assert len(members) == size
        for c in members:
            training += k * e * training_s(devices[c], facts.forward_flops, int(samples[c]), 4)
            group += k * (0.100 + 0.020 * size + 0.005 * size**2)
    assert len(groups) == 4
    assert session.metrics[-1]["cost_training_s"] == pytest.approx(training, rel=1e-9)
    assert session.metrics[-1]["cost_group_s"] == pytest.approx(group, rel=1e-9)
    assert session.metrics[-1]["cost_s"] == pytest.approx(training + group, rel=1e-9)


def test_hierarchical_bytes(small: Small) -> None:
    # T rounds, K group rounds, 2 edges, 8 clients, everybody takes part: K·N each way at the clients, one model each way an edge.
    session = played(small("method.group_operation=none", "method.group_rounds=3", "stop.rounds=2"))
    assert exchanges(session) == {
        ledger.SERVER_CLIENT: 48,
        ledger.CLIENT_SERVER: 48,
        ledger.CLOUD_EDGE: 4,
        ledger.EDGE_CLOUD: 4,
    }


def test_time_of_a_round_is_that_of_its_slowest_path(small: Small) -> None:
    session = played(small("method.group_operation=none", "method.group_rounds=1", "stop.rounds=1"))
    facts, samples = session.lab.model_facts, session.lab.clients.samples
    bits = facts.parameters * 32
    slowest = max(
        training_s(d, facts.forward_flops, int(n), 4)
        for d, n in zip(session.world.fleet.client_devices, samples, strict=True)
    )
    backhaul = 0.005 + bits / 160e6 + 0.005 + bits / 80e6
    assert session.world.now == pytest.approx(backhaul + 0.020 + bits / 16e6 + slowest + 0.020 + bits / 8e6, rel=1e-12)


def test_one_group_an_edge_and_all_sampled_is_hierfavg(small: Small) -> None:
    hier = played(small())
    groups = played(small("method.formation={kind: random, size: 4}", "method.sampling={kind: uniform, share: 1.0}"))
    assert hier.metrics == groups.metrics


def test_where_all_groups_take_part_unbiased_is_by_samples(small: Small) -> None:
    words = ("method.formation={kind: random, size: 2}", "method.sampling={kind: uniform, share: 1.0}")
    by_samples = played(small(*words))
    unbiased = played(small(*words, "method.aggregation=unbiased"))
    assert [m["loss"] for m in unbiased.metrics] == pytest.approx([m["loss"] for m in by_samples.metrics], rel=1e-5)
    some = played(small(words[0], "method.sampling={kind: esrcov, groups: 2}", "method.aggregation=unbiased"))
    assert some.rounds == 2


def test_groups_of_one_are_fedavg_with_k_times_e_epochs(small: Small) -> None:
    alone = played(
        small(
            "method.formation=single", "method.group_operation=none", "method.group_rounds=3", "method.local.epochs=2"
        )
    )
    flat = played(
        small("method=fedavg", "method.group_rounds=1", "method.local={epochs: 6, batch_size: 4, learning_rate: 0.1}")
    )
    learned = [(m["accuracy"], m["loss"]) for m in alone.metrics]
    assert learned == [(m["accuracy"], m["loss"]) for m in flat.metrics]
    assert learned[0] != learned[-1]


def test_running_totals_are_sums_of_rows(small: Small) -> None:
    session = played(small("stop.rounds=3"))
    powers = {
        n: d.power for n, d in zip(session.world.fleet.client_names, session.world.fleet.client_devices, strict=True)
    }
    totals = totals_of(session.world.ledger.rows, powers)
    last = session.metrics[-1]
    assert (totals.bytes_total, totals.cost_training_s, totals.cost_group_s) == (
        last["bytes_total"], last["cost_training_s"], last["cost_group_s"],
    )  # fmt: skip
    assert sum(r.bytes for r in session.world.ledger.rows) == last["bytes_total"]


def test_label_counts_are_sent_only_where_a_rule_needs_them(small: Small) -> None:
    def estimates(session: Session) -> int:
        return sum(r.bytes for r in session.world.ledger.rows if r.what == "label-counts")

    classes = played(small()).lab.clients.label_counts.shape[1]
    assert estimates(played(small())) == 0
    assert estimates(played(small("method.formation={kind: cov, min_size: 2}"))) == 8 * 4 * classes


@pytest.mark.parametrize(
    ("stop", "by"),
    [
        ("{rounds: 3}", "rounds"),
        ("{time: 1 ms}", "time"),
        ("{cost: 1 client-s}", "cost"),
        ("{bytes: 1 kB}", "bytes"),
        ("{accuracy: 0.01}", "accuracy"),
    ],
)
def test_stops_at_the_end_of_the_round_that_reaches_a_limit(small: Small, stop: str, by: str) -> None:
    session = played(small(f"stop={stop}"))
    assert session.stopped_by == by
    assert session.rounds == (3 if by == "rounds" else session.rounds) >= 1
    assert session.metrics[-1]["round"] == session.rounds


def test_the_last_round_is_evaluated_whatever_the_interval(small: Small) -> None:
    session = played(small("evaluate.every=2", "stop.rounds=3"))
    assert [m["round"] for m in session.metrics] == [0, 2, 3]


@pytest.mark.parametrize(("rule", "extra"), [("sgd", 0), ("fedprox", 3), ("scaffold", 2), ("feddyn", 4)])
@pytest.mark.parametrize("watched", [False, True])
def test_what_a_rule_computes_beside_the_gradient_takes_time(
    small: Small, rule: str, extra: int, watched: bool
) -> None:
    # 12 samples in batches of 4: three steps, each with so many operations a parameter beside the gradient.
    faults = ["faults=[{kind: client-crash, at: [1000 d]}]"] if watched else []
    session = played(
        small("method=fedavg", f"method.local={{kind: {rule}, epochs: 1, batch_size: 4}}", "stop.rounds=1", *faults)
    )
    device, workload = session.world.fleet.client_devices[0], session.world.workload
    plain = training_s(device, workload.forward_flops, 12, 4)
    expected = plain + 3 * extra * workload.parameters / device.effective_speed
    (row,) = (r for r in session.world.ledger.rows if r.kind == ledger.COMPUTE and r.who == "client-0")
    assert row.end_s - row.start_s == pytest.approx(expected, rel=1e-9)
