"""Devices drawn from a mix: how many of each kind, how fast they are, and what that does to the clock."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import simpy

from devices.compute import training_s
from devices.profile import find_profile
from emulator.contracts.world import Meeting
from emulator.errors import ScenarioError
from emulator.ledger import Ledger, Tag
from emulator.registry import Chosen
from emulator.rng import stream
from emulator.scenario import Loaded, dump, loads
from emulator.scenario.topology_schema import MeasuredDevices
from emulator.world.fleet import Fleet
from emulator.world.mixes import assign_kinds
from emulator.world.network import DedicatedNetwork
from emulator.world.operations import SecureAggregationParams, secure_aggregation
from emulator.world.sharing import SharedNetwork
from emulator.world.world import Workload, World

Small = Callable[..., Loaded]
SHARED = Path(__file__).resolve().parents[2] / "../shared/traces"
MIX = "device,share [%],speed [1],bandwidth [Mbit/s]\nslow,25,0.5,2\nplain,50,1,8\nfast,25,4,40\n"


@pytest.fixture
def mix(tmp_path: Path) -> Path:
    path = tmp_path / "mix.csv"
    path.write_text(MIX)
    return path


def fleet_of(loaded: Loaded) -> Fleet:
    return Fleet(loaded.scenario.topology, loaded.scenario.seed)


def test_every_kind_gets_its_share_rounded_up_or_down_and_exactly_in_the_mean() -> None:
    shares = np.array([0.5, 0.29, 0.2, 0.01])
    counts = np.array([np.bincount(assign_kinds(shares, 11, stream(s, "t")), minlength=4) for s in range(3000)])
    assert (counts.sum(axis=1) == 11).all()
    assert (counts >= np.floor(11 * shares)).all()
    assert (counts <= np.ceil(11 * shares)).all()
    assert counts.mean(axis=0) == pytest.approx(11 * shares, abs=0.04)
    assert np.bincount(assign_kinds(np.array([0.3, 0.7]), 10, stream(0, "t"))).tolist() == [3, 7]


def test_of_more_kinds_than_clients_none_is_drawn_twice_and_all_have_their_chance() -> None:
    shares = np.full(300, 1 / 300)
    drawn = np.array([assign_kinds(shares, 50, stream(s, "t")) for s in range(600)])
    assert all(len(set(each)) == 50 for each in drawn)
    times = np.bincount(drawn.ravel(), minlength=300)
    assert times.mean() == 100
    assert times.std() == pytest.approx((600 * (1 / 6) * (5 / 6)) ** 0.5, rel=0.2)
    assert sorted(assign_kinds(shares, 300, stream(1, "t"))) == list(range(300))


def test_the_place_of_a_client_says_nothing_about_its_kind() -> None:
    first = [int(assign_kinds(np.array([0.5, 0.5]), 4, stream(s, "t"))[0]) for s in range(400)]
    assert sum(first) == pytest.approx(200, abs=60)


def test_a_kind_takes_the_times_of_the_median_device_divided_by_its_speed(small: Small, mix: Path) -> None:
    fleet = fleet_of(small(f"topology.devices={{mix: {mix}, median: jetson-nano}}"))
    names = [device.name for device in fleet.client_devices]
    assert sorted(names) == ["fast"] * 2 + ["plain"] * 4 + ["slow"] * 2
    assert len({id(device) for device in fleet.client_devices}) == 3
    median, speeds = find_profile("jetson-nano"), {"slow": 0.5, "plain": 1.0, "fast": 4.0}
    for device in fleet.client_devices:
        speed = speeds[device.name]
        assert training_s(device, 1e7, 60, 8, 3) == pytest.approx(training_s(median, 1e7, 60, 8, 3) / speed, rel=1e-12)
        assert device.power == median.power
        for operation, curve in median.group_operations.items():
            assert device.group_operations[operation].seconds(9) == pytest.approx(curve.seconds(9) / speed, rel=1e-12)
        assert device.core_slowdown is not None
        assert median.core_slowdown is not None
        assert device.core_slowdown == pytest.approx(median.core_slowdown / speed, rel=1e-12)
        protocol = SecureAggregationParams(model="protocol")
        own, his = (secure_aggregation(Meeting(d, find_profile("laptop"), 5, 1000), protocol) for d in (device, median))
        assert own.up_bytes == his.up_bytes
        assert (own.seconds < his.seconds) == (speed > 1) or speed == 1
    assert median.name == "jetson-nano"


def test_the_draw_depends_on_the_seed_alone(small: Small, mix: Path) -> None:
    loaded = small(f"topology.devices={{mix: {mix}}}", "topology.clients=40")
    one, again = fleet_of(loaded), fleet_of(loaded)
    assert [d.name for d in one.client_devices] == [d.name for d in again.client_devices]
    other = Fleet(loaded.scenario.topology, 4)
    assert [d.name for d in one.client_devices] != [d.name for d in other.client_devices]


@pytest.mark.parametrize("sharing", ["dedicated", "max-min"])
def test_the_bandwidth_of_a_kind_takes_the_place_of_that_of_the_link(small: Small, mix: Path, sharing: str) -> None:
    changes = (f"topology.devices={{mix: {mix}, bandwidth: true}}", f"topology.sharing={sharing}")
    loaded = small(*changes, "topology.links.access.loss=0.2")
    fleet, bps = fleet_of(loaded), {"slow": 2e6, "plain": 8e6, "fast": 40e6}
    for client, device in enumerate(fleet.client_devices):
        env = simpy.Environment()
        network = {"dedicated": DedicatedNetwork, "max-min": SharedNetwork}[sharing](env, stream(1, "jitter"))
        world = World(env, fleet, network, Workload(1000, 1e6, 250), Ledger())
        env.run(world.send(f"client-{client}", fleet.home(client), 1_000_000, Tag("up")))
        once = 0.020 + 8e6 / (0.8 * bps[device.name])
        assert env.now == pytest.approx(once, rel=1e-12)
        env.run(world.send(fleet.home(client), f"client-{client}", 1_000_000, Tag("down")))
        assert env.now == pytest.approx(2 * once, rel=1e-12)


def test_without_bandwidth_links_are_as_the_scenario_says(small: Small, mix: Path) -> None:
    fleet = fleet_of(small(f"topology.devices={{mix: {mix}}}"))
    legs = [fleet.route(f"client-{c}", fleet.home(c))[0] for c in range(8)]
    assert {leg.bandwidth_bps for leg in legs} == {8e6}


def test_a_resolved_scenario_reads_back_as_the_same(small: Small, mix: Path) -> None:
    chosen = "{kind: flash-scores, models: ''}"
    scores = mix.with_name("scores.json")
    scores.write_text(json.dumps({"a": 1, "b": 3}))
    for devices in (f"{{mix: {mix}, bandwidth: true}}", f"{{mix: {scores}, format: {chosen}, median: laptop}}"):
        scenario = small(f"topology.devices={devices}").scenario
        assert isinstance(scenario.topology.devices, MeasuredDevices)
        assert loads(dump(scenario)).scenario == scenario
    assert isinstance(scenario.topology.devices.format, Chosen)


def test_what_the_files_lack_is_said_with_its_place(small: Small, tmp_path: Path, mix: Path) -> None:
    scores, empty, partial = tmp_path / "s.json", tmp_path / "e.csv", tmp_path / "p.csv"
    scores.write_text(json.dumps({"a": 1}))
    empty.write_text("")
    partial.write_text(MIX.replace("25,4", "24,4"))
    for devices, said in (
        (f"{{mix: {scores}, bandwidth: true}}", f".bandwidth: {scores} has no bandwidths; say 'bandwidth: false'"),
        (f"{{mix: {empty}}}", f".mix: {empty}: the file is empty"),
        (f"{{mix: {partial}}}", f".mix: {partial}: the shares add up to 0.99; they must add up to 1"),
    ):
        with pytest.raises(ScenarioError) as caught:
            small(f"topology.devices={devices}")
        assert str(caught.value) == f"--set topology.devices={devices}: topology.devices{said}"
    with pytest.raises(ScenarioError, match=r"'topology\.links\.access\.trace' gives the bandwidth; it cannot be both"):
        small(f"topology.devices={{mix: {mix}, bandwidth: true}}", "topology.links.access.trace={file: lte-like}")


def test_a_change_that_changes_nothing_is_refused(small: Small) -> None:
    """Whoever asks what another uplink would do is not told that it makes no difference, where devices bring their own."""
    measured = "topology.devices={mix: phone-mix, bandwidth: true}"
    why = r"access.up: has no effect: 'topology.devices.bandwidth: true' gives each client the bandwidth of its device"
    with pytest.raises(ScenarioError, match=why):
        small(measured, "topology.links.access.up=2 Mbit/s")
    small(measured, "topology.links.access.latency=2 ms", "topology.links.access.loss=0.1")
    small(measured, "topology.devices.bandwidth=false", "topology.links.access.up=2 Mbit/s")


def test_a_file_that_has_changed_is_read_again(small: Small, mix: Path) -> None:
    change = f"topology.devices={{mix: {mix}}}"
    assert {d.name for d in fleet_of(small(change)).client_devices} == {"slow", "plain", "fast"}
    mix.write_text("device,share [1],speed [1]\nonly,1,1\n")
    assert {d.name for d in fleet_of(small(change)).client_devices} == {"only"}


def test_fedscale_capacities_give_speeds_and_bandwidths(small: Small, tmp_path: Path) -> None:
    path = tmp_path / "client_device_capacity"
    path.write_bytes(pickle.dumps({i: {"computation": 50.0 * (i + 1), "communication": 1000 + i} for i in range(101)}))
    fleet = fleet_of(small(f"topology.devices={{mix: {path}, bandwidth: true}}", "topology.clients=101"))
    assert sorted(int(d.name) for d in fleet.client_devices) == list(range(101))
    pi = find_profile("raspberry-pi-4b")
    for client, device in enumerate(fleet.client_devices):
        number = int(device.name)
        assert pi.effective_speed / device.effective_speed == pytest.approx((number + 1) / 51, rel=1e-12)
        (leg,) = fleet.route(fleet.home(client), f"client-{client}")
        assert leg.bandwidth_bps == pytest.approx((1000 + number) * 1e3)


@pytest.mark.parametrize("models", ["", "real2benchmark.json"])
def test_the_phones_of_flash(small: Small, models: str) -> None:
    path = SHARED / "flash" / "benchmark2score.json"
    if not path.exists():
        pytest.skip("the real scores are not here")
    chosen = f"{{kind: flash-scores, models: '{models}'}}"
    loaded = small(
        f"topology.devices={{mix: {path}, format: {chosen}, median: android-mid}}", "topology.clients=300",
        "data.set.train_samples=10000",
    )  # fmt: skip
    fleet, scores = fleet_of(loaded), json.loads(path.read_text())
    median = find_profile("android-mid")
    factors = np.array([d.effective_speed / median.effective_speed for d in fleet.client_devices])
    assert np.median(factors) == pytest.approx(1, abs=0.15)  # scores around the median differ by a tenth
    named = np.array([scores[d.name] for d in fleet.client_devices])
    assert np.ptp(factors / named) < 1e-9 * factors.max()
    kinds = len({d.name for d in fleet.client_devices})
    assert kinds == 300 if not models else 100 <= kinds <= 113
