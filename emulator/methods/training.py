"""In-group training: what happens inside a group between receiving a model and handing one back.

Each plug-in is a SimPy process that returns a `GroupResult`, or None where the group had to give up: too few members were left,
or its server went down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from pydantic import Field

from emulator.contracts.combining import AVERAGED, Combination
from emulator.contracts.learning import LocalRule
from emulator.contracts.methods import GroupResult, TrainingFacts, Waiting, WaitingChoice, trainings
from emulator.contracts.world import GroupOperation
from emulator.learning.distillation import DistillationParams
from emulator.learning.recipes import Handle, LocalTraining, Trained
from emulator.ledger import Tag
from emulator.methods.combining import ServerOptimisers, combine
from emulator.methods.memory import RuleMemory
from emulator.methods.pool import Pool
from emulator.methods.privacy import Drawn
from emulator.methods.selecting import Hearing
from emulator.methods.session import ReceivedData, Session
from emulator.methods.versions import GROUP_ARRIVALS, Arrival, VersionSlots
from emulator.methods.waiting import gather
from emulator.registry import NoParams, Params, Scale
from emulator.rng import stream
from emulator.scenario.words import Count
from emulator.world.batch import Work
from emulator.world.fleet import CLOUD, Numbers
from emulator.world.meetings import operate, recover
from emulator.world.world import Steps, StepsTo

T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """Clients that work together under one aggregator (an edge, or the cloud). ``number`` is unique within a run's grouping.

    All members are of the same cluster: they start from the same model. ``kinds`` says of which kind each member is, where
    the formation rule told kinds of clients apart. ``received`` is what the one member, the header, has of the others (see
    `emulator.methods.headers`). ``drawn_from``: those of whom the members were drawn for a round, where they were.
    """

    number: int
    aggregator: str
    members: tuple[int, ...]
    cluster: int = 0
    kinds: tuple[int, ...] = ()
    received: tuple[ReceivedData, ...] = ()
    drawn_from: tuple[int, ...] = ()

    @property
    def everybody(self) -> list[int]:
        """All clients whose data the group has."""
        return [*self.members, *(one.client for one in self.received)]

    def held(self, samples: np.ndarray, members: Sequence[int] | np.ndarray) -> np.ndarray:
        """On how many samples these members train, from how many every client has of its own."""
        own: np.ndarray = samples[np.asarray(members)]
        return own + sum(one.samples for one in self.received) if self.received else own


@dataclass(frozen=True)
class GroupRound:
    """One group round: where it stands in the run, and how its members train."""

    round: int
    group_round: int
    local: LocalRule
    operation: GroupOperation
    memory: RuleMemory
    down_bytes: int  # of a model on its way to a member; 0 where members make the initial model themselves from a seed
    up_bytes: int
    combination: Combination = AVERAGED  # of the members' models
    optimisers: ServerOptimisers | None = None  # of the groups' servers


@dataclass(frozen=True)
class Waits:
    """For whom a group waits: how long, for how many (``wanted``, before over-selection), and the ``least`` it needs to go on."""

    how: Waiting
    wanted: int
    least: int


@trainings.register("parallel", facts=TrainingFacts(combines=True, privacy=("client", "server", "distributed")))
def parallel(session: Session, group: Group, model: Handle, at: GroupRound, waits: Waits, params: NoParams) -> Steps:
    """Parallel: members receive the group's model, train side by side, and send it back for averaging by samples.

    Where there is a group operation, it needs everybody: the group waits for its slowest member before it, and again for the
    uploads. Without one, each member sends its model as soon as it is trained. Members that are lost, or for whom the group
    does not wait, are left out; those who stay pay what the operation takes to go on without them.
    """
    asked = 0 if session.privacy is None else len(session.world.present(group.members, group.aggregator))
    started_s = session.world.now
    trained = yield from train_members(session, group, model, at, waits)
    if trained is None:
        return None
    samples = group.held(session.lab.clients.samples, list(trained))
    if session.privacy is not None and session.privacy.of_sums:
        least = max(waits.least, at.operation.least_members(asked))
        drawn = Drawn(group.aggregator, group.number, group.drawn_from, asked, least)
        result = yield from session.privacy.average(trained, model, at.round, at.group_round, drawn)
    else:
        tag = Tag("model", at.round, group.number, at.group_round)
        result = yield from combined(session, group.aggregator, at.combination, model, trained, tag, samples)
    if not session.world.was_up(group.aggregator, started_s):
        return None
    return GroupResult(result, tuple(trained), int(samples.sum()))


def train_members(
    session: Session, group: Group, model: Handle, at: GroupRound, waits: Waits
) -> StepsTo[dict[int, Handle] | None]:
    """A parallel round. Returns the models of the members from whom they came back; None where the group gave up."""
    world, started_s = session.world, session.world.now
    asked = world.present(group.members, group.aggregator)
    if len(asked) < waits.least:
        return None
    trained: dict[int, Trained]
    if world.calm:
        trained = yield from together(session, group, asked, model, at)
    else:
        heard = None if session.selecting is None else session.selecting.hearing(at.round)
        trained = yield from side_by_side(session, group, asked, model, at, waits, heard)
        if heard is not None:
            heard.tell(asked, trained)
    if len(trained) < max(waits.least, at.operation.least_members(len(asked))):
        return None
    if not world.was_up(group.aggregator, started_s):
        return None
    if at.memory.rule.remember is not None:
        for client, one in trained.items():
            at.memory.keep(client, one.own)
    return {client: one.model for client, one in trained.items()}


def as_sent(session: Session, at: GroupRound, client: int, before: Handle, one: Trained) -> Trained:
    """What a client hands in that got ``before`` and trained it (see `Session.sent`), before it goes on its way."""
    return one._replace(model=session.sent(at.round, at.group_round, client, before, one.model))


def combined(
    session: Session,
    server: str,
    combination: Combination,
    before: Handle,
    models: Mapping[int, Handle],
    tag: Tag,
    samples: np.ndarray | None = None,
) -> StepsTo[Handle]:
    """What a server makes of models of clients, to which it had sent ``before``; weights as those of `averaged`."""
    weights = _shares(session, models, samples)
    return (yield from combine(session, server, combination, before, list(models.values()), weights, tag))


def averaged(session: Session, models: Mapping[int, Handle], samples: np.ndarray | None = None) -> Handle:
    """The average of clients' models, weighted by ``samples``; without them, by the clients' own."""
    return session.lab.combine(list(models.values()), _shares(session, models, samples))


def _shares(session: Session, models: Mapping[int, Handle], samples: np.ndarray | None) -> list[float]:
    held = session.lab.clients.samples[list(models)] if samples is None else samples
    shares: list[float] = (held / int(held.sum())).tolist()
    return shares


def together(
    session: Session, group: Group, asked: Sequence[int], model: Handle, at: GroupRound
) -> StepsTo[dict[int, Trained]]:
    """The members' work where nothing is cut off: all of it at once."""
    tag = Tag("model", at.round, group.number, at.group_round)
    crew = session.world.batch.crew(group.aggregator, asked)
    local, extra = at.local.params, tuple(one.data for one in group.received)
    samples = group.held(session.lab.clients.samples, crew.clients)
    beside = 0.0 if session.privacy is None else session.privacy.device_flops
    work = Work(samples, local.epochs, local.batch_size, at.memory.rule.step_flops, beside)
    lab, how, of = session.lab, (at.local, at.round, at.group_round), at.memory.of
    if at.memory.rule.remember is None:
        trained = lab.train_all(LocalTraining(model, asked[0], *how, None, extra), asked)
    else:
        trained = {c: lab.train(LocalTraining(model, c, *how, of(c), extra)) for c in asked}
    if session.privacy is not None:
        trained = {c: session.privacy.sent(one, model, c, at.round, at.group_round) for c, one in trained.items()}
    if session.attack is not None:
        trained = {c: as_sent(session, at, c, model, one) for c, one in trained.items()}
    if at.operation.plugin.facts.alone:
        yield crew.exchange(work, at.down_bytes, at.up_bytes, tag)
    else:
        arrivals_s = yield crew.receive(at.down_bytes, tag)
        yield from crew.train_and_operate(work, at.operation, at.memory.rule.vectors, tag, arrivals_s)
        yield crew.send(at.up_bytes, tag)
    return trained


