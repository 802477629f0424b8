"""The parts of which a run of a Flower app is made, each by itself."""

from __future__ import annotations

import concurrent.futures
import importlib.metadata
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy

pytest.importorskip("flwr", reason="Flower is not installed: ./dev test-flower")

from flower_apps import APPS, WORLD, setting
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.app.metadata import Metadata
from flwr.common.serde import message_from_proto, message_to_proto
from hypothesis import given
from hypothesis import strategies as st

from devices.profile import find_profile
from emulator.errors import HflError, InputError, ScenarioError
from emulator.flower import support
from emulator.flower.app import find_app
from emulator.flower.codec import body_of, records_from_bytes, records_to_bytes, reply_to, size_bytes
from emulator.flower.hours import EPOCH_S, emulated
from emulator.flower.pricing import Price, Work
from emulator.flower.replies import Replies, Reply
from emulator.flower.turns import Turns

NUMBERS = st.one_of(st.integers(-(2**62), 2**62), st.floats(allow_nan=False))


def message(content: RecordDict | None, error: Error | None = None, group: str = "") -> Message:
    metadata = Metadata(1, "a" * 64, 1, 2**62 + 7, "", group, 1e9, 100.0, "train")
    return (
        Message(content=content, error=error, metadata=metadata)
        if error is None
        else Message(error=error, metadata=metadata)
    )


@given(st.dictionaries(st.text(max_size=9), NUMBERS, max_size=4), st.integers(0, 40_000), st.text(max_size=200))
def test_a_message_takes_the_bytes_of_its_serialised_form(metrics: dict[str, Any], size: int, group: str) -> None:
    arrays = ArrayRecord({"x": Array(np.zeros(size, np.uint8))})
    made = message(RecordDict({"m": MetricRecord(metrics), "a": arrays, "c": ConfigRecord({"k": group})}), group=group)
    assert size_bytes(made, body_of(made)) == len(message_to_proto(made).SerializeToString())
    empty = message(RecordDict())
    assert size_bytes(empty, body_of(empty)) == len(message_to_proto(empty).SerializeToString())


@given(st.integers(0, 8), st.text(min_size=1, max_size=300))
def test_so_does_an_error(code: int, reason: str) -> None:
    made = message(None, Error(code=code, reason=reason))
    assert size_bytes(made, body_of(made)) == len(message_to_proto(made).SerializeToString())
    asked = message(RecordDict())
    back = reply_to(asked, body_of(made), "b" * 64, 1e9 + 5)
    assert back.error.reason == reason
    assert back.metadata.ttl == 95.0
    assert back.metadata.reply_to_message_id == asked.metadata.message_id


def test_records_come_back_as_they_were() -> None:
    records = RecordDict({"a": ArrayRecord({"x": Array(np.arange(5.0))}), "m": MetricRecord({"n": 3, "l": [1.5, 2.5]})})
    back = records_from_bytes(records_to_bytes(records))
    assert back["m"] == records["m"]
    np.testing.assert_array_equal(back["a"]["x"].numpy(), np.arange(5.0))
    assert message_from_proto(message_to_proto(message(records))).content["m"] == records["m"]


# Turns and hours.


def played(work: Any) -> tuple[float, list[Any]]:
    """What a thread of an app does, and the emulated time at which it ends."""
    env, seen = simpy.Environment(), list[Any]()
    turns = Turns(env, 20)

    def main() -> Any:
        seat = turns.start(lambda: (work(seen), turns.finish()), "server", "cloud")
        yield turns.ends
        if seat.error is not None:
            raise seat.error

    with emulated():
        try:
            env.run(env.process(main()))
        finally:
            turns.close()
    if turns.failed is not None:
        raise turns.failed
    return float(env.now), seen


def test_time_stands_while_the_app_computes_and_goes_on_while_it_sleeps() -> None:
    def work(seen: list[Any]) -> None:
        first = time.time()
        sum(range(100_000))
        seen.append(time.time() - first)
        time.sleep(3600)
        seen.append(time.time() - first)
        seen.append((time.monotonic(), time.perf_counter(), time.time_ns()))

    began = time.perf_counter()
    now, seen = played(work)
    assert now == 3600
    assert seen == [0, 3600, (3600, 3600, round((EPOCH_S + 3600) * 1e9))]
    assert time.perf_counter() - began < 60
    assert time.time() > EPOCH_S + 10**7  # the host's again


