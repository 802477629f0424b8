"""The slots that every method has whose clients work in groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import Field

from emulator.contracts.combining import Combination
from emulator.contracts.grouping import Formation
from emulator.contracts.learning import LocalRule
from emulator.contracts.methods import Estimator, MethodParams, Training, Waiting, estimators
from emulator.contracts.world import GroupOperation
from emulator.errors import quote_all, suggestion
from emulator.methods.combining import refused
from emulator.methods.wire import Encodings, problems_of
from emulator.registry import Scale
from emulator.scenario.words import Count
from emulator.world.fleet import CLOUD, Fleet

ANY_EDGE = "any-edge"
ENCODINGS = (
    "what models are on the wire, by tier (client, edge, ...) and direction: 'up', 'down' and between its nodes, 'peer'"
)
PROBED = 200  # sizes of groups for which limits are tried, where more are possible


def chosen_by_default(kind: str, description: str) -> Any:
    """A field for a choice that is made where the scenario makes none."""
    return Field({"kind": kind}, validate_default=True, description=description)


def too_soon(enough: int, asked: int, least: int, whose: str) -> str:
    """What is wrong with waiting for so few that every round is given up."""
    return f"goes on with {enough} of {asked}, and {whose} needs {least}, so every round is given up; wait for {least}"


class OneServer(MethodParams):
    """What every method has whose clients all work under one server that sees each one's model."""

    aggregator: Literal["cloud", "edge"] = Field("cloud", description="who averages: the cloud, or the only edge")
    local: LocalRule = chosen_by_default("sgd", "what a client does with a gradient")
    wait_for_members: Waiting = chosen_by_default("all", "how long the server waits for clients in a round")
    combination: Combination = chosen_by_default("mean", "how the server puts the models of clients together")
    min_members: Count = Field(1, description="with fewer clients left, a round is given up")
    initial_model: Literal["weights", "seed"] = Field(
        "weights", description="'seed': clients draw the initial model themselves, so the first download has no bytes"
    )
    encodings: dict[str, Encodings] = Field({}, description=ENCODINGS)

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """What does not fit this fleet."""
        yield from problems_of(self.encodings, scale, None, self.local.kind if self.local().remember else "")
        if self.aggregator == "edge" and scale.edges != 1:
            yield (
                "aggregator",
                f"one edge sees all clients only where there is one, and there are {scale.edges}; say 'cloud'",
            )
        if self.local().remember is not None:
            yield "local", f"'{self.local.kind}' has a memory that belongs to one global model; take another"
        everybody, enough = scale.clients, self.wait_for_members(scale.clients, scale.clients).wanted
        count = self.wait_for_members.count or 0
        if count > everybody:
            yield "wait_for_members.count", f"waits for {count}, but there are only {everybody} clients"
        if self.min_members > everybody:
            yield (
                "min_members",
                f"there are only {everybody} clients, so every round is given up; say {everybody} or less",
            )
        elif enough < self.min_members:
            yield "wait_for_members", too_soon(enough, everybody, self.min_members, "'min_members'")
        yield from refused("combination", self.combination, self.local, most=min(enough, everybody))

    def server(self, fleet: Fleet) -> str:
        """The node that averages."""
        return CLOUD if self.aggregator == "cloud" else fleet.edge_names[0]


