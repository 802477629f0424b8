"""In-group training: what happens inside a group between receiving a model and handing one back.

Each plug-in is a SimPy process that returns an `Outcome`, or None where the group had to give up: too few members were left, or
its server went down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from emulator.learning.lab import Handle
from emulator.ledger import Tag
from emulator.methods.memory import RuleMemory
from emulator.methods.session import Session
from emulator.methods.waiting import Patience, gather
from emulator.registry import Chosen, NoParams, trainings
from emulator.world.operations import least_members
from emulator.world.world import Steps


@dataclass(frozen=True)
class Group:
    """Clients that work together under one aggregator (an edge, or the cloud). ``number`` is unique within a run's grouping."""

    number: int
    aggregator: str
    members: tuple[int, ...]


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
    world, lab = session.world, session.lab
    tag = Tag("model", at.round, group.number, at.group_round)
    samples, local, names = lab.clients.samples, at.local.params, world.fleet.client_names
    meets = not at.operation.plugin.facts.get("alone", False)
    asked = world.present(group.members)
    started_s = world.now

    def member(client: int) -> Steps:
        if not (yield world.send(group.aggregator, names[client], at.down_bytes, tag)):
            return False
        if not (yield world.train(client, int(samples[client]), local.epochs, local.batch_size, tag.but("training"))):
            return False
        return meets or (yield from upload(client))

    def upload(client: int) -> Steps:
        return (yield world.send(names[client], group.aggregator, at.up_bytes, tag))

    def all_of(steps: Callable[[int], Steps], clients: Sequence[int], patience: Patience) -> Steps:
        work = {c: world.env.process(steps(c)) for c in clients}
        return (yield from gather(world, work, patience, started_s, world.give_up))

    if len(asked) < waits.least:
        return None
    patience = waits.how(len(asked), waits.wanted)
    left = yield from all_of(member, asked, patience)
    if meets and len(left) >= waits.least:
        vectors, size = at.memory.rule.vectors, len(asked)
        left = yield world.group_operation(group.aggregator, left, at.operation, vectors, size, tag)
        left = yield from all_of(upload, left, Patience(len(left), patience.seconds))
        if waits.least <= len(left) < size:
            left = yield world.recovery(group.aggregator, left, at.operation, vectors, size, tag)
    if len(left) < max(waits.least, least_members(at.operation, len(asked))) or not world.was_up(
        group.aggregator, started_s
    ):
        return None
    trained = []
    for client in left:
        first_epoch = at.group_round * local.epochs
        result, own = lab.train(model, client, at.local, at.round, first_epoch, at.memory.of(client))
        at.memory.keep(client, own)
        trained.append(result)
    total = int(samples[left].sum())
    return Outcome(lab.combine(trained, [int(samples[c]) / total for c in left]), tuple(left))
