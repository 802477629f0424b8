from __future__ import annotations

import re
from pathlib import Path

import pytest

from devices import backdoor_detection, secure_aggregation
from devices.profile import Curve, DeviceProfile, Efficiency, Power, Swap, Throttling, find_profile, profile_names
from emulator.errors import InputError, ScenarioError

BUNDLED = [
    "android-high", "android-mid", "cloud-server", "edge-server",
    "jetson-nano", "laptop", "raspberry-pi-3b-plus", "raspberry-pi-4b",
    "raspberry-pi-4b-hot",
]  # fmt: skip

OWN = """\
title: My board
source: measured on my desk
effective_speed: 2 GFLOP/s
batch_overhead: 10 ms
power: {idle: 1 W, compute: 5 W, send: 2 W, receive: 1500 mW}
group_operations:
  secure-aggregation: {a: 1 s, b: 20 ms, c: 3 ms}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a profile to my-board.yaml in the current folder and reads it."""
    monkeypatch.chdir(tmp_path)

    def read(text: str) -> DeviceProfile:
        Path("my-board.yaml").write_text(text, encoding="utf-8")
        find_profile.cache_clear()
        return find_profile("my-board.yaml")

    yield read
    find_profile.cache_clear()


def test_the_bundled_profiles() -> None:
    assert profile_names() == BUNDLED


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_profile_is_complete(name: str) -> None:
    profile = find_profile(name)
    assert profile.name == name
    assert profile.title
    assert "Speed: " in profile.source
    assert "Power: " in profile.source
    assert profile.memory is not None
    assert profile.batch_overhead > 0
    assert set(profile.group_operations) == {
        "secure-aggregation",
        "scaffold-secure-aggregation",
        "backdoor-detection",
    }


@pytest.mark.parametrize("name", BUNDLED)
def test_the_curves_are_what_the_functions_give(name: str) -> None:
    profile = find_profile(name)
    slowdown = float(re.search(r"slowdown ([\d.]+) ", profile.source).group(1))
    model, dropout = secure_aggregation.REFERENCE_PARAMETERS, secure_aggregation.REFERENCE_DROPOUT
    expected = {
        "secure-aggregation": secure_aggregation.curve(model, dropout, slowdown),
        "scaffold-secure-aggregation": secure_aggregation.curve(model, dropout, slowdown, vectors=2),
        "backdoor-detection": backdoor_detection.curve(model, profile.effective_speed, slowdown),
    }
    for operation, curve in expected.items():
        given = profile.group_operations[operation]
        for size in (model, 2 * model):  # at its own size and at another
            found, wanted = given.of(size), curve.of(size)
            assert (found.a, found.b, found.c) == pytest.approx((wanted.a, wanted.b, wanted.c), rel=6e-4), operation


def test_slower_devices_are_slower() -> None:
    order = [
        "raspberry-pi-3b-plus", "raspberry-pi-4b", "android-mid", "android-high",
        "jetson-nano", "laptop", "edge-server", "cloud-server",
    ]  # fmt: skip
    speeds = [find_profile(n).effective_speed for n in order]
    assert speeds == sorted(speeds)
    assert len(set(speeds)) == len(order)


def test_a_profile_is_read_once_and_cannot_be_changed() -> None:
    profile = find_profile("laptop")
    assert find_profile("laptop") is profile
    with pytest.raises(ValueError, match="frozen"):
        profile.effective_speed = 1.0


def test_a_users_own_profile(own) -> None:
    profile = own(OWN)
    assert profile.name == "my-board"
    assert profile.effective_speed == 2e9
    assert profile.batch_overhead == pytest.approx(0.01)
    assert profile.power == Power(idle="1 W", compute="5 W", send="2 W", receive="1.5 W")
    assert profile.memory is None
    assert profile.group_operations["secure-aggregation"].seconds(10) == pytest.approx(1 + 0.2 + 0.3)


