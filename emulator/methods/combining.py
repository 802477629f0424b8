"""Servers that put models together, and what they make of the average: in time on their devices, and in the lab.

The weighted mean, and taking the average as it is, take no time: they are what every server did before there was a choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from emulator.contracts.combining import Combination, ServerOptimiser
from emulator.contracts.grouping import Aggregation
from emulator.contracts.learning import LocalRule
from emulator.contracts.world import GroupOperation
from emulator.learning.recipes import Handle
from emulator.learning.vector_functions import Combined, ServerStep
from emulator.ledger import Tag
from emulator.methods.session import Session
from emulator.world.world import StepsTo

COMBINATION = "combination"  # what servers' computations are for
SERVER_OPTIMISER = "server-optimiser"


def combine(
    session: Session,
    server: str,
    combination: Combination,
    before: Handle,
    models: Sequence[Handle],
    weights: Sequence[float],
    tag: Tag,
) -> StepsTo[Handle]:
    """One model out of those that a server received, which had sent out ``before``; ``weights`` add up to 1."""
    if combination.sums:
        return session.lab.combine(models, weights)
    flops = combination.flops(len(models), session.world.workload.parameters)
    yield session.world.serve(server, flops, tag.with_purpose(COMBINATION))
    return session.lab.apply(Combined(combination, weights), [before, *models])[0]


class ServerOptimisers:
    """The optimisers of servers of one kind, each with a state of its own over the run: of the cloud, or of groups."""

    def __init__(self, session: Session, optimiser: ServerOptimiser) -> None:
        self._session = session
        self._optimiser = optimiser
        self._states: dict[int, Sequence[Handle]] = {}

    def step(self, server: str, number: int, before: Handle, average: Handle, tag: Tag) -> StepsTo[Handle]:
        """The new model of a server (``number`` tells states apart), which had sent out ``before`` and got an average back."""
        if self._optimiser.none:
            return average
        session, parameters = self._session, self._session.lab.model_facts.parameters
        flops = float(self._optimiser.plugin.facts.flops) * parameters
        yield session.world.serve(server, flops, tag.with_purpose(SERVER_OPTIMISER))
        step = ServerStep(self._optimiser, parameters)
        after, *self._states[number] = session.lab.apply(step, [before, average, *self._states.get(number, ())])
        return after

    def forget(self) -> None:
        """Drops all states: the groups that had them are no more."""
        self._states.clear()


def refused(
    key: str,
    combination: Combination,
    local: LocalRule,
    operation: GroupOperation | None = None,
    most: int | None = None,
) -> Iterable[tuple[str, str]]:
    """Why a combination does not go with a local rule, with a group operation, or with so many models as there are at most."""
    if combination.sums:
        return
    who = f"'{combination.kind}'"
    if local().remember is not None:
        yield (
            key,
            f"{who} does not go with '{local.kind}', whose memory belongs to the mean; say 'mean', or another rule",
        )
    if operation is not None and operation.sums_only:
        message = f"{who} needs every member's model, and with '{operation.kind}' the server sees their sum alone"
        yield key, f"{message}; say 'mean', or 'group_operation: none'"
    if most is not None and most < combination.least:
        yield key, f"{who} needs {combination.least} models, and a server may have only {most} to put together"


def refused_at_cloud(
    combination: Combination, local: LocalRule, aggregation: Aggregation, groups: int
) -> Iterable[tuple[str, str]]:
    """Why the cloud's combination does not go with other rules, or with so many groups as it hears of at most."""
    key, who = "global_combination", f"'{combination.kind}'"
    yield from refused(key, combination, local, most=groups)
    if not combination.sums and aggregation.kind != "samples":
        message = f"{who} does not go with the weights of '{aggregation.kind}', which are those of a sum"
        yield key, f"{message}; say 'mean', or 'aggregation: samples'"
    if not combination.sums and groups == 1:
        yield key, f"{who} has one model to put together; clients' models are the group's 'combination'"


def optimiser_refused(key: str, optimiser: ServerOptimiser, local: LocalRule) -> Iterable[tuple[str, str]]:
    """Why a server optimiser does not go with a local rule."""
    if not optimiser.none and local().remember is not None:
        message = f"'{optimiser.kind}' does not go with '{local.kind}', whose memory counts on the mean"
        yield key, f"{message}; say 'none', or take another rule"
