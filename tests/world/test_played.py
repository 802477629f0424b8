"""Traces on links: what a run makes of them, and what cannot be played."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import simpy

from devices.compute import training_s
from emulator.errors import InputError
from emulator.learning.memo import Memo
from emulator.ledger import Ledger, Tag
from emulator.rng import stream
from emulator.run import execute
from emulator.scenario import Loaded
from emulator.world.endings import check
from emulator.world.fleet import Fleet
from emulator.world.played import played
from emulator.world.sharing import SharedNetwork
from emulator.world.world import Steps, Workload, World

Small = Callable[..., Loaded]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return path


def test_each_client_plays_the_trace_from_its_own_instant(small: Small, tmp_path: Path) -> None:
    path = written(
        tmp_path, "# end: repeat after 10 s\ntime [s],bandwidth up [Mbit/s],bandwidth down [Mbit/s]\n0,8,20\n4,2,10\n"
    )
    topology = small(
        f"topology.links.access.trace={{file: {path}}}", "topology.links.access.loss=0.5"
    ).scenario.topology
    functions = played(topology, 3).bandwidths
    assert sorted(functions) == sorted(f"client-{c}/{d}" for c in range(8) for d in ("up", "down"))
    for client in range(8):
        up, down = functions[f"client-{client}/up"], functions[f"client-{client}/down"]
        assert up.integrate(0, 10) == pytest.approx(0.5 * (4 * 8e6 + 6 * 2e6))  # half is lost
        assert {(up.at(t), down.at(t)) for t in (0.0, 2.5, 5.0, 7.5)} == {
            (4e6, 10e6),
            (1e6, 5e6),
        }  # both from one instant
    assert len({f.offset_s for f in functions.values()}) == 8
    assert [f.offset_s for f in played(topology, 3).bandwidths.values()] == [f.offset_s for f in functions.values()]
    assert [f.offset_s for f in played(topology, 4).bandwidths.values()] != [f.offset_s for f in functions.values()]


def test_a_slower_trace_makes_a_slower_run_and_trains_the_same(small: Small, tmp_path: Path) -> None:
    path = written(tmp_path, "time [s],bandwidth [kbit/s]\n0,100\n")
    plain = execute(small(), tmp_path / "plain", Memo(None), max_workers=1)
    changes = (f"topology.links.access.trace={{file: {path}, start: together}}", "topology.links.access.latency=20 ms")
    slow = execute(small(*changes), tmp_path / "slow", Memo(None), max_workers=1)
    # Two rounds of two group rounds, each with the model down and up on the access link; the rest is secure aggregation's bytes.
    model = pd.read_parquet(tmp_path / "plain" / "ledger.parquet").query("what == 'model'")["bytes"].max()
    added = slow["final"]["time_s"] - plain["final"]["time_s"]
    models_alone = 2 * 2 * 8 * model * (2 / 100e3 - 1 / 16e6 - 1 / 8e6)
    assert models_alone <= added < 2 * models_alone
    assert slow["final"]["accuracy"] == plain["final"]["accuracy"]
    assert slow["final"]["bytes_total"] == plain["final"]["bytes_total"]


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        (
            "time [s],bandwidth [Mbit/s]\n0,5\n3,0\n",
            ", start: together",
            "the bandwidth up is 0 for ever after its last step",
        ),
        ("# end: repeat after 5 s\ntime [s],bandwidth [Mbit/s]\n0,0\n", "", "the bandwidth up is always 0"),
        (
            "time [s],bandwidth [Mbit/s]\n0,5\n3,1\n",
            "",
            "it does not start over, so it cannot be played from random instants",
        ),
        ("time [s],latency [ms]\n0,5\n", "", "the trace has no bandwidth; it has 'latency'"),
        ("time [s],bandwidth [Mbit/s],latency x [ms]\n0,5,1\n", "", "the trace has no latency 'up'; it has 'x'"),
        ("time [s],bandwidth [Mbit/s]\n0,5\n0,6\n", "", "trace.csv:3: time 0 is there twice"),
        ("time [s],bandwidth [Mbit/s]\n0,5\n2,6\n1,6\n", "", "trace.csv:4: time 1 comes after 2; time goes backwards"),
        ("time [s],bandwidth [Mbit/s]\n0,-5\n", "", "trace.csv:2: bandwidth is -5; it must not be negative"),
        ("time [s],bandwidth [Mbit/s]\n0,nan\n", "", "trace.csv:2: bandwidth is 'nan'; it must be a finite number"),
        ("time [s],bandwidth up [Mbit/s],bandwidth down [kbit/s]\n0,1,1\n", "", "trace.csv:1: units are mixed"),
        (
            "time [s],bandwidth [Mbit/s]\n0,5 kbit/s\n",
            "",
            "trace.csv:2: bandwidth is '5 kbit/s'; write a number without",
        ),
        ("", "", "trace.csv: the file is empty"),
        ("0,5\n5,0\n", "", "trace.csv holds latencies between sites, not series over time"),
    ],
)
def test_what_cannot_be_played_is_said_before_anything_trains(
    small: Small, tmp_path: Path, text: str, more: str, message: str
) -> None:
    loaded = small(f"topology.links.access.trace={{file: {written(tmp_path, text)}{more}}}")
    with pytest.raises(InputError) as caught:
        execute(loaded, tmp_path / "run", Memo(None), max_workers=1)
    assert message in str(caught.value)
    assert "topology.links.access.trace.file: " in str(caught.value)
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError) as seen:
        check(loaded.scenario)
    assert str(loaded.locate(seen.value)) == str(caught.value)


def test_dedicated_links_take_no_trace(small: Small) -> None:
    with pytest.raises(InputError, match=r"topology\.links\.access\.trace: traces need 'topology\.sharing: max-min'"):
        small("topology.links.access.trace={file: lte-like}", "topology.sharing=dedicated")


def test_a_missing_trace_names_the_samples(small: Small) -> None:
    with pytest.raises(InputError, match="there is no such file and no such sample; did you mean 'lte-like'"):
        played(small("topology.links.access.trace={file: lte-liek}").scenario.topology, 0)


def test_latency_of_a_trace_adds_to_that_of_the_link(small: Small, tmp_path: Path) -> None:
    path = written(tmp_path, "time [s],bandwidth [Mbit/s],latency [ms]\n0,8,100\n5,8,300\n")
    topology = small(f"topology.links.access.trace={{file: {path}, start: together}}").scenario.topology
    env, traces = simpy.Environment(), played(topology, 0)
    network = SharedNetwork(env, stream(0, "jitter"), traces.bandwidths, traces.latencies)
    world = World(env, Fleet(topology, 0), network, Workload(0, 1.0, 0), Ledger())
    ended = []

    def twice() -> Steps:
        yield world.send("client-0", "edge-0", 1_000_000, Tag("model"))
        ended.append(world.now)
        yield env.timeout(5.0)
        yield world.send("client-0", "edge-0", 1_000_000, Tag("model"))
        ended.append(world.now)

    env.run(env.process(twice()))
    assert ended == pytest.approx([1 + 0.020 + 0.100, 1.120 + 5 + 1 + 0.020 + 0.300], rel=1e-12)


def test_a_throttled_device_trains_at_the_speed_of_the_moment(small: Small, tmp_path: Path) -> None:
    path = written(tmp_path, "# end: repeat after 4 s\ntime [s],speed [%]\n0,100\n2,50\n")
    topology = small(f"topology.speed={{file: {path}, start: together}}").scenario.topology
    env = simpy.Environment()
    world = World(
        env,
        Fleet(topology, 0),
        SharedNetwork(env, stream(0, "jitter")),
        Workload(0, 1e9, 0),
        Ledger(),
        played(topology, 0).speeds,
    )
    alone_s = training_s(world.fleet.client_devices[0], 1e9, 10, 5)
    env.run(world.train(0, 10, 1, 5, Tag("training", 1)))
    whole, rest = divmod(alone_s, 3.0)  # three seconds of work in every period of four
    assert env.now == pytest.approx(4 * whole + (rest if rest <= 2 else 2 + (rest - 2) / 0.5), rel=1e-12)
    assert env.now > alone_s > 2
    with pytest.raises(InputError, match=r"topology\.speed\.file: .*the trace has no speed; it has 'bandwidth'"):
        played(small("topology.speed={file: lte-like}").scenario.topology, 0)
