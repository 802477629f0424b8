"""Servers at the sites of a matrix of latencies: where they are, and what that does to the clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import simpy

from emulator.errors import ScenarioError
from emulator.ledger import Ledger, Tag
from emulator.rng import stream
from emulator.scenario import Loaded, dump, loads
from emulator.scenario.link_schema import SiteLatencies
from emulator.world.fleet import Fleet
from emulator.world.network import DedicatedNetwork
from emulator.world.sharing import SharedNetwork
from emulator.world.sites import most_central, place
from emulator.world.world import Workload, World

Small = Callable[..., Loaded]
SHARED = Path(__file__).resolve().parents[2] / "../shared/traces"

# Milliseconds one way; the ways there and back differ. The second site is the most central one: the sums to and from the others
# are 10 + 30 + 12 + 36 = 88, against 10 + 50 + 12 + 60 = 132 of the first and 50 + 36 + 60 + 30 = 176 of the third.
MATRIX = "0.1,10,50\n12,0.2,30\n60,36,0.3\n"


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    path = tmp_path / "sites.txt"
    path.write_text(MATRIX)
    return path


def seconds(loaded: Loaded, sender: str, receiver: str) -> float:
    """How long a megabyte takes, in a world in which nothing else happens."""
    env = simpy.Environment()
    network = {"dedicated": DedicatedNetwork, "max-min": SharedNetwork}[loaded.scenario.topology.sharing]
    fleet = Fleet(loaded.scenario.topology, loaded.scenario.seed)
    world = World(env, fleet, network(env, stream(1, "jitter")), Workload(1000, 1e6, 250), Ledger())
    env.run(world.send(sender, receiver, 1_000_000, Tag("test")))
    return float(env.now)


@pytest.mark.parametrize("sharing", ["dedicated", "max-min"])
def test_transfers_take_the_latency_between_the_sites(small: Small, matrix: Path, sharing: str) -> None:
    loaded = small(
        f"topology.links.latencies={{file: {matrix}}}", f"topology.sharing={sharing}",
        "topology.links.backhaul.overhead=1 ms", "topology.links.peer={bandwidth: 100 Mbit/s, latency: 2 ms}",
    )  # fmt: skip
    sites = Fleet(loaded.scenario.topology, loaded.scenario.seed).sites
    assert sites is not None
    assert sites.of["cloud"] == 1
    assert {sites.of["edge-0"], sites.of["edge-1"]} == {0, 2}
    near, far = sorted(("edge-0", "edge-1"), key=lambda edge: sites.of[edge])
    one, other = ("client-0", "client-7") if near == "edge-0" else ("client-7", "client-0")
    for sender, receiver, expected in (
        (near, "cloud", 0.010 + 0.001 + 8e6 / 80e6),
        ("cloud", near, 0.012 + 0.001 + 8e6 / 160e6),
        (far, "cloud", 0.036 + 0.001 + 8e6 / 80e6),
        ("cloud", far, 0.030 + 0.001 + 8e6 / 160e6),
        (one, near, 0.020 + 8e6 / 8e6),  # access links are as before
        (one, "cloud", 0.020 + 0.010 + 0.001 + 8e6 / 8e6),
        ("cloud", other, 0.030 + 0.001 + 0.020 + 8e6 / 16e6),
        (one, other, 0.050 + 8e6 / 100e6),  # from the first site to the third
        (other, one, 0.060 + 8e6 / 100e6),
        ("client-0", "client-1", 0.002 + 8e6 / 100e6),  # of one edge
    ):
        assert seconds(loaded, sender, receiver) == pytest.approx(expected, rel=1e-12), (sender, receiver)


def test_without_direct_links_clients_reach_each_other_by_way_of_the_cloud(small: Small, matrix: Path) -> None:
    loaded = small(f"topology.links.latencies={{file: {matrix}}}")
    there, back = seconds(loaded, "client-0", "client-7"), seconds(loaded, "client-7", "client-0")
    ways = {0.020 + 0.010 + 0.030 + 0.020 + 1, 0.020 + 0.036 + 0.012 + 0.020 + 1}
    assert sorted((there, back)) == pytest.approx(sorted(ways), rel=1e-12)


def test_the_cloud_may_be_put_at_any_site(small: Small, matrix: Path) -> None:
    loaded = small(f"topology.links.latencies={{file: {matrix}, cloud: 3}}")
    sites = Fleet(loaded.scenario.topology, 0).sites
    assert sites is not None
    assert sites.of["cloud"] == 2
    assert sites.latency_s("edge-0", "cloud") in (0.050, 0.030)
    assert loads(dump(loaded.scenario)).scenario == loaded.scenario


def test_no_site_is_taken_again_before_all_are_taken() -> None:
    latencies = SiteLatencies(file="eight-sites")
    edges = [f"edge-{e}" for e in range(17)]
    places = place(latencies, "cloud", edges, 0)
    taken = [places.of[edge] for edge in edges]
    cloud = places.of["cloud"]
    for turn in (taken[:7], taken[7:14]):
        assert sorted([*turn, cloud]) == list(range(8))
    assert len({*taken[14:], cloud}) == 4
    assert place(latencies, "cloud", edges, 0).of == places.of
    assert place(latencies, "cloud", edges, 1).of != places.of
    assert place(latencies, "cloud", edges, 1).of["cloud"] == cloud


def test_the_most_central_site_has_the_least_mean_latency_to_and_from_the_others() -> None:
    rng = np.random.default_rng(5)
    for size in (2, 3, 9):
        matrix_s = rng.random((size, size))
        means = [np.mean([matrix_s[i, j] + matrix_s[j, i] for j in range(size) if j != i]) for i in range(size)]
        assert most_central(matrix_s) == int(np.argmin(means))


def test_what_is_wrong_with_a_matrix_is_said_with_its_place(small: Small, tmp_path: Path, matrix: Path) -> None:
    backwards, lonely = tmp_path / "b.txt", tmp_path / "l.txt"
    backwards.write_text("0,-3\n3,0\n")
    lonely.write_text("0\n")
    for latencies, said in (
        (f"{{file: {backwards}}}", f".file: {backwards}:1: cell 2 is -3; it must not be negative"),
        (f"{{file: {lonely}, format: latency-matrix}}", f".file: {lonely} has one site only; cloud and edges need two"),
        (f"{{file: {matrix}, cloud: 4}}", f".cloud: {matrix} has only 3 sites"),
    ):
        with pytest.raises(ScenarioError) as caught:
            small(f"topology.links.latencies={latencies}")
        assert str(caught.value) == f"--set topology.links.latencies={latencies}: topology.links.latencies{said}"
    with pytest.raises(ScenarioError, match="there are no edges that could be at a site"):
        small(f"topology.links.latencies={{file: {matrix}}}", "topology.edges=0", "method.aggregator=cloud")


def test_the_sites_of_a_real_matrix(small: Small) -> None:
    path = SHARED / "latency" / "latencies.txt"
    if not path.exists():
        pytest.skip("the real latencies are not here")
    loaded = small(f"topology.links.latencies={{file: {path}}}", "topology.clients=226", "topology.edges=226")
    sites = Fleet(loaded.scenario.topology, loaded.scenario.seed).sites
    assert sites is not None
    assert sorted(sites.of.values()) == list(range(227))
    to_cloud = [sites.latency_s(f"edge-{e}", "cloud") for e in range(226)]
    everywhere = [sites.matrix_s[i, j] for i, j in itertools.permutations(range(227), 2)]
    assert 0 < np.mean(to_cloud) < np.mean(everywhere)
    edge = next(e for e in range(226) if sites.of[f"edge-{e}"] == 0)
    expected = sites.matrix_s[0, sites.of["cloud"]] + 8e6 / 80e6
    assert seconds(loaded, f"edge-{edge}", "cloud") == pytest.approx(expected, rel=1e-12)
