"""The section ``uncertain``: what it says, and what is wrong with it, each with its place."""

from __future__ import annotations

import pytest

from emulator.errors import ScenarioError
from emulator.scenario import dump
from emulator.scenario.load import check, load
from emulator.yamlfile import parse

QUICKSTART = dump(load("quickstart").scenario).partition("uncertain:")[0]


def scenario(section: str) -> str:
    return f"{QUICKSTART}uncertain:\n{section}"


def test_a_scenario_with_one_is_read_and_written() -> None:
    text = scenario(
        "  quantities:\n"
        "    topology.links.access.up: {kind: log-normal, median: 10 Mbit/s, spread: 2, least: 1 Mbit/s}\n"
        "    topology.links.access.down: {name: lines, factor: {kind: triangular, low: 0.5, mode: 1, high: 1.5}}\n"
        "    topology.devices: {kind: choice, of: {old: raspberry-pi-3b-plus, new: {laptop: 1}}, weights: [1, 3]}\n"
        "    topology.links.access.latency: {kind: measured, values: [1 ms, 3 ms, 9 ms]}\n"
        "  correlations:\n"
        "    - {between: [lines, topology.links.access.up], value: 0.5}\n"
    )
    found = check(parse(text, "a.yaml")).scenario
    assert check(parse(dump(found), "b.yaml")).scenario == found
    assert found.uncertain is not None
    assert found.uncertain.correlation_matrix()[0, 1] == 0.5
    assert list(found.uncertain.names.values())[1] == "lines"


@pytest.mark.parametrize(
    ("section", "place", "why"),
    [
        ("  quantities:\n    a.b: {kind: uniform, low: 3, high: 1}\n", (3, 10), "'low' is greater than 'high'"),
        ("  quantities:\n    a.b: {kind: unifrom, low: 3, high: 1}\n", (3, 17), "did you mean 'uniform'?"),
        ("  quantities:\n    a.b: {kind: normal, mean: 3, sd: 1 ms}\n", (3, 10), "'mean' is a plain number, but 'sd' is time"),
        ("  quantities:\n    a.b: {kind: normal, mean: x, sd: 1}\n", (3, 31), "is neither a number nor a quantity"),
        ("  quantities:\n    a.b: {factor: {kind: normal, mean: 1 s, sd: 1 s}}\n", (3, 10), "a factor is a plain number"),
        ("  quantities:\n    a.b: {low: 1}\n", (3, 11), "unknown key"),
        ("  quantities:\n    a..b: {kind: uniform, low: 0, high: 1}\n", (3, 5), "expected a key of the scenario"),
        ("  quantities:\n    seed: {kind: uniform, low: 0, high: 1}\n", (3, 5), "nothing that the world consists of"),
        (
            "  quantities:\n    a: {kind: uniform, low: 0, high: 1}\n    a.b: {kind: uniform, low: 0, high: 1}\n",
            (4, 5), "lies in 'a', which is uncertain too",
        ),
        (
            "  quantities:\n    a: {kind: uniform, low: 0, high: 1}\n"
            "    b: {name: a, value: {kind: uniform, low: 0, high: 1}}\n",
            (3, 5), "two quantities are called 'a'",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_has_its_place(section: str, place: tuple[int, int], why: str) -> None:
    text = scenario(section)
    above = text.count("\n", 0, text.index("uncertain:"))
    with pytest.raises(ScenarioError) as error:
        check(parse(text, "a.yaml"))
    found = error.value.problems[0]
    assert why in found.message
    assert (found.line - above, found.column) == place or (found.line - above, found.column)[0] == place[0]


@pytest.mark.parametrize("value", ["3", "[1, 2]", "true", "{quantities: 3}", "{quantities: [1]}", "{correlations: 1}"])
def test_a_section_of_another_form_is_refused(value: str) -> None:
    with pytest.raises(ScenarioError, match=r"a.yaml:[0-9]+:[0-9]+: uncertain.*: expected a (mapping|list)"):
        check(parse(f"{QUICKSTART}uncertain: {value}\n", "a.yaml"))


THREE = "  quantities:\n" + "".join(f"    {name}: {{kind: uniform, low: 0, high: 1}}\n" for name in "abc")


@pytest.mark.parametrize(
    ("correlations", "why"),
    [
        ("{between: [a, d], value: 0.5}", "'d' is none of the quantities"),
        ("{between: [a, a], value: 0.5}", "'a' is correlated with itself"),
        ("{between: [a, b], value: 1.5}", "must be at most 1"),
        ("{between: [a, b]}", "give either 'between' and 'value'"),
        ("{between: [a, b], value: 0.5}, {between: [b, a], value: 0.5}", "is stated twice"),
        ("{among: [a, b], matrix: [[1, 0.5]]}", "must have 2 rows of 2 numbers"),
        ("{among: [a, b], matrix: [[1, 0.5], [0.4, 1]]}", "is 0.4 for 'b' and 'a', and 0.5 the other way round"),
        ("{among: [a, b], matrix: [[2, 0.5], [0.5, 1]]}", "must be at most 1"),
        ("{among: [a, b], matrix: [[0.9, 0.5], [0.5, 1]]}", "the correlation of 'a' with itself is 1, not 0.9"),
        (
            "{between: [a, b], value: 0.9}, {between: [b, c], value: 0.9}, {between: [a, c], value: -0.5}",
            "negative eigenvalue -0.5",
        ),
    ],
)
def test_correlations_that_are_none_are_refused(correlations: str, why: str) -> None:
    with pytest.raises(ScenarioError) as error:
        check(parse(scenario(f"{THREE}  correlations: [{correlations}]\n"), "a.yaml"))
    assert why in str(error.value)


def test_correlations_that_contradict_each_other_name_the_pair() -> None:
    pairs = "{between: [a, b], value: 0.3}, {between: [b, c], value: 0.99}, {between: [a, c], value: -0.3}"
    with pytest.raises(ScenarioError, match="'b' and 'c' contribute most"):
        check(parse(scenario(f"{THREE}  correlations: [{pairs}]\n"), "a.yaml"))
