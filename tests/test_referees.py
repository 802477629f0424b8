"""The referees of ``benchmarks/referees``: the kernel's TCP between namespaces, and SimGrid, each where the machine has it."""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

FOLDER = Path(__file__).parent.parent / "benchmarks" / "referees"
KERNEL, SIMGRID = FOLDER / "kernel.py", FOLDER / "simgrid_flows.py"
DEBIAN = "/usr/bin/python3"  # whose packages have SimGrid's module
HEADERS = 66  # bytes around the payload of a frame
Json = dict[str, Any]


@pytest.fixture(autouse=True)
def _neighbours_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)  # which our command sets, also in a test before


def link(rate_bps: float, delay_s: float = 0.0) -> Json:
    return {"rate_bps": rate_bps, "delay_s": delay_s, "queue_packets": 100}


def case(size: int = 100_000, rate_bps: float = 1e7, **rest: Any) -> Json:
    links = {"access": link(1e9), "bottleneck": link(rate_bps, 0.005)}
    return {"links": links, "flows": [{"route": list(links), "bytes": size, "start_s": 0.0}], **rest}


def call(
    told: Json | str, *before: str, script: Path = KERNEL, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    words = before or (sys.executable, str(script))
    text = told if isinstance(told, str) else json.dumps(told)
    return subprocess.run(words, input=text, capture_output=True, text=True, timeout=PATIENCE_S, env=environment)


def answer(done: subprocess.CompletedProcess[str]) -> Json:
    assert done.returncode == 0, done.stderr
    told: Json = json.loads(done.stdout)
    assert set(told) == {"referee", "repeats", "notes"}
    return told


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


@functools.cache
def missing() -> str:
    """What this machine lacks for the kernel's referee; empty where it has everything."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "needs Linux and root"
    lacks = [name for name in ("ip", "tc", "unshare") if shutil.which(name) is None]
    if lacks or not Path("/dev/net/tun").exists():
        return f"needs {', '.join(lacks) or '/dev/net/tun'}"
    alone = [
        "unshare",
        "--net",
        "sh",
        "-c",
        "ip link set lo up && tc qdisc add dev lo root tbf rate 1mbit burst 2k limit 9k",
    ]
    tried = subprocess.run(alone, capture_output=True, text=True)
    return f"no namespaces with token buckets: {tried.stderr.strip()}" if tried.returncode else ""


@pytest.fixture
def able() -> None:
    if missing():
        pytest.skip(missing())


def machine_state() -> tuple[str, str]:
    """Named namespaces and devices of this machine's own network."""
    commands = (["ip", "netns", "list"], ["ip", "-brief", "link"])
    names, devices = (subprocess.run(c, capture_output=True, text=True, check=True).stdout for c in commands)
    return names, devices


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize("handshake", [True, False])
def test_a_flow_takes_its_handshake_its_frames_and_its_delay_and_leaves_nothing(handshake: bool) -> None:
    before = machine_state()
    told = answer(call(case(repeats=2, handshake=handshake, start_spread_s=0.0)))
    # Ten frames take longer than a round trip, so that the link is never idle.
    frames = -(-100_000 // 1448)
    alone_s = (100_000 + HEADERS * frames) * 8 / 1e7 + 0.005 + 0.010 * handshake
    assert all(alone_s - 0.0015 < seconds < 3 * alone_s for [seconds] in told["repeats"])
    assert any("dropped by its queue" in note for note in told["notes"])
    assert machine_state() == before


@pytest.mark.usefixtures("able")
def test_equal_flows_share_a_bottleneck_and_none_is_ahead_of_its_frames() -> None:
    links = {"shared": link(2e7, 0.002), "own0": link(1e9), "own1": link(1e9, 0.001)}
    flows = [
        {"route": [own, "shared"], "bytes": 150_000, "start_s": 0.02 * i} for i, own in enumerate(("own0", "own1"))
    ]
    [times] = answer(call({"links": links, "flows": flows}))["repeats"]
    all_frames_s = 2 * 150_000 * 8 / 2e7
    assert max(times[0], times[1] + 0.02) > all_frames_s
    assert all(150_000 * 8 / 2e7 < seconds < 10 * all_frames_s for seconds in times)


def relay_of(process: int) -> int | None:
    """The process that carries packets for a referee, once there is one."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
            if parent == process and b"relay.py" in (stat.parent / "cmdline").read_bytes():
                return int(stat.parent.name)
        except OSError:
            continue
    return None


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_referee_that_is_ended_in_the_middle_leaves_nothing(number: signal.Signals) -> None:
    before, deadline = machine_state(), time.monotonic() + PATIENCE_S
    pipes: Json = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, str(KERNEL)], text=True, **pipes) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(case(10_000_000, 1e6)))
        process.stdin.close()
        while (relay := relay_of(process.pid)) is None:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == (-number if number == signal.SIGKILL else 128 + number)
        assert process.stderr is not None
        assert process.stderr.read() == ""
    while Path(f"/proc/{relay}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert machine_state() == before


@pytest.mark.usefixtures("able")
def test_a_flow_that_takes_longer_than_its_limit_is_refused() -> None:
    assert refusal(call(case(1_000_000, 1e6, limit_s=0.2))) == "a flow has not ended within limit_s"


@pytest.mark.parametrize("script", [KERNEL, SIMGRID])
@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("nonsense", "no case in JSON"),
        ({"links": {}}, "no 'flows'"),
        (case(rate_bps=-1.0), "link 'bottleneck': rate_bps must be a number of at least 1000, not -1.0"),
        (case(400_000_000, repeats=3), "1,200,000,000 bytes in all repeats are more than the 1,000,000,000"),
        (case() | {"flows": [{"route": ["gone"], "bytes": 1}]}, "flow 0: there is no link 'gone'"),
        (case() | {"flows": [{"route": ["access", "access"], "bytes": 1}]}, "flow 0: route must name"),
        (case(congestion="vegas"), 'congestion must be one of "cubic", "reno", not \'vegas\''),
    ],
)
def test_what_is_no_case_is_refused_with_its_reason(told: Json | str, why: str, script: Path) -> None:
    assert why in refusal(call(told, script=script))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_refusals_say_what_the_machine_lacks(tmp_path: Path) -> None:
    def changed(change: str) -> str:
        ours = "from emulator.testbed import namespaces"
        start = f"import os, runpy, sys; sys.path.insert(0, {str(FOLDER)!r}); {ours}; import pathlib; {change};"
        return refusal(
            call(case(), sys.executable, "-c", f"{start} runpy.run_path({str(KERNEL)!r}, run_name='__main__')")
        )

    assert "needs root" in changed("os.geteuid = lambda: 1000")
    assert "needs ip of iproute2" in changed("os.geteuid = lambda: 0; os.environ['PATH'] = ''")
    if not missing():
        (tmp_path / "tun").touch()
        assert "no TUN device" in changed(f"namespaces.TUN = pathlib.Path({str(tmp_path / 'tun')!r})")
        crossing = case() | {
            "flows": [{"route": r, "bytes": 1} for r in (["access", "bottleneck"], ["bottleneck", "access"])]
        }
        assert "comes to a node twice" in refusal(call(crossing))


def has_simgrid() -> bool:
    return (
        Path(DEBIAN).exists() and not subprocess.run([DEBIAN, "-c", "import simgrid"], capture_output=True).returncode
    )


def staggered_s(rate_bytes: float, sizes: tuple[int, int], begins_s: tuple[float, float]) -> tuple[float, float]:
    """When two flows end that share a link fairly; the first one begins first."""
    alone_s = begins_s[1] - begins_s[0]
    left = sizes[0] - rate_bytes * alone_s
    if left <= 0:
        return begins_s[0] + sizes[0] / rate_bytes, begins_s[1] + sizes[1] / rate_bytes
    both_s, rest_s = 2 * min(left, sizes[1]) / rate_bytes, abs(left - sizes[1]) / rate_bytes
    ends = begins_s[1] + both_s, begins_s[1] + both_s + rest_s
    return ends if left < sizes[1] else (ends[1], ends[0])


@pytest.mark.skipif(not has_simgrid(), reason="needs SimGrid's module for Python")
def test_the_fluid_model_of_simgrid_is_max_min_fair_in_closed_form() -> None:
    draw = random.Random(1)
    links: Json = {}
    flows: list[Json] = []
    expected: list[float] = []
    for i in range(20):
        rate, delays = draw.uniform(1e6, 1e8), (draw.uniform(0, 0.1), draw.uniform(0, 0.1))
        sizes = draw.randrange(10_000, 10_000_000), draw.randrange(10_000, 10_000_000)
        starts = 0.0, draw.uniform(0.0, 2.0)
        links |= {f"own{i}.{j}": link(1e9, delays[j]) for j in (0, 1)} | {f"shared{i}": link(rate)}
        flows += [{"route": [f"own{i}.{j}", f"shared{i}"], "bytes": sizes[j], "start_s": starts[j]} for j in (0, 1)]
        ends = staggered_s(rate / 8, sizes, starts)
        expected += [ends[0] - starts[0] + delays[0], ends[1] - starts[1] + delays[1]]
    told = answer(call({"links": links, "flows": flows, "repeats": 2}, DEBIAN, str(SIMGRID)))
    assert told["referee"].startswith("SimGrid 3")
    for times in told["repeats"]:
        assert times == pytest.approx(expected, rel=1e-9)


@pytest.mark.skipif(not has_simgrid(), reason="needs SimGrid's module for Python")
def test_the_tcp_model_of_simgrid_prefers_short_round_trips_and_starts_are_drawn_from_the_seed() -> None:
    links = {"far": link(1e9, 0.05), "near": link(1e9, 0.001), "shared": link(1e7, 0.005)}
    flows = [{"route": [own, "shared"], "bytes": 1_000_000} for own in ("far", "near")]
    told = {"links": links, "flows": flows, "model": "tcp", "repeats": 2, "start_spread_s": 0.1, "seed": 7}
    repeats = answer(call(told, DEBIAN, str(SIMGRID)))["repeats"]
    assert all(far > near for far, near in repeats)
    assert repeats[0] != repeats[1]
    assert repeats == answer(call(told, DEBIAN, str(SIMGRID)))["repeats"]
    assert repeats != answer(call(told | {"seed": 8}, DEBIAN, str(SIMGRID)))["repeats"]


def test_simgrid_that_is_missing_is_named() -> None:
    done = call(case(), sys.executable, "-S", str(SIMGRID))  # without site-packages
    assert "needs SimGrid's Python module" in refusal(done)
