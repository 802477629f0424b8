"""What is said of broken scenarios, word for word, and that nothing but a `ScenarioError` is ever raised.

The folder ``broken`` holds changes to its ``base.yaml`` and the whole message that each must give. A case is a text to take
out (``-``) and what to put in its place (``+``, nothing if the line is to go), or a whole section to replace (``=``).
``<model>`` stands for the names of all models.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devices.profile import profile_names
from emulator.errors import ScenarioError, quote_all
from emulator.registry import Registry
from emulator.scenario import Scenario, load
from emulator.scenario.presets import presets

FOLDER = Path(__file__).with_name("broken")
BASE = (FOLDER / "base.yaml").read_text(encoding="utf-8")
SECTIONS = quote_all(Scenario.model_fields)
Complaint = Callable[[str | bytes], str]


@pytest.fixture
def complaint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Complaint:
    """Writes a file and returns all that is said about it; fails where nothing is."""
    monkeypatch.chdir(tmp_path)

    def of(text: str | bytes) -> str:
        Path("s.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ScenarioError) as caught:
            load("s.yaml")
        assert str(caught.value) == "\n".join(str(problem) for problem in caught.value.problems)
        return str(caught.value)

    return of


def section(key: str) -> str:
    found = re.search(rf"^{key}:.*\n(?: .*\n)*", BASE, re.MULTILINE)
    assert found, key
    return found.group()


def cases() -> Iterator[Any]:
    for file in sorted(FOLDER.glob("*.txt")):
        for block in file.read_text(encoding="utf-8").split("\n\n"):
            lines = block.rstrip("\n").split("\n")
            if lines[0].startswith("#"):
                continue
            old, new, whole = ([line[2:] for line in lines if line.startswith(f"{sign} ")] for sign in "-+=")
            if whole:
                before, after = section(whole[0].partition(":")[0]), "\n".join(whole) + "\n"
            else:
                before, after = ("\n".join(part) + ("" if new else "\n" * bool(part)) for part in (old, new))
            assert BASE.count(before) == 1, f"{file.name}: {before}"
            said = "\n".join(line for line in lines if line[:2] not in ("- ", "+ ", "= "))
            yield pytest.param(BASE.replace(before, after), said, id=f"{file.stem}: {(whole or new or old)[0].strip()}")


def names_of(match: re.Match[str]) -> str:
    kind = match[1]
    if kind in ("preset", "device"):
        return quote_all(sorted(presets()) if kind == "preset" else profile_names())
    return quote_all(Registry.by_slot[kind].names())


def test_the_base_is_sound() -> None:
    assert load(FOLDER / "base.yaml").scenario.name == "base"


@pytest.mark.parametrize(("text", "said"), list(cases()))
def test_what_is_wrong_is_said_with_its_place_and_what_would_be_right(
    text: str, said: str, complaint: Complaint
) -> None:
    assert complaint(text) == re.sub(r"<([a-z -]+)>", names_of, said)


@pytest.mark.parametrize(
    "key", [key for key, field in Scenario.model_fields.items() if field.is_required() and key != "name"]
)
def test_every_required_section_is_asked_for(key: str, complaint: Complaint) -> None:
    assert complaint(BASE.replace(section(key), "")) == f"s.yaml:1:1: {key}: is required"


@pytest.mark.parametrize(
    "key",
    [
        key
        for key in Scenario.model_fields
        if key not in ("name", "notes", "seed", "faults", "attacks", "privacy", "prices", "task", "uncertain")
    ],
)
@pytest.mark.parametrize("value", ["[1, 2]", "3", "", "true", "2024-01-31"])
def test_no_section_may_be_something_else(key: str, value: str, complaint: Complaint) -> None:
    whole = section(key)
    line = BASE[: BASE.index(whole)].count("\n") + 1
    column = len(key) + (3 if value else 2)
    assert complaint(BASE.replace(whole, f"{key}: {value}".rstrip() + "\n")).startswith(
        f"s.yaml:{line}:{column}: {key}: "
    )


def test_all_problems_come_at_once_in_the_order_of_the_file(complaint: Complaint) -> None:
    text = BASE
    for old, new in {
        "seed: 3": "sede: 3",
        "alpha: 0.3": "alpha: low",
        "edges: 2": "edges: -2",
        "up: 8 Mbit/s": "up: 8 Mb",
        "kind: cov": "kind: cow",
        "rounds: 2}\nevaluate": "rounds: 0}\nevaluate",
        "plot: false": "plot: off",
    }.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    assert complaint(text).split("\n") == [
        "s.yaml:2:1: sede: unknown key; did you mean 'seed'?",
        "s.yaml:5:39: data.partition.alpha: expected a number, not 'low'",
        "s.yaml:9:10: topology.edges: must be at least 0 (it is -2)",
        "s.yaml:14:18: topology.links.access.up: unknown unit 'Mb' of bandwidth; "
        "say 'Mbit/s' (bits) or 'MB/s' (bytes, eight times as much)",
        "s.yaml:19:21: method.formation.kind: unknown formation 'cow'; did you mean 'cov'?",
        "s.yaml:27:16: stop.rounds: must be at least 1 (it is 0)",
        "s.yaml:29:37: output.plot: expected true or false, not 'off'",
    ]


def test_a_profile_of_the_users_own_says_all_that_is_wrong_with_it(complaint: Complaint) -> None:
    Path("own.yaml").write_text("title: x\nsource: y\neffective_speed: 3\nbatch_overhead: 1 ms\ngroup_operations: {}\n")
    assert complaint(BASE.replace("edge_device: edge-server", "edge_device: own.yaml")).split("\n") == [
        "s.yaml:12:16: topology.edge_device: own.yaml:1:1: power: is required",
        "s.yaml:12:16: topology.edge_device: own.yaml:3:18: effective_speed: 3 has no unit; write for example '9.6 GFLOP/s'",
    ]


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", f"s.yaml: is empty; a scenario has the keys {SECTIONS}", id="empty"),
        pytest.param("# nothing yet\n", f"s.yaml: is empty; a scenario has the keys {SECTIONS}", id="comment"),
        pytest.param("null\n", f"s.yaml:1:1: is empty; a scenario has the keys {SECTIONS}", id="null"),
        pytest.param(
            "- name: x\n", f"s.yaml:1:1: is not a mapping of sections; a scenario has the keys {SECTIONS}", id="list"
        ),
        pytest.param(
            "hello\n", f"s.yaml:1:1: is not a mapping of sections; a scenario has the keys {SECTIONS}", id="word"
        ),
        pytest.param(bytes(range(256)), "s.yaml: is not a text file in UTF-8", id="binary rubbish"),
        pytest.param(b"name: caf\xe9\n", "s.yaml: is not a text file in UTF-8", id="latin 1"),
        pytest.param(BASE.encode("utf-16"), "s.yaml: is not a text file in UTF-8", id="utf-16"),
        pytest.param(b"name: a\x00b\n", "s.yaml:1:8: has a character that YAML does not allow", id="NUL"),
        pytest.param(
            '"\\ud800": 1\n', "s.yaml:1:1: has a character that YAML does not allow", id="half a surrogate pair"
        ),
        pytest.param(
            BASE.replace("seed: 3", "seed: 3\nseed: 4"),
            "s.yaml:3:1: seed: the key stands twice in this mapping (first in line 2)",
            id="duplicate key",
        ),
        pytest.param(
            BASE.replace("min_size: 2", "min_size: 2, min_size: 3"),
            "s.yaml:19:39: method.formation.min_size: the key stands twice in this mapping (first in line 19)",
            id="duplicate nested key",
        ),
        pytest.param(
            BASE.replace("  edges", "\tedges"),
            "s.yaml:9:1: a tab stands in the indentation; YAML wants spaces",
            id="tab",
        ),
        pytest.param(
            BASE.replace("  links:\n", "  links: fast\n"),
            "s.yaml:14:11: is not valid YAML: a key cannot stand here; "
            "check the indentation, or put a text with ': ' in quotes",
            id="indented too far",
        ),
        pytest.param(
            BASE.replace("  clients", " clients"),
            "s.yaml:10:2: is not valid YAML: this does not fit what stands before it; check the indentation and the quotes",
            id="indented too little",
        ),
        pytest.param(
            BASE.replace("hidden: [8]}", "hidden: [8}"),
            "s.yaml:7:30: is not valid YAML: expected ',' or ']', but got '}'",
            id="bracket",
        ),
        pytest.param("a: 'x\n", "s.yaml:2:1: is not valid YAML: a quote is opened and never closed", id="quote"),
        pytest.param(
            "name: @x\n",
            "s.yaml:1:7: is not valid YAML: a plain text cannot begin with this character; put it in quotes",
            id="at sign",
        ),
        pytest.param(
            f"---\n{BASE}---\n{BASE}",
            "s.yaml:34:1: is not valid YAML: a second document begins here; a file holds only one",
            id="two documents",
        ),
        pytest.param("a: *b\n", "s.yaml:1:4: is not valid YAML: found undefined alias 'b'", id="alias of nothing"),
        pytest.param(BOMB, "s.yaml: has more than 100000 values (aliases counted)", id="alias bomb"),
        pytest.param("a: &a [*a]\n", "s.yaml:1:4: a[0][0]: is nested deeper than 30 levels", id="alias of itself"),
        pytest.param(
            "a: " + "[" * 60 + "]" * 60, "s.yaml:1:34: a[0][0]: is nested deeper than 30 levels", id="deep nesting"
        ),
        pytest.param("{a: " * 9999 + "}" * 9999, "s.yaml: is nested deeper than 30 levels", id="deepest nesting"),
        pytest.param(f"seed: {'9' * 5000}\n", "s.yaml:1:7: seed: the number is too large", id="5000 digits"),
        pytest.param(
            f"seed: {'9' * 5000}.5\n", "s.yaml:1:7: seed: the number is too large", id="5000 digits and a half"
        ),
        pytest.param(f"seed: 0x{'f' * 5000}\n", "s.yaml:1:7: seed: the number is too large", id="5000 hex digits"),
        pytest.param("#" * 1_000_001, "s.yaml: is larger than 1000000 bytes; that is no scenario file", id="too large"),
        pytest.param(
            "a: !!int three\n", "s.yaml:1:4: a: the tag 'tag:yaml.org,2002:int' is not allowed here", id="!!int"
        ),
        pytest.param(
            "a: !!float ''\n", "s.yaml:1:4: a: the tag 'tag:yaml.org,2002:float' is not allowed here", id="!!float"
        ),
        pytest.param(
            "a: !!bool 'x'\n", "s.yaml:1:4: a: the tag 'tag:yaml.org,2002:bool' is not allowed here", id="!!bool"
        ),
        pytest.param(
            "a: !!set {x}\n", "s.yaml:1:4: a: the tag 'tag:yaml.org,2002:set' is not allowed here", id="!!set"
        ),
        pytest.param(
            "a: !!python/object/apply:os.system [ls]\n",
            "s.yaml:1:4: a: the tag 'tag:yaml.org,2002:python/object/apply:os.system' is not allowed here",
            id="!!python",
        ),
    ],
)
def test_files_that_are_no_scenarios(text: str | bytes, said: str, complaint: Complaint) -> None:
    assert complaint(text) == said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("quickstrat", "quickstrat: there is no such file and no such bundled scenario; did you mean 'quickstart'?"),
        (
            "quickstart.yaml",
            "quickstart.yaml: there is no such file and no such bundled scenario; did you mean 'quickstart'?",
        ),
        (".", ".: this is a folder, not a file"),
        ("", ".: this is a folder, not a file"),
        ("file.yaml/s.yaml", "file.yaml/s.yaml: cannot be read: Not a directory"),
        ("a\0b", "a\0b: cannot be read: embedded null byte"),
        ("a" * 5000, "a" * 5000 + ": cannot be read: File name too long"),
    ],
)
def test_files_that_are_not_there(name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file.yaml").write_text("")
    with pytest.raises(ScenarioError) as caught:
        load(name)
    assert str(caught.value) == said


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs an endless file")
def test_an_endless_file_is_not_read_to_its_end() -> None:
    with pytest.raises(ScenarioError, match=r"^/dev/zero: is larger than 1000000 bytes"):
        load("/dev/zero")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(BASE)
    file.chmod(0)
    with pytest.raises(ScenarioError) as caught:
        load(file)
    assert str(caught.value) == f"{file}: cannot be read: Permission denied"


def test_mangled_scenarios_raise_nothing_but_scenario_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(7)
    said = []
    for _ in range(150):
        text = list(BASE)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            text[at : at + rng.randint(0, 12)] = rng.choices(
                "[]{}:,-#&*!|>'\"% \n\t~0x9.e\\\u00e9", k=rng.randint(0, 6)
            )
        Path("s.yaml").write_text("".join(text), encoding="utf-8")
        try:
            load("s.yaml")
        except ScenarioError as error:
            said.append(str(error))
    assert len(said) > 100
    assert all(text.startswith("s.yaml:") for text in said)
