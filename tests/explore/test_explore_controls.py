"""What the page offers to change, what its controls stand for, and what is asked of the runs behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S

from analysis.runs import load_run
from emulator.errors import InputError
from emulator.explore.controls import DEVICES, OFF, OPERATION, OWN, SECOND, SHARE, changes_of, controls_of, useless
from emulator.explore.explorer import Explorer, SupersededError, Training
from emulator.learning.memo import Memo
from emulator.run import execute
from emulator.run_folder import INTERRUPTED, status_of
from emulator.run_results import metrics_csv
from emulator.scenario import Loaded
from emulator.units import RATE

Small = Callable[..., Loaded]

SITES = "topology.links.latencies"


def names_of(loaded: Loaded) -> list[str]:
    return [control.name for control in controls_of(loaded.scenario)]


def test_controls_are_those_of_what_the_scenario_has(small: Small) -> None:
    plain = names_of(small())
    assert plain[:3] == [f"topology.links.access.{field}" for field in ("up", "down", "latency")]
    assert {DEVICES, SECOND, SHARE, OPERATION, f"{OPERATION}.c", SITES, "topology.availability"} <= set(plain)
    assert not [name for name in plain if ".cell." in name or ".peer." in name]
    more = names_of(
        small("topology.links.cell={up: 1 Mbit/s, down: 1 Mbit/s}", "topology.links.peer.bandwidth=1 Mbit/s")
    )
    assert set(more) - set(plain) == {
        "topology.links.cell.up", "topology.links.cell.down", "topology.links.peer.bandwidth", "topology.links.peer.latency",
    }  # fmt: skip
    flat = names_of(small("topology.edges=0", "method=fedavg"))
    assert not [name for name in flat if "backhaul" in name or name == SITES]
    chain = names_of(small("method.training=sequential", "method.group_operation=none"))
    assert OPERATION not in chain


def test_every_option_is_a_change_that_can_be_made(small: Small) -> None:
    base = (
        "topology.links.access.trace={file: lte-like}",
        "method.group_operation={kind: backdoor-detection, a: 3 s}",
    )
    loaded = small(*base)
    controls = controls_of(loaded.scenario)
    by_name = {control.name: control for control in controls}
    assert changes_of(controls, {}) == changes_of(controls, {c.name: c.start for c in controls}) == []
    for control in controls:
        assert control.start in control.options
        for label in control.options:
            changes = changes_of(controls, {control.name: label})
            assert (small(*base, *changes).scenario != loaded.scenario) == bool(changes)
            assert bool(changes) == (label != control.start and control.name not in (SECOND, SHARE)) or (
                control.name == SECOND
            )
    up = by_name["topology.links.access.up"]
    rates = [RATE.parse(label) for label in up.options]
    assert rates == sorted(rates)
    assert (up.start, rates[0], rates[-1]) == ("8 Mbit/s", 1e4, 1e10)
    assert by_name["topology.links.access.trace"].start == "lte-like"
    assert by_name[f"{OPERATION}.a"].start == "3 s"
    assert by_name[f"{OPERATION}.b"].start == OWN


def test_devices_in_shares_and_curves_of_another_operation(small: Small) -> None:
    controls = controls_of(small("method.group_operation={kind: secure-aggregation, a: 3 s}").scenario)
    state = {SECOND: "laptop", SHARE: "30 %"}
    assert changes_of(controls, state) == ["topology.devices={raspberry-pi-4b: 0.7, laptop: 0.3}"]
    assert changes_of(controls, {SHARE: "30 %"}) == []
    mixed = {**state, DEVICES: "mix: phone-mix"}
    assert changes_of(controls, mixed) == ["topology.devices={mix: phone-mix}"]
    assert {SECOND, SHARE} <= useless(controls, mixed)
    assert SHARE in useless(controls, {})
    assert SHARE not in useless(controls, state)
    # A term that was given for the operation of the run is said again for another one.
    other = {OPERATION: "backdoor-detection", f"{OPERATION}.c": "1 s"}
    assert changes_of(controls, other) == [
        "method.group_operation=backdoor-detection", "method.group_operation.a=3 s", "method.group_operation.c=1 s",
    ]  # fmt: skip
    none = {OPERATION: "none", f"{OPERATION}.c": "1 s"}
    assert changes_of(controls, none) == ["method.group_operation=none"]
    assert {f"{OPERATION}.{term}" for term in "abc"} <= useless(controls, none)
    traced = {"topology.links.access.trace": "lte-like", SITES: "eight-sites"}
    assert {"topology.links.access.up", "topology.links.access.down", "topology.links.backhaul.latency"} <= useless(
        controls, traced
    )
    assert changes_of(controls, {"topology.links.access.trace": OFF}) == []


@pytest.fixture
def explorer(small: Small, tmp_path: Path) -> Iterator[Explorer]:
    execute(small("stop.rounds=3"), tmp_path / "one", Memo(None), max_workers=1)
    execute(small("stop.rounds=3", "method.group_rounds=1"), tmp_path / "two", Memo(None), max_workers=1)
    made = Explorer([tmp_path / "one", tmp_path / "two"], None)
    yield made
    made.close()


def test_answers_are_those_of_whatif(explorer: Explorer, tmp_path: Path) -> None:
    changes = ["topology.links.access.up=1 Mbit/s", "topology.devices={laptop: 0.5, raspberry-pi-4b: 0.5}"]
    answers = explorer.ask(changes, lambda: True).result()
    assert explorer.labels == ["hierfavg (one)", "hierfavg (two)"]
    for source, answer in zip(explorer.sources, answers, strict=True):
        assert answer.error == ""
        assert answer.replay is not None
        assert answer.replay.known
        folder = tmp_path / f"whatif-{source.folder.name}"
        execute(source.what_if(changes).loaded, folder, Memo(None), known=dict(source.known))
        assert metrics_csv(list(answer.replay.metrics)) == (folder / "metrics.csv").read_text()
    one, two = explorer.command(changes).split("\n")
    words = "--set 'topology.links.access.up=1 Mbit/s' --set 'topology.devices={laptop: 0.5, raspberry-pi-4b: 0.5}'"
    assert one == f"hfl whatif {tmp_path / 'one'} {words}"
    assert two == f"hfl whatif {tmp_path / 'two'} {words}"


def test_errors_are_answers_and_what_nobody_wants_is_given_up(explorer: Explorer) -> None:
    for answer in explorer.ask(["topology.edges=99"], lambda: True).result():
        assert "99 edges for 8 clients would leave edges without any" in answer.error
        assert answer.replay is None
    with pytest.raises(SupersededError):
        explorer.ask(["topology.links.access.up=1 Mbit/s"], lambda: False).result()


def test_training_makes_a_world_known(explorer: Explorer) -> None:
    changes = ["stop.rounds=4"]
    (before, _) = explorer.ask(changes, lambda: True).result()
    assert before.replay is not None
    assert not before.replay.known
    source = explorer.sources[0]
    changed = source.what_if(changes)
    said: list[str] = []
    over = threading.Event()
    ends: list[str] = []

    def ended(error: str) -> None:
        ends.append(error)
        over.set()

    Training(explorer, [(source, changed, "one")], said.append, ended)
    assert over.wait(PATIENCE_S)
    assert ends == [""]
    assert any(text.startswith("one: round ") and text.endswith(" of 4") for text in said)
    (after, _) = explorer.ask(changes, lambda: True).result()
    assert after.replay is not None
    assert after.replay.known
    assert list(load_run(changed.folder).metrics["accuracy"]) == [r["accuracy"] for r in after.replay.metrics]
    # Once it is there it is not trained again, and what is stopped before it begins does nothing.
    over.clear()
    again = Training(explorer, [(source, changed, "one")], said.append, ended)
    assert over.wait(PATIENCE_S)
    again.stop(wait=True)
    assert ends == ["", ""]


def test_closing_stops_a_training_that_can_go_on(small: Small, tmp_path: Path) -> None:
    execute(small("stop.rounds=1"), tmp_path / "one", Memo(None), max_workers=1)
    explorer = Explorer([tmp_path / "one"], None)
    source = explorer.sources[0]
    changed = source.what_if(["stop.rounds=5000"])
    begun = threading.Event()
    ends: list[str] = []
    Training(explorer, [(source, changed, "one")], lambda text: begun.set(), ends.append)
    assert begun.wait(PATIENCE_S)
    explorer.close()
    assert ends == ["stopped; the same training goes on from where it was"]
    assert status_of(changed.folder) == INTERRUPTED
    assert not explorer.trainings


def test_folders_that_cannot_be_explored(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        Explorer([tmp_path / "nowhere"], None)