def side_by_side(
    session: Session,
    group: Group,
    asked: Sequence[int],
    model: Handle,
    at: GroupRound,
    waits: Waits,
    heard: Hearing | None = None,
) -> StepsTo[dict[int, Trained]]:
    """The members' work, each one's on its own. Returns what came of it for those who stayed, and for whom the group waited.

    ``heard`` is what the server is told beside the models, and when.
    """
    world, names, server = session.world, session.world.fleet.client_names, group.aggregator
    tag = Tag("model", at.round, group.number, at.group_round)
    started_s, patience = world.now, waits.how(len(asked), waits.wanted)
    give_up = partial(world.give_up, at.round, group.number)
    beside_bytes = 0 if heard is None else heard.size_bytes

    def download_and_train(client: int) -> StepsTo[Trained | None]:
        latest = yield from session.deliver(server, names[client], model, at.down_bytes, tag)
        if latest is None:
            return None
        how = (at.local, tag.with_purpose("training"), at.group_round, at.memory, group.received)
        one = yield from session.train(client, latest, *how)
        if one is not None and heard is not None:
            heard.uploads(client, latest)
        return None if one is None else as_sent(session, at, client, latest, one)

    def upload(client: int, one: Trained) -> StepsTo[Trained | None]:
        sizes = (at.up_bytes, tag, CLOUD, beside_bytes)
        came = yield from session.deliver(names[client], server, one.model, *sizes)
        if came is not None and heard is not None:
            heard.arrived(client)
        return None if came is None else one._replace(model=came)

    def trip(client: int) -> StepsTo[Trained | None]:
        one = yield from download_and_train(client)
        return None if one is None else (yield from upload(client, one))

    if at.operation.plugin.facts.alone:
        return (yield from gather(world, {c: trip(c) for c in asked}, patience, started_s, give_up))
    trained = yield from gather(world, {c: download_and_train(c) for c in asked}, patience, started_s, give_up)
    left = list(trained)
    if len(left) >= waits.least:
        meeting = (server, at.operation, at.memory.rule.vectors, len(asked), tag)
        contents = {c: one.model.key for c, one in trained.items()}
        left = yield world.env.process(operate(world, left, *meeting, contents))
        uploads = {c: upload(c, trained[c]) for c in left}
        trained = yield from gather(world, uploads, replace(patience, wanted=len(left)), started_s, give_up)
        left = list(trained)
        if len(left) >= waits.least:
            left = yield from recover(world, left, *meeting, contents)
    return {c: trained[c] for c in left}