def test_a_curve_is_quadratic() -> None:
    curve = Curve(a="2 s", b="30 ms", c="4 ms")
    assert [curve.seconds(n) for n in (1, 10, 50)] == pytest.approx([2.034, 2.7, 13.5])
    with pytest.raises(ValueError, match="a group of 0 members"):
        curve.seconds(0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raspbery-pi-4b", "unknown device 'raspbery-pi-4b'; did you mean 'raspberry-pi-4b'?"),
        (
            "../../etc/passwd",
            "unknown device '../../etc/passwd'; known: " + ", ".join(f"'{n}'" for n in BUNDLED),
        ),
        ("nowhere.yaml", "nowhere.yaml: there is no such file"),
    ],
)
def test_unknown_devices(name: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        find_profile(name)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "batch_overhead",
            "batch_overheat",
            "4:1: batch_overheat: unknown key; did you mean 'batch_overhead'?",
        ),
        ("source: measured on my desk\n", "", "1:1: source: is required"),
        ("measured on my desk", "'  '", "2:9: source: must not be empty"),
        ("measured on my desk", "2024", "2:9: source: expected text, not 2024"),
        (" 2 GFLOP/s", " 2", "3:18: effective_speed: 2 has no unit; write for example '9.6 GFLOP/s'"),
        (
            "2 GFLOP",
            "0 FLOP",
            "3:18: effective_speed: 0 FLOP/s: a compute speed here must be greater than zero",
        ),
        ("10 ms", "10", "4:17: batch_overhead: 10 has no unit; write for example '15 ms'"),
        ("idle: 1 W", "idle: -1 W", "5:15: power.idle: -1 W: a power here must not be negative"),
        ("idle: 1 W", "idel: 1 W", "5:9: power.idel: unknown key; did you mean 'idle'?"),
        (
            "2 W",
            "0.5 W",
            "5:8: power: 'send' (0.5 W) is below 'idle' (1 W); give what the whole device draws",
        ),
        (", c: 3 ms", "", "7:3: group_operations.secure-aggregation.c: is required"),
        (
            "c: 3 ms",
            "d: 3 ms",
            "7:42: group_operations.secure-aggregation.d: unknown key; allowed: 'a', 'b', 'c', 'parameters', 'proportional'",
        ),
        (
            "{a: 1 s, b: 20 ms, c: 3 ms}",
            "1 s",
            "7:23: group_operations.secure-aggregation: expected a mapping, not '1 s'",
        ),
        ("title: My", "title: [", "2:7: is not valid YAML: expected ',' or ']', but got ':'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(own, old: str, new: str, message: str) -> None:
    text = OWN.replace(old, new)
    assert text != OWN
    with pytest.raises(ScenarioError) as caught:
        own(text)
    assert f"my-board.yaml:{message}" in str(caught.value).split("\n")


KEYS = (
    "'title', 'source', 'effective_speed', 'batch_overhead', 'core_slowdown', 'power', 'group_operations', 'memory', 'reserve', "
    "'out_of_memory', 'efficiency', 'measured', 'throttling', 'spread'"
)
SORTED = ", ".join(sorted(KEYS.split(", ")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"my-board.yaml: is empty; a device profile has the keys {KEYS}"),
        ("[1, 2]", f"my-board.yaml:1:1: is not a mapping; a device profile has the keys {KEYS}"),
        ("name: other\n" + OWN, f"my-board.yaml:1:1: name: unknown key; allowed: {SORTED}"),
    ],
)
def test_what_is_no_profile(own, text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        own(text)
    assert str(caught.value) == message


def test_all_problems_at_once_in_the_order_of_the_file(own) -> None:
    with pytest.raises(ScenarioError) as caught:
        own(OWN.replace("10 ms", "10").replace("2 GFLOP/s", "fast").replace("idle: 1 W", "idle: -1 W"))
    assert [(p.line, p.key) for p in caught.value.problems] == [
        (3, "effective_speed"),
        (4, "batch_overhead"),
        (5, "power.idle"),
    ]


ONE = "{model: lenet5, forward_flops: 8e5, parameters: 44426, batch_size: 8, seconds: 2 ms, source: here}"


def test_further_figures_of_a_users_own_profile(own) -> None:
    more = "efficiency: {depthwise: 0.2}\nthrottling: {after: 10 min, speed: 0.5, recovers: 5 min}\n"
    profile = own(f"{OWN}{more}memory: 1 GiB\nreserve: 300 MiB\nout_of_memory: {{swap: 10}}\nmeasured: [{ONE}]\n")
    assert (profile.efficiency.depthwise, profile.efficiency.recurrent) == (0.2, 1)
    assert profile.throttling == Throttling(after="10 min", speed=0.5, recovers="5 min")
    assert (profile.reserve, profile.out_of_memory) == (300 * 2**20, Swap(swap=10))
    assert [(m.model, m.batch_size, m.seconds) for m in profile.measured] == [("lenet5", 8, 2e-3)]
    plain = own(OWN)
    assert (plain.reserve, plain.out_of_memory, plain.measured) == (640 * 2**20, "refuse", ())
    assert (plain.efficiency, plain.throttling) == (Efficiency(), None)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("efficiency: {depthwise: 0}", "8:25: efficiency.depthwise: must be greater than 0 (it is 0)"),
        ("efficiency: {deptwise: 0.2}", "8:14: efficiency.deptwise: unknown key; did you mean 'depthwise'?"),
        ("out_of_memory: stop", "8:16: out_of_memory: expected 'refuse' or a mapping such as {swap: 10}"),
        ("out_of_memory: {swap: 0.5}", "8:23: out_of_memory.swap: must be at least 1 (it is 0.5)"),
        (
            "throttling: {after: 1 min, speed: 2, recovers: 1 min}",
            "8:35: throttling.speed: must be at most 1 (it is 2)",
        ),
        ("throttling: {after: 1 min, speed: 0.5}", "8:1: throttling.recovers: is required"),
        (f"measured: [{ONE}, {ONE}]", "8:11: measured: 'lenet5' at batch size 8 is there twice"),
        (f"measured: [{ONE.replace('8e5', '0')}]", "8:43: measured[0].forward_flops: must be greater than 0 (it is 0)"),
    ],
)
def test_mistakes_in_further_figures(own, line: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        own(f"{OWN}{line}\n")
    assert str(caught.value) == f"my-board.yaml:{message}"
