"""What a slot does not take is refused when it registers, with the plug-in and its place."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from patience import PATIENCE_S
from scenario.command import TINY, Done, hfl

from emulator.conformance import Facts, place_of
from emulator.contracts.files import TraceFormatFacts, trace_formats
from emulator.contracts.grouping import FormationFacts, SamplingFacts, ScheduleFacts, formations, samplings, schedules
from emulator.contracts.learning import (
    DataSetFacts,
    LocalParams,
    MeasurementFacts,
    PartitionFacts,
    data_sets,
    local_rules,
    measurements,
    models,
    partitions,
)
from emulator.contracts.methods import EstimatorFacts, attacks, estimators
from emulator.errors import InputError, ScenarioError
from emulator.registry import NoParams, Params, Registry
from emulator.scenario import loads

if TYPE_CHECKING:
    from nowhere import OnlyForTypeCheckers

FACTS = FormationFacts(smallest=lambda params: 1)


class MyParams(Params):
    """Parameters."""

    size: int = 2


class MoreParams(MyParams):
    """Further parameters."""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten afterwards."""
    for registry in Registry.by_slot.values():
        registry.names()
        monkeypatch.setattr(registry, "_plugins", dict(registry._plugins))


def few(clients: Any, rng: Any) -> Any: ...
def many(clients: Any, rng: Any, params: Any, more: Any) -> Any: ...
def named(clients: Any, rng: Any, params: Any, *, seed: int) -> Any: ...
def right(clients: Any, rng: Any, params: NoParams) -> Any: ...
def other(clients: Any, rng: Any, params: MyParams) -> Any: ...
def optional(view: OnlyForTypeCheckers, rng: Any, given: Any, more: int = 1, *, seed: int = 0) -> Any: ...
def anything(*given: Any) -> Any: ...
def unknown(clients: Any, rng: Any, params: OnlyForTypeCheckers) -> Any: ...


class Attacker:
    """A class may be a plug-in."""

    def __init__(self, session: Any, params: NoParams) -> None: ...


class Forgetful:
    """It does not take the parameters."""

    def __init__(self, session: Any) -> None: ...


CALLED = "it is called with 3 arguments (clients, rng, params), and takes"


@pytest.mark.parametrize(
    ("slot", "params", "facts", "function", "said"),
    [
        (formations, None, FACTS, few, f"{CALLED} (clients: 'Any', rng: 'Any')"),
        (formations, None, FACTS, many, f"{CALLED} (clients: 'Any', rng: 'Any', params: 'Any', more: 'Any')"),
        (formations, None, FACTS, named, "it is called with positional arguments alone; give 'seed' a default"),
        (formations, None, FACTS, 7, "7 is no function"),
        (
            formations,
            None,
            FACTS,
            other,
            "'params' is annotated with MyParams, but it registers with NoParams; they must be the same, or the first a base",
        ),
        (attacks, None, None, Forgetful, "it is called with 2 arguments (session, params), and takes (session: 'Any')"),
        (formations, dict, FACTS, right, "its parameters must be a class that derives from Params, not dict"),
        (formations, MyParams(), FACTS, anything, "its parameters must be a class that derives from Params, not MyPar"),
        (
            local_rules,
            NoParams,
            None,
            anything,
            "its parameters must be a class that derives from LocalParams, not NoP",
        ),
        (
            samplings,
            NoParams,
            None,
            anything,
            "its parameters must be a class that derives from DrawingParams, not NoP",
        ),
        (formations, None, None, right, "it must say what is true of it: FormationFacts(smallest=...)"),
        (measurements, None, None, anything, "it must say what is true of it: MeasurementFacts(on=..., version=...)"),
        (formations, None, SamplingFacts(), right, "its facts must be FormationFacts(...), not SamplingFacts("),
        (
            partitions,
            None,
            PartitionFacts(owners=True),
            anything,
            "with PartitionFacts(owners=True), it takes a further",
        ),
        (models, None, {"code": "x"}, anything, "its facts must be Facts(...), not {'code': 'x'}"),
    ],
)
def test_what_does_not_conform_is_refused(
    slot: Registry[Any, Any], params: Any, facts: Any, function: Any, said: str
) -> None:
    with pytest.raises(InputError) as caught:
        slot.register("mine", params, facts)(function)
    assert str(caught.value).startswith(f"{slot.slot} 'mine' ({place_of(function)}): {said}")
    assert "mine" not in slot.names()
    if callable(function):
        assert place_of(function).startswith("contracts/test_registration.py:")


SMALL: Callable[[Any], int] = lambda params: 1  # noqa: E731


