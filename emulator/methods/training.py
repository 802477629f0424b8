"""In-group training: what happens inside a group between receiving a model and handing one back.

Each plug-in is a SimPy process that returns an `Outcome`, or None where the group had to give up: too few members were left, or
its server went down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from emulator.learning.lab import Handle
from emulator.ledger import Tag
from emulator.methods.memory import RuleMemory
from emulator.methods.session import Session
from emulator.methods.waiting import Patience, gather
from emulator.registry import Chosen, NoParams, Params, trainings
from emulator.rng import stream
from emulator.scenario.schema import Count
from emulator.world.batch import Work
from emulator.world.operations import least_members
from emulator.world.world import Steps


@dataclass(frozen=True)
class Group:
    """Clients that work together under one aggregator (an edge, or the cloud). ``number`` is unique within a run's grouping.

    All members are of the same cluster: they start from the same model.
    """

    number: int
    aggregator: str
    members: tuple[int, ...]
    cluster: int = 0


@dataclass(frozen=True)
class GroupRound:
    """One group round: where it stands in the run, and how its members train."""

    round: int
    group_round: int
    local: Chosen
    operation: Chosen
    memory: RuleMemory
    down_bytes: int  # of a model on its way to a member; 0 where members make the initial model themselves from a seed
    up_bytes: int


@dataclass(frozen=True)
class Waits:
    """For whom a group waits: how long, for how many (``wanted``, before over-selection), and the ``least`` it needs to go on."""

    how: Chosen
    wanted: int
    least: int


@dataclass(frozen=True)
class Outcome:
    """What a group round gave: the group's model and the members whose work is in it."""

    model: Handle
    members: tuple[int, ...]


@trainings.register("parallel")
def parallel(session: Session, group: Group, model: Handle, at: GroupRound, waits: Waits, params: NoParams) -> Steps:
    """Parallel: members receive the group's model, train side by side, and send it back for averaging by samples.

    Where there is a group operation, it needs everybody: the group waits for its slowest member before it, and again for the
    uploads. Without one, each member sends its model as soon as it is trained. Members that are lost, or for whom the group
    does not wait, are left out; those who stay pay what the operation takes to go on without them.
    """
    left = yield from members_work(session, group, at, waits)
    if left is None:
        return None
    return Outcome(averaged(session, train_each(session, model, left, at)), tuple(left))


def members_work(session: Session, group: Group, at: GroupRound, waits: Waits) -> Steps:
    """The time that a parallel round takes. Returns the members whose models came back; None where the group gave up."""
    world, started_s = session.world, session.world.now
    asked = world.present(group.members, group.aggregator)
    if len(asked) < waits.least:
        return None
    left = (
        yield from together(session, group, asked, at) if world.calm else side_by_side(session, group, asked, at, waits)
    )
    enough = len(left) >= max(waits.least, least_members(at.operation, len(asked)))
    return left if enough and world.was_up(group.aggregator, started_s) else None


def train_each(session: Session, model: Handle, clients: Sequence[int], at: GroupRound) -> dict[int, Handle]:
    """What each client makes of a model in a round."""
    trained = {}
    for client in clients:
        first_epoch, memory = at.group_round * at.local.params.epochs, at.memory.of(client)
        trained[client], own = session.lab.train(model, client, at.local, at.round, first_epoch, memory)
        at.memory.keep(client, own)
    return trained


def averaged(session: Session, models: Mapping[int, Handle]) -> Handle:
    """The average of clients' models, weighted by their samples."""
    samples = session.lab.clients.samples
    total = int(samples[list(models)].sum())
    return session.lab.combine(list(models.values()), [int(samples[c]) / total for c in models])


def together(session: Session, group: Group, asked: Sequence[int], at: GroupRound) -> Steps:
    """The members' work where nothing is cut off: all of it at once. Returns everybody."""
    tag = Tag("model", at.round, group.number, at.group_round)
    crew = session.world.batch.crew(group.aggregator, asked)
    local = at.local.params
    work = Work(session.lab.clients.samples[crew.clients], local.epochs, local.batch_size, at.memory.rule.step_flops)
    if at.operation.plugin.facts.get("alone", False):
        yield crew.exchange(work, at.down_bytes, at.up_bytes, tag)
    else:
        arrivals_s = yield crew.receive(at.down_bytes, tag)
        yield from crew.train_and_operate(work, at.operation, at.memory.rule.vectors, tag, arrivals_s)
        yield crew.send(at.up_bytes, tag)
    return asked


