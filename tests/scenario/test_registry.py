"""Slots and plug-ins: names, messages, and what comes from outside the package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from patience import PATIENCE_S
from pydantic import ValidationError

from emulator.cli import listing
from emulator.conformance import Facts
from emulator.contracts.grouping import Formation, FormationFacts, formations
from emulator.errors import InputError, ScenarioError
from emulator.registry import Chosen, Params, Registry, Scale
from emulator.scenario import loads
from emulator.scenario.json_schema import json_schema
from emulator.units import Seconds

from .schema_checker import accepts
from .test_broken import BASE


class WaitParams(Params):
    """Parameters of a plug-in that is not ours."""

    wait: Seconds
    rounds: tuple[int, ...] = ()

    def problems(self, scale: Scale) -> list[tuple[str, str]]:
        return [("wait", f"too long for {scale.clients} clients")] if self.wait > 10 else []


Register = Callable[..., None]
FACTS = FormationFacts(smallest=lambda params: 2)


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Registers a plug-in for the length of a test."""

    def register(slot: Registry[Any, Any], name: str, params: type[Params], facts: Facts) -> None:
        slot.names()
        monkeypatch.setattr(slot, "_plugins", dict(slot._plugins))

        def function(*args: Any) -> Any:
            """Does as it likes."""
            return args

        slot.register(name, params, facts)(function)

    return register


def formation(value: str) -> str:
    """The base scenario with another formation."""
    return BASE.replace("{kind: cov, min_size: 2, max_cov: 0.5}", value)


@pytest.mark.parametrize("slot", sorted(Registry.by_slot))
def test_every_slot_has_choices_that_say_what_they_are(slot: str) -> None:
    room = Registry.by_slot[slot]
    assert room.names() == sorted(room.names())
    for name in room.names():
        plugin = room[name]
        assert plugin.name == name
        assert plugin.summary.endswith("."), f"{slot} {name}: the first line of the docstring is a sentence"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("covv", "unknown formation 'covv'; did you mean 'cov'?"),
        ("COV", "unknown formation 'COV'; did you mean 'cov'?"),
        ("qqqq", "unknown formation 'qqqq'; known: 'all', 'cov', 'random', 'single'"),
        ("", "unknown formation ''; known: 'all', 'cov', 'random', 'single'"),
        ("z" * 999, f"unknown formation '{'z' * 60}'; known: 'all', 'cov', 'random', 'single'"),
    ],
)
def test_an_unknown_name_gives_a_hint(name: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    room = formations
    ours = {n: room[n] for n in ("all", "cov", "random", "single")}
    monkeypatch.setattr(room, "_plugins", ours)
    with pytest.raises(InputError) as caught:
        room[name]
    assert str(caught.value) == said


class Thing(Protocol):
    """A plug-in of a slot that only a test has."""

    def __call__(self, params: Any, /) -> None: ...


class ThingChoice(Chosen[Params, Thing, Facts]):
    slot = "thing of a test"


def test_a_name_is_taken_once_by_a_module_and_never_by_two() -> None:
    room: Registry[Thing, Facts] = Registry(ThingChoice)
    try:

        def mine(params: Any) -> None: ...
        def mine_again(params: Any) -> None: ...
        def other(params: Any) -> None: ...

        other.__module__ = "elsewhere"
        room.register("a")(mine)
        room.register("a")(mine_again)  # a module that is loaded again may register again
        assert room["a"].function is mine_again
        with pytest.raises(InputError) as caught:
            room.register("a")(other)
        assert str(caught.value) == (
            f"thing of a test 'a' is registered twice, in {__name__} and elsewhere; give one another name"
        )
        assert room["a"].function is mine_again
    finally:
        del Registry.by_slot["thing of a test"]


def test_a_plug_in_from_elsewhere_is_as_good_as_ours(foreign: Register) -> None:
    foreign(formations, "patient", WaitParams, FACTS)
    assert "patient" in formations.names()
    assert ("patient", "Does as it likes.", "wait, rounds") in listing.entries("formations")
    scenario = loads(formation("{kind: patient, wait: 3 s, rounds: [1, 2]}")).scenario
    chosen = scenario.method.params.formation
    assert (chosen.kind, chosen.params.wait, chosen.params.rounds) == ("patient", 3.0, (1, 2))
    assert chosen.dump() == {"kind": "patient", "wait": "3 s", "rounds": (1, 2)}
    schema = json_schema()
    data = {"kind": "patient", "wait": "3 s"}
    method = {"kind": "grouped", "formation": data}
    assert accepts(schema["properties"]["method"], method, schema)
    assert not accepts(schema["properties"]["method"], {**method, "formation": {**data, "wait": 3}}, schema)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("patiet", "s.yaml:19:14: method.formation: unknown formation 'patiet'; did you mean 'patient'?"),
        ("patient", "s.yaml:19:3: method.formation.wait: is required"),
        ("{kind: patient, wait: 3}", "s.yaml:19:36: method.formation.wait: 3 has no unit; write for example '15 ms'"),
        (
            "{kind: patient, wiat: 3 s, wait: 1 s}",
            "s.yaml:19:30: method.formation.wiat: unknown key; did you mean 'wait'?",
        ),
        (
            "{kind: patient, wait: 1 s, rounds: [1, x]}",
            "s.yaml:19:53: method.formation.rounds[1]: expected a whole number, not 'x'",
        ),
        ("{kind: patient, wait: 1 min}", "s.yaml:19:36: method.formation.wait: too long for 8 clients"),
    ],
)
def test_messages_about_a_plug_in_from_elsewhere_keep_their_place(foreign: Register, value: str, said: str) -> None:
    foreign(formations, "patient", WaitParams, FACTS)
    with pytest.raises(ScenarioError) as caught:
        loads(formation(value), "s.yaml")
    assert str(caught.value) == said