@pytest.mark.parametrize(
    ("slot", "make", "said"),
    [
        (formations, lambda: _formation(needs="label-counts"), "needs must be a tuple of names: ('label-counts',)"),
        (formations, lambda: _formation(needs=["label-counts"]), "needs must be a tuple of names: ('label-counts',)"),
        (formations, lambda: _formation(needs=("a", 3)), "needs must be a tuple of names: ('label-counts',)"),
        (formations, lambda: _formation(smallest=2), "smallest must be a function, not 2"),
        (
            formations,
            lambda: _formation(largest=SMALL),
            "largest is no such function: it is called with 2 arguments (params, int), and takes (params)",
        ),
        (formations, lambda: _formation(per_class="yes"), "per_class must be True or False, not 'yes'"),
        (formations, lambda: _formation(flops=1e6), "flops must be a function, not 1000000.0"),
        (
            formations,
            lambda: _formation(code=lambda: ""),
            "code is no such function: it is called with 1 argument (params)",
        ),
        (schedules, lambda: ScheduleFacts(count=SMALL), "count is no such function: it is called with 3 arguments"),
        (
            measurements,
            lambda: MeasurementFacts(on="tests", version=1),  # type: ignore[arg-type]
            "on must be one of 'nothing', 'test', 'public', 'client', 'everybody', not 'tests'",
        ),
        (
            measurements,
            lambda: MeasurementFacts(on="test", version=True),
            "version must be a whole number, not True",
        ),
        (
            data_sets,
            lambda: DataSetFacts(fingerprint=lambda params: "", shape=[1, 8, 8]),  # type: ignore[arg-type]
            "shape must be a tuple of whole numbers, not [1, 8, 8]",
        ),
        (estimators, lambda: EstimatorFacts(per_class=1), "per_class must be True or False, not 1"),  # type: ignore[arg-type]
        (trace_formats, lambda: TraceFormatFacts(gives="Trace"), "gives must be a class, not 'Trace'"),  # type: ignore[arg-type]
    ],
)
def test_facts_of_another_type_are_refused(slot: Registry[Any, Any], make: Callable[[], Facts], said: str) -> None:
    with pytest.raises(InputError) as caught:
        slot.register("mine", None, make())(anything)
    assert str(caught.value).startswith(f"{slot.slot} 'mine' ({place_of(anything)}): {said}")


def _formation(**facts: Any) -> FormationFacts:
    return FormationFacts(**{"smallest": SMALL, **facts})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FormationFacts(smallest=SMALL, flop=SMALL), "there is no fact 'flop'; did you mean 'flops'?"),  # type: ignore[call-arg]
        (lambda: FormationFacts(needs=()), "'smallest' must be given"),  # type: ignore[call-arg]
        (lambda: FormationFacts(SMALL), "facts are given by name, for example code=..."),  # type: ignore[misc]
    ],
)
def test_unknown_and_missing_facts_are_refused_where_they_are_given(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == f"FormationFacts ({place_of(make)}): {said}"


@pytest.mark.parametrize("function", [right, optional, anything, unknown])
def test_whatever_can_be_called_so_will_do(function: Any) -> None:
    formations.register("mine", None, FACTS)(function)
    assert formations["mine"].function is function
    assert formations["mine"].facts.needs == ()


def test_parameters_may_derive_from_those_that_a_function_takes() -> None:
    formations.register("mine", MoreParams, FACTS)(other)
    attacks.register("mine")(Attacker)  # type: ignore[arg-type]
    local_rules.register("mine")(anything)
    assert (formations["mine"].params, attacks["mine"].params) == (MoreParams, NoParams)
    assert local_rules["mine"].params is LocalParams  # what all plug-ins of the slot have


def test_a_need_that_nobody_says_is_refused_with_the_scenario() -> None:
    formations.register("mine", None, FormationFacts(smallest=SMALL, needs=("lable-counts",)))(right)
    with pytest.raises(ScenarioError) as caught:
        loads(TINY.replace("preset: hierfavg", "preset: hierfavg\n  formation: mine"), "s.yaml")
    said = f"method.formation: 'mine' ({place_of(right)}) needs 'lable-counts', which is no estimator"
    assert f"{said}; did you mean 'label-counts'?" in str(caught.value)


PLUGINS = {
    "@formations.register('mine', NoParams, FormationFacts(smallest=lambda params: 1))\ndef mine(clients, params):\n    ...": (
        "formation 'mine' (plug.py:4): it is called with 3 arguments (clients, rng, params), and takes (clients, params)"
    ),
    "\nFACTS = FormationFacts(\n    smallest=lambda params: 1,\n    flop=1)": (
        "FormationFacts (plug.py:5): there is no fact 'flop'; did you mean 'flops'?"
    ),
    "@formations.register('mine', smallest=lambda params: 1)\ndef mine(clients, rng, params):\n    ...": (
        "TypeError: Registry.register() got an unexpected keyword argument 'smallest' (HOME/plug.py:4)"
    ),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(TINY)
    yield tmp_path
    sys.modules.pop("plug", None)


@pytest.mark.parametrize("text", PLUGINS)
def test_the_command_shows_the_place_in_the_users_file(home: Path, text: str) -> None:
    head = (
        "from emulator.contracts.grouping import FormationFacts, formations\nfrom emulator.registry import NoParams\n\n"
    )
    (home / "plug.py").write_text(f"{head}{text}\n")
    done = hfl("validate", "s.yaml", "--plugin", "plug.py")
    assert done == Done(2, "", f"error: --plugin plug.py: {PLUGINS[text].replace('HOME', str(home))}\n")


def test_contracts_load_nothing_of_the_rooms() -> None:
    code = "import sys, emulator.contracts; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    rooms = ("analysis", "devices", "emulator.grouping", "emulator.learning", "emulator.methods", "emulator.scenario")
    above = (*rooms, "emulator.study", "emulator.world", "simpy", "torch", "traces")
    assert [name for name in done.stdout.split() if name.startswith(above)] == []
