"""Trees of servers of any depth: routes, hops, closed forms of a round, and rows of files."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from devices.compute import training_s
from emulator.errors import InputError
from emulator.ledger import COMPUTE, TRANSFER, Tag
from emulator.methods.session import Session
from emulator.rng import stream
from emulator.scenario import Loaded, dump, loads
from emulator.scenario.roster import roster_of
from emulator.scenario.topology_schema import Topology
from emulator.world.fleet import Fleet
from emulator.world.sharing import SharedNetwork
from emulator.world.world import Steps
from tests.methods.playing import played
from tests.world.test_sharing import naive

Small = Callable[..., Loaded]

ONE_ROUND = ("method.group_rounds=1", "stop.rounds=1", "method.group_operation=none")
TIERS = ["region", "edge", "gateway", "site", "room"]


def tree(*counts: int, latency_ms: int = 5) -> str:
    names = TIERS[: len(counts)]
    link = f"links: {{up: 80 Mbit/s, down: 160 Mbit/s, latency: {latency_ms} ms}}"
    tiers = ", ".join(f"{{name: {n}, count: {c}, {link}}}" for n, c in zip(names, counts, strict=True))
    return f"topology.tiers=[{tiers}]"


def in_tree(small: Small, *counts: int, changes: tuple[str, ...] = ()) -> Loaded:
    return small(
        "topology.edges=null",
        tree(*counts),
        "method.group_rounds=1",
        "stop.rounds=1",
        "method.group_operation=none",
        *changes,
    )


def round_s(session: Session) -> float:
    return float(session.metrics[-1]["time_s"] - session.metrics[0]["time_s"])


def slowest_training_s(session: Session) -> float:
    return max(r.end_s - r.start_s for r in session.world.ledger.rows if r.kind == COMPUTE)


@pytest.mark.parametrize("counts", [(1,), (1, 1), (1, 1, 1), (1, 1, 1, 1)])
def test_a_round_of_one_client_takes_the_latencies_of_all_tiers_and_the_narrowest_link(
    small: Small, counts: tuple[int, ...]
) -> None:
    # Fluid: down and up between client and its lowest server, and once between each server and the cloud's way.
    lowest = TIERS[len(counts) - 1]
    changes = ("topology.clients=1", f"method.aggregator={lowest}", "method.formation=all")
    session = played(in_tree(small, *counts, changes=changes))
    bits = 8 * session.world.workload.model_bytes
    access_s = 0.020 + bits / 16e6 + 0.020 + bits / 8e6
    above_s = 2 * 0.005 * len(counts) + bits / 160e6 + bits / 80e6  # servers cut through
    assert round_s(session) == pytest.approx(access_s + above_s + slowest_training_s(session), rel=1e-12)
    size = session.world.workload.model_bytes
    hops = {r.hop: r.bytes for r in session.world.ledger.rows if r.kind == TRANSFER and r.what == "model"}
    assert set(hops.values()) == {size}
    assert len(hops) == 2 + 2 * len(counts)
    assert session.metrics[-1]["bytes_total"] == size * (2 + 2 * len(counts))


def test_a_client_straight_under_the_cloud_has_two_tiers(small: Small) -> None:
    session = played(small("topology.edges=0", "topology.clients=1", "method=fedavg", "stop.rounds=1"))
    bits = 8 * session.world.workload.model_bytes
    assert round_s(session) == pytest.approx(0.04 + bits / 16e6 + bits / 8e6 + slowest_training_s(session), rel=1e-12)


@pytest.mark.parametrize("aggregator", ["region", "edge", "gateway", "cloud"])
def test_bytes_are_booked_on_every_hop_between_tiers(small: Small, aggregator: str) -> None:
    loaded = in_tree(small, 1, 2, 4, changes=(f"method.aggregator={aggregator}", "method.formation=all"))
    session = played(loaded)
    size, row = session.world.workload.model_bytes, session.metrics[-1]
    # How many models cross each kind of hop: one a client below where groups are, and one a server of that tier above it.
    groups = {"region": 1, "edge": 2, "gateway": 4, "cloud": 1}[aggregator]
    order = ["cloud", "region", "edge", "gateway"]
    for above, below in itertools.pairwise(order):
        inside = order.index(below) > order.index(aggregator)  # between the group's server and its clients
        models = 8 if inside else groups
        assert row[f"bytes_{above}_{below}"] == row[f"bytes_{below}_{above}"] == models * size, (above, below)
    assert row["bytes_server_client"] == row["bytes_client_server"] == 8 * size
    assert row["bytes_cloud_edge"] == row["bytes_edge_cloud"] == 0
    total = sum(
        value
        for name, value in row.items()
        if name.startswith("bytes_") and name not in ("bytes_total", "bytes_wasted")
    )
    assert row["bytes_total"] == total


def test_two_tiers_by_name_are_a_number_of_edges(small: Small) -> None:
    link = "links: {up: 80 Mbit/s, down: 160 Mbit/s, latency: 5 ms}"
    named = small("topology.edges=null", f"topology.tiers=[{{name: edge, count: 2, {link}}}]")
    one, other = played(small()), played(named)
    assert one.metrics == other.metrics
    assert one.world.ledger.rows == other.world.ledger.rows


def test_servers_that_are_listed_are_the_tree_that_tiers_make(small: Small) -> None:
    link = "links: {up: 80 Mbit/s, down: 160 Mbit/s, latency: 5 ms}"
    nodes = [
        ("edge-0", "cloud"), ("edge-1", "cloud"), ("gateway-0", "edge-0"), ("gateway-1", "edge-0"),
        ("gateway-2", "edge-1"), ("gateway-3", "edge-1"),
    ]  # fmt: skip
    listed = ", ".join(f"{{name: {name}, parent: {parent}, {link}}}" for name, parent in reversed(nodes))
    tiers = f"topology.tiers=[{{name: edge, count: 2, {link}}}, {{name: gateway, count: 4, {link}}}]"
    by_tiers = small("topology.edges=null", tiers)
    by_list = small("topology.edges=null", f"topology.servers=[{listed}]")
    fleets = [Fleet(each.scenario.topology, 0) for each in (by_tiers, by_list)]
    assert sorted(fleets[0].roster.servers, key=lambda s: s.name) == sorted(
        fleets[1].roster.servers, key=lambda s: s.name
    )
    assert loads(dump(by_list.scenario)).scenario == by_list.scenario


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 10**6), st.data())
def test_a_route_goes_up_to_the_first_common_server_and_down_again(
    factors: list[int], seed: int, data: st.DataObject
) -> None:
    counts: list[int] = []
    for factor in factors:
        counts.append(factor * (counts[-1] if counts else 1))
    clients = counts[-1] * 2
    tiers = [{"name": name, "count": count} for name, count in zip(TIERS, counts, strict=False)]
    text = f"""
