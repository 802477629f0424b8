"""The clock against closed forms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import simpy

from devices.compute import training_s
from devices.profile import DeviceProfile, find_profile
from devices.secagg.constants import find_constants
from devices.secagg.cost import protocol_cost
from emulator import ledger
from emulator.contracts.world import GroupOperationChoice, Meeting
from emulator.errors import InputError
from emulator.ledger import Ledger, Tag
from emulator.rng import stream
from emulator.scenario import Loaded, dump, loads
from emulator.world.assignments import assign_devices
from emulator.world.fleet import Fleet
from emulator.world.meetings import operate
from emulator.world.network import DedicatedNetwork
from emulator.world.operations import SecureAggregationParams, secure_aggregation
from emulator.world.sharing import SharedNetwork
from emulator.world.world import Workload, World

TAG = Tag("test", 1)


def make_world(loaded: Loaded) -> World:
    env = simpy.Environment()
    fleet = Fleet(loaded.scenario.topology, loaded.scenario.seed)
    networks = {"dedicated": DedicatedNetwork, "max-min": SharedNetwork}
    network = networks[loaded.scenario.topology.sharing](env, stream(1, "jitter"))
    return World(env, fleet, network, Workload(1000, 1e6, 250), Ledger())


@pytest.mark.parametrize("sharing", ["dedicated", "max-min"])
@pytest.mark.parametrize(
    ("sender", "receiver", "seconds", "hops"),
    [
        ("client-0", "edge-0", 0.020 + 8 * 1e6 / 8e6, [ledger.CLIENT_SERVER]),
        ("edge-0", "client-0", 0.020 + 8 * 1e6 / 16e6, [ledger.SERVER_CLIENT]),
        ("edge-1", "cloud", 0.005 + 8 * 1e6 / 80e6, [ledger.EDGE_CLOUD]),
        ("cloud", "edge-1", 0.005 + 8 * 1e6 / 160e6, [ledger.CLOUD_EDGE]),
        ("client-7", "cloud", 0.025 + 8 * 1e6 / 8e6, [ledger.CLIENT_SERVER, ledger.EDGE_CLOUD]),
        ("cloud", "client-7", 0.025 + 8 * 1e6 / 16e6, [ledger.CLOUD_EDGE, ledger.SERVER_CLIENT]),
        ("client-0", "client-1", 0.040 + 8 * 1e6 / 8e6, [ledger.CLIENT_CLIENT]),
        ("client-0", "client-7", 0.050 + 8 * 1e6 / 8e6, [ledger.CLIENT_CLIENT, ledger.EDGE_CLOUD, ledger.CLOUD_EDGE]),
    ],
)
def test_a_transfer_takes_latency_plus_bits_over_the_narrowest_link(
    small: Callable[..., Loaded], sharing: str, sender: str, receiver: str, seconds: float, hops: list[str]
) -> None:
    world = make_world(small(f"topology.sharing={sharing}"))
    world.env.run(world.send(sender, receiver, 1_000_000, TAG))
    assert world.now == pytest.approx(seconds, rel=1e-12)
    assert [row.hop for row in world.ledger.rows] == hops
    assert {(row.start_s, row.end_s, row.bytes) for row in world.ledger.rows} == {(0.0, world.now, 1_000_000)}


def test_transfer_times_are_not_cut_to_whole_units(small: Callable[..., Loaded]) -> None:
    world = make_world(small())
    world.env.run(world.send("client-0", "edge-0", 1, TAG))
    assert world.now == pytest.approx(0.020 + 8 / 8e6, rel=1e-12)


def test_a_direct_link_between_clients(small: Callable[..., Loaded]) -> None:
    world = make_world(small("topology.links.peer={bandwidth: 100 Mbit/s, latency: 2 ms}"))
    world.env.run(world.send("client-0", "client-7", 1_000_000, TAG))
    assert world.now == pytest.approx(0.002 + 8e6 / 100e6, rel=1e-12)


def test_without_edges_clients_stand_under_the_cloud(small: Callable[..., Loaded]) -> None:
    world = make_world(small("topology.edges=0", "method.aggregator=cloud"))
    world.env.run(world.send("cloud", "client-3", 1_000_000, TAG))
    assert [row.hop for row in world.ledger.rows] == [ledger.SERVER_CLIENT]
    assert world.now == pytest.approx(0.020 + 8e6 / 16e6, rel=1e-12)


def test_training_takes_what_the_device_says(small: Callable[..., Loaded]) -> None:
    world = make_world(small())
    world.env.run(world.train(0, samples=50, epochs=3, batch_size=10, tag=TAG))
    assert world.now == training_s(find_profile("raspberry-pi-4b"), 1e6, 50, 10, 3) > 0
    (row,) = world.ledger.rows
    assert (row.kind, row.who, row.samples, row.end_s) == (ledger.COMPUTE, "client-0", 150, world.now)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_group_operation_is_quadratic_in_the_size_of_the_group(small: Callable[..., Loaded], size: int) -> None:
    world = make_world(small())
    operation = GroupOperationChoice("secure-aggregation", SecureAggregationParams(a="1 s", b="10 ms", c="3 ms"))  # type: ignore[arg-type]
    world.env.run(world.env.process(operate(world, range(size), "edge-0", operation, 1, size, TAG)))
    rows = [r for r in world.ledger.rows if r.kind == ledger.GROUP_OPERATION]
    assert [r.end_s - r.start_s for r in rows] == [pytest.approx(1 + 0.010 * size + 0.003 * size**2)] * size
    up = sum(r.bytes for r in world.ledger.rows if r.hop == ledger.CLIENT_SERVER)
    down = sum(r.bytes for r in world.ledger.rows if r.hop == ledger.SERVER_CLIENT)
    # Bonawitz et al., CCS 2017: a user sends and receives 2n keys and 5n - 4 shares in all; 32 bytes each here.
    assert up + down == size * (2 * size * 32 + (5 * size - 4) * 32)


def test_an_operation_uses_the_curve_of_the_members_own_device() -> None:
    pi = find_profile("raspberry-pi-4b")
    curve = pi.group_operations["secure-aggregation"]
    meeting = Meeting(pi, find_profile("edge-server"), 7, 100_000)
    assert secure_aggregation(meeting, SecureAggregationParams()).seconds == curve.a + 7 * curve.b + 49 * curve.c > 0
    double = pi.group_operations["scaffold-secure-aggregation"]
    twice = secure_aggregation(replace(meeting, vectors=2), SecureAggregationParams()).seconds
    assert twice == double.a + 7 * double.b + 49 * double.c > curve.a + 7 * curve.b + 49 * curve.c


def test_the_protocol_model_counts_the_steps_on_both_devices() -> None:
    pi, server = find_profile("raspberry-pi-4b"), find_profile("edge-server")
    params = SecureAggregationParams(model="protocol", dropout=0.1, threshold=0.55)
    cost = protocol_cost(9, 50_000, 0.1, 0.55, find_constants().constants, 1)
    found = secure_aggregation(Meeting(pi, server, 9, 50_000), params)
    assert found.seconds == pytest.approx(3.7 * cost.client_s + 1.2 * cost.server_s, rel=1e-12)
    assert (found.up_bytes, found.down_bytes) == (cost.overhead_up_bytes, cost.down_bytes)
    unknown = DeviceProfile.model_validate(pi.model_dump() | {"core_slowdown": None})
    with pytest.raises(InputError, match="has no 'core_slowdown'"):
        secure_aggregation(Meeting(unknown, server, 9, 50_000), params)


def test_several_operations_add_up(small: Callable[..., Loaded]) -> None:
    both = small("method.group_operation={kind: sum, of: [secure-aggregation, {kind: backdoor-detection, c: 1 s}]}")
    operation = both.scenario.method.params.group_operation
    meeting = Meeting(find_profile("raspberry-pi-4b"), find_profile("edge-server"), 5, 1000)
    parts = [each(meeting) for each in operation.params.of]
    assert operation(meeting).seconds == sum(p.seconds for p in parts) > 25
    assert operation(meeting).up_bytes == parts[0].up_bytes > 0
    assert loads(dump(both.scenario)).scenario == both.scenario


def test_clients_are_dealt_out_to_edges_in_blocks(small: Callable[..., Loaded]) -> None:
    fleet = Fleet(small("topology.clients=8", "topology.edges=3").scenario.topology, 0)
    assert [b.tolist() for b in fleet.blocks_at("edge")] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [fleet.home(c) for c in (0, 2, 3, 7)] == ["edge-0", "edge-0", "edge-1", "edge-2"]


def test_a_device_mix_is_met_by_largest_remainder() -> None:
    names = assign_devices({"laptop": 0.5, "jetson-nano": 0.3, "android-mid": 0.2}, 11, seed=1)
    assert sorted((n, names.count(n)) for n in set(names)) == [("android-mid", 2), ("jetson-nano", 3), ("laptop", 6)]
    assert names != assign_devices({"laptop": 0.5, "jetson-nano": 0.3, "android-mid": 0.2}, 11, seed=2)
    assert assign_devices({"laptop": 0.1, "jetson-nano": 0.9}, 10, 0).count("laptop") == 1


@pytest.mark.parametrize("sharing", ["dedicated", "max-min"])
def test_loss_takes_bandwidth_and_overhead_takes_time(small: Callable[..., Loaded], sharing: str) -> None:
    access = "{up: 8 Mbit/s, down: 16 Mbit/s, latency: 20 ms, overhead: 100 ms, loss: 0.2}"
    world = make_world(small(f"topology.sharing={sharing}", f"topology.links.access={access}"))
    world.env.run(world.send("client-0", "edge-0", 1_000_000, TAG))
    assert world.now == pytest.approx(0.020 + 0.100 + 8e6 / (0.8 * 8e6), rel=1e-12)


@pytest.mark.parametrize("sharing", ["dedicated", "max-min"])
@pytest.mark.parametrize(("kind", "mean_s"), [("exponential", 0.2), ("uniform", 0.1), ("normal", 0.0)])
def test_jitter_is_drawn_for_every_transfer(
    small: Callable[..., Loaded], sharing: str, kind: str, mean_s: float
) -> None:
    access = f"{{up: 8 Mbit/s, down: 16 Mbit/s, latency: 2 s, jitter: {{kind: {kind}, scale: 200 ms}}}}"
    world = make_world(small(f"topology.sharing={sharing}", f"topology.links.access={access}"))
    times = []
    for _ in range(2000):
        start = world.now
        world.env.run(world.send("client-0", "edge-0", 0, TAG))
        times.append(world.now - start - 2.0)
    assert sum(times) / len(times) == pytest.approx(mean_s, abs=4 * 0.2 / 2000**0.5)
    assert len(set(times)) > 1900
    assert min(times) >= (-2.0 if kind == "normal" else -1e-9)