def side_by_side(session: Session, group: Group, asked: Sequence[int], at: GroupRound, waits: Waits) -> Steps:
    """The members' work, each one's on its own. Returns those who stayed to the end, and for whom the group waited."""
    world, samples, local = session.world, session.lab.clients.samples, at.local.params
    tag, names = Tag("model", at.round, group.number, at.group_round), world.fleet.client_names
    meets = not at.operation.plugin.facts.get("alone", False)
    started_s, patience = world.now, waits.how(len(asked), waits.wanted)

    def member(client: int) -> Steps:
        if not (yield world.send(group.aggregator, names[client], at.down_bytes, tag)):
            return False
        held, extra = int(samples[client]), at.memory.rule.step_flops
        if not (yield world.train(client, held, local.epochs, local.batch_size, tag.but("training"), extra)):
            return False
        return meets or (yield from upload(client))

    def upload(client: int) -> Steps:
        return (yield world.send(names[client], group.aggregator, at.up_bytes, tag))

    def all_of(steps: Callable[[int], Steps], clients: Sequence[int], patience: Patience) -> Steps:
        work = {c: world.env.process(steps(c)) for c in clients}
        return (yield from gather(world, work, patience, started_s, world.give_up))

    left = yield from all_of(member, asked, patience)
    if meets and len(left) >= waits.least:
        vectors, size = at.memory.rule.vectors, len(asked)
        left = yield world.group_operation(group.aggregator, left, at.operation, vectors, size, tag)
        left = yield from all_of(upload, left, Patience(len(left), patience.seconds))
        if waits.least <= len(left) < size:
            left = yield world.recovery(group.aggregator, left, at.operation, vectors, size, tag)
    return left


class SequentialParams(Params):
    """How often, and in which order."""

    loops: Count = Field(1, description="times that the model passes through the whole chain (E_S in S4)")
    shuffle: bool = Field(True, description="a new random order for every pass; otherwise by client number")


@trainings.register("sequential", SequentialParams, chain=True)
def sequential(
    session: Session, group: Group, model: Handle, at: GroupRound, waits: Waits, params: SequentialParams
) -> Steps:
    """Sequential: the model goes through the members one after another, from client to client, and back to the server (S4).

    A member that is lost is left out: whoever had the model before sends it to the next. Where that one is gone too, the one
    before it does, with the model as it was then.
    """
    world, names, local = session.world, session.world.fleet.client_names, at.local.params
    tag = Tag("model", at.round, group.number, at.group_round)
    started_s = world.now
    asked = world.present(group.members, group.aggregator)
    if len(asked) < waits.least:
        return None
    # Who has had the model, latest last, and what it was when they sent it on. The server has the one to begin with.
    holders: list[tuple[str, Handle, tuple[int, ...]]] = [(group.aggregator, model, ())]

    def hand_on(receiver: str) -> Steps:
        """Sends the latest model that somebody still has."""
        size = at.down_bytes if len(holders) == 1 else at.up_bytes
        while not (yield world.send(holders[-1][0], receiver, size, tag, via=group.aggregator)):
            if len(holders) == 1 or world.is_up(holders[-1][0]):
                return False
            holders.pop()
        return True

    for loop in range(params.loops):
        place = at.group_round * params.loops + loop
        order = list(asked)
        if params.shuffle:
            stream(session.seed, "chain", at.round, group.number, place).shuffle(order)
        for client in order:
            samples = int(session.lab.clients.samples[client])
            if holders[-1][0] != names[client] and not (yield from hand_on(names[client])):
                continue
            extra = at.memory.rule.step_flops
            if (yield world.train(client, samples, local.epochs, local.batch_size, tag.but("training"), extra)):
                _, latest, passed = holders[-1]
                trained, own = session.lab.train(
                    latest, client, at.local, at.round, place * local.epochs, at.memory.of(client)
                )
                at.memory.keep(client, own)
                holders.append((names[client], trained, (*passed, client)))
    back = yield from hand_on(group.aggregator)
    _, trained, passed = holders[-1]
    members = tuple(sorted(set(passed)))
    if not back or len(members) < waits.least or not world.was_up(group.aggregator, started_s):
        return None
    return Outcome(trained, members)