data: {{set: {{kind: synthetic}}, partition: iid}}
model: mlp
topology: {{tiers: {json.dumps(tiers)}, clients: {clients}}}
method: {{preset: fedavg}}
stop: {{rounds: 1}}
"""
    fleet = Fleet(loads(text).scenario.topology, seed)
    a, b = (data.draw(st.integers(0, clients - 1)) for _ in range(2))
    names = [fleet.client_names[a], fleet.client_names[b]]
    if a != b:
        legs = fleet.route(*names)
        above = [fleet.path(fleet.home(c)) for c in (a, b)]
        common = next(name for name in above[0] if name in above[1])
        ups, downs = (list(path[: path.index(common)]) for path in above)
        crossed = [leg.link for leg in legs]
        wanted = [
            f"{names[0]}/up",
            *(f"{n}/up" for n in ups),
            *(f"{n}/down" for n in reversed(downs)),
            f"{names[1]}/down",
        ]
        assert crossed == wanted
        booked = Counter(leg.hop for leg in legs if leg.hop)
        assert booked["client-client"] == 1
    tier = data.draw(st.sampled_from([*TIERS[: len(counts)], "cloud"]))
    server = fleet.at_tier(a, tier)
    up, down = fleet.route(names[0], server), fleet.route(server, names[0])
    assert [leg.link.rpartition("/")[0] for leg in up] == [leg.link.rpartition("/")[0] for leg in reversed(down)]
    assert len(up) == 1 + fleet.path(fleet.home(a)).index(server)


def test_groups_of_a_tier_have_all_clients_below_it(small: Small) -> None:
    fleet = Fleet(in_tree(small, 1, 2, 4).scenario.topology, 0)
    assert [b.tolist() for b in fleet.blocks_at("gateway")] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [b.tolist() for b in fleet.blocks_at("edge")] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [b.tolist() for b in fleet.blocks_at("cloud")] == [list(range(8))]
    assert fleet.servers_at("edge") == ["edge-0"] * 4 + ["edge-1"] * 4


# Files.

CLIENTS = """name,parent,device,up,down,latency
pi-a,left,raspberry-pi-3b-plus,2 Mbit/s,4 Mbit/s,40 ms
pi-b,left,raspberry-pi-4b,8 Mbit/s,16 Mbit/s,20 ms
laptop-a,right,laptop,80 Mbit/s,160 Mbit/s,2 ms
"""
SERVERS = """name,parent,up,down,latency
left,cloud,40 Mbit/s,40 Mbit/s,7 ms
right,cloud,400 Mbit/s,400 Mbit/s,1 ms
"""


def of_files(small: Small, folder: Path, clients: str = CLIENTS, servers: str = SERVERS) -> Loaded:
    (folder / "fleet.csv").write_text(clients)
    (folder / "servers.csv").write_text(servers)
    files = (f"topology.fleet={folder}/fleet.csv", f"topology.servers={folder}/servers.csv")
    return small(
        "topology.edges=null",
        "topology.clients=null",
        *files,
        "method.group_rounds=1",
        "stop.rounds=1",
        "method.group_operation=none",
    )


def test_every_row_has_its_own_links_and_device(small: Small, tmp_path: Path) -> None:
    session = played(of_files(small, tmp_path))
    bits = 8 * session.world.workload.model_bytes
    rows = session.world.ledger.rows
    down = {r.peer: r.end_s - r.start_s for r in rows if r.hop == "server-client" and r.what == "model"}
    assert down == pytest.approx(
        {"pi-a": 0.04 + bits / 4e6, "pi-b": 0.02 + bits / 16e6, "laptop-a": 0.002 + bits / 160e6}, rel=1e-12
    )
    up = {r.who: r.end_s - r.start_s for r in rows if r.hop == "client-server" and r.what == "model"}
    assert up == pytest.approx(
        {"pi-a": 0.04 + bits / 2e6, "pi-b": 0.02 + bits / 8e6, "laptop-a": 0.002 + bits / 80e6}, rel=1e-12
    )
    back = {r.who: r.end_s - r.start_s for r in rows if r.hop == "edge-cloud" and r.what == "model"}
    assert back == pytest.approx({"left": 0.007 + bits / 40e6, "right": 0.001 + bits / 400e6}, rel=1e-12)
    work = session.world.workload.training(4)
    samples = session.lab.clients.samples.tolist()
    devices = session.world.fleet.client_devices
    spent = {r.who: r.end_s - r.start_s for r in rows if r.kind == COMPUTE}
    for client, name in enumerate(("pi-a", "pi-b", "laptop-a")):
        assert spent[name] == pytest.approx(training_s(devices[client], work, samples[client], 4, 1), rel=1e-12)
    assert [device.name for device in devices] == ["raspberry-pi-3b-plus", "raspberry-pi-4b", "laptop"]


def test_what_a_row_leaves_out_comes_from_the_scenario(small: Small, tmp_path: Path) -> None:
    clients = "name,parent,up\n" + "".join(
        f"c{i},{'left' if i < 3 else ''},{'2 Mbit/s' if i == 1 else ''}\n" for i in range(6)
    )
    fleet = Fleet(of_files(small, tmp_path, clients).scenario.topology, 3)
    assert [fleet.home(c) for c in range(6)] == ["left", "left", "left", "right", "right", "right"]
    assert [fleet.route(f"c{i}", "cloud")[0].bandwidth_bps for i in range(3)] == [8e6, 2e6, 8e6]
    assert {device.name for device in fleet.client_devices} == {"raspberry-pi-4b"}


def test_a_server_may_serve_clients_and_servers(small: Small, tmp_path: Path) -> None:
    servers = "name,parent,tier\nhub,cloud,edge\nbox,hub,gateway\n"
    clients = "name,parent\na,hub\nb,box\n"
    loaded = of_files(small, tmp_path, clients, servers)
    fleet = Fleet(loaded.scenario.topology, 0)
    assert [leg.link for leg in fleet.route("a", "cloud")] == ["a/up", "hub/up"]
    assert [leg.link for leg in fleet.route("b", "hub")] == ["b/up", "box/up"]
    session = played(loaded)  # groups at the edges
    assert {r.hop for r in session.world.ledger.rows if r.hop} >= {"gateway-edge", "client-server", "edge-cloud"}


@pytest.mark.parametrize(
    ("clients", "servers", "said"),
    [
        (
            "name,parent\na,lefd\nb,right\nc,left\n",
            SERVERS,
            "fleet.csv:2: column \"parent\": there is no server 'lefd'",
        ),
        ("name,parent\na,left\na,right\n", SERVERS, "fleet.csv:3"),
        ("name,device\na,raspberry-pi-9\nb,laptop\n", SERVERS, 'fleet.csv:2: column "device": unknown device'),
        ("name,parent\na,left\nb,left\n", SERVERS, "no client is below right"),
        ("name\nleft\nb\n", SERVERS, "is the name of a server too"),
        (CLIENTS, "name,parent\nleft,right\nright,left\n", "nothing of that is below the cloud"),
        (CLIENTS, "name,parent\nleft,cloud\nright,nowhere\n", "there is no server 'nowhere' above it"),
        (CLIENTS, "name,parent\nleft,cloud\nright,left\ncloud,right\n", "the cloud is there already"),
        (CLIENTS, "name,parent\nleft,cloud\nleft,cloud\nright,cloud\n", "servers.csv:3"),
        (
            CLIENTS,
            "name,parent,tier\nleft,cloud,edge\nright,left,edge\n",
            "is of tier 'edge', and so is 'left' above it",
        ),
        (CLIENTS, "name,parent,tier\nleft,cloud,client\nright,cloud,edge\n", "a name that tiers cannot have"),
    ],
)
def test_fleets_that_are_no_tree_are_refused_with_file_row_and_column(
    small: Small, tmp_path: Path, clients: str, servers: str, said: str
) -> None:
    with pytest.raises(InputError) as refused:
        of_files(small, tmp_path, clients, servers)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["topology.tiers=[{name: edge, count: 2}]"], "'edges' says which servers there are"),
        (["topology.edges=null", "topology.tiers=[{name: edge, count: 3}, {name: box, count: 2}]"], "would leave some"),
        (["topology.edges=null", "topology.tiers=[{name: edge, count: 1}, {name: edge, count: 2}]"], "another tier"),
        (["topology.edges=null", "topology.tiers=[{name: cloud, count: 1}]"], "a name that tiers cannot have"),
        (["topology.clients=[{count: 3}, {share: 0.5}]"], "give all of them the same"),
        (["topology.clients=[{share: 0.5}, {share: 0.5}]"], "say it with 'topology.total'"),
        (["topology.total=9", "topology.clients=[{share: 0.5}, {share: 0.4}]"], "must add up to 1"),
        (["topology.clients=[{count: 3, edges: [2]}, {count: 3}]"], "there is no server 2"),
        (["topology.clients=[{count: 3, edges: [1]}]"], "no client is below edge-0"),
        (["topology.clients=[{count: 3, devices: rapsberry}]"], "unknown device"),
        (["topology.clients=[]"], "there are no kinds of clients"),
        (["topology.clients=[{name: a, count: 3}, {name: a, count: 3}]"], "another kind has the name"),
        (["topology.clients=[{name: edge, count: 3}]"], "is the name of a client and of a server"),
        (["method.aggregator=gateway"], "unknown tier 'gateway'"),
        (
            ["topology.edges=null", "topology.tiers=[{name: site, count: 2}]"],
            "unknown tier 'edge'; tiers: 'cloud', 'site'",
        ),
        (["method.tiers={edge: {rounds: 2}}"], "is not above 'edge', where groups are"),
        (["method.tiers={cloud: {rounds: 2}}"], "the cloud's rounds are the global ones"),
        (["topology.fleet=/no/such/file.csv", "topology.clients=null"], "there is no such file"),
    ],
)
def test_what_does_not_fit_is_refused(small: Small, changes: list[str], said: str) -> None:
    with pytest.raises(InputError) as refused:
        small(*changes)
    assert said in str(refused.value)


def test_kinds_of_clients_stand_behind_the_edges_that_they_name(small: Small) -> None:
    kinds = (
        "topology.clients=[{name: pi, count: 3, devices: raspberry-pi-3b-plus, links: {up: 1 Mbit/s}, edges: [0]}, "
        "{count: 4, devices: {laptop: 0.5, jetson-nano: 0.5}, speed: 2.0}]"
    )
    fleet = Fleet(small(kinds).scenario.topology, 5)
    assert fleet.client_names == ["pi-0", "pi-1", "pi-2", "client-3", "client-4", "client-5", "client-6"]
    assert [fleet.home(c)[-1] for c in range(7)] == ["0", "0", "0", "0", "0", "1", "1"]
    assert [fleet.route(n, "cloud")[0].bandwidth_bps for n in fleet.client_names] == [1e6] * 3 + [8e6] * 4
    names = Counter(device.name for device in fleet.client_devices)
    assert names["raspberry-pi-3b-plus"] == 3
    assert sorted(names.values()) == [2, 2, 3]
    assert all("2 times as fast" in device.name for device in fleet.client_devices[3:])


def test_shares_of_kinds_go_by_largest_remainder(small: Small) -> None:
    loaded = small(
        "topology.total=11", "topology.clients=[{name: a, share: 0.5}, {name: b, share: 0.3}, {name: c, share: 0.2}]"
    )
    counts = Counter(name[0] for name in roster_of(loaded.scenario.topology).names)
    assert counts == {"a": 6, "b": 3, "c": 2}
    assert loaded.scenario.topology.client_count == 11


def test_a_server_that_is_down_between_client_and_group_loses_what_goes_through_it(small: Small) -> None:
    fault = "faults=[{kind: edge-outage, tier: gateway, edges: [0], at: [0 s]}]"
    loaded = in_tree(small, 1, 2, 4, changes=("method.aggregator=edge", fault))
    session = played(loaded)
    trained = {r.who for r in session.world.ledger.rows if r.kind == COMPUTE}
    assert trained == {f"client-{c}" for c in range(2, 8)}
    assert session.world.send("client-0", "edge-0", 10, Tag("probe")).value is False


def test_what_a_fleet_knows_of_its_routes_does_not_grow_with_clients_times_servers(small: Small) -> None:
    fleet = Fleet(
        small("topology.clients=4000", "topology.edges=400", "data.set.train_samples=60000").scenario.topology, 3
    )
    blocks = dict(zip(fleet.servers_at("edge")[::10], fleet.blocks_at("edge"), strict=True))
    tracemalloc.start()
    found = [fleet.parts(edge, block) for edge, block in blocks.items()]
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [len(parts) for parts in found] == [1] * 400
    assert kept < 2_000_000  # a number for each client and server would be 12.8 MB


@st.composite
def trees_with_transfers(draw: st.DrawFn) -> tuple[dict[str, object], list[tuple[float, str, str, int]]]:
    """A topology of one to four tiers with links and cells of its own, and transfers between any of its nodes."""
    rate = st.integers(1, 50).map(lambda mbps: f"{mbps} Mbit/s")
    tiers, most = list[dict[str, object]](), 1
    for name in TIERS[: draw(st.integers(1, 4))]:
        count = draw(st.integers(most, most + 2))
        links = {"up": draw(rate), "down": draw(rate), "latency": "0 s"}
        cell = {"up": draw(rate), "down": draw(rate)} if draw(st.booleans()) else None
        tiers.append({"name": name, "count": count, "links": links, "cell": cell})
        most = count
    clients = draw(st.integers(most, most + 4))
    access = {"up": draw(rate), "down": draw(rate)}
    nodes = [f"client-{c}" for c in range(clients)] + [f"{t['name']}-{n}" for t in tiers for n in range(t["count"])]  # type: ignore[call-overload]
    ends = st.lists(st.sampled_from([*nodes, "cloud"]), min_size=2, max_size=2, unique=True)
    begins, sizes = st.integers(0, 40).map(lambda tenth: tenth / 10), st.integers(10_000, 3_000_000)
    sendings = draw(st.lists(st.tuples(begins, ends, sizes), min_size=1, max_size=10))
    topology = {"tiers": tiers, "clients": clients, "links": {"access": access}, "transport": "fluid"}
    return topology, [(start, a, b, size) for start, (a, b), size in sendings]


@settings(deadline=None)
@given(trees_with_transfers())
def test_shares_in_trees_agree_with_brute_force(
    drawn: tuple[dict[str, object], list[tuple[float, str, str, int]]],
) -> None:
    described, sendings = drawn
    topology = Topology.model_validate(described)
    roster = roster_of(topology)
    parent = {server.name: server.parent for server in roster.servers if server.parent}
    parent |= {
        name: roster.servers[home].name for name, home in zip(roster.names, roster.home_of.tolist(), strict=True)
    }
    links = {server.name: server.link for server in roster.servers}
    access, cells = topology.links.access, {server.name: server.cell for server in roster.servers}
    mbps: dict[str, float] = {}

    def crossed(sender: str, receiver: str) -> list[str]:
        """The links of a route, found by walking up from both ends; and how fast they are."""
        ups, downs = [sender], [receiver]
        for way in (ups, downs):
            while way[-1] != "cloud":
                way.append(parent[way[-1]])
        names = list[str]()
        for way, other, direction in ((ups, downs, "up"), (downs, ups, "down")):
            for node in (n for n in way if n not in other):
                own, cell = links.get(node, access), cells[parent[node]]
                mbps[f"{node} {direction}"] = getattr(own, direction) / 1e6
                names.append(f"{node} {direction}")
                if cell is not None:
                    mbps[f"cell of {parent[node]} {direction}"] = getattr(cell, direction) / 1e6
                    names.append(f"cell of {parent[node]} {direction}")
        return names

    def meets(sender: str, receiver: str) -> bool:
        """Whether the tree is the way: a client reaches a server that is not above it straight (`Fleet.route`)."""
        client, server = (sender, receiver) if receiver in (*links, "cloud") else (receiver, sender)
        if client in links or client == "cloud" or server not in (*links, "cloud"):
            return True
        return server in roster.paths[parent[client]]

    sendings = [each for each in sendings if meets(each[1], each[2])]
    expected = naive(mbps, [(start, crossed(a, b), size) for start, a, b, size in sendings])
    env, fleet = simpy.Environment(), Fleet(topology, 0)
    network, ended = SharedNetwork(env, stream(0, "jitter")), dict[int, float]()

    def send(number: int, start: float, sender: str, receiver: str, size: int) -> Steps:
        yield env.timeout(start)
        yield network.transfer(fleet.route(sender, receiver), size)
        ended[number] = env.now

    for number, sending in enumerate(sendings):
        env.process(send(number, *sending))
    env.run()
    assert [ended[n] for n in range(len(sendings))] == pytest.approx(expected, rel=1e-6, abs=1e-7)
