"""Rounds at tiers of servers between the groups and the cloud: each averages what is below it, several times if it is told to.

A server of such a tier gets the model from the one above it, has everybody below it work on it for its own number of rounds,
averages by samples after each, and sends the result up. With one round at every tier and weights by samples the global model is
that of a cloud that averages all groups itself; bytes and seconds are not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pydantic import Field

from emulator.contracts.combining import Combination
from emulator.contracts.methods import GroupResult, Patience
from emulator.contracts.world import GroupOperation, Meeting
from emulator.errors import suggestion
from emulator.learning.recipes import Handle
from emulator.ledger import GROUP_OPERATION, Tag
from emulator.methods.combining import combine
from emulator.methods.session import Session
from emulator.methods.slots import chosen_by_default
from emulator.methods.training import Group, GroupRound
from emulator.methods.waiting import gather
from emulator.registry import Params, Scale
from emulator.scenario.words import Count
from emulator.world.fleet import CLOUD
from emulator.world.world import Steps, StepsTo

# Has groups work on a model that a server has, and send it back there; returns the results by group.
Ask = Callable[[str, Sequence[Group], Handle, Sequence[GroupRound]], StepsTo[dict[int, GroupResult]]]
Levels = Sequence[tuple[str, "TierRounds"]]


class TierRounds(Params):
    """What servers of a tier do in a round of the tier above it."""

    rounds: Count = Field(1, description="rounds of its own in each round of the tier above")
    group_operation: GroupOperation = chosen_by_default(
        "none", "what those right below a server of this tier pay for being averaged there"
    )
    combination: Combination = chosen_by_default("mean", "how a server of this tier puts models together")


@dataclass(frozen=True)
class Averaged:
    """What a server sends up: a model, and the results of the groups in it by their number."""

    model: Handle
    groups: Mapping[int, GroupResult]

    @property
    def samples(self) -> int:
        """The samples of all groups."""
        return sum(each.samples for each in self.groups.values())


def problems_of(tiers: Mapping[str, TierRounds], aggregator: str, scale: Scale) -> Iterable[tuple[str, str]]:
    """Tiers that do not lie between the groups and the cloud."""
    order = list(scale.tiers)
    for tier in tiers:
        if tier == CLOUD:
            yield f"tiers.{tier}", "the cloud's rounds are the global ones; leave it out"
        elif tier not in scale.tiers:
            yield f"tiers.{tier}", f"unknown tier '{tier[:40]}'; {suggestion(tier, order, 'tiers')}"
        elif aggregator not in order:
            yield (
                f"tiers.{tier}",
                f"with aggregator '{aggregator}' groups are behind no server of their own; name a tier",
            )
        elif order.index(tier) >= order.index(aggregator):
            yield f"tiers.{tier}", f"is not above '{aggregator}', where groups are; its rounds are 'group_rounds'"
        elif sum(scale.tiers[tier]) < scale.clients:
            yield f"tiers.{tier}", f"{scale.clients - sum(scale.tiers[tier])} clients are not below any server of it"


def tiered_round(
    session: Session,
    tiers: Mapping[str, TierRounds],
    groups: Sequence[Group],
    model: Handle,
    rounds: Sequence[GroupRound],
    ask: Ask,
) -> StepsTo[list[Averaged]]:
    """One global round through all tiers; ``ask`` has the groups below the lowest one work. Returns what reached the cloud."""
    order = list(session.world.fleet.roster.tiers)
    levels = sorted(tiers.items(), key=lambda item: order.index(item[0]))
    return (yield from _ask_all(session, CLOUD, levels, groups, model, rounds, ask))


def _ask_all(
    session: Session,
    server: str,
    levels: Levels,
    groups: Sequence[Group],
    model: Handle,
    rounds: Sequence[GroupRound],
    ask: Ask,
) -> StepsTo[list[Averaged]]:
    """A server hands its model to all below it, and waits for what comes back."""
    world = session.world
    if not levels:
        results = yield from ask(server, groups, model, rounds)
        return [Averaged(result.model, {number: result}) for number, result in results.items()]
    tier = levels[0][0]
    by_child: dict[str, list[Group]] = {}
    for group in groups:
        child = next(n for n in world.fleet.path(group.aggregator) if world.fleet.roster.by_name[n].tier == tier)
        by_child.setdefault(child, []).append(group)
    work = {
        number: _at_child(session, server, child, levels, own, model, rounds, ask)
        for number, (child, own) in enumerate(by_child.items())
    }
    everybody = Patience(len(work))
    found = yield from gather(world, work, everybody, world.now, lambda _: None)
    return list(found.values())


def _at_child(
    session: Session,
    parent: str,
    child: str,
    levels: Levels,
    groups: Sequence[Group],
    model: Handle,
    rounds: Sequence[GroupRound],
    ask: Ask,
) -> StepsTo[Averaged | None]:
    """A server's part in a round of the one above it; None where it was lost."""
    world, how, tag, started_s = session.world, levels[0][1], Tag("model", rounds[0].round), session.world.now
    came = yield from session.deliver(parent, child, model, rounds[0].down_bytes, tag)
    if came is None:
        return None
    model = came
    latest: Averaged | None = None
    within = len(rounds) * math.prod(lower.rounds for _, lower in levels[1:])  # group rounds in a turn
    for turn in range(how.rounds):
        below = yield from _ask_all(session, child, levels[1:], groups, model, _in_turn(rounds, turn * within), ask)
        if how.group_operation.plugin.facts.alone:
            enough = bool(below)
        else:
            enough = len(below) >= max(1, how.group_operation.least_members(len(below)))
            if enough:
                yield from _operate(session, child, groups, below, how.group_operation, rounds[0], tag)
        if not enough or not world.was_up(child, started_s):
            return None
        latest = yield from averaged(session, child, how.combination, model, below, tag)
        model = latest.model
    assert latest is not None
    back = yield from session.deliver(child, parent, latest.model, rounds[-1].up_bytes, tag)
    return None if back is None else replace(latest, model=back)


