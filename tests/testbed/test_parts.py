"""Parts of the testbed by themselves: links in user space, leftovers, CPU groups, the plan of ways."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from testbeds import scenario

from emulator.assembly import assemble
from emulator.errors import HflError
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.timing import TimingLab
from emulator.testbed import groups, leftovers
from emulator.testbed.orders import Hop
from emulator.testbed.pacing import Lanes
from emulator.testbed.plan import plan_of


def test_a_way_in_user_space_takes_its_delays_and_the_bits_over_its_narrowest_link() -> None:
    data, took = bytes(range(256)) * 100, []
    rates = {"up": 8e5, "cell": 4e5, "backhaul": 8e6}  # 25,600 bytes: 0.512 s over the cell
    ends = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [end.getsockname()[1] for end in ends]
    hops = (Hop(ports[0], ("up",), ("cell",), 0.05), Hop(ports[1], ("backhaul",), (), 0.1))
    came = bytearray()

    def serve(end: socket.socket) -> None:
        with end, end.accept()[0] as connection:
            receiving = Lanes(rates).receive(connection, lambda _: None)
            if receiving.pass_on():
                return
            while chunk := receiving.chunk():
                came.extend(chunk)
            took.append(time.monotonic())

    threads = [threading.Thread(target=serve, args=(end,), daemon=True) for end in ends]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    sending = Lanes(rates).sending(hops, lambda _: None)
    sending.send(data)
    sending.close()
    for thread in threads:
        thread.join(30)
    assert bytes(came) == data
    least = 0.15 + 8 * len(data) / 4e5 - 0.01
    assert least <= took[0] - began  # a busy host makes it longer, never shorter


def test_ways_and_who_holds_which_link(tmp_path: Path) -> None:
    shared = {"up": "20 Mbit/s", "down": "20 Mbit/s"}
    loaded = scenario(tmp_path, topology__links__cell=shared, topology__links__cloud=shared)
    memo = Memo(None)
    session = assemble(loaded.scenario, TimingLab(loaded.scenario, RunMemory(memo, {})))
    fleet = session.world.fleet
    up, down = fleet.route("client-0", "cloud"), fleet.route("cloud", "client-0")
    chain = fleet.route("client-0", "client-3")
    plan = plan_of(loaded.scenario, fleet)
    assert plan.ends(up) == ("client-0", "cloud")
    assert plan.ends(chain) == ("client-0", "client-3")
    ports = {name: number for number, name in enumerate(plan.nodes)}
    hops = plan.hops(up, ports)
    assert [hop.port for hop in hops] == [ports["edge-0"], ports["cloud"]]
    assert hops[0].held_by_receiver == ("edge-0/cell-up",)
    assert hops[1] == Hop(ports["cloud"], ("edge-0/up",), ("cloud/in",), 0.002)
    hops = plan.hops(down, ports)
    assert hops[0].held_by_sender == ("cloud/out", "edge-0/down")
    assert hops[1].held_by_sender == ("edge-0/cell-down", "client-0/down")
    assert [hop.port for hop in plan.hops(chain, ports)] == [
        ports[n] for n in ("edge-0", "cloud", "edge-1", "client-3")
    ]
    assert plan.names(up)[0] == "out of client-0"


def test_what_a_killed_run_has_left_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
    child, other = subprocess.Popen(sleeping), subprocess.Popen(sleeping)
    try:
        record = leftovers.Record()
        record.add(child.pid)
        record.made.processes[other.pid] = "another start"  # its id was given to another process meanwhile
        record.write()
        assert leftovers.clean() == []  # we are alive
        record.made.since = "long ago"
        record.write()
        assert leftovers.clean() == [f"process {child.pid}"]
        assert child.wait(10) == -9
        assert other.poll() is None
        assert leftovers.clean() == []
        assert not list(leftovers.home().iterdir())
    finally:
        child.kill()
        other.kill()
        child.wait()
        other.wait()


@pytest.mark.skipif(groups.find_root() is None, reason="needs a folder of control groups that can be written")
def test_cpu_groups_hold_a_share_and_are_removed() -> None:
    root = groups.find_root()
    assert root is not None
    before = sorted(root.iterdir())
    made = groups.Groups(root, f"test-{os.getpid()}")
    made.make({"half": 0.5, "little": 0.004})
    try:
        with pytest.raises(HflError, match="is there already, and not ours"):
            groups.Groups(root, f"test-{os.getpid()}").make({"half": 0.5})
        if (made.folder / "half" / "cpu.cfs_quota_us").exists():
            quota, period = (int((made.folder / "little" / f"cpu.cfs_{n}_us").read_text()) for n in ("quota", "period"))
            assert quota >= groups.LEAST_US
            assert quota / period == pytest.approx(0.004, rel=0.01)
    finally:
        groups.remove(made.folder)
    assert sorted(root.iterdir()) == before
    groups.remove(Path("/sys/fs/cgroup"))  # no folder of ours: nothing happens
