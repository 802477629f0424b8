"""Clients that move: where they are, what a handover does to transfers and groups, and what is wrong with files of moves."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator import checkpoint, ledger
from emulator.contracts.world import Ground
from emulator.errors import InputError, ScenarioError
from emulator.learning.memo import Memo
from emulator.ledger import COMPUTE, DONE, TRANSFER, Row, Tag
from emulator.methods.session import Session
from emulator.rng import stream
from emulator.run import execute
from emulator.run_folder import check_inputs
from emulator.scenario import Loaded
from emulator.world.endings import check
from emulator.world.movements import Whereabouts, movements
from emulator.world.moving import WaypointParams, _nearest, waypoint
from emulator.world.world import World
from tests.methods.playing import cut_off_and_finished, played

Small = Callable[..., Loaded]

# An access link takes a second for a megabyte up and half of one down, a backhaul a tenth and a twentieth; no latencies.
LINKS = (
    "topology.links.access={up: 8 Mbit/s, down: 16 Mbit/s}",
    "topology.links.backhaul={up: 80 Mbit/s, down: 160 Mbit/s}",
    "topology.transport=fluid",
)
MB = 1_000_000


@pytest.fixture
def moving(small: Small, tmp_path: Path) -> Small:
    """A small scenario whose clients move by these rows of a file."""

    def make(rows: str, *changes: str, repeat: str = "") -> Loaded:
        file = tmp_path / "moves.csv"
        file.write_text("client,time,parent\n" + rows)
        path = json.dumps({"kind": "trace", "moves": str(file)} | ({"repeat": repeat} if repeat else {}))
        return small(*LINKS, f"topology.movement={{path: {path}}}", *changes)

    return make


def world_of(loaded: Loaded) -> World:
    """A world in which nothing happens but what a test asks for."""
    from emulator.assembly import assemble
    from emulator.learning.memo import Memo, RunMemory
    from emulator.learning.timing import TimingLab

    return assemble(loaded.scenario, TimingLab(loaded.scenario, RunMemory(Memo(None)))).world


def sent(world: World, sender: str, receiver: str, size: int = 2 * MB) -> tuple[bool, float]:
    """Whether a transfer that begins now arrives, and when."""
    done = world.env.run(world.send(sender, receiver, size, Tag("model", 1)))
    return bool(done), world.now


def hops(world: World) -> list[tuple[str, str, str, int, str]]:
    rows = [row for row in world.ledger.rows if row.kind == TRANSFER]
    return [(row.hop, row.who, row.peer, row.bytes, row.status) for row in rows]


def test_an_upload_is_lost_with_the_move(moving: Small) -> None:
    world = world_of(moving("client-0,1 s,edge-1\n", "topology.movement.transfers=lost"))
    assert sent(world, "client-0", "edge-0") == (False, 1.0)
    assert hops(world) == [("client-server", "client-0", "edge-0", MB, "broken")]
    # It has left that server for good, and is served by the other one.
    assert sent(world, "client-0", "edge-0") == (False, 1.0)
    assert sent(world, "client-0", "edge-1") == (True, 3.0)
    assert (world.present([0, 1], "edge-0"), world.present([0, 7], "edge-1")) == ([1], [0, 7])


def test_an_upload_is_carried_to_its_end_by_the_old_server(moving: Small) -> None:
    world = world_of(moving("client-0,1 s,edge-1\n", "topology.movement.transfers=carried"))
    assert sent(world, "client-0", "edge-0") == (True, 2.0)
    assert hops(world) == [("client-server", "client-0", "edge-0", 2 * MB, "done")]
    # What begins after the move goes through the new server and the tree.
    assert sent(world, "client-0", "edge-0", MB) == (True, 3.0)
    assert [(hop, who, peer) for hop, who, peer, _, _ in hops(world)[1:]] == [
        ("client-server", "client-0", "edge-1"),
        ("edge-cloud", "edge-1", "cloud"),
        ("cloud-edge", "cloud", "edge-0"),
    ]


@pytest.mark.parametrize("sharing", ["max-min", "dedicated"])
def test_an_upload_is_resumed_over_the_new_server(moving: Small, sharing: str) -> None:
    # Half of it has gone in the first second. The other half goes on through the new server, as fast as the access link.
    resumed = ("topology.movement.transfers=resumed", f"topology.sharing={sharing}")
    world = world_of(moving("client-0,1 s,edge-1\n", *resumed))
    assert sent(world, "client-0", "edge-0") == (True, pytest.approx(2.0))
    half = [
        ("client-server", "client-0", "edge-1", MB, "done"),
        ("edge-cloud", "edge-1", "cloud", MB, "done"),
        ("cloud-edge", "cloud", "edge-0", MB, "done"),
    ]
    assert sorted(hops(world)) == sorted([("client-server", "client-0", "edge-0", MB, "done"), *half])
    # The interruption, and a megabyte of state that shares nothing with anybody: 0.5 s, and 0.1 s up (0.05 s down at once).
    costs = ("topology.movement.interruption=500 ms", "topology.movement.state=1 MB")
    world = world_of(moving("client-0,1 s,edge-1\n", *resumed, *costs))
    assert sent(world, "client-0", "edge-0") == (True, pytest.approx(2.6))
    state = [("edge-cloud", "edge-0", "cloud", MB, "done"), ("cloud-edge", "cloud", "edge-1", MB, "done")]
    assert [row for row in hops(world) if row in state] == state
    # A download is turned round too: a quarter of a second is half of it, the rest takes as long.
    world = world_of(moving("client-0,0.25 s,edge-1\n", *resumed))
    assert sent(world, "edge-0", "client-0", MB) == (True, pytest.approx(0.5))


def test_a_transfer_waits_for_a_server_in_reach(moving: Small) -> None:
    rows = "client-0,1 s,\nclient-0,4 s,edge-0\n"
    world = world_of(moving(rows, "topology.movement.transfers=resumed"))
    assert sent(world, "client-0", "edge-0") == (True, pytest.approx(5.0))
    for transfers in ("lost", "carried"):  # no server is there to carry it
        world = world_of(moving(rows, f"topology.movement.transfers={transfers}"))
        assert sent(world, "client-0", "edge-0") == (False, 1.0)
        assert sent(world, "client-0", "edge-0", 1000) == (False, 1.0)
        assert world.present([0], "edge-0") == world.present([0], "cloud") == []
        world.env.run(world.until_back(0))
        assert (world.now, world.present([0], "edge-0")) == (4.0, [0])


def test_what_the_old_server_sent_in_vain_counts_as_broken(moving: Small) -> None:
    # The second half meets a server that is down: nothing arrives, and the first half was for nothing too.
    down = "faults=[{kind: edge-outage, edges: [1], at: [0.5 s]}]"
    world = world_of(moving("client-0,1 s,edge-1\n", "topology.movement.transfers=resumed", down))
    assert sent(world, "client-0", "edge-0") == (False, 1.0)
    assert hops(world) == [("client-server", "client-0", "edge-0", MB, "broken")]


def test_a_client_that_moves_on_takes_its_state_from_where_it_is(moving: Small) -> None:
    # The state of 10 MB needs a second to the cloud. After half of one the client moves on, to the third edge.
    rows = "client-0,1 s,edge-1\nclient-0,1.5 s,edge-2\n"
    world = world_of(moving(rows, "topology.edges=3", "topology.clients=9", "topology.movement.state=10 MB"))
    world.env.run(until=4.0)
    states = [(who, peer, status) for _, who, peer, _, status in hops(world)]
    assert states == [
        *((who, peer, "broken") for who, peer in (("edge-0", "cloud"), ("cloud", "edge-1"))),
        *((who, peer, "done") for who, peer in (("edge-0", "cloud"), ("cloud", "edge-2"))),
    ]
    assert world.ledger.rows[-1].end_s == pytest.approx(2.5)
    assert world.present([0], "edge-2") == [0]


# A round of hierarchical averaging with a move in the middle of an upload.


def timeline(session: Session) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in session.world.ledger.rows:
        found.setdefault(row.who, []).append(row)
    return found


@pytest.mark.parametrize("transfers", ["lost", "resumed", "carried"])
def test_a_round_with_a_handover_in_the_middle_of_an_upload(moving: Small, transfers: str) -> None:
    one_round = ("method.group_rounds=1", "stop.rounds=1", "method.group_operation=none", "method.formation=all")
    slow = ("topology.links.access={up: 1 Mbit/s, down: 16 Mbit/s}", *one_round)
    still = played(moving("client-7,0 s,edge-1\n", *slow))
    size = still.world.workload.model_bytes
    upload = next(r for r in timeline(still)["client-0"] if r.kind == TRANSFER)
    assert upload.end_s - upload.start_s == pytest.approx(8 * size / 1e6)
    middle = (upload.start_s + upload.end_s) / 2
    moved = played(moving(f"client-0,{middle!r} s,edge-1\n", *slow, f"topology.movement.transfers={transfers}"))
    rows = [r for r in moved.world.ledger.rows if r.who == "client-0" and r.kind == TRANSFER]
    half = int(size / 2)
    expected = {
        "lost": [("edge-0", half, "broken")],
        "resumed": [("edge-0", half, "done"), ("edge-1", size - half, "done")],
        "carried": [("edge-0", size, "done")],
    }
    assert sorted((r.peer, r.bytes, r.status) for r in rows) == sorted(expected[transfers])
    extra = {"lost": {"client-server": half - size}, "resumed": {"edge-cloud": size - half, "cloud-edge": size - half}}
    for hop in ledger.HOPS:
        column = ledger.bytes_column(hop)
        difference = moved.metrics[-1][column] - still.metrics[-1][column]
        assert difference == extra.get(transfers, {}).get(hop, 0), hop
    # The cloud waits for both groups; the slowest upload of the other clients ends when that of client 0 would have.
    assert moved.metrics[-1]["time_s"] == pytest.approx(still.metrics[-1]["time_s"], rel=1e-6)
    wasted = half if transfers == "lost" else 0
    assert moved.metrics[-1]["bytes_wasted"] == wasted


def test_groups_are_formed_anew_or_members_leave_them(moving: Small) -> None:
    rounds = ("stop.rounds=4", "method.formation=all", "method.group_operation=none", "method.group_rounds=1")

    def trained(groups: str) -> dict[int, set[tuple[int, str]]]:
        """The clients that trained in each round, with the server that averaged them."""
        session = played(moving("client-0,0.2 s,edge-1\n", *rounds, f"topology.movement.groups={groups}"))
        rows = session.world.ledger.rows
        uploads = {
            (r.round, r.who): r.peer
            for r in rows
            if r.hop == "client-server" and r.status == DONE and r.what == "model"
        }
        names = session.world.fleet.client_names
        return {
            t: {(names.index(who), server) for (at, who), server in uploads.items() if at == t} for t in range(1, 5)
        }

    by_form, by_leave = trained("form"), trained("leave")
    everybody = {(c, "edge-0") for c in range(1, 4)} | {(c, "edge-1") for c in range(4, 8)}
    assert by_form[4] == everybody | {(0, "edge-1")}
    assert by_leave[4] == everybody


def test_who_is_out_of_reach_at_the_start_joins_later(moving: Small) -> None:
    rows = "".join(f"client-{c},0 s,\nclient-{c},2 s,edge-{c // 4}\n" for c in range(8))
    rounds = ("stop.rounds=2", "method.formation=all", "method.group_operation=none")
    session = played(moving(rows, *rounds))
    assert min(r.start_s for r in session.world.ledger.rows if r.kind == COMPUTE) > 2.0
    assert session.rounds == 2


def test_a_run_ends_when_everybody_has_left_for_good(moving: Small) -> None:
    rows = "".join(f"client-{c},0.3 s,\n" for c in range(8))
    session = played(moving(rows, "stop.rounds=50", "method.formation=all", "method.group_operation=none"))
    assert session.stopped_by == "nobody left"
    assert session.rounds < 50


def test_nothing_before_a_move_depends_on_it(moving: Small) -> None:
    def rows(moves: str) -> list[Row]:
        session = played(moving(moves, "stop.rounds=3", "topology.movement.transfers=resumed"))
        return [row for row in session.world.ledger.rows if row.end_s < 0.3]

    first = "client-0,0.1 s,edge-1\nclient-5,0.2 s,edge-0\n"
    assert len(rows(first)) > 20
    assert rows(first) == rows(first + "client-1,0.3 s,edge-1\n")


def test_another_world_and_a_run_that_was_cut_off_give_the_files_of_a_fresh_run(moving: Small, tmp_path: Path) -> None:
    rows = "client-0,0.1 s,edge-1\nclient-5,0.25 s,edge-0\nclient-0,0.4 s,\nclient-0,0.6 s,edge-0\n"

    def scenario(*changes: str) -> Loaded:
        return moving(rows, "stop.rounds=4", "topology.movement.model=true", *changes)

    def files(name: str) -> list[bytes]:
        return [(tmp_path / name / file).read_bytes() for file in ("metrics.csv", "ledger.parquet", "fleet.json")]

    execute(scenario("topology.movement.groups=leave"), tmp_path / "run", Memo(None), max_workers=1)
    known = checkpoint.read_memory(tmp_path / "run")
    changed = scenario(
        "topology.movement.groups=leave", "topology.movement.interruption=20 ms", "topology.sharing=dedicated"
    )
    replay = execute(changed, tmp_path / "replay", Memo(None), known=known, max_workers=1)
    execute(changed, tmp_path / "fresh", Memo(None), max_workers=1)
    assert files("replay") == files("fresh") != files("run")
    assert replay["trainings"]["computed"] < replay["trainings"]["asked"]
    cut_off_and_finished(scenario("topology.movement.groups=leave"), tmp_path / "cut", after=2)
    assert files("cut") == files("run")
    # Whoever reads the run again knows that its file of moves is another one.
    check_inputs(tmp_path / "run")
    (tmp_path / "moves.csv").write_text("client,time,parent\nclient-0,9 s,edge-1\n")
    with pytest.raises(InputError, match=r"moves\.csv"):
        check_inputs(tmp_path / "run")


def test_two_in_a_chain_hand_the_model_on_while_they_move(moving: Small) -> None:
    # With 'lost' a client that has left its group is left out of its chain; with the others it goes on over the tree.
    chain = (
        "method.training=sequential",
        "method.formation=all",
        "method.group_operation=none",
        "method.group_rounds=1",
    )
    rows = "client-1,1 ms,edge-1\n"
    members: dict[str, set[str]] = {}
    for transfers in ("lost", "resumed", "carried"):
        session = played(moving(rows, "stop.rounds=1", *chain, f"topology.movement.transfers={transfers}"))
        trained = {r.who for r in session.world.ledger.rows if r.kind == COMPUTE and r.group == 0}
        members[transfers] = trained
    four = {f"client-{c}" for c in range(4)}
    assert members == {"lost": four - {"client-1"}, "resumed": four, "carried": four}


# Where clients are.


def test_whereabouts_are_found_in_any_order() -> None:
    path = Whereabouts("a", iter([(0.0, "b"), (2.0, "b"), (3.0, ""), (5.0, "a")]))
    assert [path.at(t) for t in (4.0, 0.0, 3.0, 9.0, 2.9)] == ["", "b", "", "a", "b"]
    assert [path.next_change(t) for t in (0.0, 3.0, 4.0, 5.0)] == [3.0, 5.0, 5.0, math.inf]
    assert [path.latest(t) for t in (1.0, 4.0, 6.0)] == ["b", "b", "a"]
    assert [path.next_in_reach(t) for t in (1.0, 3.5)] == [1.0, 5.0]
    late = Whereabouts("a", iter([(0.0, ""), (2.0, "b")]))
    assert [late.latest(t) for t in (0.0, 2.0)] == ["a", "b"]  # nobody knows at first where it will come


def test_a_file_of_moves_may_start_over(moving: Small) -> None:
    loaded = moving("client-0,1 s,edge-1\nclient-0,3 s,\n", repeat="10 s")
    path = movements(loaded.scenario.topology, 0).paths[0]
    places = {t: path.at(t) for t in (0.0, 1.0, 3.0, 9.9, 10.0, 11.0, 13.0, 1000.5, 1001.0)}
    assert list(places.values()) == ["edge-0", "edge-1", "", "", "edge-0", "edge-1", "", "edge-0", "edge-1"]


@pytest.mark.parametrize("neighbours", ["ring", "line", "all", "links"])
def test_clients_wander_between_neighbours(small: Small, neighbours: str) -> None:
    markov = f"topology.movement={{path: {{kind: markov, stay: 2 s, neighbours: {neighbours}, clients: [0, 3]}}}}"
    pairs = (
        "topology.links.direct=[{pairs: [[edge-0, edge-2], [edge-1, edge-3], [edge-0, edge-1]], bandwidth: 1 Mbit/s}]"
    )
    loaded = small("topology.edges=4", "topology.clients=8", markov, pairs)
    paths = movements(loaded.scenario.topology, loaded.scenario.seed).paths
    assert set(paths) == {0, 3}
    seen, stays, now = set(), list[float](), 0.0
    for _ in range(2000):
        then = paths[0].next_change(now)
        stays.append(then - now)
        seen.add((int(paths[0].at(now)[-1]), int(paths[0].at(then)[-1])))
        now = then
    ring = {(0, 1), (1, 2), (2, 3), (3, 0)}
    expected = {
        "ring": ring,
        "line": ring - {(3, 0)},
        "all": set(itertools.combinations(range(4), 2)),
        "links": {(0, 2), (1, 3), (0, 1)},
    }[neighbours]
    assert seen == expected | {(b, a) for a, b in expected}
    assert np.mean(stays) == pytest.approx(2.0, rel=0.1)
    again = movements(loaded.scenario.topology, loaded.scenario.seed).paths[0]
    assert [again.at(t) for t in range(100)] == [paths[0].at(t) for t in range(100)]


@given(
    sites=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=8, unique=True),
    start=st.tuples(st.integers(0, 100), st.integers(0, 100)),
    velocity=st.tuples(st.integers(-9, 9), st.integers(-9, 9)),
)
def test_the_nearest_server_is_known_at_every_instant(
    sites: list[tuple[int, int]], start: tuple[int, int], velocity: tuple[int, int]
) -> None:
    at, going, places = np.array(start, float), np.array(velocity, float), np.array(sites, float)
    marks = [*_nearest(at, going, 10.0, places)]
    assert marks[0][0] == 0
    assert [s for s, _ in marks] == sorted(s for s, _ in marks)
    for instant in np.linspace(0.01, 9.99, 57):
        site = [site for since, site in marks if since <= instant][-1]
        away = np.hypot(*(at + going * instant - places).T)
        assert away[site] <= away.min() + 1e-6


def test_who_walks_is_served_by_the_nearest_server_in_reach() -> None:
    tiers = {"cloud": ["cloud"], "edge": ["a", "b", "c"]}
    places = {"a": (100.0, 100.0), "b": (700.0, 100.0), "c": (400.0, 500.0), "walker": (90.0, 110.0)}
    ground = Ground(["walker"], ["a"], tiers, places)
    params = WaypointParams(width=800, height=600, slowest=3, fastest=9, reach=250, pause=0)
    stays = dict(waypoint(ground, lambda target: stream(5, target), params))[0]
    first = list(itertools.islice(stays, 200))
    assert first[0] == (0.0, "a")
    assert {name for _, name in first} == {"a", "b", "c", ""}
    assert all(a[0] < b[0] and a[1] != b[1] for a, b in itertools.pairwise(first))
    # The same walk again, sampled.
    from emulator.world.moving import _walk

    rng = stream(5, "walker")
    walk = _walk(np.array(places["walker"]), np.array([800.0, 600.0]), rng, params)
    path = Whereabouts("a", first)
    for begin, end, at, velocity in itertools.islice(walk, 30):
        for instant in np.linspace(begin, end, 23)[1:-1]:
            away = {n: np.hypot(*(at + velocity * (instant - begin) - places[n])) for n in "abc"}
            nearest = min(away, key=lambda n: away[n])
            if abs(away[nearest] - 250) > 1e-3 and sorted(away.values())[1] - away[nearest] > 1e-3:
                assert path.at(float(instant)) == (nearest if away[nearest] < 250 else "")


# What is wrong.


def test_all_that_is_wrong_with_a_file_is_said_at_once(moving: Small) -> None:
    rows = "client-0,1 s,edge-1\nclient-9,1 s,edge-0\nclient-1,2 s,egde-0\nclient-0,1 s,edge-0\n"
    loaded = moving(rows)
    with pytest.raises(InputError) as error:
        check(loaded.scenario)
    assert error.value.key == "topology.movement.path.moves"
    lines = error.value.message.split("\n")
    assert len(lines) == 3
    assert "moves.csv:3: column \"client\": there is no client 'client-9'" in lines[0]
    assert "moves.csv:4: column \"parent\": there is no server 'egde-0'; did you mean 'edge-0'" in lines[1]
    assert "moves.csv:5: column \"time\": 'client-0' has a row at 1 s before it" in lines[2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("client,time\nclient-0,1 s\n", "has no column 'parent'"),
        ("client,time,parent\nclient-0,1,edge-0\n", "has no unit"),
        ("client,time,parent\nclient-0,,edge-0\n", "is missing; every move has one"),
        ("client,time,parent\nclient-0,-1 s,edge-0\n", "must not be negative"),
        ("client;time [s];parent\nclient-0;1,5;edge-9\n", "there is no server 'edge-9'"),  # 1.5 s
        ("\ufeffclient,time,parent\nclient-0,1 s,edge-9\n", "there is no server 'edge-9'"),
        ("client,time,parent,why\nclient-0,1 s,edge-0,x\n", "unknown column"),
        ("client,time,parent\nclient-0,0 s,\n", "client-0: no server is ever in reach"),
        ("", "the file is empty"),
    ],
)
def test_a_bad_file_is_refused(small: Small, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "moves.csv"
    file.write_text(text, encoding="utf-8")
    loaded = small(f"topology.movement={{path: {{kind: trace, moves: {file}}}}}")
    with pytest.raises(InputError, match=said):
        check(loaded.scenario)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("topology.edges=1", "topology.movement={path: {kind: markov, stay: 1 s}}"), "nowhere to move to"),
        (("topology.movement={path: {kind: markov, stay: 1 s, neighbours: links}}",), "no servers are joined"),
        (("topology.movement={path: {kind: markov, stay: 1 s, clients: [99]}}",), "there is no number 99"),
        (
            ("topology.movement={path: {kind: waypoint, width: 9, height: 9, slowest: 5, fastest: 2}}",),
            "'slowest' must",
        ),
        (("topology.movement={path: {kind: markov}}",), "is required"),
        (("topology.movement={path: {kind: teleport}}",), "unknown movement 'teleport'"),
        (
            ("topology.movement={path: {kind: markov, stay: 1 s}}", "method.aggregator=any-edge"),
            "clients that move are served by the server that they are behind",
        ),
    ],
)
def test_what_does_not_fit_is_refused(small: Small, changes: tuple[str, ...], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        small(*changes)


def test_servers_out_of_reach_of_all_are_refused(small: Small) -> None:
    far = "[{name: edge-0}, {name: edge-1}]"
    path = "{kind: waypoint, width: 100, height: 100, reach: 5}"
    # Two servers in the middle of two fields of 50 m by 100 m: a client that starts far from them comes into reach later.
    loaded = small("topology.edges=null", f"topology.servers={far}", f"topology.movement={{path: {path}}}")
    paths = movements(loaded.scenario.topology, 0).paths
    assert any(not path.at(0.0) for path in paths.values())
