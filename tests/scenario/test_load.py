"""Reading scenarios that are sound: defaults, presets, comparisons, and the resolved form."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator import yamlfile
from emulator.errors import InputError, ScenarioError
from emulator.scenario import Loaded, Scenario, bundled, dump, load, loads, sharing
from emulator.scenario.json_schema import json_schema
from emulator.scenario.load import find
from emulator.scenario.presets import CARRIED_OVER, merge_settings, presets

BASE = Path(__file__).with_name("broken") / "base.yaml"
SHORTEST = """
name: shortest
data: {set: digits, partition: iid}
model: mlp
topology: {edges: 2, clients: 20}
method: METHOD
stop: {rounds: 1}
"""
RING = "links: {direct: [{shape: ring, bandwidth: 1 Gbit/s}]}"
WITH_ALL = SHORTEST.replace("iid}", "iid, public: 2}").replace(
    "clients: 20}", f"clients: 20, {RING}}}"
)  # that some methods need


def shortest(method: str = "hierfavg") -> Loaded:
    return loads(SHORTEST.replace("METHOD", method), "s.yaml")


def changed(*changes: str) -> Scenario:
    return load(BASE, changes).scenario


def test_what_a_short_scenario_leaves_out_has_its_default() -> None:
    scenario = shortest().scenario
    assert (scenario.seed, scenario.notes, scenario.data.public) == (0, "", 0)
    assert scenario.topology.devices == {"raspberry-pi-4b": 1.0}
    assert (scenario.topology.edge_device, scenario.topology.cloud_device) == ("edge-server", "cloud-server")
    access, backhaul = scenario.topology.links.access, scenario.topology.links.backhaul
    assert (access.up, access.down, access.latency) == (10e6, 50e6, 0.015)
    assert (backhaul.up, backhaul.down, backhaul.latency) == (1e9, 1e9, 0.010)
    assert scenario.topology.links.peer is None
    assert (scenario.evaluate.every, scenario.evaluate.samples) == (1, None)
    assert (scenario.output.against, scenario.output.plot) == ((), True)
    assert scenario.model.params.hidden == (64,)
    method = scenario.method.params
    assert (method.schedule.kind, method.training.kind, method.aggregation.kind) == ("fixed", "parallel", "samples")
    assert (method.participation, method.initial_model) == (1.0, "weights")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("folder/my.yaml", "my"),
        ("My first_one+2.yaml", "My first_one+2"),
        ("two.parts.yaml", "two.parts"),
        ("größe.yaml", "gr-e"),
        (".hidden.yaml", "hidden"),
        ("é.yaml", "run"),
        ("<text>", "text"),
        ("a" * 100 + ".yaml", "a" * 80),
        ("é" + "a" * 100 + ".yaml", "a" * 79),
    ],
)
def test_a_scenario_without_a_name_has_that_of_its_file(file: str, name: str) -> None:
    loaded = loads(SHORTEST.replace("name: shortest\n", "").replace("METHOD", "hierfavg"), file)
    assert loaded.scenario.name == loaded.against("fedavg").scenario.name == name
    assert yamlfile.parse(dump(loaded.scenario), "scenario.yaml").data["name"] == name
    assert "name" not in json_schema()["required"]


def test_a_scenario_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        shortest().scenario.seed = 4  # type: ignore[misc]


def test_a_device_may_be_named_alone() -> None:
    assert changed("topology.devices=laptop").topology.devices == {"laptop": 1.0}


SCENARIOS = {
    **{name: path.read_text(encoding="utf-8") for name, path in bundled().items()},
    "base": BASE.read_text(encoding="utf-8"),
    **{f"preset {name}": WITH_ALL.replace("METHOD", name) for name in presets()},
    "everything": SHORTEST.replace("METHOD", "{preset: group-fel, sampling: uniform, group_operation: {c: 3 us}}")
    .replace("sampling: uniform", "sampling: {kind: uniform, groups: 1}")
    .replace("rounds: 1", "rounds: 1, time: 90 s, cost: 1.3 client-h, bytes: 3 KiB, accuracy: 0.1")
    .replace("clients: 20}", "clients: 20, links: {peer: {bandwidth: 1 MiB/s, latency: 0}}}")
    + "notes: |\n  two\n  lines\n",
}


@pytest.mark.parametrize("text", SCENARIOS.values(), ids=SCENARIOS)
def test_a_resolved_scenario_reads_back_and_is_written_the_same_again(text: str) -> None:
    scenario = loads(text).scenario
    written = dump(scenario)
    again = loads(written).scenario
    assert again == scenario
    assert dump(again) == written


@settings(max_examples=150, deadline=None)
@given(
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 _.+-]{0,30}", fullmatch=True),
    notes=st.text(max_size=60),
    rate=st.floats(1e-300, 1e300),
    latency=st.floats(0, 1e300),
    learning_rate=st.floats(0, 1e300, exclude_min=True),
)
def test_a_resolved_scenario_keeps_every_text_and_number(
    name: str, notes: str, rate: float, latency: float, learning_rate: float
) -> None:
    scenario = shortest(f"{{preset: hierfavg, local: {{learning_rate: {learning_rate!r}}}}}").scenario
    assert scenario.method.params.local.params.learning_rate == learning_rate
    links = scenario.topology.links
    access = links.access.model_copy(update={"up": rate, "latency": latency})
    topology = scenario.topology.model_copy(update={"links": links.model_copy(update={"access": access})})
    scenario = scenario.model_copy(update={"name": name, "notes": notes, "topology": topology})
    assert loads(dump(scenario)).scenario == scenario


@pytest.mark.parametrize(
    "text", ["1e3", "0o17", "0x1F", "no", "12:30:00", "2024-01-31", "null", "1_000", "1.5", "true"]
)
def test_text_that_looks_like_something_else_stays_text(text: str) -> None:
    scenario = changed(f"notes='{text}'")
    assert scenario.notes == text
    assert loads(dump(scenario)).scenario == scenario


def test_a_resolved_scenario_says_everything() -> None:
    written = yamlfile.parse(dump(shortest("group-fel").scenario), "f").data
    speeds = {"up": "10 Mbit/s", "down": "50 Mbit/s", "latency": "15 ms"}
    assert written["topology"]["links"]["access"] == {
        **speeds,
        "jitter": None,
        "overhead": "0 s",
        "loss": 0.0,
        "trace": None,
    }
    assert written["method"]["preset"] == "group-fel"
    assert written["method"]["formation"] == {"kind": "cov", "min_size": 5, "leftover": "join", "max_cov": 0.5}
    assert written["data"]["partition"] == {"kind": "iid", "samples_per_client": None}


@pytest.mark.parametrize(
    ("base", "own", "result"),
    [
        ({"a": 1, "b": 2}, {"b": 3, "c": 4}, {"a": 1, "b": 3, "c": 4}),
        ({"f": {"kind": "x", "p": 1}}, {"f": {"p": 2}}, {"f": {"kind": "x", "p": 2}}),
        ({"f": {"kind": "x", "p": 1}}, {"f": {"kind": "x", "q": 2}}, {"f": {"kind": "x", "p": 1, "q": 2}}),
        ({"f": {"kind": "x", "p": 1}}, {"f": {"kind": "y"}}, {"f": {"kind": "y"}}),
        ({"f": {"kind": "x", "p": 1}}, {"f": "x"}, {"f": {"kind": "x", "p": 1}}),
        ({"f": {"kind": "x", "p": 1}}, {"f": "y"}, {"f": "y"}),
        ({"f": "x"}, {"f": {"p": 1}}, {"f": {"kind": "x", "p": 1}}),
        ({"f": "x"}, {"f": {"kind": "y", "p": 1}}, {"f": {"kind": "y", "p": 1}}),
        ({"f": "x"}, {"f": "x"}, {"f": "x"}),
        ({"f": {"kind": "x", "p": 1}}, {"f": {"p": None}}, {"f": {"kind": "x", "p": None}}),
        ({"f": {"kind": "x", "p": [1]}}, {"f": {"p": [2, 3]}}, {"f": {"kind": "x", "p": [2, 3]}}),
    ],
)
def test_what_stands_beside_a_preset_wins_slot_by_slot(base: dict, own: dict, result: dict) -> None:
    assert merge_settings(base, own) == result


def test_a_preset_with_some_slots_changed() -> None:
    method = shortest(
        "{preset: group-fel, formation: {min_size: 3}, sampling: esrcov, local: {batch_size: 7}}"
    ).scenario.method
    assert method.params.preset == "group-fel"
    assert method.params.formation.params.min_size == 3
    assert method.params.formation.params.max_cov == 0.5
    assert (method.params.sampling.kind, method.params.sampling.params.share) == ("esrcov", 0.2)
    assert (method.params.local.params.epochs, method.params.local.params.batch_size) == (2, 7)
    other = shortest("{preset: group-fel, formation: {kind: random, size: 4}, sampling: all}").scenario.method
    assert (other.params.formation.kind, other.params.formation.params.size) == ("random", 4)
    assert other.params.sampling.kind == "all"


def test_a_slot_with_a_default_kind_takes_parameters_without_a_kind() -> None:
    formation = "{kind: hierarchical, groups: 2, distance: {}}"
    method = shortest(f"{{kind: grouped, formation: {formation}, local: {{epochs: 7}}}}").scenario.method.params
    assert (method.local.kind, method.local.params.epochs) == ("sgd", 7)
    assert method.formation.params.distance.kind == "cosine"
    assert loads(dump(shortest("{kind: centralized, local: {epochs: 3}}").scenario)).scenario.method.params.local == (
        shortest("{kind: centralized, local: {kind: sgd, epochs: 3}}").scenario.method.params.local
    )
    # A preset's kind counts before the default.
    assert shortest("{preset: fedprox, local: {epochs: 3}}").scenario.method.params.local.kind == "fedprox"


def test_presets_are_not_changed_by_the_scenarios_that_use_them() -> None:
    before = repr(presets())
    loaded = shortest("{preset: group-fel, formation: {min_size: 3}}")
    loaded.document.data["method"]["formation"]["min_size"] = 99
    assert repr(presets()) == before
    assert shortest("{preset: group-fel, sampling: all}").scenario.method.params.formation.params.min_size == 5


def test_against_runs_another_preset_with_the_same_training_in_the_same_world() -> None:
    loaded = load("quickstart", ["output.plot=false", "method.group_operation={kind: secure-aggregation, a: 3 s}"])
    own, other = loaded.scenario, loaded.against("hierfavg").scenario
    assert other.method.params.preset == "hierfavg"
    assert (other.method.params.formation.kind, other.method.params.sampling.kind) == ("all", "all")
    for slot in CARRIED_OVER:
        assert getattr(other.method.params, slot) == getattr(own.method.params, slot), slot
    assert (other.output.against, other.output.plot) == ((), False)
    for section in ("name", "seed", "data", "model", "topology", "stop", "evaluate"):
        assert getattr(other, section) == getattr(own, section), section
    assert loaded.against("hierfavg").against("group-fel").scenario.method.params.local == own.method.params.local


def test_against_carries_over_what_the_own_preset_says() -> None:
    own, other = shortest("group-fel"), shortest("group-fel").against("hierfavg")
    assert own.scenario.method.params.local.params.epochs == 2
    for slot in CARRIED_OVER:
        assert getattr(other.scenario.method.params, slot) == getattr(own.scenario.method.params, slot), slot
    flat = own.against("fedavg").scenario.method.params
    assert (flat.group_rounds, flat.local.params.epochs) == (1, 2)  # under the cloud a group round is a round


@pytest.mark.parametrize("name", ["quickstart", "group-fel/small", "fedseq/small"])
def test_a_preset_named_on_the_command_line_is_the_method_of_a_comparison(name: str) -> None:
    loaded, same = load(name), 0
    for preset in presets():
        change = f"method={preset}"
        try:
            other = loaded.against(preset).scenario.method
        except ScenarioError:  # the scenario does not suit it
            continue
        assert load(name, sharing(name, [change])).scenario.method == other
        later = load(name, sharing(name, ["seed=3", change, "method.local.epochs=7"])).scenario
        assert (later.seed, later.method.params.local.params.epochs) == (3, 7)
        same += 1
    assert same >= 5
    assert sharing(name, ["stop.rounds=3", "method={preset: fedavg}"]) == ["stop.rounds=3", "method={preset: fedavg}"]


def test_against_keeps_the_local_rule_of_the_other_method_and_shares_its_step_size() -> None:
    own = load("group-fel/small")
    for preset, rule in (("fedprox", "fedprox"), ("scaffold", "scaffold"), ("group-fedavg", "sgd")):
        local = own.against(preset).scenario.method.params.local
        assert (local.kind, local.params.epochs, local.params.batch_size) == (rule, 2, 10)
    proximal = load("group-fel/small", ["method={preset: fedprox, local: {mu: 0.3, epochs: 4}}"])
    assert proximal.against("fedprox").scenario.method.params.local.params.mu == 0.3
    assert proximal.against("group-fel").scenario.method.params.local.kind == "sgd"
    assert own.against("fedcyclic").scenario.method.params.group_operation.kind == "none"  # a chain has none


def test_against_leaves_the_scenario_as_it_was() -> None:
    loaded = load("quickstart")
    before = dump(loaded.scenario)
    loaded.against("fedavg")
    assert dump(loaded.scenario) == before
    assert loaded.against("group-fel").scenario.method.params.preset == "group-fel"


def test_against_says_what_does_not_fit() -> None:
    loaded = loads(
        SHORTEST.replace("edges: 2", "edges: 0").replace("METHOD", "{preset: fedavg, formation: single}"), "s.yaml"
    )
    with pytest.raises(ScenarioError) as caught:
        loaded.against("hierfavg")
    assert str(caught.value) == (
        "s.yaml:6:1: method.aggregator: there are no edges; say 'cloud' or give topology.edges (from the preset 'hierfavg')"
    )
    with pytest.raises(
        ScenarioError, match=r"s\.yaml:6:9: method: unknown preset 'hierfagv'; did you mean 'hierfavg'\?"
    ):
        loaded.against("hierfagv")


def test_an_error_with_a_key_finds_its_place() -> None:
    loaded = load(BASE)
    located = loaded.locate(InputError("too small", "data.partition.alpha"))
    assert isinstance(located, ScenarioError)
    assert str(located) == f"{BASE}:5:39: data.partition.alpha: too small"
    assert str(loaded.locate(InputError("gone", "data.set.path"))) == f"{BASE}:4:3: data.set.path: gone"
    plain = InputError("no key")
    assert loaded.locate(plain) is plain
    assert loaded.locate(located) is located
    inherited = shortest("group-fel").locate(InputError("no curve", "method.group_operation"))
    assert str(inherited) == "s.yaml:6:1: method.group_operation: no curve (from the preset 'group-fel')"


def test_bundled_scenarios_are_found_by_name_and_all_are_sound() -> None:
    known = bundled()
    assert "quickstart" in known
    for name, path in known.items():
        assert find(name) == path
        assert load(name).scenario.notes, f"{name} says nothing about itself"


def test_a_file_goes_before_a_bundled_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quickstart").write_text(SHORTEST.replace("METHOD", "fedavg"))
    assert find("quickstart") == Path("quickstart")
    assert load("quickstart").scenario.name == "shortest"
    Path("quickstart").unlink()
    Path("quickstart").mkdir()
    assert load("quickstart").scenario.name == "quickstart"  # a folder cannot be meant
    Path("other.yml").write_text(SHORTEST.replace("METHOD", "fedavg"))
    assert load(Path("other.yml")).document.file == "other.yml"