class SequentialParams(Params):
    """How often, and in which order."""

    loops: Count = Field(1, description="times that the model passes through the whole chain (E_S in S4)")
    shuffle: bool = Field(True, description="a new random order for every pass; otherwise by client number")
    ring: bool = Field(
        False, description="the last client hands the model back to the first, who sends it to the server (S5 Eq. 7)"
    )


@trainings.register("sequential", SequentialParams, TrainingFacts(chain=True, privacy=("client",)))
def sequential(
    session: Session, group: Group, model: Handle, at: GroupRound, waits: Waits, params: SequentialParams
) -> Steps:
    """Sequential: the model goes through the members one after another, from client to client, and back to the server (S4).

    A member that is lost is left out: whoever had the model before sends it to the next. Where that one is gone too, the one
    before it does, with the model as it was then. Where the first of a ring is gone, the last sends it to the server itself.
    """
    world, names = session.world, session.world.fleet.client_names
    tag = Tag("model", at.round, group.number, at.group_round)
    started_s = world.now
    asked = world.present(group.members, group.aggregator)
    if len(asked) < waits.least:
        return None
    # Who has had the model, latest last, and what it was when they sent it on. The server has the one to begin with.
    holders: list[tuple[str, Handle, tuple[int, ...]]] = [(group.aggregator, model, ())]

    def hand_on(receiver: str) -> StepsTo[Handle | None]:
        """Sends the latest model that somebody still has, unless it is the receiver who has it; returns it as it arrives."""
        while holders[-1][0] != receiver:
            holder, latest, _ = holders[-1]
            size = at.down_bytes if len(holders) == 1 else at.up_bytes
            came = yield from session.deliver(holder, receiver, latest, size, tag, group.aggregator)
            if came is not None:
                return came
            if len(holders) == 1 or world.can_hand_on(holders[-1][0], group.aggregator):
                return None
            holders.pop()
        return holders[-1][1]

    for loop in range(params.loops):
        place = at.group_round * params.loops + loop
        order = list(asked)
        if params.shuffle:
            stream(session.seed, "chain", at.round, group.number, place).shuffle(order)
        for client in order:
            latest = yield from hand_on(names[client])
            if latest is None:
                continue
            passed = holders[-1][2]
            if session.attack is not None and passed:
                session.attack.handed_on(at.round, client, latest)
            one = yield from session.train(client, latest, at.local, tag.with_purpose("training"), place, at.memory)
            if one is not None:
                at.memory.keep(client, one.own)
                sent = session.sent(at.round, place, client, latest, one.model)
                holders.append((names[client], sent, (*passed, client)))
    if params.ring and len(holders) > 1:
        first = holders[1][0]
        latest = yield from hand_on(first)
        if latest is not None and holders[-1][0] != first:
            holders.append((first, latest, holders[-1][2]))
    back = yield from hand_on(group.aggregator)
    members = tuple(sorted(set(holders[-1][2])))
    if back is None or len(members) < waits.least or not world.was_up(group.aggregator, started_s):
        return None
    return GroupResult(back, members, int(session.lab.clients.samples[list(members)].sum()))


