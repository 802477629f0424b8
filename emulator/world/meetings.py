"""Group operations of clients that may be lost on the way: all compute, then all send, then all receive.

Those in which nobody is ever lost are worked out together (`emulator.world.batch`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emulator.contracts.world import GroupOperation, OperationCost
from emulator.ledger import GROUP_OPERATION, Tag
from emulator.world.world import StepsTo, World


def operate(
    world: World, members: Sequence[int], aggregator: str, operation: GroupOperation, vectors: int, size: int, tag: Tag
) -> StepsTo[list[int]]:
    """A group operation between clients and their aggregator; returns the members that stayed to the end.

    ``vectors`` says how many vectors of the model's size each member brings, ``size`` of how many members the operation was
    planned.
    """
    costs = _costs(world, aggregator, members, operation, vectors, size, 0)
    return _operate(world, aggregator, dict(zip(members, costs, strict=True)), tag.with_purpose(operation.kind))


def recover(
    world: World, members: Sequence[int], aggregator: str, operation: GroupOperation, vectors: int, size: int, tag: Tag
) -> StepsTo[list[int]]:
    """What those who are left of ``size`` members pay, beside `operate`, for those who dropped out."""
    whole = _costs(world, aggregator, members, operation, vectors, size, 0)
    with_drops = _costs(world, aggregator, members, operation, vectors, size, size - len(members))
    extra = [
        OperationCost(b.seconds - a.seconds, b.up_bytes - a.up_bytes, b.down_bytes - a.down_bytes)
        for a, b in zip(whole, with_drops, strict=True)
    ]
    return _operate(
        world, aggregator, dict(zip(members, extra, strict=True)), tag.with_purpose(f"{operation.kind}-recovery")
    )


def _costs(
    world: World,
    aggregator: str,
    members: Sequence[int],
    operation: GroupOperation,
    vectors: int,
    size: int,
    dropped: int,
) -> list[OperationCost]:
    kinds = world.batch.kind_of[list(members)].tolist()
    return world.batch.costs(operation, world.fleet.device(aggregator), kinds, vectors, size, dropped)


def _operate(world: World, aggregator: str, costs: Mapping[int, OperationCost], tag: Tag) -> StepsTo[list[int]]:
    left, names = list(costs), world.fleet.client_names
    for stage in ("seconds", "up_bytes", "down_bytes"):
        work = {c: getattr(costs[c], stage) for c in left}
        work = {c: amount for c, amount in work.items() if amount > 0}
        if stage == "seconds":
            events = {c: world.busy(GROUP_OPERATION, c, seconds, tag) for c, seconds in work.items()}
        elif stage == "up_bytes":
            events = {c: world.send(names[c], aggregator, count, tag) for c, count in work.items()}
        else:
            events = {c: world.send(aggregator, names[c], count, tag) for c, count in work.items()}
        results = yield world.env.all_of(events.values())
        left = [c for c in left if c not in events or results[events[c]]]
    return left
