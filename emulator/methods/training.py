"""In-group training: what happens inside a group between receiving a model and handing one back."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.learning.lab import Handle
from emulator.ledger import Tag
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
    model_bytes_down: int  # 0 where the members make the initial model themselves from a seed


@trainings.register("parallel")
def parallel(session: Session, group: Group, model: Handle, at: GroupRound, params: NoParams) -> Steps:
    """Parallel: members receive the group's model, train side by side, and send it back for averaging by samples.

    The group waits for its slowest member twice: before the group operation, which needs everybody, and for the uploads.
    """
    world, lab = session.world, session.lab
    tag = Tag("model", at.round, group.number, at.group_round)
    samples = lab.clients.samples

    def member(client: int) -> Steps:
        name = world.fleet.client_names[client]
        yield world.send(group.aggregator, name, at.model_bytes_down, tag)
        yield world.train(
            client, int(samples[client]), at.local.params.epochs, at.local.params.batch_size, tag.but("training")
        )

    yield world.env.all_of([world.env.process(member(c)) for c in group.members])
    yield world.group_operation(group.aggregator, group.members, at.operation, tag)
    size_bytes = world.workload.model_bytes
    yield world.env.all_of(
        [world.send(world.fleet.client_names[c], group.aggregator, size_bytes, tag) for c in group.members]
    )
    first_epoch = at.group_round * at.local.params.epochs
    trained = [lab.train(model, c, at.local, at.round, first_epoch) for c in group.members]
    total = int(samples[list(group.members)].sum())
    return lab.average(trained, [int(samples[c]) / total for c in group.members])
