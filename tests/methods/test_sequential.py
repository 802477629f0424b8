"""Chains: exchanges as published, time as a sum, and the ways in which a chain is something else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from devices.compute import training_s
from emulator import ledger
from emulator.methods.session import Session
from emulator.scenario import Loaded
from tests.methods.playing import played

Small = Callable[..., Loaded]

CHAINS = (
    "topology.edges=0", "method=fedavg", "method.group_operation=none", "method.group_rounds=1", "method.training=sequential",
    "method.local={kind: sgd, epochs: 1, batch_size: 4, learning_rate: 0.1}",
)  # fmt: skip


def exchanges(session: Session) -> Counter[str]:
    return Counter(r.hop for r in session.world.ledger.rows if r.kind == ledger.TRANSFER and r.what == "model")


@pytest.mark.parametrize(("size", "sampled"), [(1, 8), (2, 4), (2, 2), (4, 2), (8, 1)])
def test_equal_superclients_exchange_what_the_published_table_says(small: Small, size: int, sampled: int) -> None:
    # S4 Table 3: C(N_S + N) exchanges a round, of which C N_S down, C N_S up, and CN - C N_S between clients.
    session = played(
        small(*CHAINS, f"method.formation={{kind: random, size: {size}}}",
              f"method.sampling={{kind: uniform, groups: {sampled}}}", "stop.rounds=3")
    )  # fmt: skip
    assert exchanges(session) == +Counter(
        {
            ledger.SERVER_CLIENT: 3 * sampled,
            ledger.CLIENT_SERVER: 3 * sampled,
            ledger.CLIENT_CLIENT: 3 * sampled * (size - 1),
        }
    )
    assert exchanges(session).total() == 3 * (sampled + sampled * size)
    model_bytes = session.world.workload.model_bytes
    assert session.metrics[-1]["bytes_total"] == exchanges(session).total() * model_bytes


def test_a_chain_over_all_sampled_clients_makes_cn_plus_1_exchanges(small: Small) -> None:
    # S4 Table 3, FedCyclic.
    session = played(small(*CHAINS, "method.formation=all", "method.participation=0.75", "stop.rounds=2"))
    assert exchanges(session).total() == 2 * (6 + 1)


def test_chains_of_one_client_are_fedavg(small: Small) -> None:
    chains = played(small(*CHAINS, "method.formation=single", "stop.rounds=3"))
    fedavg = played(small(*CHAINS, "method.training=parallel", "method.formation=all", "stop.rounds=3"))
    for one, other in zip(chains.metrics, fedavg.metrics, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
    single = played(small(*CHAINS, "method.training=parallel", "method.formation=single", "stop.rounds=3"))
    assert [m["loss"] for m in single.metrics] == [m["loss"] for m in chains.metrics]


def test_the_time_of_a_chain_is_the_sum_over_its_clients(small: Small) -> None:
    session = played(
        small(*CHAINS, "topology.edges=1", "method.aggregator=edge", "method.formation={kind: random, size: 4}", "stop.rounds=1",
              "topology.devices={raspberry-pi-4b: 0.5, laptop: 0.5}", "method.training={kind: sequential, loops: 2}")
    )  # fmt: skip
    world, samples = session.world, session.lab.clients.samples
    bits, flops = 8 * world.workload.model_bytes, world.workload.forward_flops
    expected = {}
    for group in (0, 1):
        members = {int(r.who[7:]) for r in world.ledger.rows if r.kind == ledger.COMPUTE and r.group == group}
        train = sum(training_s(world.fleet.client_devices[c], flops, int(samples[c]), 4, 1) for c in members)
        down, up = 0.020 + bits / 16e6, 0.020 + bits / 8e6
        hop = 0.040 + bits / 8e6  # through the edge: up and down at once, at the slower of the two
        expected[group] = down + 2 * train + 7 * hop + up
    began = min(r.start_s for r in world.ledger.rows if r.hop == ledger.SERVER_CLIENT)
    for group, seconds in expected.items():
        last = max(r.end_s for r in world.ledger.rows if r.hop == ledger.CLIENT_SERVER and r.group == group)
        hops = [r for r in world.ledger.rows if r.hop == ledger.CLIENT_CLIENT and r.group == group]
        # A client that ends one loop and begins the next keeps the model.
        kept = 7 - len(hops)
        assert kept in (0, 1)
        assert last - began == pytest.approx(seconds - kept * (0.040 + bits / 8e6), rel=1e-9)
    assert session.metrics[-1]["cost_s"] == pytest.approx(
        2 * sum(training_s(world.fleet.client_devices[c], flops, int(samples[c]), 4, 1) for c in range(8))
    )


def test_the_order_changes_from_round_to_round_and_not_from_run_to_run(small: Small) -> None:
    make = (*CHAINS, "method.formation=all", "stop.rounds=4")

    def orders(session: Session) -> list[list[str]]:
        rows = [r for r in session.world.ledger.rows if r.kind == ledger.COMPUTE]
        return [[r.who for r in rows if r.round == t] for t in range(1, 5)]

    first, again = (orders(played(small(*make))) for _ in range(2))
    assert first == again
    assert len({tuple(order) for order in first}) == 4
    still = orders(played(small(*make, "method.training={kind: sequential, shuffle: false}")))
    assert still == [[f"client-{c}" for c in range(8)]] * 4


def test_sets_from_all_clients_are_served_by_the_edges_in_turn(small: Small) -> None:
    session = played(
        small(*CHAINS, "topology.edges=2", "method.aggregator=any-edge", "method.formation={kind: random, size: 2}",
              "stop.rounds=1")
    )  # fmt: skip
    downs = [r for r in session.world.ledger.rows if r.hop == ledger.SERVER_CLIENT]
    assert [(r.group, r.who) for r in sorted(downs, key=lambda r: r.group)] == [
        (0, "edge-0"), (1, "edge-1"), (2, "edge-0"), (3, "edge-1"),
    ]  # fmt: skip
    assert exchanges(session) == {
        ledger.CLOUD_EDGE: 2, ledger.EDGE_CLOUD: 4, ledger.SERVER_CLIENT: 4, ledger.CLIENT_SERVER: 4, ledger.CLIENT_CLIENT: 4,
    }  # fmt: skip


def test_a_chain_goes_on_without_a_client_that_is_lost(small: Small) -> None:
    make = (*CHAINS, "method.formation=all", "stop.rounds=1", "method.training={kind: sequential, shuffle: false}")
    whole = played(small(*make))
    (third,) = (r for r in whole.world.ledger.rows if r.kind == ledger.COMPUTE and r.who == "client-3")
    middle = (third.start_s + third.end_s) / 2
    session = played(small(*make, f"faults=[{{kind: client-crash, clients: [3], at: [{middle!r} s]}}]"))
    hops = [(r.who, r.peer) for r in session.world.ledger.rows if r.hop == ledger.CLIENT_CLIENT]
    assert ("client-2", "client-3") in hops
    assert ("client-2", "client-4") in hops  # it still has the model
    absent = played(small(*make, "faults=[{kind: client-crash, clients: [3], at: [0 s]}]"))
    assert session.metrics[-1]["loss"] == absent.metrics[-1]["loss"]


def test_where_the_holder_is_lost_the_one_before_it_goes_on_with_the_model_as_it_was(small: Small) -> None:
    make = (*CHAINS, "method.formation=all", "stop.rounds=1", "method.training={kind: sequential, shuffle: false}")
    whole = played(small(*make))
    (hop,) = (r for r in whole.world.ledger.rows if r.hop == ledger.CLIENT_CLIENT and r.who == "client-3")
    middle = (hop.start_s + hop.end_s) / 2
    session = played(small(*make, f"faults=[{{kind: client-crash, clients: [3], at: [{middle!r} s]}}]"))
    hops = [(r.who, r.peer, r.status) for r in session.world.ledger.rows if r.hop == ledger.CLIENT_CLIENT]
    assert ("client-3", "client-4", ledger.BROKEN) in hops
    assert ("client-2", "client-4", ledger.DONE) in hops
    absent = played(small(*make, "faults=[{kind: client-crash, clients: [3], at: [0 s]}]"))
    assert session.metrics[-1]["loss"] == absent.metrics[-1]["loss"]


def test_unequal_superclients_exchange_one_model_for_each_client_and_one_for_each_chain(small: Small) -> None:
    # S4 Table 3: C N_S + Σ |S_i| over the sampled superclients; here seven clients in superclients of four and three.
    session = played(small(*CHAINS, "topology.clients=7", "method.formation={kind: random, size: 3}", "stop.rounds=2"))
    sizes = [grouping.sizes.tolist() for grouping in session.groupings]
    assert sizes == [[4, 3]]
    assert exchanges(session).total() == 2 * (2 + 7)
    assert exchanges(session)[ledger.CLIENT_CLIENT] == 2 * (7 - 2)


def test_fedcyclic_is_fedseq_with_one_superclient(small: Small) -> None:
    cyclic = played(small(*CHAINS[:1], "method=fedcyclic", "method.participation=1.0", *CHAINS[-1:], "stop.rounds=3"))
    fedseq = played(
        small(*CHAINS[:1], "data.public=2", "method=fedseq", "method.estimator=label-counts", *CHAINS[-1:],
              "method.formation={kind: icg, groups: 1}", "method.sampling=all", "stop.rounds=3")
    )  # fmt: skip
    models = [[r for r in s.world.ledger.rows if r.what in ("model", "training")] for s in (cyclic, fedseq)]
    assert [(r.kind, r.who, r.peer, r.bytes, r.round) for r in models[0]] == [
        (r.kind, r.who, r.peer, r.bytes, r.round) for r in models[1]
    ]
    other = played(
        small(*CHAINS[:1], "method=fedseq", "method.estimator=label-counts", *CHAINS[-1:], "method.sampling=all",
              "method.formation={kind: icg, groups: 1}", "stop.rounds=3")
    )  # fmt: skip
    assert [m["loss"] for m in other.metrics] == [m["loss"] for m in cyclic.metrics]


@pytest.mark.parametrize("rule", ["fedprox", "scaffold", "feddyn"])
def test_other_local_rules_work_in_chains(small: Small, rule: str) -> None:
    base = (*CHAINS, "method.formation={kind: random, size: 4}", "stop.rounds=3")
    plain = played(small(*base))
    other = played(small(*base, f"method.local={{kind: {rule}, epochs: 1, batch_size: 4, learning_rate: 0.1}}"))
    vectors = 2 if rule == "scaffold" else 1
    assert other.metrics[-1]["bytes_total"] == vectors * plain.metrics[-1]["bytes_total"]
    assert other.metrics[-1]["loss"] != plain.metrics[-1]["loss"]
    assert other.metrics[-1]["loss"] < other.metrics[0]["loss"]


@pytest.mark.parametrize(
    "formation",
    [
        "{kind: virtual-target, size: 2, groups: 2}",
        "{kind: hierarchical, size: 2, groups: 2}",
        "{kind: greedy-distant, size: 2, groups: 2}",
    ],
)
def test_sets_may_be_formed_anew_by_what_was_estimated_once(small: Small, formation: str) -> None:
    # Two sets of two of eight clients: who begins a set, or is taken of a cluster, is drawn, so others take part in time.
    make = (*CHAINS, "topology.edges=2", "data.public=2", "method.aggregator=any-edge", f"method.formation={formation}",
            "method.estimator={kind: signature, epochs: 1, batch_size: 4, learning_rate: 0.1}", "stop.rounds=8")  # fmt: skip

    def sets(session: Session) -> dict[int, set[frozenset[str]]]:
        trained: dict[tuple[int, int], set[str]] = {}
        for r in session.world.ledger.rows:
            if r.kind == ledger.COMPUTE and r.what == "training":
                trained.setdefault((r.round, r.group), set()).add(r.who)
        return {t: {frozenset(members) for (u, _), members in trained.items() if u == t} for t in range(1, 9)}

    fixed, anew = (played(small(*make, f"method.schedule={s}")) for s in ("fixed", "{kind: every, rounds: 2}"))
    assert all(of_round == sets(fixed)[1] for of_round in sets(fixed).values())
    changing = sets(anew)
    assert changing[1] == sets(fixed)[1]
    assert all(changing[t] == changing[t + 1] for t in (1, 3, 5, 7))
    assert len({frozenset(of_round) for of_round in changing.values()}) > 1
    taking_part = {client for of_round in changing.values() for members in of_round for client in members}
    assert len(taking_part) > 4
    for of_round in changing.values():
        assert sorted(map(len, of_round)) == [2, 2]
        assert len(frozenset[str]().union(*of_round)) == 4
    for session in (fixed, anew):  # everybody is asked once, and who forms sets anew asks for nothing
        assert Counter(r.what for r in session.world.ledger.rows if r.round == 0) == Counter(
            r.what for r in fixed.world.ledger.rows if r.round == 0
        )
        assert sum(r.what == "pretraining" and r.kind == ledger.COMPUTE for r in session.world.ledger.rows) == 8
    assert exchanges(anew) == exchanges(fixed)
    assert [grouping.round for grouping in anew.groupings] == [1, 3, 5, 7]
