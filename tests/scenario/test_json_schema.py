"""The JSON Schema of scenario files: sound in itself, and of one mind with the loader."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import pytest

from emulator import yamlfile
from emulator.contracts.grouping import FormationFacts, formations
from emulator.errors import ScenarioError
from emulator.registry import Params, Registry
from emulator.scenario import bundled, dump, loads
from emulator.scenario.json_schema import json_schema
from emulator.scenario.presets import presets
from emulator.units import DIMENSIONS, Seconds

from .schema_checker import TYPES, accepts, resolve, subschemas
from .test_broken import BASE, cases

SCHEMA = json_schema()
SHORT = """
name: short
data: {set: digits, partition: iid}
model: mlp
topology:
  edges: 2
  clients: 20
  devices: laptop
  links: {direct: [{shape: ring, bandwidth: 1 Gbit/s}]}  # that gossip needs
method: METHOD
stop: {rounds: 1}
"""


def accepted(text: str, schema: dict[str, Any] = SCHEMA) -> bool:
    return accepts(schema, yamlfile.parse(text, "f").data, schema)


def test_the_schema_is_plain_json_and_every_part_of_it_is_well_formed() -> None:
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for part in subschemas(SCHEMA):
        assert isinstance(part, dict)
        assert part.get("type") in (None, *TYPES)
        re.compile(part.get("pattern", ""))
        assert set(part.get("required", ())) <= set(part.get("properties", part.get("required", ()))), part
        if "$ref" in part:
            assert isinstance(resolve(part["$ref"], SCHEMA), dict)


def test_no_pattern_needs_more_than_what_all_dialects_of_patterns_share() -> None:
    for part in subschemas(SCHEMA):
        assert "\\-" not in part.get("pattern", "")  # an error in JavaScript, which editors use


def test_defaults_are_valid_where_they_stand() -> None:
    for part in subschemas(SCHEMA):
        if "default" in part:
            assert accepts(part, part["default"], SCHEMA), part


@pytest.mark.parametrize("name", bundled())
def test_it_accepts_the_bundled_scenarios_and_their_resolved_form(name: str) -> None:
    text = bundled()[name].read_text(encoding="utf-8")
    assert accepted(text)
    assert accepted(dump(loads(text).scenario))


@pytest.mark.parametrize("name", sorted(presets()))
def test_it_accepts_a_preset_by_name_and_with_changes(name: str) -> None:
    for method in (name, f"{{preset: {name}}}", f"{{preset: {name}, local: {{epochs: 3}}}}"):
        text = SHORT.replace("METHOD", method).replace("iid}", "iid, public: 2}")  # that some estimators need
        assert loads(text)
        assert accepted(text)
        assert accepted(dump(loads(text).scenario))


def test_it_accepts_a_mix_of_slots() -> None:
    assert accepted(BASE)
    assert accepted(dump(loads(BASE).scenario))


@pytest.mark.parametrize(
    ("method", "fits"),
    [
        ("{kind: grouped, formation: all, local: {epochs: 2}}", True),
        ("{kind: grouped, formation: {kind: hierarchical, groups: 2, distance: {}}}", True),
        ("{kind: grouped, formation: all, local: {mu: 0.1}}", False),
        ("{kind: grouped, formation: {min_size: 2}}", False),
    ],
)
def test_a_kind_may_be_left_out_where_there_is_a_default(method: str, fits: bool) -> None:
    text = SHORT.replace("METHOD", method)
    assert accepted(text) == fits
    with contextlib.nullcontext() if fits else pytest.raises(ScenarioError):
        loads(text)


@pytest.mark.parametrize(
    "partition",
    [
        "label-blocks",
        "rotation",
        "{kind: label-blocks, blocks: [[0, 1], [2]], alpha: 1.0, min_samples: 5, max_samples: 9, overlap: true}",
        "{kind: dominant-label, beta: 0.7, labels: [3, 4]}",
        "{kind: rotation, degrees: [90, 0], of: {kind: dirichlet, alpha: 1.0}}",
        "{kind: rotation, degrees: [90, 0], of: {samples_per_client: 3}}",
    ],
)
def test_it_accepts_partitions_that_make_clusters(partition: str) -> None:
    text = SHORT.replace("METHOD", "fedavg").replace("iid", partition)
    assert loads(text)
    assert accepted(text)
    assert accepted(dump(loads(text).scenario))


def refused() -> list[Any]:
    """Broken scenarios that a schema can see to be broken: it knows no devices or tiers, nor what a preset leaves for a slot to
    give, nor what belongs to a choice within a choice of the same slot.
    """
    said = ("unknown", "expected", "is required", "needs a 'kind'", "at least one of")
    unseen = (
        "unknown device",
        "unknown tier",
        "method.formation.size: is required",
        "data.partition.of.alpha: is required",
    )
    return [c for c in cases() if any(s in c.values[1] for s in said) and not any(s in c.values[1] for s in unseen)]


@pytest.mark.parametrize(("text", "said"), refused())
def test_it_refuses_misspelt_keys_and_names_and_types_and_what_is_incomplete(text: str, said: str) -> None:
    assert not accepted(text), said


@pytest.mark.parametrize(
    "value", ["20", "20 Mb/s", "20 KB/s", "fast", "20 ms", "-20 Mbit/s", "true", "[20 Mbit/s]", "", "0"]
)
def test_it_refuses_bandwidths_without_a_sound_unit(value: str) -> None:
    assert not accepted(BASE.replace("{up: 8 Mbit/s", f"{{up: {value}"))


@pytest.mark.parametrize("value", ["20 Mbit/s", "1.5 GB/s", "3e3 kbit/s", "+4 KiB/s", " 20Mbit/s "])
def test_it_accepts_the_units_that_the_loader_accepts(value: str) -> None:
    text = BASE.replace("{up: 8 Mbit/s", f"{{up: '{value}'")
    assert loads(text)
    assert accepted(text)


def test_a_zero_needs_no_unit_where_zero_is_allowed() -> None:
    text = BASE.replace("latency: 20 ms", "latency: 0")
    assert loads(text)
    assert accepted(text)
    assert not accepted(BASE.replace("latency: 20 ms", "latency: 20"))


def test_units_hold_no_character_that_means_something_in_a_pattern() -> None:
    for dimension in DIMENSIONS:
        for unit in dimension.units:
            assert re.fullmatch(r"[A-Za-zµ/-]+", unit)


def test_models_inside_a_plug_ins_parameters_are_among_the_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    class Inner(Params):
        wait: Seconds

    class Outer(Params):
        inner: Inner
        more: tuple[Inner, ...] = ()

    formations.names()
    monkeypatch.setattr(formations, "_plugins", dict(formations._plugins))
    formations.register("nested", Outer, FormationFacts(needs=(), smallest=lambda params: 1))(
        lambda clients, rng, params: []
    )
    schema = json_schema()
    for part in subschemas(schema):
        if "$ref" in part:
            assert resolve(part["$ref"], schema)
    method = "{kind: grouped, formation: {kind: nested, inner: {wait: WAIT}, more: [{wait: 1 s}]}}"
    assert accepted(SHORT.replace("METHOD", method.replace("WAIT", "3 s")), schema)
    assert not accepted(SHORT.replace("METHOD", method.replace("WAIT", "3")), schema)
    assert not accepted(SHORT.replace("METHOD", method.replace("wait: WAIT", "weight: 3 s")), schema)


def test_every_plug_in_is_offered() -> None:
    text = json.dumps(SCHEMA)
    for slot, registry in Registry.by_slot.items():
        # Measurements are needed by rules, trace formats, generators and tables by commands, figures by studies: none
        # is chosen in a scenario.
        if slot not in ("measurement", "trace format", "trace generator", "figure", "table"):
            for name in registry.names():
                assert json.dumps({"const": name}) in text, f"{slot} {name}"