def averaged(
    session: Session, server: str, combination: Combination, before: Handle, parts: Sequence[Averaged], tag: Tag
) -> StepsTo[Averaged]:
    """Several models put together at a server that had sent out ``before``, by their samples."""
    total = sum(part.samples for part in parts)
    models, weights = [part.model for part in parts], [part.samples / total for part in parts]
    model = yield from combine(session, server, combination, before, models, weights, tag)
    return Averaged(model, dict(itertools.chain.from_iterable(part.groups.items() for part in parts)))


def _in_turn(rounds: Sequence[GroupRound], before: int) -> list[GroupRound]:
    """The group rounds of a turn that so many went before: they count on, and later ones begin with a whole model."""
    later = [replace(at, group_round=at.group_round + before) for at in rounds]
    return [replace(later[0], down_bytes=later[0].up_bytes), *later[1:]] if before else later


def _operate(
    session: Session,
    server: str,
    groups: Sequence[Group],
    parts: Sequence[Averaged],
    operation: GroupOperation,
    at: GroupRound,
    tag: Tag,
) -> Steps:
    """What those right below a server pay for being averaged there: all compute, then all send, then all receive."""
    world, fleet = session.world, session.world.fleet
    of = {group.number: group.aggregator for group in groups}
    tag = tag.with_purpose(operation.kind)
    ways = [fleet.path(of[next(iter(part.groups))]) for part in parts]
    members = list(dict.fromkeys(way[way.index(server) - 1] for way in ways))
    vectors, size = at.memory.rule.vectors, len(members)
    about = partial(Meeting, size=size, parameters=world.workload.parameters, vectors=vectors)
    costs = [operation(about(device=fleet.device(name), server=fleet.device(server))) for name in members]
    pairs = list(zip(members, costs, strict=True))
    yield world.env.all_of([world.occupied(name, cost.seconds, tag, GROUP_OPERATION) for name, cost in pairs])
    yield world.env.all_of([world.send(n, server, c.up_bytes, tag) for n, c in pairs if c.up_bytes])
    yield world.env.all_of([world.send(server, n, c.down_bytes, tag) for n, c in pairs if c.down_bytes])
