from __future__ import annotations

import pytest

from emulator.errors import ScenarioError
from emulator.yamlfile import dotted, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("1E-3", 0.001),
        ("-.5", -0.5),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("12:30:00", "12:30:00"),
        ("2024-01-31", "2024-01-31"),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("~", None),
        ("", None),
        ("true", True),
        ("'true'", "true"),
        ("=", "="),
        ("20 Mbit/s", "20 Mbit/s"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    assert parse(f"key: {text}", "f").data == {"key": value}


def test_every_key_and_value_has_its_place() -> None:
    document = parse("a:\n  b: 1\n  c: [x, y]\n", "f.yaml")
    assert str(document.problem(("a", "b"), "bad")) == "f.yaml:2:6: a.b: bad"
    assert str(document.problem(("a", "b"), "bad", at_key=True)) == "f.yaml:2:3: a.b: bad"
    assert str(document.problem(("a", "c", 1), "bad")) == "f.yaml:3:10: a.c[1]: bad"
    assert str(document.problem(("a", "zz"), "bad")) == "f.yaml:1:1: a.zz: bad"
    assert dotted(("a", 0, "b")) == "a[0].b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "f:3:1: a: the key stands twice in this mapping (first in line 1)"),
        ("a:\n\tb: 1\n", "f:2:1: a tab stands in the indentation; YAML wants spaces"),
        (
            "a: !!python/object:os.system x",
            "f:1:4: a: the tag 'tag:yaml.org,2002:python/object:os.system' is not allowed here",
        ),
        ("a: " + "9" * 5000, "f:1:4: a: the number is too large"),
        ("a: [1, 2", "f:1:9: is not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("? [x]\n: 1\n", "f:1:3: a key must be a plain word"),
        ("a: *b", "f:1:4: is not valid YAML: found undefined alias 'b'"),
        ("a: 1\x01", "f:1:5: has a character that YAML does not allow"),
    ],
)
def test_what_cannot_be_read_says_where_and_why(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse(text, "f")
    assert str(caught.value) == message


def test_deep_nesting_and_alias_bombs_end_in_a_message() -> None:
    with pytest.raises(ScenarioError, match="nested deeper than 30 levels"):
        parse("a: " + "[" * 60 + "]" * 60, "f")
    with pytest.raises(ScenarioError, match="nested deeper than 30 levels"):
        parse("a: " + "[" * 5000 + "]" * 5000, "f")
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
    )
    with pytest.raises(ScenarioError, match="more than 100000 values"):
        parse(bomb, "f")
    with pytest.raises(ScenarioError, match="nested deeper"):
        parse("a: &a [*a]", "f")
