"""``--set key.path=value``: what it changes, and what it says where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator import yamlfile
from emulator.errors import ScenarioError
from emulator.scenario import Scenario, load, loads
from emulator.scenario.load import check, override

BASE = Path(__file__).with_name("broken") / "base.yaml"


def changed(*changes: str) -> Scenario:
    return load(BASE, changes).scenario


def complaint(*changes: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        load(BASE, changes)
    return str(caught.value)


def test_set_changes_values_at_any_depth() -> None:
    scenario = changed(
        "seed=5", "topology.links.access.up=3 MB/s", "method.local.epochs=4", "stop.rounds=7", "model.hidden=[4, 5]"
    )
    assert (scenario.seed, scenario.stop.rounds, scenario.model.params.hidden) == (5, 7, (4, 5))
    assert scenario.topology.links.access.up == 24e6
    assert scenario.topology.links.access.down == 16e6
    assert scenario.method.params.local.params.epochs == 4


def test_set_takes_whole_sections_and_list_entries() -> None:
    assert changed("stop={time: 3 h}").stop.time == 10800
    assert changed("stop={time: 3 h}").stop.rounds is None
    assert changed("method=hierfavg").method.params.preset == "hierfavg"
    assert changed("model.hidden=[1,2,3]", "model.hidden.1=9").model.params.hidden == (1, 9, 3)
    assert changed("output.against.0=fedavg").output.against == ("fedavg",)
    assert changed("model.hidden=[]").model.params.hidden == ()


def test_set_adds_keys_and_sections() -> None:
    assert changed("notes=a=b, c").notes == "a=b, c"
    assert changed("topology.links.peer.bandwidth=3 Mbit/s").topology.links.peer.bandwidth == 3e6  # type: ignore[union-attr]
    assert changed("evaluate.samples=9").evaluate.samples == 9
    assert changed("output={}", "output.plot=true").output.plot is True
    assert load(BASE, [" seed = 9 "]).scenario.seed == 9


def test_set_goes_into_a_name_as_into_a_mapping() -> None:
    scenario = changed("data.partition=dirichlet", "data.partition.alpha=0.7")
    assert (scenario.data.partition.kind, scenario.data.partition.params.alpha) == ("dirichlet", 0.7)
    method = changed("method=group-fel", "method.formation.min_size=2").method
    assert (method.params.preset, method.params.formation.params.min_size) == ("group-fel", 2)
    devices = changed("topology.devices=laptop", "topology.devices.laptop=0.75", "topology.devices.jetson-nano=0.25")
    assert devices.topology.devices == {"laptop": 0.75, "jetson-nano": 0.25}


def test_the_last_of_two_settings_wins() -> None:
    assert changed("seed=5", "seed=6").seed == 6


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("seed", "--set seed: write it as key.path=value, for example --set stop.rounds=20"),
        ("=3", "--set =3: write it as key.path=value, for example --set stop.rounds=20"),
        ("stop..rounds=3", "--set stop..rounds=3: write it as key.path=value, for example --set stop.rounds=20"),
        ("seed=[1", "--set seed=[1:1:3: is not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("sede=3", "--set sede=3: sede: unknown key; did you mean 'seed'?"),
        ("stop.round=3", "--set stop.round=3: stop.round: unknown key; did you mean 'rounds'?"),
        ("method.local.epoch=3", "--set method.local.epoch=3: method.local.epoch: unknown key; did you mean 'epochs'?"),
        (
            "method.formaton.size=3",
            "--set method.formaton.size=3: method.formaton: unknown key; did you mean 'formation'?",
        ),
        ("nothing.like.this=3", "--set nothing.like.this=3: nothing: unknown key; allowed: "),
        ("seed=three", "--set seed=three: seed: expected a whole number, not 'three'"),
        ("seed=", "--set seed=: seed: expected a whole number, not nothing"),
        ("seed.x=1", "--set seed.x=1: seed.x: 'seed' is no section"),
        ("model.hidden.3=1", "--set model.hidden.3=1: model.hidden.3: 'model.hidden' is a list and has no entry '3'"),
        ("model.hidden.x=1", "--set model.hidden.x=1: model.hidden.x: 'model.hidden' is a list and has no entry 'x'"),
        ("model.hidden.²=1", "--set model.hidden.²=1: model.hidden.²: 'model.hidden' is a list and has no entry '²'"),
        ("model.hidden.0=0", "--set model.hidden.0=0: model.hidden[0]: must be at least 1 (it is 0)"),
        ("3=1", "--set 3=1: 3: unknown key; allowed: "),
        (
            "topology.links.access.up=20",
            "--set topology.links.access.up=20: topology.links.access.up: 20 has no unit; write for example '20 Mbit/s'",
        ),
        (
            "topology.links.access={up: 2 ms, down: 3 Mbit/s}",
            "--set topology.links.access={up: 2 ms, down: 3 Mbit/s}: topology.links.access.up: "
            "'ms' is a unit of time, not of bandwidth; write for example '20 Mbit/s'",
        ),
        ("method=group-fle", "--set method=group-fle: method: unknown preset 'group-fle'; did you mean 'group-fel'?"),
        (
            "topology.devices.labtop=0.5",
            "--set topology.devices.labtop=0.5: topology.devices.labtop: unknown device 'labtop'; did you mean 'laptop'?",
        ),
    ],
)
def test_what_is_wrong_with_a_setting_names_the_option(change: str, said: str) -> None:
    assert complaint(change).split("\n")[0][: len(said)] == said


def test_a_setting_of_absurd_length_is_refused() -> None:
    assert "has no entry" in complaint(f"model.hidden.{'9' * 5000}=1")


def test_problems_of_file_and_options_come_together() -> None:
    text = BASE.read_text(encoding="utf-8").replace("seed: 3", "seed: x")
    document = yamlfile.parse(text, "s.yaml")
    override(document, "stop.rounds=0")
    with pytest.raises(ScenarioError) as caught:
        check(document)
    assert str(caught.value).split("\n") == [
        "--set stop.rounds=0: stop.rounds: must be at least 1 (it is 0)",
        "s.yaml:2:7: seed: expected a whole number, not 'x'",
    ]


def test_a_setting_repairs_a_broken_value(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    text = BASE.read_text(encoding="utf-8")
    file.write_text(
        text.replace("seed: 3", "seed: x")
        .replace("up: 8 Mbit/s, down", "up: 8, down")
        .replace("{kind: cov", "{kind: cow")
    )
    repairs = ["seed=4", "topology.links.access.up=8 Mbit/s", "method.formation.kind=cov"]
    assert load(file, repairs).scenario == changed("seed=4")
    with pytest.raises(ScenarioError, match=r"s\.yaml:14:18: topology\.links\.access\.up: 8 has no unit"):
        load(file, [repairs[0], repairs[2]])


def test_settings_can_be_all_there_is(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("")
    whole = BASE.read_text(encoding="utf-8")
    changes = [f"{key}={value}" for key, value in yamlfile.parse(whole, "f").data.items()]
    assert load(file, changes).scenario == loads(whole).scenario
    file.write_text("- a list\n")
    with pytest.raises(ScenarioError, match=r"s\.yaml:1:1: is not a mapping of sections"):
        load(file, changes)
