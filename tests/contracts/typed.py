"""What mypy says of plug-ins. It is read by mypy, never run: an error that is expected here and does not come is one itself."""

from __future__ import annotations

from typing import assert_type

import numpy as np

from emulator.contracts.grouping import FormationChoice, FormationFacts, SamplingFacts, formations
from emulator.contracts.learning import LocalParams, LocalRuleChoice, Rule, local_rules
from emulator.contracts.world import GroupOperationChoice, Meeting, OperationCost
from emulator.grouping.view import ClientView
from emulator.registry import NoParams, Params

FACTS = FormationFacts(smallest=lambda params: 1)


@formations.register("right", NoParams, FACTS)
def right(view: ClientView, rng: np.random.Generator, params: NoParams) -> list[list[int]]:
    """As the slot asks."""
    return []


@formations.register("few", NoParams, FACTS)  # type: ignore[arg-type]
def few(view: ClientView, params: NoParams) -> list[list[int]]:
    """It lacks an argument."""
    return []


@formations.register("flat", NoParams, FACTS)  # type: ignore[arg-type]
def flat(view: ClientView, rng: np.random.Generator, params: NoParams) -> list[int]:
    """It gives no groups."""
    return []


@local_rules.register("number")  # type: ignore[arg-type]
def number(params: LocalParams) -> float:
    """It gives no rule."""
    return 0.0


def facts() -> None:
    """Facts are typed."""
    FormationFacts(
        smallest=lambda params: 1, needs=("label-counts",), flops=lambda clients, numbers, groups, params: 1.0
    )
    FormationFacts(smallest=lambda params: 1, flop=1)  # type: ignore[call-arg]
    FormationFacts()  # type: ignore[call-arg]
    FormationFacts(smallest=lambda params: 1, needs="label-counts")  # type: ignore[arg-type]
    FormationFacts(smallest=lambda: 1)  # type: ignore[arg-type,misc]
    formations.register("other", NoParams, SamplingFacts())  # type: ignore[arg-type]
    assert_type(formations["cov"].facts.needs, tuple[str, ...])
    formations["cov"].facts.need  # type: ignore[attr-defined]  # noqa: B018


def choices(formation: FormationChoice, local: LocalRuleChoice, operation: GroupOperationChoice, at: Meeting) -> None:
    """Choices are typed: what they are called with, what comes back, and their parameters."""
    assert_type(local(), Rule)
    assert_type(local.params.epochs, int)
    assert_type(operation(at), OperationCost)
    assert_type(formation.params, Params)
    local.params.epoch  # type: ignore[attr-defined]  # noqa: B018
    formation(at)  # type: ignore[call-arg,arg-type]
