"""Gossip among edges: closed forms of time and bytes, averages that are kept, neighbours that are down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator import checkpoint
from emulator.assembly import assemble
from emulator.errors import ScenarioError
from emulator.grouping.mixing import mixing_weights
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.timing import TimingLab
from emulator.ledger import COMPUTE, GROUP_OPERATION, TRANSFER
from emulator.run import execute
from emulator.scenario import Loaded
from tests.methods.playing import cut_off_and_finished, played

Small = Callable[..., Loaded]

RING = "topology.links.direct=[{shape: ring, bandwidth: 80 Mbit/s, latency: 7 ms}]"
GOSSIP = ("method={preset: sd-feel, local: {batch_size: 10}}", "topology.transport=fluid", "topology.sharing=max-min")


def edges_of(size: int, near: list[tuple[int, int]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {f"e{n}": [] for n in range(size)}
    for a, b in near:
        found[f"e{a}"].append(f"e{b}")
        found[f"e{b}"].append(f"e{a}")
    return found


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    size = draw(st.integers(2, 8))
    tree = [(draw(st.integers(0, n - 1)), n) for n in range(1, size)]
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
    more = {(min(p), max(p)) for p in draw(st.lists(pairs, max_size=6)) if p[0] != p[1]}
    return edges_of(size, sorted({*tree, *more}))


@given(graphs(), st.lists(st.integers(1, 500), min_size=8, max_size=8))
def test_exchanges_keep_the_average_and_lead_to_it(near: dict[str, list[str]], held: list[int]) -> None:
    samples = dict(zip(near, map(float, held), strict=False))
    for given_samples in (samples, None):
        weights = mixing_weights(near, given_samples)
        names = list(near)
        matrix = np.array([[weights[to].get(of, 0.0) for of in names] for to in names])
        matrix[np.diag_indices(len(names))] = 1 - matrix.sum(axis=1)
        shares = np.array([1.0 if given_samples is None else samples[n] for n in names])
        shares /= shares.sum()
        np.testing.assert_allclose(shares @ matrix, shares, atol=1e-9)  # no exchange moves the average
        values = np.linalg.eigvals(matrix)
        assert sorted(abs(values))[-2] < 1 - 1e-9  # all but the average dies out


def test_in_a_mesh_of_equal_edges_one_exchange_is_the_average() -> None:
    near = edges_of(4, [(a, b) for a in range(4) for b in range(a)])
    for samples in (dict.fromkeys(near, 7.0), None):
        weights = mixing_weights(near, samples)
        assert all(w == pytest.approx(0.25, rel=1e-12) for each in weights.values() for w in each.values())


def test_time_and_bytes_of_a_round_in_a_ring(small: Small) -> None:
    # Equal edges of equal clients: all are always at the same place in their rounds.
    session = played(
        small(*GOSSIP, RING, "topology.edges=4", "topology.clients=8", "method.initial_model=seed", "stop.rounds=3")
    )
    world, size = session.world, session.world.workload.model_bytes
    rows = [row for row in world.ledger.rows if row.kind == TRANSFER]
    assert Counter(row.hop for row in rows) == {"server-client": 8 * 3, "client-server": 8 * 3, "edge-edge": 4 * 2 * 3}
    assert session.metrics[-1]["bytes_edge_edge"] == 24 * size
    assert session.metrics[-1]["bytes_cloud_edge"] == session.metrics[-1]["bytes_edge_cloud"] == 0
    between = [row for row in rows if row.hop == "edge-edge"]
    assert all(row.end_s - row.start_s == pytest.approx(0.007 + 8 * size / 80e6, rel=1e-9) for row in between)
    assert {row.peer for row in between if row.who == "edge-0"} == {"edge-1", "edge-3"}
    ends = [row["time_s"] for row in session.metrics[1:]]
    slowest = [max(r.end_s for r in world.ledger.rows if r.hop == "client-server" and r.round == t) for t in (1, 2, 3)]
    assert ends == pytest.approx([s + 0.007 + 8 * size / 80e6 for s in slowest], rel=1e-9)


def test_a_server_waits_for_its_neighbours_alone(small: Small) -> None:
    # In a line of four, the slow edge at one end holds up the other end three rounds later, not before.
    loaded = small(
        *GOSSIP,
        "topology.links.direct=[{shape: line, bandwidth: 80 Mbit/s, latency: 1 ms}]",
        "topology.edges=4",
        "topology.clients=[{name: slow, count: 2, speed: 0.001, edges: [0]}, {name: quick, count: 6, edges: [1, 2, 3]}]",
        "stop.rounds=1",
    )
    rows = [row for row in played(loaded).world.ledger.rows if row.kind == COMPUTE]
    begun = {t: {row.who for row in rows if row.round == t} for t in (1, 2, 3, 4)}
    far, middle, near = {"quick-4", "quick-5"}, {"quick-2", "quick-3"}, {"quick-0", "quick-1"}
    assert begun[2] == far | middle  # the neighbour of the slow edge has nothing from it yet
    assert begun[3] == far
    assert begun[4] == set()
    assert near < begun[1]


def test_models_of_a_mesh_of_equal_edges_are_those_of_a_cloud(small: Small) -> None:
    # Real training: equal sample counts, so that a full exchange in a mesh is the average of all.
    same = (
        "data.partition={kind: iid}",
        "topology.edges=2",
        "topology.clients=4",
        "topology.transport=fluid",
        "stop.rounds=3",
    )
    mesh = played(small(*same, *GOSSIP, RING))
    cloud = played(
        small(*same, "method={preset: hierfavg, group_rounds: 1, group_operation: none, local: {batch_size: 10}}")
    )
    held = mesh.lab.clients.samples
    assert len({int(held[:2].sum()), int(held[2:].sum())}) == 1
    for ours, theirs in zip(mesh.metrics, cloud.metrics, strict=True):
        assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=0.02)
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)


def test_many_exchanges_lead_unequal_edges_to_the_model_of_a_cloud(small: Small) -> None:
    # 3, 1, 2 and 2 clients at four edges: what all edges come to is the average by samples, not that of four equal ones.
    same = (
        "topology.edges=4",
        "topology.clients=[{count: 2, edges: [0]}, {count: 2, edges: [0, 1]}, {count: 4, edges: [2, 3]}]",
        "topology.transport=fluid",
        "stop.rounds=2",
    )
    cloud = played(
        small(*same, "method={preset: hierfavg, group_rounds: 1, group_operation: none, local: {batch_size: 10}}")
    )
    ring = played(small(*same, *GOSSIP, RING, "method.exchanges=30"))
    equal = played(small(*same, *GOSSIP, RING, "method.exchanges=30", "method.mixing=equal"))
    for theirs, ours, others in list(zip(cloud.metrics, ring.metrics, equal.metrics, strict=True))[1:]:
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-6)
        assert others["loss"] != pytest.approx(theirs["loss"], rel=2e-5)


WORLDS = {
    "calm": (),
    "edges that fail": ("faults=[{kind: edge-outage, edges: [1], at: [10 ms, 180 ms], lasts: 50 ms}]",),
    "a quorum": (
        "method.wait_for_members={kind: quorum, share: 0.5}",
        "faults=[{kind: slow-down, factor: 20, clients: [1], at: [0 s]}]",
    ),
    "secure aggregation": ("method.group_operation=secure-aggregation", "method.group_rounds=2"),
}
FOUR = (*GOSSIP, RING, "topology.edges=4", "topology.clients=12", "stop.rounds=3", "output.plot=false")


@pytest.mark.parametrize("world", WORLDS)
def test_it_goes_on_after_a_cut_and_is_replayed_from_memory(small: Small, tmp_path: Path, world: str) -> None:
    loaded = small(*FOUR, *WORLDS[world])
    whole = execute(loaded, tmp_path / "whole", Memo(None), max_workers=1)
    cut_off_and_finished(loaded, tmp_path / "cut", 2)
    for name in ("metrics.csv", "ledger.parquet", "summary.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    if world == "calm":  # elsewhere other links change who is lost, and so what is learned
        slower = small(*FOUR, "topology.links.direct.0.latency=2 s", "topology.links.access.up=1 Mbit/s")
        known = checkpoint.read_memory(tmp_path / "whole")
        again = execute(slower, tmp_path / "again", Memo(None), known=known, max_workers=1)
        assert again["trainings"]["computed"] == 0 < whole["trainings"]["computed"]


@pytest.mark.parametrize("world", WORLDS)
def test_its_clock_is_the_same_without_training(small: Small, world: str) -> None:
    loaded = small(*FOUR, *WORLDS[world])
    rows = played(loaded).world.ledger.rows
    timed = assemble(loaded.scenario, TimingLab(loaded.scenario, RunMemory(Memo(None))))
    timed.env.run(timed.env.process(loaded.scenario.method(timed)))
    assert timed.world.ledger.rows == rows
    hops = {row.hop for row in rows if row.kind == TRANSFER}
    assert "edge-edge" in hops
    assert "edge-cloud" not in hops
    if world == "secure aggregation":
        members = Counter((row.round, row.group_round, row.group) for row in rows if row.kind == GROUP_OPERATION)
        assert {n for (t, *_), n in members.items() if t < 3} >= {3}  # all of a group take part
    if world == "edges that fail":
        assert any(row.status == "broken" for row in rows)


def test_a_server_without_its_neighbour_keeps_its_own_model(small: Small) -> None:
    # Edge 1 is down from the beginning, so that nothing is ever exchanged: every edge is alone.
    down = "faults=[{kind: edge-outage, edges: [1], at: [0 s]}]"
    two = played(small(*GOSSIP, RING, "topology.edges=2", "topology.clients=8", "stop.rounds=2", down))
    between = [row for row in two.world.ledger.rows if row.hop == "edge-edge"]
    assert all(row.status == "broken" for row in between)
    trained = {row.who for row in two.world.ledger.rows if row.kind == COMPUTE}
    assert trained == {f"client-{n}" for n in range(4)}


@pytest.mark.parametrize("clients", ["wait", "move"])
@pytest.mark.parametrize("at", [0.0, 0.1, 0.4])
def test_neighbours_go_on_without_an_edge_that_is_down(small: Small, at: float, clients: str) -> None:
    fault = f"faults=[{{kind: edge-outage, edges: [1], at: [{at} s], lasts: 1 s, clients: {clients}}}]"
    session = played(small(*GOSSIP, RING, "topology.edges=4", "topology.clients=8", "stop.rounds=4", fault))
    assert session.stopped_by == "rounds"


def test_an_edge_that_never_comes_back_holds_nobody_up(small: Small) -> None:
    fault = "faults=[{kind: edge-outage, edges: [1], at: [0 s], lasts: 1000 d}]"
    session = played(small(*GOSSIP, RING, "topology.edges=4", "topology.clients=8", "stop.rounds=4", fault))
    assert session.stopped_by == "rounds"
    assert session.metrics[-1]["time_s"] < 60


@pytest.mark.parametrize("fault", ["backhaul-outage", "edge-outage"])
def test_rounds_wait_for_the_first_model(small: Small, fault: str) -> None:
    out = f"faults=[{{kind: {fault}, at: [0 s], lasts: 2 s{', work: lost' if fault == 'backhaul-outage' else ''}}}]"
    session = played(small(*FOUR, out))
    assert session.metrics[1]["time_s"] > 2
    assert session.rounds == 3


def test_without_the_cloud_gossip_goes_on(small: Small) -> None:
    lost = "faults=[{kind: backhaul-outage, at: [50 ms], work: lost}]"
    ours, theirs = (played(small(*FOUR, *changes)).metrics for changes in ((lost,), ()))
    for name in ("time_s", "loss", "bytes_edge_edge"):
        assert [row[name] for row in ours] == pytest.approx([row[name] for row in theirs], rel=1e-9)


def test_a_fleet_without_clients_ends_the_run(small: Small) -> None:
    fault = "faults=[{kind: client-crash, at: [0.5 s]}]"
    session = played(
        small(*GOSSIP, RING, "topology.edges=4", "topology.clients=8", "stop.rounds=4000", "stop.time=2000 d", fault)
    )
    assert session.stopped_by in ("nobody left", "time")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ((), "have no direct links to their neighbours"),
        ((RING, "method.aggregator=cloud"), "has no neighbours"),
        (("topology.edges=1",), "has one server, and neighbours are at least two"),
        (
            ("topology.links.direct=[{pairs: [[edge-0, edge-1], [edge-2, edge-3]], bandwidth: 1 Mbit/s}]",),
            "in 2 parts that never hear of each other",
        ),
        ((RING, "method.local=scaffold"), "belongs to one global model"),
    ],
)
def test_what_gossip_needs_is_said(small: Small, changes: tuple[str, ...], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        small(*GOSSIP, "topology.edges=4", "topology.clients=8", *changes)
