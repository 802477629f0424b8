"""What rounds of groups have in common, however the cloud waits for them: who takes part, and a group's way through a round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated

import simpy
from pydantic import Field

from emulator.contracts.combining import ServerOptimiser
from emulator.contracts.methods import GroupResult, Waiting
from emulator.contracts.selection import Selection
from emulator.learning.recipes import Handle
from emulator.ledger import Tag
from emulator.methods.combining import optimiser_refused
from emulator.methods.session import Session
from emulator.methods.slots import GroupSlots, chosen_by_default, too_soon
from emulator.methods.training import Group, GroupRound, Waits
from emulator.registry import Scale
from emulator.scenario.words import Count
from emulator.world.fleet import CLOUD
from emulator.world.world import StepsTo


class RoundSlots(GroupSlots):
    """The slots of groups that work on a model of the cloud's, some group rounds at a time."""

    group_rounds: Count = Field(1, description="group rounds in a global round (K)")
    participation: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="share of a group's clients drawn for each global round"
    )
    selection: Selection = chosen_by_default(
        "uniform", "which of them take part, where 'participation' is below 1; their server chooses"
    )
    over_selection: Annotated[float, Field(ge=0, le=100)] = Field(
        0.0,
        description="clients drawn beyond those that participation asks for, as a share of them; goes with a quorum",
    )
    edge_optimiser: ServerOptimiser = chosen_by_default(
        "none", "what a group's server makes of the average of a group round; each group has a state of its own"
    )
    wait_for_members: Waiting = chosen_by_default("all", "how long a group waits for its members in a group round")

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """Rounds that cannot be played in this fleet."""
        yield from super().problems(scale)
        if self.over_selection and self.participation == 1.0:
            yield "over_selection", "needs a 'participation' below 1: there is nobody beyond all clients"
        if self.selection.kind != "uniform" and not self.chooses:
            yield (
                "selection",
                f"'{self.selection.kind}' needs {self.to_choose}: there is nobody to choose from among all",
            )
        facts = self.training.plugin.facts
        if self.selection.hears and (not facts.together or facts.headers):
            message = f"'{self.selection.kind}' must hear from each member, and with '{self.training.kind}' they do not"
            yield "selection", f"{message} answer their server; take 'training: parallel'"
        yield from optimiser_refused("edge_optimiser", self.edge_optimiser, self.local)
        if self.aggregator == CLOUD and not self.edge_optimiser.none:
            yield "edge_optimiser", "groups are under the cloud, whose optimiser is 'server_optimiser'"

    @property
    def chooses(self) -> bool:
        """Whether somebody is chosen from several."""
        return self.participation < 1.0

    @property
    def to_choose(self) -> str:
        """What it takes that somebody is chosen, in words."""
        return "a 'participation' below 1"

    def heard(self, members: int) -> int:
        """See `GroupSlots.heard`."""
        asked = self.taking_part(members)
        return min(asked, self.wait_for_members(asked, self.wanted(asked)).wanted)

    def hindrance(self, members: int) -> tuple[str, str] | None:
        """See `GroupSlots.hindrance`."""
        asked, least = self.taking_part(members), self.min_members
        if asked < least <= members:
            part = f"no more than {asked} of {members} members take part in a round (by 'participation')"
            return "min_members", f"{part}, so every round is given up; say {asked} or less"
        if members < least:
            return super().hindrance(members)
        enough = self.wait_for_members(asked, self.wanted(asked)).wanted
        if enough < least:
            return "wait_for_members", too_soon(enough, asked, least, "'min_members'")
        least = self.group_operation.least_members(asked)
        if enough < least:
            return "wait_for_members", too_soon(enough, asked, least, f"'{self.group_operation.kind}'")
        return None

    def taking_part(self, members: int) -> int:
        """See `GroupSlots.taking_part`."""
        wanted = self.participation * members
        return min(members, max(1, int(wanted * (1 + self.over_selection) + 0.5)))

    def wanted(self, asked: int) -> int:
        """How many of so many members that were drawn are wanted: all but those drawn beyond."""
        return max(1, int(asked / (1 + self.over_selection) + 0.5))


def participants(
    session: Session, params: RoundSlots, group: Group, model: Handle, at: GroupRound
) -> StepsTo[tuple[Group, GroupRound]]:
    """The group with the members that take part in this round, chosen by its server, and the first group round."""
    selecting, members = session.selecting, group.members
    if params.participation == 1.0 or selecting is None:
        return group, at
    count, place = params.taking_part(len(members)), (group.aggregator, group.number)
    chosen, at = yield from selecting.for_round(*place, members, count, model, at, params.min_members)
    return replace(group, members=chosen, drawn_from=members), at


def send_to_edges(
    session: Session, groups: Sequence[Group], models: Sequence[Handle], size_bytes: int, t: int, server: str = CLOUD
) -> dict[tuple[str, int], simpy.Event]:
    """Sends each cluster's model to every edge that has a group of it in this round; the arrivals by edge and cluster.

    An arrival happens with the model as it arrives, or, where nothing is encoded, with whether it does.
    """
    wanted = dict.fromkeys((g.aggregator, g.cluster) for g in groups if g.aggregator != server)
    env, tag = session.env, Tag("model", t)
    if session.wire.used:
        return {at: env.process(session.deliver(server, at[0], models[at[1]], size_bytes, tag)) for at in wanted}
    send = session.world.send
    return {at: send(server, at[0], size_bytes, tag, content=models[at[1]].key) for at in wanted}


def group_process(
    session: Session,
    params: RoundSlots,
    group: Group,
    model: Handle,
    arrival: simpy.Event | None,
    rounds: Sequence[GroupRound],
    server: str = CLOUD,
) -> StepsTo[GroupResult | None]:
    """One group in one round: its group rounds, then its model to the server above. Returns what came of it; None: it gave up."""
    if arrival is not None:
        arrived = yield arrival
        if not arrived:
            return None
        model = arrived if session.wire.used else model
    result: GroupResult | None = None
    group, first = yield from participants(session, params, group, model, rounds[0])
    waits = Waits(params.wait_for_members, params.wanted(len(group.members)), params.min_members)
    for at in (first, *rounds[1:]):
        before = model
        result = yield from params.training(session, group, model, at, waits)
        if result is None:
            return None
        model = result.model
        if at.optimisers is not None:
            tag = Tag("model", at.round, group.number, at.group_round)
            model = yield from at.optimisers.step(group.aggregator, group.number, before, model, tag)
    assert result is not None
    if group.aggregator != server:
        tag = Tag("model", rounds[-1].round, group.number)
        came = yield from session.deliver(group.aggregator, server, model, rounds[-1].up_bytes, tag)
        return None if came is None else replace(result, model=came)
    return replace(result, model=model)