def test_threads_of_a_pool_take_turns_in_the_order_in_which_they_were_asked() -> None:
    def one(seen: list[Any], n: int) -> int:
        seen.append(("begins", n))
        time.sleep(10 - n)
        seen.append(("ends", n, time.monotonic()))
        return n

    def work(seen: list[Any]) -> None:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = {pool.submit(one, seen, n) for n in range(3)}
            done, _ = concurrent.futures.wait(asked)
            seen.append([future.result() for future in done])
            last = pool.submit(one, seen, 4)
            seen.append(last.result())

    now, seen = played(work)
    assert seen[:3] == [("begins", 0), ("begins", 1), ("begins", 2)]
    assert seen[3:7] == [("ends", 2, 8.0), ("ends", 1, 9.0), ("ends", 0, 10.0), [0, 1, 2]]
    assert seen[-1] == 4
    assert now == 16


def test_what_a_thread_of_a_pool_raises_is_its_futures() -> None:
    def work(seen: list[Any]) -> None:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            seen.append(type(pool.submit(int, "x").exception()))

    assert played(work)[1] == [ValueError]


def test_an_app_that_sleeps_for_ever_ends_the_run() -> None:
    def work(_: list[Any]) -> None:
        while True:
            time.sleep(1)

    with pytest.raises(HflError, match="never returns: after 1000 emulated seconds it has slept 1000 times"):
        played(work)


# What computing takes.


def test_prices() -> None:
    device = find_profile("raspberry-pi-4b")
    speed = device.effective_speed
    counted = Price.parse("flops", ("flops",))
    assert counted.seconds(device, Work({"dense": 10**9}, 3)) == pytest.approx(
        10**9 / speed + 3 * device.batch_overhead
    )
    share = device.efficiency.depthwise
    assert counted.seconds(device, Work({"depthwise": 10**9})) == pytest.approx(10**9 / speed / share)
    assert Price.parse("samples:50", ("samples",)).seconds(device, Work({}, samples=100)) == 2
    assert Price.parse("samples", ("samples",)).seconds(device, Work({}, samples=100, rate=25)) == 4
    assert Price.parse("host:3", ("host",)).seconds(device, Work({}, host_s=2)) == 6
    assert Price.parse("none", ("none",)).seconds(device, Work({"dense": 10**9}, 3, 2.0)) == 0
    with pytest.raises(HflError, match="samples-per-second"):
        Price.parse("samples", ("samples",)).seconds(device, Work({}, samples=100))
    with pytest.raises(HflError, match="num-examples"):
        Price.parse("samples:5", ("samples",)).seconds(device, Work({}))


@pytest.mark.parametrize(
    "text", ["", "flops:2", "samples:0", "samples:-1", "samples:x", "host", "host:inf", "host:1e999", "fast"]
)
def test_prices_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="client-time"):
        setting(find_app([str(APPS / "plain")]), client_time=text)


# Replies.


def reply(n: int, size: int = 100) -> Reply:
    return Reply(bytes([n]) * size, False, b"state", {"dense": n}, n, 0.5)


def test_a_reply_is_remembered_with_its_state(tmp_path: Path) -> None:
    store = Replies(tmp_path)
    assert store.get("k1") is None
    store.put("k1", reply(1))
    assert Replies(tmp_path).get("k1") == reply(1)
    assert store.has("k1")
    store.forget("k1")
    assert store.get("k1") is None
    assert Replies(None).get("k1") is None


def test_a_damaged_reply_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Replies(tmp_path)
    store.put("k1", reply(1))
    (file,) = tmp_path.rglob("*.reply")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert store.get("k1") is None
    assert "damaged" in caplog.text


def test_replies_never_take_more_room_than_they_may(tmp_path: Path) -> None:
    store = Replies(tmp_path, 5_000)
    for n in range(40):
        store.put(f"key{n:02}", reply(n, 300))
        os.utime(tmp_path / "ke" / f"key{n:02}.reply", (n, n))
        assert sum(path.stat().st_size for path in tmp_path.rglob("*.reply")) <= 5_000
    assert store.has("key39")
    assert not store.has("key00")