def test_errors_of_choices_within_choices_keep_their_place(foreign: Register) -> None:
    class Holder(Params):
        first: Formation
        others: tuple[Formation, ...] = ()

    foreign(formations, "holder", Holder, FACTS)
    with pytest.raises(ScenarioError) as caught:
        loads(
            formation(
                "{kind: holder, first: {kind: cov, min_sise: 3}, others: [all, {kind: cov, max_cov: -1}, sngle]}"
            ),
            "s",
        )
    assert str(caught.value).split("\n") == [
        "s:19:48: method.formation.first.min_sise: unknown key; did you mean 'min_size'?",
        "s:19:97: method.formation.others[1].max_cov: must be at least 0 (it is -1)",
        "s:19:102: method.formation.others[2]: unknown formation 'sngle'; did you mean 'single'?",
    ]


def test_parameters_are_frozen_and_strict() -> None:
    params = WaitParams.model_validate({"wait": "3 s"})
    with pytest.raises(ValidationError, match="frozen"):
        params.wait = 4.0  # type: ignore[misc]
    for wrong in ({"wait": "3 s", "x": 1}, {"wait": "3 s", "rounds": "1"}, {}):
        with pytest.raises(ValidationError):
            WaitParams.model_validate(wrong)


def test_a_choice_is_compared_by_what_was_chosen() -> None:
    one, same, other = (
        loads(formation(f"{{kind: cov, min_size: {n}}}")).scenario.method.params.formation for n in (2, 2, 3)
    )
    assert isinstance(one, Chosen)
    assert one == same
    assert one != other


HEAVY = ("torch", "torchvision", "sklearn", "scipy", "pandas", "matplotlib", "pyarrow")
PROBE = """
import atexit, sys
@atexit.register
def _():
    sys.stderr.write("loaded:" + " ".join(name for name in {heavy} if name in sys.modules) + ":")
{code}
"""


@pytest.mark.parametrize(
    "code",
    [
        "import emulator.scenario",
        "import emulator.scenario\nfor name in emulator.scenario.bundled(): emulator.scenario.load(name)",
        "from emulator.scenario.json_schema import json_schema\njson_schema()",
        *(
            f"from emulator.cli import main\nsys.argv = {['hfl', *arguments]}\nmain()"
            for arguments in (
                ["--help"],
                ["validate", "quickstart"],
                ["schema"],
                ["list"],
                ["list", "models"],
                ["study", "studies/quickstart", "--dry-run"],
            )
        ),
    ],
)
def test_what_needs_no_training_does_not_load_what_training_needs(code: str) -> None:
    assert loaded(code, HEAVY) == (0, "loaded::")


def loaded(code: str, heavy: tuple[str, ...]) -> tuple[int, str]:
    """How a process of this code ended, and what it said of what it had loaded."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(heavy=heavy, code=code)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stderr


def test_a_run_does_not_wait_for_what_it_does_not_need(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\n"
        "from emulator.learning.memo import Memo\n"
        "from emulator.run import execute\n"
        "from emulator.scenario import load\n"
        "given = load('quickstart', ['stop.rounds=1', 'output.plot=false'])\n"
        f"execute(given, Path({str(tmp_path / 'run')!r}), Memo(None), max_workers=1)"
    )
    seldom = ("sklearn", "scipy", "torchvision", "sympy", "torch._dynamo", "matplotlib")
    assert loaded(code, ("torch", *seldom)) == (0, "loaded:torch:")
