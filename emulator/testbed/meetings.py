"""Secure aggregation on the testbed: the protocol of `devices.secagg` between processes, step by step.

Before the members send their models they publish keys, exchange shares and mask what they will send; a model that is sent after
that is its masked vector. When all have arrived that will, the server tells the members whose they are, and what they reveal
gives it the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import simpy

from devices.secagg.identity import Membership
from devices.secagg.session import memberships
from devices.secagg.shamir import threshold_of
from emulator.contracts.world import GroupOperation
from emulator.ledger import GROUP_OPERATION, Tag
from emulator.testbed.orders import Meet, Report, Work
from emulator.testbed.secure import Joining, Opening
from emulator.world.meetings import Meetings
from emulator.world.operations import SecureAggregationParams

if TYPE_CHECKING:
    from emulator.testbed.bench import Bench
    from emulator.testbed.world import MeasuredWorld
    from emulator.world.world import StepsTo

LEAST = 2  # members between whom there is anything to hide


@dataclass(frozen=True)
class Gathering:
    """A meeting under way: its name, who is in it, their shares of the samples, and whether keys are signed."""

    name: str
    server: str
    members: tuple[int, ...]
    shares: Mapping[int, float]
    signed: bool
    tag: Tag


class MeasuredMeetings(Meetings):
    """The group operations of a testbed: secure aggregation, and none."""

    def __init__(self, world: MeasuredWorld, bench: Bench) -> None:
        super().__init__(world)
        self._there, self._bench = world, bench
        self._count = 0
        self._under_way: dict[tuple[str, Tag], Gathering] = {}
        self._masked: dict[tuple[str, str], str] = {}  # by member and key of its model: the key of the masked vector

    def masked(self, sender: str, content: str) -> str:
        """What a member sends in place of its model; "" where that is the model itself."""
        return self._masked.get((sender, content), "")

    def operate(
        self,
        members: Sequence[int],
        aggregator: str,
        operation: GroupOperation,
        vectors: int,
        size: int,
        tag: Tag,
        contents: Mapping[int, str],
    ) -> StepsTo[list[int]]:
        """See `Meetings.operate`: up to the masked vectors."""
        if len(members) < LEAST:
            return list(members)
        self._count += 1
        held = self._bench.lab.clients.samples
        total, params = sum(int(held[c]) for c in members), operation.params
        assert isinstance(params, SecureAggregationParams)  # others are refused before
        signed = params.adversary == "active"
        shares = {c: int(held[c]) / total for c in members}
        purpose = tag.with_purpose(operation.kind)
        meeting = Gathering(f"meeting {self._count}", aggregator, tuple(members), shares, signed, purpose)
        self._under_way[aggregator, tag] = meeting
        threshold = threshold_of(len(members), params.threshold)
        identities: Mapping[int, Membership] = memberships(members) if signed else {}

        def joining(client: int) -> tuple[dict[int, str], Any]:
            told = Joining(client, shares[client], len(members), threshold, identities.get(client))
            return {client: contents[client]}, told

        length = self._bench.lab.model_facts.state_size
        opening = Opening(len(members), threshold, length, signed)
        left = yield from self._up(meeting, members, "advertise", "", joining, contents)
        left = yield from self._round(meeting, left, "advertise", "publish", opening)
        left = yield from self._up(meeting, left, "share", "publish")
        left = yield from self._round(meeting, left, "share", "route")
        left = yield from self._up(meeting, left, "mask", "route", send=False)
        for client in left:
            name = self._there.fleet.client_names[client]
            self._masked[name, contents[client]] = _key(meeting, "mask", client)
        return left

    def recover(
        self,
        members: Sequence[int],
        aggregator: str,
        operation: GroupOperation,
        vectors: int,
        size: int,
        tag: Tag,
        contents: Mapping[int, str],
    ) -> StepsTo[list[int]]:
        """See `Meetings.recover`: from the masked vectors that have arrived to their sum."""
        meeting = self._under_way.pop((aggregator, tag), None)
        if meeting is None or not members:
            return list(members)
        for client, content in contents.items():
            self._masked.pop((self._there.fleet.client_names[client], content), None)
        left = yield from self._round(meeting, members, "mask", "collect")
        if meeting.signed:
            left = yield from self._up(meeting, left, "consent", "collect")
            left = yield from self._round(meeting, left, "consent", "confirm")
        left = yield from self._up(meeting, left, "reveal", "confirm" if meeting.signed else "collect")
        share = sum(meeting.shares[c] for c in members)
        gives = f"{meeting.name}: sum"
        needs = {c: _key(meeting, "reveal", c) for c in left}
        answer = yield self._ask(meeting, Meet(0, meeting.name, "unmask", needs, gives, share))
        if answer is None:
            return []
        self._bench.has(aggregator, gives)
        self._bench.lab.sums[frozenset(contents[c] for c in members)] = gives
        return list(members)

    def _up(
        self,
        meeting: Gathering,
        members: Sequence[int],
        call: str,
        after: str,
        joining: Callable[[int], tuple[dict[int, str], Any]] | None = None,
        contents: Mapping[int, str] | None = None,
        send: bool = True,
    ) -> StepsTo[list[int]]:
        """Members do a step, each as soon as it has what it needs, and send what it gives; returns who did."""
        world, bench, names = self._there, self._bench, self._there.fleet.client_names

        def one(client: int) -> StepsTo[bool]:
            name, gives = names[client], _key(meeting, call, client)
            needs, about = ({client: _key(meeting, after, client)} if after else {}), None
            lengths: list[int] = []

            def begin() -> None:
                nonlocal needs, about
                assert world.orders is not None
                if joining is not None:
                    needs, about = joining(client)
                    assert contents is not None
                    if steps := bench.steps(name, contents[client]):
                        world.orders.append(lambda number: Work(number, tuple(steps)))
                        bench.follows(name, steps)
                world.orders.append(lambda number: Meet(number, meeting.name, call, needs, gives, about))

            if not (yield world.busy(GROUP_OPERATION, client, 0.0, meeting.tag, begun=begin)):
                return False
            lengths.append(bench.answers.pop(name))
            bench.has(name, gives)
            if not send:
                return True
            return bool((yield world.send(name, meeting.server, lengths[0], meeting.tag, content=gives)))

        work = {client: world.env.process(one(client)) for client in members}
        yield world.env.all_of(work.values())
        return [client for client, process in work.items() if process.value]

    def _round(
        self, meeting: Gathering, members: Sequence[int], came: str, call: str, opening: Opening | None = None
    ) -> StepsTo[list[int]]:
        """The server takes members' messages and answers each; returns whom the answer reached."""
        world, names = self._there, self._there.fleet.client_names
        needs = {c: _key(meeting, came, c) for c in members}
        prefix = _key(meeting, call, "")
        lengths = yield self._ask(meeting, Meet(0, meeting.name, call, needs, prefix, opening))
        if lengths is None:
            return []
        sent = {}
        for client, length in lengths.items():
            key = _key(meeting, call, client)
            self._bench.has(meeting.server, key)
            sent[client] = world.send(meeting.server, names[client], length, meeting.tag, content=key)
        yield world.env.all_of(sent.values())
        return [client for client, event in sent.items() if event.value]

    def _ask(self, meeting: Gathering, order: Meet) -> simpy.Event:
        """Has the server do a step; happens with what it gave, None where the protocol cannot go on."""
        bench, answered = self._bench, self._there.env.event()

        def done(report: Report) -> None:
            if report.failed and not report.lost:
                bench.broken(report, meeting.server)
            answered.succeed(None if report.failed else (report.value or True))

        number = bench.number()
        bench.await_(number, done)
        bench.tell(meeting.server, Meet(number, order.meeting, order.call, order.needs, order.gives, order.about))
        return answered


def _key(meeting: Gathering, call: str, client: int | str) -> str:
    return f"{meeting.name}: {call} {client}"