class GroupSlots(MethodParams):
    """What every method has whose clients work in groups."""

    aggregator: str = Field(
        "edge",
        description="where groups are formed and aggregated: at each server of a tier ('edge', 'cloud', or one of "
        "topology.tiers) from the clients below it; or 'any-edge': from all clients, served by the edges in turn",
    )
    estimator: Estimator = chosen_by_default(
        "label-counts", "what servers learn of clients, for formations that work on estimates"
    )
    formation: Formation = Field(description="how clients become groups")
    training: Training = chosen_by_default("parallel", "what happens inside a group")
    local: LocalRule = chosen_by_default("sgd", "what a client does with a gradient")
    group_operation: GroupOperation = chosen_by_default("none", "what members pay for working in a group")
    combination: Combination = chosen_by_default("mean", "how a group's server puts its members' models together")
    min_members: Count = Field(1, description="a group with fewer members left gives up its round")
    initial_model: Literal["weights", "seed"] = Field(
        "weights", description="'seed': clients draw the initial model themselves, so the first download has no bytes"
    )
    encodings: dict[str, Encodings] = Field({}, description=ENCODINGS)

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """Groups that cannot be formed in this fleet."""
        memory = self.local.kind if self.local().remember else ""
        yield from problems_of(self.encodings, scale, self.group_operation, memory)
        wrong = self._no_such_tier(scale)
        if wrong:
            yield "aggregator", wrong
            return
        if scale.moving and self.aggregator == ANY_EDGE:
            yield "aggregator", "clients that move are served by the server that they are behind; say 'edge' or 'cloud'"
        here = min(self.places(scale))
        smallest = self.formation.smallest
        if self.formation.plugin.facts.per_class and not self.estimator.plugin.facts.per_class:
            able = quote_all(name for name in estimators.names() if estimators[name].facts.per_class)
            yield "estimator", f"'{self.formation.kind}' needs a number for each class; estimators that say one: {able}"
        if smallest > here and not any(True for _ in self.formation.params.problems(scale)):
            where = "there are" if self.places(scale) == [scale.clients] else f"the smallest {self.aggregator} has"
            asked = (
                "the groups asked for need" if self.formation.plugin.facts.most is not None else "groups of at least"
            )
            yield "formation", f"{asked} {smallest} clients, but {where} only {here}"
        if not self.training.plugin.facts.together and not self.group_operation.plugin.facts.alone:
            yield (
                "group_operation",
                f"'{self.training.kind}' members do not work in step; there is nothing to do together",
            )
        waiting = getattr(self, "wait_for_members", None)
        if not self.training.plugin.facts.together and waiting is not None and waiting.kind != "all":
            yield "wait_for_members", f"'{self.training.kind}' members do not work in step; there is nobody to wait for"
        if self.training.plugin.facts.apart and memory:
            yield "local", f"'{memory}' has a memory that belongs to the mean of members in step; take another"
        if self.training.plugin.facts.headers:
            if not self.group_operation.plugin.facts.alone:
                yield (
                    "group_operation",
                    f"with '{self.training.kind}' one member trains for all; there is nobody to do it with",
                )
            if self.min_members > 1:
                yield "min_members", f"with '{self.training.kind}' one member trains for all; leave it at 1"
        elif smallest <= here:
            yield from self.hindered(self.sizes(scale))
        yield from self._not_combined(scale)

    def _not_combined(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """Why a combination does not fit the groups; where sizes are not known before, the largest that is possible counts."""
        if not self.combination.sums and not self.training.plugin.facts.combines:
            message = (
                f"'{self.training.kind}' training does not put members' models together by '{self.combination.kind}'"
            )
            yield "combination", f"{message}; say 'mean', or 'training: parallel'"
            return
        sizes = self.sizes(scale)
        known = self.formation.kind == "all" and sizes[0] == min(self.places(scale))
        most = self.heard(sizes[0] if known else sizes[-1])
        yield from refused("combination", self.combination, self.local, self.group_operation, most)

    def heard(self, members: int) -> int:
        """How many members' models the server of a group of this size gets in a round, where nobody is lost."""
        return self.taking_part(members)

    def sizes(self, scale: Scale) -> Sequence[int]:
        """Numbers of members that groups can have, as far as they are known before groups are formed: some, the largest last."""
        places = set(self.places(scale))
        largest = max(self.formation.largest(n) for n in places)
        least = self.formation.smallest if self.formation.plugin.facts.most is None else 1
        if self.formation.kind == "all":
            least = min(places)
        return (*range(least, largest, max(1, (largest - least) // PROBED)), largest)

    def hindered(self, sizes: Sequence[int]) -> Iterable[tuple[str, str]]:
        """Why groups of all these sizes would give up every round, although everybody is there; nothing where one does not."""
        reason = self.hindrance(sizes[-1])
        if reason is not None and all(self.hindrance(size) is not None for size in sizes):
            yield reason

    def hindrance(self, members: int) -> tuple[str, str] | None:
        """Why a group of so many members gives up every round, although all are there: a key and a message; None: it does not."""
        if self.min_members <= members:
            return None
        few = f"no group has {self.min_members} members (the largest has {members})"
        return "min_members", f"{few}, so every round is given up; say {members} or less"

    def taking_part(self, members: int) -> int:
        """How many of a group's members that are there take part in a round."""
        return members

    def most_groups(self, scale: Scale) -> int:
        """How many groups there can be at most."""
        places = scale.servers_of(self.aggregator) or 1
        if self.formation.kind == "all":
            return places
        most = self.formation.most(-(-scale.clients // places))
        return scale.clients // self.formation.smallest if most is None else places * most

    def places(self, scale: Scale) -> Sequence[int]:
        """How many clients there are where groups are formed: below each server of the tier, or all."""
        return [scale.clients] if self.aggregator == ANY_EDGE else list(scale.below(self.aggregator))

    def _no_such_tier(self, scale: Scale) -> str:
        """What is wrong with where groups are formed; "" where nothing is."""
        tier = "edge" if self.aggregator == ANY_EDGE else self.aggregator
        if tier == CLOUD:
            return ""
        if not scale.servers_of(tier):
            if tier == "edge" and len(scale.tiers) < 2:
                return "there are no edges; say 'cloud' or give topology.edges"
            known = (*scale.tiers, *((ANY_EDGE,) if scale.servers_of("edge") else ()))
            return f"unknown tier '{tier[:40]}'; {suggestion(tier, known, 'tiers')}"
        beside = scale.clients - sum(scale.below(tier))
        if beside and self.aggregator != ANY_EDGE and tier in scale.tiers:
            return f"{beside} of {scale.clients} clients have no server of tier '{tier}' above them"
        return ""
