"""What a plug-in gives back is looked at where its slot calls it; what is no good names the plug-in."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emulator.conformance import Facts, place_of
from emulator.contracts.files import TraceFormatFacts
from emulator.contracts.grouping import FormationFacts, ScheduleFacts, formations
from emulator.contracts.learning import DataSetFacts, MeasurementFacts, PartitionFacts
from emulator.contracts.methods import GroupResult, Halves, Patience, Reading
from emulator.contracts.world import FaultEffect, FleetSize, OperationCost
from emulator.errors import HflError
from emulator.grouping.aggregation import SampledGroups
from emulator.grouping.view import ClientView, GroupView
from emulator.learning.partitions import ClusteredParts
from emulator.learning.recipes import Handle
from emulator.registry import AnyChosen, Registry
from emulator.world.overtime import Spells
from traces.content import LatencyMatrix, Trace

COUNTS = np.array([[3, 1], [2, 2], [0, 4]])
CLIENTS = ClientView(COUNTS, COUNTS.sum(axis=1))
RNG = np.random.default_rng(0)
GROUPS = GroupView(COUNTS, COUNTS.sum(axis=1))
SAMPLED = SampledGroups(np.array([4, 4]), 12, np.zeros(3), [0, 2])
LABELS = np.array([0, 1, 0, 1])
ENQUIRY = SimpleNamespace(servers=["cloud"] * 3)
GROUP = SimpleNamespace(members=(1, 2))
WATCH = SimpleNamespace(known=[4, 7, 9])
FACTS: dict[str, Facts] = {
    "data set": DataSetFacts(fingerprint=lambda params: ""),
    "formation": FormationFacts(smallest=lambda params: 1),
    "measurement": MeasurementFacts(on="nothing", version=1),
    "trace format": TraceFormatFacts(gives=Trace),
}
# What the slot's plug-ins are called with.
GIVEN: dict[str, tuple[Any, ...]] = {
    "distance": (np.zeros((2, 5)), np.zeros((3, 5))),
    "formation": (CLIENTS, RNG),
    "sampling": (GROUPS,),
    "aggregation": (SAMPLED,),
    "schedule": (0, 3),
    "partition": (LABELS, 2, 2, RNG),
    "local update": (),
    "measurement": (None,),
    "estimator": (None, ENQUIRY),
    "in-group training": (None, GROUP, None, None, None),
    "waiting": (3, 3),
    "staleness": (2,),
    "distribution": (np.array([0.25, 0.75]),),
    "split time": (WATCH,),
    "bipartition": (WATCH, None, False, RNG),
    "method": (None,),
    "attack": (None,),
    "group operation": (None,),
    "fault": (FleetSize(3, 1), lambda target: RNG),
    "trace format": (None,),
    "trace generator": (10.0, RNG),
}


def returning(value: object) -> Callable[..., object]:
    """A process that returns this."""

    def made(*given: object) -> Generator[Any, Any, object]:
        yield
        return value

    return made


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AnyChosen]:
    """Registers a function for a slot, for the length of a test, and chooses it."""

    def choose(slot: str, function: Callable[..., object], facts: Facts | None = None) -> AnyChosen:
        registry = Registry.by_slot[slot]
        registry.names()
        monkeypatch.setattr(registry, "_plugins", dict(registry._plugins))
        registry.register("mine", None, facts or FACTS.get(slot))(function)
        return registry.choice("mine", registry["mine"].params())

    return choose


def played(found: Any) -> Any:
    """What a process returns, to its end; anything else as it is."""
    if isinstance(found, Generator):
        while True:
            try:
                next(found)
            except StopIteration as end:
                return end.value
    return found


RESULT = GroupResult(Handle("model"), (1, 5), 3)
HALVES = Halves([4], [7], None, 1, 0.0)


@pytest.mark.parametrize(
    ("slot", "value", "said"),
    [
        ("formation", [[0, 1], [1, 2]], "client 1 is in 2 groups, or twice in one"),
        ("formation", [[0, 0], [1, 2]], "client 0 is in 2 groups, or twice in one"),
        ("formation", [[0, 3]], "there is no client 3 in a view of 3 clients (rows count from 0)"),
        ("formation", [[-1]], "there is no client -1 in a view of 3 clients (rows count from 0)"),
        ("formation", [[0], []], "group 1 is empty"),
        ("formation", [], "it forms no group of 3 clients"),
        ("formation", [[0.0, 1.0]], "the members of groups must be whole numbers, and are [0.0, 1.0]"),
        ("formation", [[True]], "the members of groups must be whole numbers, and are [True]"),
        ("formation", [0, 1], "it must give lists of row numbers, and gives [0, 1]"),
        ("formation", None, "it must give lists of row numbers, and gives None"),
        ("distance", np.zeros((3, 2)), "it must give numbers [2, 3], and gives [3, 2]"),
        ("distance", np.full((2, 3), np.nan), "it gives distances that are not finite, or negative"),
        ("distance", np.full((2, 3), -1.0), "it gives distances that are not finite, or negative"),
        ("sampling", np.zeros(2), "it must give numbers [3], and gives [2]"),
        ("sampling", [0.0, math.nan, 0.0], "the log-weight of group 1 is not a number (nan)"),
        ("sampling", ["a", "b", "c"], "it must give numbers [3], and gives ['a', 'b', 'c']"),
        ("aggregation", [1.0], "it must give numbers [2], and gives [1]"),
        ("aggregation", [0.5, math.inf], "weight 1 is not finite: [0.5, inf]"),
        ("schedule", 1, "it must give True or False, and gives 1"),
        (
            "partition",
            [np.arange(2)],
            "it must give a list of 2 arrays, one for each client, and gives [array([0, 1])]",
        ),
        ("partition", [np.arange(2), [2, 3]], "client 1 must have an array of whole numbers, and has [2, 3]"),
        ("partition", [np.arange(2), np.array([4])], "there is no sample 4 among 4 (they count from 0)"),
        (
            "partition",
            ClusteredParts([np.arange(2)] * 2, np.zeros(2, np.int64)),
            "it must be registered with PartitionFacts(clusters=True) if it makes clusters, and only then",
        ),
        ("local update", None, "it must give a Rule, and gives None"),
        ("measurement", 3.0, "it must give an array of numbers, and gives 3.0"),
        ("measurement", np.array(["a"]), "it must give an array of numbers, and gives array(['a']"),
        (
            "estimator",
            np.zeros((3, 2)),
            "it must be a process, a function that yields what it waits for; it gives array(",
        ),
        ("in-group training", None, "it must be a process, a function that yields what it waits for; it gives None"),
        ("method", None, "it must be a process, a function that yields what it waits for; it gives None"),
        ("waiting", 2, "it must give a Patience, and gives 2"),
        (
            "waiting",
            Patience(0),
            "it must wait for at least one, and longer than 0 seconds; it gives Patience(wanted=0",
        ),
        (
            "waiting",
            Patience(1, 0.0),
            "it must wait for at least one, and longer than 0 seconds; it gives Patience(want",
        ),
        (
            "waiting",
            Patience(1, math.nan),
            "it must wait for at least one, and longer than 0 seconds; it gives Patience",
        ),
        ("staleness", -0.5, "it must give a finite number of at least 0, and gives -0.5 for staleness 2"),
        ("staleness", math.inf, "it must give a finite number of at least 0, and gives inf for staleness 2"),
        ("staleness", math.nan, "it must give a finite number of at least 0, and gives nan for staleness 2"),
        (
            "distribution",
            SimpleNamespace(ppf=lambda shares: math.inf * shares, cdf=None),
            "it must give a finite number for each share, and gives array([inf, inf])",
        ),
        (
            "distribution",
            SimpleNamespace(ppf=lambda shares: 1.0, cdf=None),
            "it must give a finite number for each share, and gives array(1.)",
        ),
        ("staleness", True, "it must give a finite number of at least 0, and gives True for staleness 2"),
        ("split time", True, "it must give a Reading with finite flops, and gives True"),
        ("split time", Reading(True, flops=math.nan), "it must give a Reading with finite flops, and gives Reading("),
        ("bipartition", ([4], [7, 9]), "it must give Halves with finite flops, and gives ([4], [7, 9])"),
        ("bipartition", HALVES, "its halves must have every member of whom an update is known, once"),
        ("attack", None, "it must give an Attack, and gives None"),
        ("group operation", 1.0, "it must give an OperationCost, and gives 1.0"),
        ("group operation", OperationCost(-1.0, 0, 0), "it takes -1.0 seconds; they must be finite and not negative"),
        (
            "group operation",
            OperationCost(math.nan, 0, 0),
            "it takes nan seconds; they must be finite and not negative",
        ),
        (
            "group operation",
            OperationCost(1.0, -3, 0),
            "it moves -3 bytes; they must be a whole number and not negative",
        ),
        ("group operation", OperationCost(1.0, 0, 2.5), "it moves 2.5 bytes; they must be a whole number and not"),  # type: ignore[arg-type]
        ("fault", {}, "it must give a FaultEffect, and gives {}"),
        ("fault", FaultEffect(speeds={3: Spells([])}), "it slows client 3 down, and there are clients 0 to 2"),
        (
            "trace format",
            LatencyMatrix(np.zeros((1, 1))),
            "it must give a Trace, as its facts say, and gives LatencyMatr",
        ),
        ("trace generator", [1.0], "it must give a StepFunction, and gives [1.0]"),
    ],
)
def test_a_plug_in_that_gives_what_it_must_not_is_named(
    chosen: Callable[..., AnyChosen], slot: str, value: object, said: str
) -> None:
    def mine(*given: object) -> object:
        return value

    with pytest.raises(HflError) as caught:
        played(chosen(slot, mine)(*GIVEN[slot]))
    assert caught.value.exit_code == 1
    assert str(caught.value).startswith(f"{slot} 'mine' ({place_of(mine)}): {said}")


@pytest.mark.parametrize(
    ("slot", "value", "said"),
    [
        ("estimator", np.zeros((2, 4)), "it must give numbers [3, any], and gives [2, 4]"),
        ("estimator", np.zeros(3), "it must give numbers [3, any], and gives [3]"),
        ("estimator", [[0.0], [np.nan], [1.0]], "the estimate of client 1 is not finite (nan or infinite)"),
        ("in-group training", 3, "it must return a GroupResult, or None; it returns 3"),
        ("in-group training", RESULT, "its GroupResult has client 5, who is no member of the group"),
    ],
)
def test_what_a_process_returns_is_looked_at_too(
    chosen: Callable[..., AnyChosen], slot: str, value: object, said: str
) -> None:
    with pytest.raises(HflError, match=r"^[a-z -]+ 'mine'") as caught:
        played(chosen(slot, returning(value))(*GIVEN[slot]))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("slot", "value"),
    [
        ("formation", [[2], [0, 1]]),
        ("formation", [np.array([0, 2])]),  # who is in no group stays out
        ("sampling", np.array([-np.inf, -np.inf, np.inf])),
        ("aggregation", np.array([0.5, 0.75])),
        ("schedule", True),
        ("partition", [np.array([0, 3]), np.array([1])]),
        ("waiting", Patience(2, 5.0)),
        ("staleness", 1.5),
        ("bipartition", Halves([9, 4], [7], None, 1, 0.0)),
        ("group operation", OperationCost(0.0, 3, 4)),
        ("fault", FaultEffect(speeds={2: Spells([(1.0, 2.0)])})),
    ],
)
def test_what_is_good_comes_back_as_it_is(chosen: Callable[..., AnyChosen], slot: str, value: object) -> None:
    assert chosen(slot, lambda *given: value)(*GIVEN[slot]) is value


def test_spells_that_are_not_in_order_are_their_faults_fault(chosen: Callable[..., AnyChosen]) -> None:
    spells = Spells([(1.0, 3.0), (2.0, 4.0)])
    disorder: FaultEffect = chosen("fault", lambda *given: FaultEffect(nodes={"client-0": spells}))(*GIVEN["fault"])
    assert disorder.nodes["client-0"].at(2.0) == 0
    with pytest.raises(
        HflError, match=r"^fault 'mine' .*: a spell from 2.0 s to 4.0 s cannot come after one that ends at 3.0"
    ):
        spells.at(3.5)
    with pytest.raises(ValueError, match=r"^a spell from -1 s to 4 s cannot come as the first"):
        Spells([(-1, 4)]).at(0.0)


def test_a_schedule_counts_groups_that_there_can_be(chosen: Callable[..., AnyChosen]) -> None:
    facts = ScheduleFacts(count=lambda round_index, clients, params: round_index)
    schedule: Any = chosen("schedule", lambda *given: True, facts)
    assert schedule.groups(2, 3) == 2
    with pytest.raises(HflError, match=r"'count' must be a whole number from 1 to 3, and is 4"):
        schedule.groups(4, 3)


def test_what_facts_say_of_numbers_is_looked_at_too(chosen: Callable[..., AnyChosen]) -> None:
    facts = FormationFacts(smallest=lambda params: None, largest=lambda *given: 2.5, most=lambda *given: 4)  # type: ignore[arg-type,return-value]
    formation: Any = chosen("formation", lambda *given: [], facts)
    assert formation.most(9) == 4
    for ask, said in ((lambda: formation.smallest, "is None"), (lambda: formation.largest(9), "is 2.5")):
        with pytest.raises(HflError, match=f"^formation 'mine' .* must be a whole number of at least .*{said}$"):
            ask()


def test_a_partition_gets_the_owners_that_it_asks_for(chosen: Callable[..., AnyChosen]) -> None:
    def by_owner(labels: Any, clients: Any, classes: Any, rng: Any, params: Any, owners: Any = None) -> Any:
        return [np.flatnonzero(owners == c) for c in range(clients)]

    partition = chosen("partition", by_owner, PartitionFacts(owners=True))
    parts = partition(LABELS, 2, 2, RNG, np.array([1, 0, 0, 1]))
    assert [part.tolist() for part in parts] == [[1, 2], [0, 3]]


def test_one_of_ours_that_is_broken_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formations, "_plugins", dict(formations._plugins))

    def ours(*given: object) -> list[list[int]]:
        return [[]]

    ours.__module__ = "emulator.grouping.formation.ours"
    formations.register("ours", None, FormationFacts(smallest=lambda params: 1))(ours)
    with pytest.raises(RuntimeError, match=r"formation 'ours' .*: group 0 is empty"):
        formations.choice("ours", formations["ours"].params())(CLIENTS, RNG)
