"""Replays in memory: the numbers of ``hfl whatif``, how much is missing, and folders that cannot be replayed."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from scenario.command import stated

from analysis.runs import load_run
from emulator import checkpoint, yamlfile
from emulator.errors import InputError
from emulator.files import write_json
from emulator.learning import replaying
from emulator.learning.memo import Memo
from emulator.replay import Parting, Replay, Source, describe_missing, open_source, replay, replay_worlds
from emulator.run import execute
from emulator.run_results import metrics_csv
from emulator.scenario import Loaded

Small = Callable[..., Loaded]

WORLDS = [
    "topology.links.access.up=1 Mbit/s",
    "topology.links.backhaul.latency=2 s",
    "topology.links.access.trace={file: lte-like}",
    "topology.links.access.jitter={kind: exponential, scale: 10 ms}",
    "topology.devices={laptop: 0.5, raspberry-pi-3b-plus: 0.5}",
    "topology.devices={mix: phone-mix, bandwidth: true}",
    "topology.speed={file: daily-load}",
    "topology.links.latencies={file: eight-sites}",
    "method.group_operation={kind: secure-aggregation, a: 0 s, b: 3 s, c: 1 s}",
    "stop.time=30 s",
]


def finished(loaded: Loaded, folder: Path) -> Source:
    execute(loaded, folder, Memo(None), max_workers=1)
    return open_source(folder)


def played(source: Source, *changes: str) -> Replay:
    return replay(source, source.what_if(changes), Memo(None))


def trained(source: Source, folder: Path, *changes: str) -> dict[str, int]:
    """What ``hfl whatif`` computes for the same change."""
    changed = source.what_if(changes)
    summary = execute(changed.loaded, folder, Memo(None), known=changed.known())
    counts: dict[str, int] = summary["trainings"]
    return counts


def test_replays_give_the_numbers_of_whatif(small: Small, tmp_path: Path) -> None:
    source = finished(small("stop.rounds=3"), tmp_path / "run")
    for number, change in enumerate([*WORLDS, WORLDS[0]]):  # one again: what replays share does not change them
        result = played(source, change)
        folder = tmp_path / str(number)
        counts = trained(source, folder, change)
        assert metrics_csv(list(result.metrics)) == (folder / "metrics.csv").read_text(), change
        assert result.summary == stated(folder)
        assert (result.asked, result.missing, result.known) == (counts["asked"], 0, True)
        assert counts["computed"] == 0
    assert describe_missing(result) == f"0 of {result.asked} trainings are missing"


@pytest.mark.parametrize(
    "change",
    [
        "stop.rounds=4",
        "method.local.learning_rate=0.2",
        "topology.availability={generator: {kind: markov, mean_on: 20 s, mean_off: 5 s}}",
        "method.wait_for_members={kind: quorum, share: 0.5}",
    ],
)
def test_what_is_missing_is_what_whatif_trains(small: Small, tmp_path: Path, change: str) -> None:
    source = finished(small("stop.rounds=3"), tmp_path / "run")
    result = played(source, change)
    counts = trained(source, tmp_path / "other", change)
    assert (result.asked, result.missing) == (counts["asked"], counts["computed"])
    assert result.missing > 0
    assert not result.known
    assert result.to_the_end
    known = [not math.isnan(row["accuracy"]) for row in result.metrics]
    assert known[0]
    assert not all(known)
    parts = cast(Parting, result.parts)
    said = f"{counts['computed']} of {counts['asked']} trainings are missing; what is learned differs from"
    assert describe_missing(result) == f"{said} {parts.time_s:g} emulated seconds on (round {parts.round})"
    end_s = load_run(tmp_path / "run").summary["final"]["time_s"]
    assert parts.round == (4 if change == "stop.rounds=4" else 1)
    assert (parts.time_s > end_s) == (change == "stop.rounds=4")  # the models must travel before anybody trains them
    source.known.update(checkpoint.read_memory(tmp_path / "other"))  # once it is trained, it is known
    again = played(source, change)
    assert again.known
    assert metrics_csv(list(again.metrics)) == (tmp_path / "other" / "metrics.csv").read_text()


def test_a_memo_counts_as_known(small: Small, tmp_path: Path) -> None:
    execute(small("stop.rounds=2"), tmp_path / "run", Memo(None), max_workers=1)
    memo = Memo(tmp_path / "memo")
    execute(small("stop.rounds=3"), tmp_path / "longer", memo, max_workers=1)
    source = open_source(tmp_path / "run")
    assert not played(source, "stop.rounds=3").known
    assert replay(source, source.what_if(["stop.rounds=3"]), memo).known
    memo.close()


def test_where_what_comes_next_depends_on_what_is_missing_a_replay_ends(small: Small, tmp_path: Path) -> None:
    source = finished(small("stop={rounds: 3, accuracy: 0.99}"), tmp_path / "run")
    assert played(source, WORLDS[0]).known
    longer = played(source, "stop={rounds: 9, accuracy: 0.99}")
    assert not longer.to_the_end
    assert 0 < longer.missing <= longer.asked
    assert describe_missing(longer).startswith("it is known up to round 3; what comes then depends on models")
    fewer = played(source, "topology.clients=6")
    assert (fewer.to_the_end, fewer.asked, len(fewer.metrics)) == (False, 0, 1)  # the untrained model is the same
    assert describe_missing(fewer) == "nothing of it is known: everything would have to be trained"
    groups = "method.formation={kind: hierarchical, groups: 2}"
    estimated = played(source, groups, "method.estimator=classifier-weights")
    assert not estimated.to_the_end
    assert estimated.missing == 8  # each client trains once, to be compared with others


def test_a_run_without_training_is_replayed_without(small: Small, tmp_path: Path) -> None:
    plain = small("stop.rounds=3")
    execute(Loaded(plain.scenario, plain.document, training=False), tmp_path / "run", Memo(None))
    source = open_source(tmp_path / "run")
    result = played(source, "topology.links.access.up=1 Mbit/s")
    assert result.known
    assert all(math.isnan(row["accuracy"]) for row in result.metrics)
    trained(source, tmp_path / "other", "topology.links.access.up=1 Mbit/s")
    assert metrics_csv(list(result.metrics)) == (tmp_path / "other" / "metrics.csv").read_text()


def test_a_book_that_grows_too_large_is_begun_anew(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = finished(small("stop.rounds=2"), tmp_path / "run")
    first = played(source, WORLDS[0])
    monkeypatch.setattr(replaying, "MOST_ENTRIES", 0)
    assert played(source, WORLDS[0]).metrics == first.metrics


def test_a_watcher_ends_a_replay(small: Small, tmp_path: Path) -> None:
    source = finished(small("stop.rounds=3"), tmp_path / "run")
    rounds: list[int] = []

    def watch(round: int, metrics: dict[str, float]) -> None:  # noqa: A002
        rounds.append(round)
        if round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(source, source.what_if([WORLDS[0]]), Memo(None), watch)
    assert rounds == [1, 2]


def test_folders_that_cannot_be_replayed(small: Small, tmp_path: Path) -> None:
    run = tmp_path / "run"
    source = finished(small("stop.rounds=1"), run)
    with pytest.raises(InputError, match=r"--set topology.links.acces.up=1: topology.links.acces: unknown key"):
        source.what_if(["topology.links.acces.up=1"])
    with pytest.raises(InputError, match=r"ends|there is no such file"):
        replay(source, source.what_if(["topology.speed={file: nowhere}"]), Memo(None))

    def broken(name: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            open_source(tmp_path / name)

    broken("nowhere", "there is no folder")
    (tmp_path / "file").write_text("")
    broken("file", "is a file, no run folder")
    (tmp_path / "empty").mkdir()
    broken("empty", "is not a run folder: it has no scenario.yaml")
    for name in ("begun", "stopped", "unkept", "older", "newer"):
        shutil.copytree(run, tmp_path / name)
    (tmp_path / "begun" / "summary.json").unlink()
    broken("begun", r"is not complete \(it has no summary.json\); finish it with 'hfl run'")
    write_json(tmp_path / "stopped" / "summary.json", {"status": "interrupted"})
    broken("stopped", r"is not complete \(its status is 'interrupted'\)")
    (tmp_path / "unkept" / "memory.json").unlink()
    broken("unkept", "has no memory.json, so nothing of the run can be replayed")
    manifest = json.loads((run / "manifest.json").read_text())
    manifest |= {"hfl_emulator": "0.0.1", "packages": {"torch": "1.0"}}
    write_json(tmp_path / "older" / "manifest.json", manifest)
    (tmp_path / "older" / "memory.json").write_text("{}")
    broken(
        "older", r"was made by version 0.0.1 with torch 1.0, and this is .*; its results cannot be reused: run it again"
    )
    scenario = (run / "scenario.yaml").read_text()
    (tmp_path / "newer" / "scenario.yaml").write_text(scenario + "\nplanets: 3\n")
    broken("newer", r"'scenario.yaml' in .* changed after the run ended; restore it")
    write_json(tmp_path / "newer" / "summary.json", stated(run))
    broken("newer", r"was made by version .*; its scenario is not understood:\n.*planets: unknown key")


def random_worlds(draw: random.Random, count: int) -> list[dict[str, Any]]:
    """Worlds that differ in links, devices, overhead, transport, and in what changes on links over time."""
    found = []
    for _ in range(count):
        world: dict[str, Any] = {
            "topology.links.access.up": f"{draw.uniform(0.5, 40)!r} Mbit/s",
            "topology.links.access.latency": f"{draw.uniform(0, 900)!r} ms",
            "topology.devices": draw.choice(
                ["laptop", {"mix": "phone-mix", "bandwidth": True}, {"raspberry-pi-4b": 1.0}]
            ),
            "topology.transport": draw.choice(["fluid", "tcp"]),
            "method.group_operation": draw.choice(
                ["none", {"kind": "secure-aggregation", "a": "0 s", "b": f"{draw.uniform(0, 3)!r} s", "c": "1 s"}]
            ),
        }
        world |= draw.choice(
            [
                {},
                {},
                {"topology.links.backhaul.trace": {"file": "wifi-with-drops"}},
                {"topology.links.access.trace": {"file": "lte-like"}, "topology.devices": "laptop"},
                {"topology.links.access.jitter": {"kind": "exponential", "scale": "10 ms"}},
                {"topology.speed": {"file": "daily-load"}},
            ]
        )
        found.append(world)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_many_worlds_are_those_of_whatif_bit_for_bit(small: Small, tmp_path: Path, seed: int) -> None:
    source = finished(small("stop.rounds=3", "topology.clients=14"), tmp_path / "run")
    worlds = random_worlds(random.Random(seed), 6)
    results = list(replay_worlds(source, worlds, Memo(None)))
    assert len(results) == len(worlds)
    for number, (world, result) in enumerate(zip(worlds, results, strict=True)):
        assert isinstance(result, Replay)
        assert result.known
        changed = source.changed([(key, yamlfile.from_data(value, key)) for key, value in world.items()])
        folder = tmp_path / str(number)
        known = changed.known() if number % 3 else None  # or trained from nothing
        execute(changed.loaded, folder, Memo(None), known=known, max_workers=1)
        assert metrics_csv(list(result.metrics)) == (folder / "metrics.csv").read_text()
    again = list(replay_worlds(open_source(source.folder), reversed(worlds), Memo(None)))
    assert [cast(Replay, one).metrics for one in reversed(again)] == [cast(Replay, one).metrics for one in results]


def test_a_world_that_cannot_be_played_does_not_end_the_others(small: Small, tmp_path: Path) -> None:
    source = finished(small(), tmp_path / "run")
    up = "topology.links.access.up"
    good, bad, other = replay_worlds(source, [{up: "1 Mbit/s"}, {up: "-1 Mbit/s"}, {up: "2 Mbit/s"}], Memo(None))
    assert isinstance(good, Replay)
    assert isinstance(other, Replay)
    assert isinstance(bad, InputError)
    assert up in str(bad)
    assert good.metrics[-1]["time_s"] > other.metrics[-1]["time_s"]
