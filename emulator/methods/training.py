"""In-group training: what happens inside a group between receiving a model and handing one back."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.learning.lab import Handle
from emulator.ledger import Tag
from emulator.methods.memory import RuleMemory
from emulator.methods.session import Session
from emulator.registry import Chosen, NoParams, trainings
from emulator.world.batch import Work
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

    Where there is a group operation, it needs everybody: the group waits for its slowest member before it, and again for the
    uploads. Without one, each member sends its model as soon as it is trained.
    """
    world, lab = session.world, session.lab
    tag = Tag("model", at.round, group.number, at.group_round)
    samples, local = lab.clients.samples, at.local.params

    crew = world.batch.crew(group.aggregator, group.members)
    work = Work(samples[crew.clients], local.epochs, local.batch_size)
    if at.operation.plugin.facts.get("alone", False):
        yield crew.exchange(work, at.down_bytes, at.up_bytes, tag)
    else:
        arrivals_s = yield crew.receive(at.down_bytes, tag)
        yield from crew.train_and_operate(work, at.operation, at.memory.rule.vectors, tag, arrivals_s)
        yield crew.send(at.up_bytes, tag)
    trained = []
    for client in group.members:
        first_epoch = at.group_round * local.epochs
        result, own = lab.train(model, client, at.local, at.round, first_epoch, at.memory.of(client))
        at.memory.keep(client, own)
        trained.append(result)
    total = int(samples[list(group.members)].sum())
    return lab.combine(trained, [int(samples[c]) / total for c in group.members])