# What the user gives.


@pytest.mark.parametrize(("version", "fine"), [("1.41.0", True), ("1.42.3", True), ("1.40.1", False), ("2.0.0", False)])
def test_versions(version: str, fine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    if fine:
        assert support.check() == version
        return
    with pytest.raises(InputError, match=rf"Flower {version} is not supported.*flwr>=1.41,<1.43"):
        support.check()


def test_no_flower_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(InputError, match=r"not installed; install it with pip install \"hfl-emulator\[flower\]\""):
        support.check()


def test_an_app_of_a_folder() -> None:
    app = find_app([str(APPS / "plain")], ["size=7", 'what="ttl"'])
    assert (app.name, app.server, app.client) == ("plain-app", "plain.server:app", "plain.client:app")
    assert app.config == {"what": "ttl", "size": 7, "seconds": 0.0}


def test_the_hash_is_that_of_the_code(tmp_path: Path) -> None:
    import shutil

    shutil.copytree(APPS / "plain", tmp_path / "app")
    before = find_app([str(tmp_path / "app")])
    assert before.sha256 == find_app([str(APPS / "plain")]).sha256
    (tmp_path / "app" / "notes.txt").write_text("no code")
    assert find_app([str(tmp_path / "app")]).sha256 == before.sha256
    (tmp_path / "app" / "plain" / "more.py").write_text("x = 1")
    assert find_app([str(tmp_path / "app")]).sha256 != before.sha256


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "has no pyproject.toml"),
        ("x = ", "Invalid value"),
        ("x = 1", r"has no \[tool.flwr.app\]"),
        ("[tool.flwr.app]\nx = 1", r"has no \[tool.flwr.app.components\]"),
        ("[tool.flwr.app.components]\nclientapp = 'a:b'", "serverapp is missing; write it as MODULE:OBJECT"),
        ("[tool.flwr.app.components]\nclientapp = 'a:b'\nserverapp = 'a b'", "serverapp is 'a b'"),
        ("[tool.flwr.app.components]\nclientapp = 'nosuch:b'\nserverapp = 'nosuch:c'", "there is no module 'nosuch'"),
        (
            "[tool.flwr.app.components]\nclientapp = 'json:b'\nserverapp = 'json:c'\n[tool.flwr.app.config]\nk = [1]",
            "config.k is",
        ),
    ],
)
def test_apps_that_are_none(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "pyproject.toml").write_text(content)
    with pytest.raises(InputError, match=said):
        find_app([str(tmp_path)])


def test_words_that_are_no_app() -> None:
    for words in (["a:b"], ["a:b", "c"], ["a:b", "c:d", "e:f"]):
        with pytest.raises(InputError, match="two words MODULE:OBJECT"):
            find_app(words)
    with pytest.raises(InputError, match="there is no folder 'nowhere'"):
        find_app(["nowhere"])
    with pytest.raises(InputError, match="--run-config sise: the app has no such key; did you mean 'size'"):
        find_app([str(APPS / "plain")], ["sise=3"])
    with pytest.raises(InputError, match="write KEY=VALUE as in TOML"):
        find_app([str(APPS / "plain")], ["size"])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("privacy: {epsilon: 1}", "world.yaml:11:1: privacy: goes with methods of the emulator"),
        ("stop: {measure: {mae: 3}}", "stop.measure: is not known of a Flower app"),
        ("stop: {rounds: 0}", "world.yaml:11:"),
        ("faults: [{kind: nosuch}]", "world.yaml:11:"),
        ("topologie: 1", "world.yaml:11:1: topologie"),
    ],
)
def test_worlds_that_do_not_go(more: str, said: str) -> None:
    with pytest.raises(ScenarioError) as found:
        setting(find_app([str(APPS / "plain")]), world=WORLD.lstrip() + more)
    assert said in str(found.value)


def test_a_world_may_be_a_whole_scenario() -> None:
    from emulator.scenario import bundled

    app = find_app([str(APPS / "plain")])
    made = setting(app, world=bundled()["quickstart"].read_text())
    assert made.label == "plain-app"
    assert made.topology.client_count == 30
    assert made.stop is not None
    assert made.stop.rounds == 20