class AsynchronousParams(VersionSlots):
    """How a group's server makes versions of its model, and how many of them."""

    versions: Count | None = Field(
        None,
        description="versions that the group's server makes in a group round; without it, enough for one result of each member",
    )

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """What does not go together."""
        yield from self.refused(scale.clients)


@trainings.register("asynchronous", AsynchronousParams, TrainingFacts(apart=True, tables=(GROUP_ARRIVALS,)))
def asynchronous(
    session: Session, group: Group, model: Handle, at: GroupRound, waits: Waits, params: AsynchronousParams
) -> Steps:
    """Asynchronous: the group's server takes in members' results as they arrive, as the cloud does in `buffered`.

    After so many versions of its model the group round is over; what is under way then is cut off. Where nobody is left who
    could go on it is over before.
    """
    world, samples = session.world, session.lab.clients.samples
    started_s, everybody = world.now, Waits(WaitingChoice("all", NoParams()), 1, 1)
    asked, trained = world.present(group.members, group.aggregator), set[int]()
    if len(asked) < waits.least:
        return None
    enough = len(asked) if params.every is not None else min(params.enough, len(asked))
    wanted = params.versions or -(-len(asked) // enough)

    def work(unit: Group, latest: Handle, version: int) -> StepsTo[GroupResult | None]:
        turn = at.group_round * wanted + version
        how = replace(at, group_round=turn, down_bytes=at.up_bytes if version else at.down_bytes)
        back = yield from side_by_side(
            session, replace(unit, number=group.number), unit.members, latest, how, everybody
        )
        found = [(client, one.model) for client, one in back.items()]
        return GroupResult(found[0][1], unit.members, int(samples[found[0][0]])) if found else None

    def choose(idle: Numbers, count: int) -> StepsTo[Sequence[Group]]:
        yield from ()
        present = set(world.present([pool.units[n].members[0] for n in idle.tolist()], group.aggregator))
        units = [pool.units[n] for n in idle.tolist() if pool.units[n].members[0] in present]
        if len(units) <= count:
            return units
        place = (at.round, group.number, at.group_round, pool.versions.number, len(trained))
        drawn = stream(session.seed, "next member", *place).choice(len(units), count, replace=False)
        return [units[i] for i in sorted(drawn)]

    def note(arrival: Arrival, row: dict[str, Any]) -> None:
        if row["used"]:
            trained.update(arrival.result.members)
        place = {"round": at.round, "group": group.number, "group_round": at.group_round}
        session.note(GROUP_ARRIVALS.name, place | row)

    pool = Pool(
        session,
        params.model_copy(update={"buffer": None if params.every else enough}),
        model,
        work,
        choose,
        note,
    )
    pool.serve(replace(group, number=place, members=(client,)) for place, client in enumerate(asked))
    while pool.versions.number < wanted and (yield from pool.next_version()):
        pass
    for unit in pool.busy.values():
        world.give_up(at.round, group.number, unit.members[0])
    members = tuple(sorted(trained))
    if len(members) < waits.least or not world.was_up(group.aggregator, started_s):
        return None
    return GroupResult(pool.versions.model, members, int(samples[list(members)].sum()))


@trainings.register("distilled", DistillationParams, TrainingFacts(by_class=True, headers=True))
def distilled(
    session: Session, group: Group, model: Handle, at: GroupRound, waits: Waits, params: DistillationParams
) -> Steps:
    """Distilled: one member trains for all, on its own data and on what the others distilled from theirs and sent to it (S5).

    Who that is and what it has is settled once for each formation of groups (`emulator.methods.headers`).
    """
    return (yield from parallel(session, group, model, at, waits, NoParams()))
