"""What many do together takes as long, row for row, as if each did it alone; and so it does when somebody comes between."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
import simpy

from emulator.contracts.world import GroupOperationChoice
from emulator.ledger import Ledger, Row, Tag
from emulator.rng import stream
from emulator.scenario import Loaded
from emulator.world.batch import Work
from emulator.world.carriage import Carriage
from emulator.world.cohorts import Cohorts
from emulator.world.fleet import Fleet
from emulator.world.meetings import operate
from emulator.world.network import DedicatedNetwork
from emulator.world.operations import SecureAggregationParams
from emulator.world.played import played
from emulator.world.sharing import SharedNetwork
from emulator.world.world import Steps, Workload, World

Small = Callable[..., Loaded]

CELL = "topology.links.cell={up: 20 Mbit/s, down: 30 Mbit/s}"
PORT = "topology.links.cloud={up: 50 Mbit/s, down: 60 Mbit/s}"
LINK = "up: 8 Mbit/s, down: 16 Mbit/s, latency: 20 ms"
KINDS = (
    "topology.clients=[{count: 5, links: {up: 3 Mbit/s, latency: 1 ms}}, {count: 4, links: {down: 9 Mbit/s, loss: 0.2}}, "
    "{count: 3, links: {latency: 70 ms, overhead: 3 ms, jitter: {kind: uniform, scale: 4 ms}}}]"
)
TIERS = "topology.tiers=[{name: edge, count: 3}, {name: gateway, count: 6, links: {up: 30 Mbit/s, latency: 2 ms}}]"
WORLDS: dict[str, list[str]] = {
    "plain": [],
    "cell": [CELL],
    "cell and port": [CELL, PORT],
    "dedicated": ["topology.sharing=dedicated"],
    "without latency": ["topology.links.access={up: 8 Mbit/s, down: 16 Mbit/s}", CELL],
    "jitter": [CELL, f"topology.links.access={{{LINK}, jitter: {{kind: exponential, scale: 10 ms}}}}"],
    "jitter, dedicated": [
        "topology.sharing=dedicated",
        f"topology.links.access={{{LINK}, jitter: {{kind: normal, scale: 10 ms}}}}",
    ],
    "trace": [CELL, "topology.links.access.trace={file: lte-like}"],
    "trace alone": ["topology.links.access.trace={file: lte-like}"],
    "trace with drops": ["topology.links.access.trace={file: wifi-with-drops, start: together}"],
    "trace behind": [CELL, "topology.links.backhaul.trace={file: lte-like}"],
    "speed": ["topology.speed={file: daily-load}"],
    "devices of a mix": ["topology.devices={mix: phone-mix, bandwidth: true}", CELL],
    "mix alone": ["topology.devices={mix: phone-mix, bandwidth: true}"],
    "sites": ["topology.links.latencies={file: eight-sites}", CELL],
    "kinds": [CELL, KINDS],
    "kinds alone": [KINDS],
    "kinds, dedicated": [KINDS, "topology.sharing=dedicated"],
    "kinds, jitter": [CELL, KINDS, f"topology.links.access={{{LINK}, jitter: {{kind: exponential, scale: 10 ms}}}}"],
    "tiers": [CELL, PORT, "topology.edges=null", TIERS],
    "tiers and kinds": [KINDS, "topology.edges=null", TIERS],
    "no edges": ["topology.edges=0", "method=fedavg", PORT],
}
# Shares by chance and by round trip, slow start and a window that holds the faster links back.
WORLDS |= {
    f"{name}, tcp": [*changes, "topology.transport={kind: tcp, window: 30 kB}"] for name, changes in WORLDS.items()
}
SAMPLES = np.array([5, 30, 5, 17, 40, 30, 1, 8, 12, 12, 60, 3])


def world_of(loaded: Loaded) -> World:
    env, topology = simpy.Environment(), loaded.scenario.topology
    traces, jitter = played(topology, 3), stream(1, "jitter")
    carriage = Carriage(topology.transport(), 3)
    network: DedicatedNetwork | SharedNetwork = DedicatedNetwork(env, jitter, carriage)
    if topology.sharing == "max-min":
        network = SharedNetwork(env, jitter, traces.bandwidths, traces.latencies, carriage=carriage)
    return World(env, Fleet(topology, 3), network, Workload(50_000, 1e6, 12_000), Ledger(), traces.speeds)


def loaded_as(small: Small, world: str) -> Loaded:
    devices = "topology.devices={raspberry-pi-4b: 0.5, laptop: 0.25, android-mid: 0.25}"
    return small("topology.clients=12", "topology.edges=3", devices, "topology.transport=fluid", *WORLDS[world])


def together(
    world: World, server: str, members: Sequence[int], operation: GroupOperationChoice | None, group: int
) -> Steps:
    """Members download, train and upload; with an operation they wait for one another around it."""
    tag, crew = Tag("model", 1, group), world.batch.crew(server, members)
    work = Work(SAMPLES[crew.clients], 2, 4)
    if operation is None:
        yield crew.exchange(work, 50_000, 50_000, tag)
    else:
        arrivals_s = yield crew.receive(50_000, tag)
        yield from crew.train_and_operate(work, operation, 1, tag, arrivals_s)
        yield crew.send(50_000, tag)


def one_by_one(
    world: World, server: str, members: Sequence[int], operation: GroupOperationChoice | None, group: int
) -> Steps:
    """The same with a process for each member."""
    tag, names = Tag("model", 1, group), world.fleet.client_names

    def member(client: int) -> Steps:
        yield world.send(server, names[client], 50_000, tag)
        yield world.train(client, int(SAMPLES[client]), 2, 4, tag.with_purpose("training"))
        if operation is None:
            yield world.send(names[client], server, 50_000, tag)

    yield world.env.all_of([world.env.process(member(c)) for c in members])
    if operation is not None:
        yield from operate(world, members, server, operation, 1, len(members), tag)
        yield world.env.all_of([world.send(names[c], server, 50_000, tag) for c in members])


def rows_of(world: World, processes: Iterable[Steps]) -> list[Row]:
    world.env.run(world.env.all_of([world.env.process(p) for p in processes]))
    return sorted(world.ledger.rows)


def check_same(world: str, rows: list[Row], expected: list[Row]) -> None:
    """Bit for bit; where own links follow a trace, up to rounding: the integral of a trace is not added up step by step."""
    if not world.startswith("trace ") or world == "trace behind":
        assert rows == expected
        return
    assert facts_of(rows) == facts_of(expected)
    for column in ("start_s", "end_s"):
        by_facts = [[getattr(r, column) for r in sorted(each, key=facts)] for each in (rows, expected)]
        assert by_facts[0] == pytest.approx(by_facts[1], rel=1e-9)


def facts(row: Row) -> tuple[Any, ...]:
    return (*row[:3], *row[5:])


def facts_of(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    return sorted(facts(row) for row in rows)


def secure(**params: Any) -> GroupOperationChoice:
    return GroupOperationChoice("secure-aggregation", SecureAggregationParams(**params))


OPERATIONS = {
    "none": None,
    "curve": secure(),
    "protocol": secure(model="protocol"),
    "bytes": secure(a="0 s", b="0 s", c="0 s"),
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_a_group_takes_as_long_as_its_members_one_by_one(
    small: Small, world: str, operation: GroupOperationChoice | None
) -> None:
    loaded = loaded_as(small, world)
    groups = [[0, 1, 2, 3], [4, 5, 6], [7], [8, 10], [9, 11]]
    server = Fleet(loaded.scenario.topology, 3).home
    rows = [
        rows_of(here, [way(here, server(g[0]), g, operation, i) for i, g in enumerate(groups)])
        for way in (together, one_by_one)
        for here in [world_of(loaded)]
    ]
    check_same(world, *rows)
    assert len(rows[0]) > 12 * (2 if operation is None else 4)


@pytest.mark.parametrize("world", [w for w in WORLDS if not w.startswith("no edges")])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_at_an_edge_that_is_not_their_own(small: Small, world: str, operation: GroupOperationChoice | None) -> None:
    loaded = loaded_as(small, world)
    groups = {"edge-0": [0, 5, 9, 3], "edge-2": [1, 2, 8], "edge-1": [4, 11]}
    rows = [
        rows_of(here, [way(here, server, g, operation, i) for i, (server, g) in enumerate(groups.items())])
        for way in (together, one_by_one)
        for here in [world_of(loaded)]
    ]
    check_same(world, *rows)


@pytest.mark.parametrize("world", [w for w in WORLDS if "jitter" not in w])  # these are drawn in another order
@pytest.mark.parametrize("operation", list(OPERATIONS.values())[:2], ids=list(OPERATIONS)[:2])
def test_under_the_cloud_too(small: Small, world: str, operation: GroupOperationChoice | None) -> None:
    loaded = loaded_as(small, world)
    groups = [[11, 0, 4, 5, 8, 1], [2, 3, 6, 7, 9, 10]]
    rows = [
        rows_of(here, [way(here, "cloud", g, operation, i) for i, g in enumerate(groups)])
        for way in (together, one_by_one)
        for here in [world_of(loaded)]
    ]
    check_same(world, *rows)


@pytest.mark.parametrize("transport", ["", ", tcp"])
@pytest.mark.parametrize(
    "world", ["plain", "cell", "cell and port", "no edges", "trace alone", "trace with drops", "mix alone"]
)
@pytest.mark.parametrize("seed", range(12))
def test_somebody_who_comes_between_takes_his_share(
    small: Small, monkeypatch: pytest.MonkeyPatch, world: str, seed: int, transport: str
) -> None:
    """Transfers of single clients at random instants, on the very links on which a cohort is on its way."""
    loaded = loaded_as(small, world + transport)
    chance = random.Random(seed)
    home = Fleet(loaded.scenario.topology, 3).home
    singles = [
        (chance.choice([0.0, round(chance.uniform(0, 0.6), 3)]), chance.randrange(12), chance.random() < 0.5,
         chance.choice([0, 1, 20_000, 60_000])) for _ in range(6)
    ]  # fmt: skip

    def single(here: World, at_s: float, client: int, up: bool, size_bytes: int) -> Steps:
        yield here.env.timeout(at_s)
        ends = (here.fleet.client_names[client], home(client))
        yield here.send(*(ends if up else ends[::-1]), size_bytes, Tag("single", 1, client))

    def play(here: World, operation: GroupOperationChoice | None) -> list[Row]:
        groups = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        work = [together(here, home(g[0]), g, operation, i) for i, g in enumerate(groups)]
        return rows_of(here, [*work, *(single(here, *s) for s in singles)])

    for operation in (None, secure(a="0 s", b="10 ms", c="1 ms")):
        here = world_of(loaded)
        rows = play(here, operation)
        assert not here.network._cohorts._on  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setattr(Cohorts, "_may_go", lambda self, routes, size_bytes: False)
            expected = play(world_of(loaded), operation)

        rows, expected = (sorted(r, key=lambda row: (facts(row), row.start_s)) for r in (rows, expected))
        assert [facts(r) for r in rows] == [facts(r) for r in expected]
        for column in ("start_s", "end_s"):
            found = [getattr(r, column) for r in rows]
            assert found == pytest.approx([getattr(r, column) for r in expected], rel=1e-9, abs=1e-9)


def test_a_cohort_is_one_flow(small: Small) -> None:
    def events(clients: int) -> int:
        here = world_of(small(f"topology.clients={clients}", "topology.edges=1", CELL, "data.set.train_samples=50000"))
        crew = here.batch.crew("edge-0", range(clients))
        received, steps = crew.receive(1000, Tag("test")), 0
        while not received.processed:
            here.env.step()
            steps += 1
        assert len(here.ledger.rows) == clients
        return steps

    assert events(1000) == events(10)


def test_clients_with_bandwidths_of_their_own(small: Small) -> None:
    """Where the clients' own links differ, each has the rate that its own link and the shared one leave it."""
    here = world_of(small("topology.clients=3", "topology.edges=1", CELL))
    routes = here.fleet.client_routes("edge-0", np.arange(3), up=True)
    routes.own_bps = np.array([2e6, 8e6, 8e6])
    done = here.network.transfer_all(routes, 1_000_000)
    here.env.run(done)
    # 2 + 8 + 8 Mbit/s is less than the cell's 20.
    assert done.value == pytest.approx(0.020 + np.array([4.0, 1.0, 1.0]), rel=1e-12)
    here = world_of(
        small("topology.clients=3", "topology.edges=1", "topology.links.cell={up: 10 Mbit/s, down: 1 Mbit/s}")
    )
    routes = here.fleet.client_routes("edge-0", np.arange(3), up=True)
    routes.own_bps = np.array([2e6, 8e6, 8e6])
    done = here.network.transfer_all(routes, 1_000_000)
    here.env.run(done)
    # The first has 2 Mbit/s of its own; the others share the 8 that it leaves.
    assert done.value == pytest.approx(0.020 + np.array([4.0, 2.0, 2.0]), rel=1e-12)
