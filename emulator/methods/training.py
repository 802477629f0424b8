"""In-group training: what happens inside a group between receiving a model and handing one back."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.learning.lab import Handle
from emulator.ledger import Tag
from emulator.methods.memory import RuleMemory
from emulator.methods.session import Session
from emulator.registry import Chosen, NoParams, trainings
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


@trainings.register("parallel")
def parallel(session: Session, group: Group, model: Handle, at: GroupRound, params: NoParams) -> Steps:
    """Parallel: members receive the group's model, train side by side, and send it back for averaging by samples.

    The group waits for its slowest member twice: before the group operation, which needs everybody, and for the uploads.
    """
    world, lab = session.world, session.lab
    tag = Tag("model", at.round, group.number, at.group_round)
    samples, local = lab.clients.samples, at.local.params

    def member(client: int) -> Steps:
        yield world.send(group.aggregator, world.fleet.client_names[client], at.down_bytes, tag)
        yield world.train(client, int(samples[client]), local.epochs, local.batch_size, tag.but("training"))

    yield world.env.all_of([world.env.process(member(c)) for c in group.members])
    yield world.group_operation(group.aggregator, group.members, at.operation, at.memory.rule.vectors, tag)
    names = [world.fleet.client_names[c] for c in group.members]
    yield world.env.all_of([world.send(name, group.aggregator, at.up_bytes, tag) for name in names])
    trained = []
    for client in group.members:
        first_epoch = at.group_round * local.epochs
        result, own = lab.train(model, client, at.local, at.round, first_epoch, at.memory.of(client))
        at.memory.keep(client, own)
        trained.append(result)
    total = int(samples[list(group.members)].sum())
    return lab.combine(trained, [int(samples[c]) / total for c in group.members])
