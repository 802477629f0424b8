"""Links beside the tree: between servers of a tier and between clients; who uses them, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.errors import ScenarioError
from emulator.ledger import CLIENT_CLIENT, Tag
from emulator.scenario import Loaded
from emulator.world.fleet import Fleet
from tests.methods.playing import played

Small = Callable[..., Loaded]

FOUR = ("topology.edges=4", "topology.clients=8", "method.aggregator=edge")
TAG = Tag("model", 1)


def route(loaded: Loaded, sender: str, receiver: str) -> list[tuple[str, str]]:
    fleet = Fleet(loaded.scenario.topology, 0)
    return [(leg.link, leg.hop) for leg in fleet.route(sender, receiver)]


@pytest.mark.parametrize(
    ("shape", "pairs"),
    [
        ("ring", {(0, 1), (1, 2), (2, 3), (3, 0)}),
        ("line", {(0, 1), (1, 2), (2, 3)}),
        ("mesh", {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}),
    ],
)
def test_shapes_join_neighbours_in_both_directions(small: Small, shape: str, pairs: set[tuple[int, int]]) -> None:
    fleet = Fleet(small(*FOUR, f"topology.links.direct=[{{shape: {shape}, bandwidth: 5 Mbit/s}}]").scenario.topology, 0)
    expected = {(f"edge-{a}", f"edge-{b}") for a, b in pairs} | {(f"edge-{b}", f"edge-{a}") for a, b in pairs}
    assert set(fleet.roster.direct) == expected
    assert fleet.hops == ("edge-edge",)


def test_two_servers_in_a_ring_have_one_link(small: Small) -> None:
    loaded = small("topology.links.direct=[{shape: ring, bandwidth: 5 Mbit/s}]")
    assert len(Fleet(loaded.scenario.topology, 0).roster.direct) == 2


def test_what_neighbours_exchange_does_not_go_through_the_cloud(small: Small) -> None:
    ring = small(*FOUR, "topology.links.direct=[{shape: ring, bandwidth: 5 Mbit/s, latency: 3 ms, loss: 0.2}]")
    assert route(ring, "edge-0", "edge-3") == [("edge-0/to-edge-3", "edge-edge")]
    assert route(ring, "edge-0", "edge-2") == [("edge-0/up", "edge-cloud"), ("edge-2/down", "cloud-edge")]
    assert route(ring, "client-0", "client-7") == [
        ("client-0/up", CLIENT_CLIENT),
        ("edge-0/to-edge-3", "edge-edge"),
        ("client-7/down", ""),
    ]
    assert route(ring, "client-0", "cloud") == [("client-0/up", "client-server"), ("edge-0/up", "edge-cloud")]
    (leg,) = Fleet(ring.scenario.topology, 0).route("edge-0", "edge-1")
    assert (leg.bandwidth_bps, leg.latency_s) == (pytest.approx(4e6), 0.003)


def test_in_a_deep_tree_the_lowest_direct_link_is_taken(small: Small) -> None:
    loaded = small(
        "topology.edges=null",
        "topology.tiers=[{name: region, count: 2}, {name: edge, count: 4}]",
        "topology.links.direct=[{tier: region, shape: line, bandwidth: 9 Mbit/s}, "
        "{pairs: [[edge-1, edge-2]], bandwidth: 7 Mbit/s}]",
    )
    assert route(loaded, "edge-1", "edge-2") == [("edge-1/to-edge-2", "edge-edge")]
    assert route(loaded, "edge-0", "edge-3") == [
        ("edge-0/up", "edge-region"),
        ("region-0/to-region-1", "region-region"),
        ("edge-3/down", "region-edge"),
    ]
    assert route(loaded, "edge-0", "edge-1") == [("edge-0/up", "edge-region"), ("edge-1/down", "region-edge")]
    assert set(Fleet(loaded.scenario.topology, 0).hops) >= {"edge-edge", "region-region"}


def test_clients_that_are_joined_use_their_own_link(small: Small) -> None:
    peers = "topology.links.peer={bandwidth: 1 Mbit/s, reach: server}"
    loaded = small("topology.links.direct=[{pairs: [[client-0, client-7]], bandwidth: 3 Mbit/s, latency: 1 ms}]", peers)
    assert route(loaded, "client-7", "client-0") == [("client-7/to-client-0", CLIENT_CLIENT)]
    assert route(loaded, "client-0", "client-1")[0] == ("client-0/peer-out", CLIENT_CLIENT)  # behind the same edge
    assert [link for link, _ in route(loaded, "client-0", "client-6")] == [
        "client-0/up", "edge-0/up", "edge-1/down", "client-6/down"
    ]  # fmt: skip


def test_a_chain_hands_its_model_on_over_direct_links(small: Small) -> None:
    pairs = ", ".join(f"[client-{a}, client-{b}]" for a in range(8) for b in range(a))
    changes = (
        "topology.edges=0",
        "method={kind: grouped, aggregator: cloud, formation: all, training: {kind: sequential, shuffle: false}, "
        "local: {batch_size: 4}}",
        f"topology.links.direct=[{{pairs: [{pairs}], bandwidth: 2 Mbit/s, latency: 30 ms}}]",
        "stop.rounds=1",
    )
    session = played(small(*changes))
    size = session.world.workload.model_bytes
    handed_on = [row for row in session.world.ledger.rows if row.hop == CLIENT_CLIENT]
    assert [(row.who, row.peer) for row in handed_on] == [(f"client-{n}", f"client-{n + 1}") for n in range(7)]
    assert all(row.end_s - row.start_s == pytest.approx(0.030 + 8 * size / 2e6, rel=1e-9) for row in handed_on)


CHAINS = {
    "fedseq": "formation: {size: 3}",
    "fedasyncseq": "formation: {size: 3}",
    "fedseq2par": "",
    "fedcyclic": "",
    "hfldd": "estimator: {epochs: 1}, formation: {clusters: 3}, training: {images: 2}",
}


@pytest.mark.parametrize("preset", CHAINS)
def test_clients_that_are_joined_exchange_directly_and_others_through_servers(small: Small, preset: str) -> None:
    # Clients with even numbers are joined with all others of them, and so are odd ones: one and the other send through servers.
    pairs = ", ".join(f"[client-{a}, client-{b}]" for a in range(8) for b in range(a) if (a - b) % 2 == 0)
    more = f", {CHAINS[preset]}" if CHAINS[preset] else ""
    session = played(
        small(
            f"method={{preset: {preset}, local: {{epochs: 1, batch_size: 4}}{more}}}",
            f"topology.links.direct=[{{pairs: [{pairs}], bandwidth: 500 kbit/s, latency: 30 ms}}]",
            "data.public=2",
            "stop.rounds=3",
        )
    )
    rows = [row for row in session.world.ledger.rows if row.hop == CLIENT_CLIENT]
    number = session.world.fleet.number
    joined = {row for row in rows if ((number(row.who) or 0) - (number(row.peer) or 0)) % 2 == 0}
    for row in joined:
        assert row.end_s - row.start_s == pytest.approx(0.030 + 8 * row.bytes / 500e3, rel=1e-9)
    for row in set(rows) - joined:
        assert row.end_s - row.start_s >= 0.040 + 8 * row.bytes / 8e6 - 1e-9
    assert joined
    assert set(rows) - joined
    assert session.metrics[-1]["bytes_client_client"] == sum(row.bytes for row in rows)


def test_transfers_in_one_direction_share_a_direct_link(small: Small) -> None:
    session = played(small("topology.links.direct=[{shape: ring, bandwidth: 8 Mbit/s}]", "stop.rounds=1"))
    world, start_s = session.world, session.world.now
    both = [world.send("edge-0", "edge-1", 1_000_000, TAG), world.send("edge-0", "edge-1", 1_000_000, TAG)]
    back = world.send("edge-1", "edge-0", 1_000_000, TAG)
    world.env.run(back)
    assert world.now - start_s == pytest.approx(1.0, rel=1e-9)
    world.env.run(world.env.all_of(both))
    assert world.now - start_s == pytest.approx(2.0, rel=1e-9)


def test_links_from_a_file(small: Small, tmp_path: Path) -> None:
    file = tmp_path / "links.csv"
    file.write_text("\ufeffa;b;bandwidth [Mbit/s];latency\nedge-0;edge-1;2,5;4 ms\n", encoding="utf-8")
    (leg,) = Fleet(small(f"topology.links.direct={file}").scenario.topology, 0).route("edge-1", "edge-0")
    assert (leg.bandwidth_bps, leg.latency_s, leg.hop) == (2.5e6, 0.004, "edge-edge")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\nedge-0,edge-1\n", "has no column 'bandwidth'"),
        ("a,b,bandwidth\nedge-0,edge-1,\n", r'links.csv:2: column "bandwidth": is missing'),
        ("a,b,bandwidth\nedge-0,,1 Mbit/s\n", r'links.csv:2: column "b": is missing'),
        ("a,b,bandwidth\nedge-0,edge-7,1 Mbit/s\n", r"links.csv:2: there is no server or client 'edge-7'"),
        ("a,b,bandwidth\nedge-0,client-1,1 Mbit/s\n", "joins a client with a server"),
        ("a,b,bandwidth\nedge-0,edge-0,1 Mbit/s\n", "joins 'edge-0' with itself"),
        ("a,b,bandwidth\nedge-0,cloud,1 Mbit/s\n", "are not of one tier"),
        ("a,b,bandwidth\nedge-0,edge-1,1 Mbit/s\nedge-1,edge-0,1 Mbit/s\n", "links.csv:3: .*joined already"),
        ("a,b,bandwidth,jitter,jitter_kind\nedge-0,edge-1,1 Mbit/s,1 ms,gauss\n", "unknown kind 'gauss'"),
        ("a,b,bandwidth\nedge-0,edge-1,-1 Mbit/s\n", r'links.csv:2: column "bandwidth"'),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_place(small: Small, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "links.csv"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=said):
        small(f"topology.links.direct={file}")
