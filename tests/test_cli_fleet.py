"""hfl fleet: who takes part, as a table, a picture and files that read back to the same run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from analysis.fleets import FleetTables, fleet_of
from analysis.runs import load_run
from emulator.errors import InputError
from emulator.learning.memo import Memo
from emulator.ledger import COMPUTE
from emulator.run import execute
from emulator.scenario import Loaded, load
from emulator.scenario.fleet_table import write_table
from emulator.world.fleet import Fleet
from emulator.world.fleet_columns import client_columns, tables
from emulator.world.movements import Movements
from tests.methods.playing import played
from tests.scenario.command import hfl

Small = Callable[..., Loaded]

KINDS = (
    "topology.clients=[{name: pi, count: 5, links: {up: 3 Mbit/s, jitter: {kind: uniform, scale: 4 ms}}}, "
    "{count: 3, devices: laptop, speed: 1.7, links: {loss: 0.25, overhead: 3 ms, trace: {file: lte-like}}}]"
)
WORLDS = {
    "uniform": [],
    "movement": [
        "topology.movement={path: {kind: waypoint, width: 500, height: 300, fastest: 900, reach: 200}, state: 1 kB}",
        "method.preset=hierfavg",
    ],
    "no edges": ["topology.edges=0", "method=fedavg"],
    "devices": ["topology.devices={raspberry-pi-4b: 0.5, laptop: 0.5}"],
    "a mix": ["topology.devices={mix: phone-mix, bandwidth: true}"],
    "kinds": [KINDS],
    "cell and sites": [
        "topology.links.cell={up: 9 Mbit/s, down: 9 Mbit/s}",
        "topology.links.latencies={file: eight-sites}",
    ],
    "traces": [
        "topology.links.access.trace={file: lte-like}",
        "topology.links.backhaul.trace={file: lte-like, end: repeat}",
    ],
    "a ring and pairs": [
        "topology.edges=4",
        "topology.links.direct=[{shape: ring, bandwidth: 5 Mbit/s, latency: 7 ms, jitter: {kind: uniform, scale: 4 ms}, "
        "overhead: 1 ms}, {pairs: [[edge-2, edge-0], [client-7, client-0]], bandwidth: 333 kbit/s, loss: 0.1}]",
        "method={preset: sd-feel, local: {batch_size: 10}}",
    ],
    "a mesh of a tier": [
        "topology.edges=null",
        "topology.tiers=[{name: region, count: 3}, {name: edge, count: 4}]",
        "topology.links.direct=[{tier: region, shape: mesh, bandwidth: 2 Mbit/s}]",
        "topology.clients=[{name: pi, count: 8, devices: laptop}]",
    ],
    "tiers": [
        "topology.edges=null",
        "topology.tiers=[{name: edge, count: 2}, {name: gateway, count: 4, cell: {up: 1 Gbit/s, down: 1 Gbit/s}}]",
    ],
    "gossip": [
        "topology.links.direct=[{shape: ring, bandwidth: 3 Mbit/s}, {pairs: [[client-0, client-5]], bandwidth: 1 Mbit/s}]",
        "method={preset: sd-feel, local: {batch_size: 4}}",
    ],
}


@pytest.mark.parametrize("world", WORLDS)
def test_what_it_writes_reads_back_to_the_same_run(small: Small, tmp_path: Path, world: str) -> None:
    from emulator import scenario

    loaded = small(*WORLDS[world], "stop.rounds=1", "topology.transport=tcp")
    (tmp_path / "given.yaml").write_text(scenario.dump(loaded.scenario))
    result = hfl("fleet", str(tmp_path / "given.yaml"), "--csv", str(tmp_path / "out"))
    assert result.code == 0, result.out
    one, other = played(loaded), played(load(tmp_path / "out" / "scenario.yaml"))
    assert one.metrics == other.metrics
    assert one.world.ledger.rows == other.world.ledger.rows


def test_links_beside_the_tree_are_shown_and_written_once(tmp_path: Path) -> None:
    ring = "topology.links.direct=[{shape: ring, bandwidth: 5 Mbit/s, latency: 7 ms}]"
    result = hfl("fleet", "quickstart", "--set", ring, "--csv", str(tmp_path), "--plot", str(tmp_path / "ring.svg"))
    assert result.code == 0, result.out
    assert "links beside the tree" in result.out
    wanted = (
        "a,b,bandwidth,latency\nedge-0,edge-1,5 Mbit/s,7 ms\nedge-1,edge-2,5 Mbit/s,7 ms\nedge-2,edge-0,5 Mbit/s,7 ms\n"
    )
    assert (tmp_path / "links.csv").read_text() == wanted
    assert "link beside the tree (3)" in (tmp_path / "ring.svg").read_text()


def test_a_run_writes_its_fleet_into_its_folder(small: Small, tmp_path: Path) -> None:
    loaded = small(KINDS, "topology.links.direct=[{shape: line, bandwidth: 5 Mbit/s}]", "stop.rounds=1")
    execute(loaded, tmp_path / "run", Memo(None), max_workers=1)
    wanted = FleetTables(**tables(Fleet(loaded.scenario.topology, loaded.scenario.seed), Movements()))
    assert fleet_of(load_run(tmp_path / "run")) == wanted
    assert wanted.links == {"a": ["edge-0"], "b": ["edge-1"], "bandwidth": ["5 Mbit/s"], "latency": ["0 s"]}
    assert "fleet.json" in json.loads((tmp_path / "run" / "summary.json").read_text())["files"]


def test_it_shows_and_draws_every_server_and_client(tmp_path: Path) -> None:
    result = hfl("fleet", "fleets/gateways", "--rows", "0", "--plot", str(tmp_path / "fleet.png"))
    assert result.code == 0, result.out
    assert "102 clients, servers: 3 of edge, 17 of gateway" in result.out
    assert all(name in result.out for name in ("harbour", "gw-17", "sensor-67", "phone-25", "boat-7"))
    assert (tmp_path / "fleet.png").stat().st_size > 10_000
    assert "the first 2 of 102" in hfl("fleet", "fleets/gateways", "--rows", "2").out


def test_a_trace_with_an_end_of_its_own_does_not_fit_into_a_row(small: Small, tmp_path: Path) -> None:
    from emulator import scenario

    kinds = "topology.clients=[{count: 8, links: {trace: {file: lte-like, start: together}}}]"
    (tmp_path / "given.yaml").write_text(scenario.dump(small(kinds).scenario))
    result = hfl("fleet", str(tmp_path / "given.yaml"), "--csv", str(tmp_path / "out"))
    assert result.code == 2
    assert "which a row cannot say" in result.err


def of_rows(small: Small, folder: Path, rows: str, *changes: str) -> Loaded:
    (folder / "fleet.csv").write_text(rows)
    return small("topology.clients=null", f"topology.fleet={folder}/fleet.csv", "stop.rounds=1", *changes)


def test_a_row_says_how_many_samples_a_client_holds(small: Small, tmp_path: Path) -> None:
    session = played(of_rows(small, tmp_path, "name,samples\na,5\nb,\nc,12\nd,1\n"))
    assert session.lab.clients.samples.tolist() == [5, 12, 12, 1]
    with pytest.raises(InputError, match="'a' is to have 13 samples, and the partition gives it 12"):
        _ = played(of_rows(small, tmp_path, "name,samples\na,13\nb,\nc,12\nd,1\n"))


def test_a_row_says_whose_data_a_client_holds(small: Small, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    users = np.repeat(["ann", "bob", "cid", "dan"], 10)
    x, y = rng.random((40, 1, 4, 4), dtype=np.float32), rng.integers(0, 3, 40)
    np.savez(tmp_path / "set.npz", x_train=x, y_train=y, x_test=x, y_test=y, user_train=users)
    data = (f"data.set={{kind: npz, path: {tmp_path}/set.npz, layout: nchw}}", "data.partition=natural")
    session = played(of_rows(small, tmp_path, "name,owner\na,dan\nb,ann\n", *data))
    wanted = [np.bincount(y[users == name], minlength=3).tolist() for name in ("dan", "ann")]
    assert session.lab.clients.label_counts.tolist() == wanted
    for rows, said in (
        ("name,owner\na,dan\nb,eve\n", "nobody in the data set is called 'eve'"),
        ("name,owner\na,dan\nb,dan\n", "another client has the data of 'dan'"),
        ("name,owner\na,dan\nb,\n", "is left out"),
    ):
        with pytest.raises(InputError, match=said):
            _ = played(of_rows(small, tmp_path, rows, *data))


def test_a_row_says_when_a_client_is_online(small: Small, tmp_path: Path) -> None:
    (tmp_path / "late.csv").write_text("# end: repeat after 1 d\ntime [s],availability [1]\n0,0\n86000,1\n")
    loaded = of_rows(small, tmp_path, f"name,availability\na,\nb,\nc,{tmp_path}/late.csv\nd,\n")
    session = played(loaded)
    assert {r.who for r in session.world.ledger.rows if r.kind == COMPUTE} == {"a", "b", "d"}


def test_columns_of_many_different_values_read_back_too(small: Small, tmp_path: Path) -> None:
    rows = [f"client-{c},{1 + c / 7} Mbit/s,{c / 3} ms" for c in range(1200)]
    (tmp_path / "fleet.csv").write_text("\n".join(["name,up,latency", *rows]) + "\n")
    large = small("topology.clients=null", f"topology.fleet={tmp_path / 'fleet.csv'}", "data.set.train_samples=20000")
    before = Fleet(large.scenario.topology, 0)
    columns = client_columns(before)
    assert columns["up"][0].endswith(" bit/s")
    write_table(tmp_path / "again.csv", columns)
    file = f"topology.fleet={tmp_path / 'again.csv'}"
    again = Fleet(small("topology.clients=null", file, "data.set.train_samples=20000").scenario.topology, 0)
    assert np.array_equal(np.asarray(before.roster.access.up_bps), np.asarray(again.roster.access.up_bps))
    assert np.array_equal(np.asarray(before.roster.access.latency_s), np.asarray(again.roster.access.latency_s))
