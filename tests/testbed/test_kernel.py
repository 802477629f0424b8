"""Runs of the testbed whose links and devices the kernel shapes, as root on Linux alone. What was made is gone afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import PATIENCE_S
from testbeds import emulated, measured, same, scenario

from emulator.testbed.groups import PREFIX, ROOTS
from emulator.testbed.leftovers import abandoned
from emulator.testbed.links import why_not_kernel
from emulator.testbed.run import How

pytestmark = pytest.mark.skipif(bool(why_not_kernel()), reason=why_not_kernel() or "nothing is missing")


def listing() -> dict[str, object]:
    """Devices, named namespaces, CPU groups of ours and /dev/net/tun: what a run could leave behind."""
    groups = [str(path) for root in ROOTS if root.is_dir() for path in root.glob(f"{PREFIX}*")]
    return {
        "links": subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout,
        "namespaces": subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout,
        "groups": sorted(groups),
        "tun": Path("/dev/net/tun").exists(),
    }


def namespaces_of(pids: list[int]) -> set[str]:
    """The network namespaces in which threads of processes are, as far as these are still there."""
    found = set()
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/ns/net"):
            try:
                found.add(str(path.readlink()))
            except OSError:
                continue
    return found


def test_the_kernel_shapes_links_and_devices_and_all_is_gone_afterwards(tmp_path: Path) -> None:
    before = listing()
    loaded = scenario(tmp_path)
    run = measured(loaded, tmp_path / "run", How(kernel=True))
    models, metrics = emulated(loaded)
    assert same(run["models"], models)
    assert run["final"]["bytes_total"] == metrics.bytes_total.iloc[-1]
    told = run["testbed"]
    assert told["links"] == "kernel"
    assert 0 < told["shares_of_a_core"]["client-0"] < 1
    # On the wire are a few headers more than models: frames, handshakes, acknowledgements.
    wire = sum(count for name, count in told["bytes_on_the_wire"].items() if name.endswith("/up"))
    booked = metrics[["bytes_client_server", "bytes_edge_cloud"]].iloc[-1].sum()
    assert booked < wire < 2 * booked  # of models of 3 kB
    assert listing() == before


def begun(folder: Path) -> subprocess.Popen[str]:
    """A run of a minute by the command, once its first round is over."""
    scenario(folder)
    words = [sys.executable, "-m", "emulator", "testbed", str(folder / "scenario.yaml"), "--out", str(folder / "run")]
    words += ["--set", "stop.rounds=200", "--set", f"topology.devices={folder / 'device.yaml'}"]
    environment = os.environ | {"TMPDIR": str(folder)}
    run = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment)
    assert run.stderr is not None
    for line in run.stderr:
        if "round 1" in line:
            break
    return run


def made(folder: Path) -> dict[str, object]:
    """What the file of a run says that it has made."""
    (path,) = folder.glob("hfl-testbed-*/hfl-testbed-*.json")
    told: dict[str, object] = json.loads(path.read_text())
    return told


def gone(told: dict[str, object]) -> None:
    """Waits until the processes of a run are gone."""
    until = time.monotonic() + PATIENCE_S
    pids = [int(pid) for pid in told["processes"]]  # type: ignore[attr-defined]
    while namespaces_of(pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not namespaces_of(pids)


@pytest.mark.slow
def test_what_is_interrupted_is_taken_down(tmp_path: Path) -> None:
    before = listing()
    run = begun(tmp_path)
    told = made(tmp_path)
    assert listing()["groups"] != before["groups"]
    run.send_signal(signal.SIGINT)
    assert run.wait(PATIENCE_S) == 130
    assert run.stderr is not None
    run.stderr.close()
    gone(told)
    assert listing() == before
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"


def test_what_a_killed_driver_leaves_the_next_command_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = listing()
    run = begun(tmp_path)
    told = made(tmp_path)
    run.kill()
    run.wait(PATIENCE_S)
    assert run.stderr is not None
    run.stderr.close()
    gone(told)  # the kernel sees to that
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert len(list(abandoned())) == 1
    words = [sys.executable, "-m", "emulator", "testbed", "--clean"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    said = subprocess.run(words, capture_output=True, text=True, check=True, env=environment, timeout=PATIENCE_S)
    assert str(told["group"]) in said.stdout
    assert listing() == before
    assert not list(abandoned())


@pytest.mark.slow
def test_a_node_that_somebody_kills_ends_the_run_with_its_name(tmp_path: Path) -> None:
    before = listing()
    run = begun(tmp_path)
    told = made(tmp_path)
    os.kill(int(list(told["processes"])[-1]), signal.SIGKILL)  # type: ignore[call-overload]
    _, said = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 1
    assert "the process of client-3 ended" in said
    assert "Traceback" not in said
    assert listing() == before
