"""Group operations of clients that may be lost on the way: all compute, then all send, then all receive.

Those in which nobody is ever lost are worked out together (`emulator.world.batch`). What an operation takes, a world's `Meetings`
say; another world may have others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from emulator.contracts.world import GroupOperation, OperationCost
from emulator.ledger import GROUP_OPERATION, Tag

if TYPE_CHECKING:
    from emulator.world.world import StepsTo, World

NO_CONTENT: Mapping[int, str] = {}


def operate(
    world: World,
    members: Sequence[int],
    aggregator: str,
    operation: GroupOperation,
    vectors: int,
    size: int,
    tag: Tag,
    contents: Mapping[int, str] = NO_CONTENT,
) -> StepsTo[list[int]]:
    """A group operation between clients and their aggregator; returns the members that stayed to the end.

    ``vectors`` says how many vectors of the model's size each member brings, ``size`` of how many members the operation was
    planned, and ``contents`` gives the keys of the models that they are about to send (see `World.send`).
    """
    return world.meetings.operate(members, aggregator, operation, vectors, size, tag, contents)


def recover(
    world: World,
    members: Sequence[int],
    aggregator: str,
    operation: GroupOperation,
    vectors: int,
    size: int,
    tag: Tag,
    contents: Mapping[int, str] = NO_CONTENT,
) -> StepsTo[list[int]]:
    """What those of ``size`` members whose models have arrived do to bring `operate` to its end, without those who dropped out.

    Where nobody did it takes nothing. Returns the members that stayed to the end; arguments as those of `operate`.
    """
    return world.meetings.recover(members, aggregator, operation, vectors, size, tag, contents)


class Meetings:
    """The group operations of a world, by the cost that they say they have."""

    def __init__(self, world: World) -> None:
        self._world = world

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
        """See the function of this name."""
        costs = self._costs(aggregator, members, operation, vectors, size, 0)
        return self._operate(aggregator, dict(zip(members, costs, strict=True)), tag.with_purpose(operation.kind))

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
        """See the function of this name."""
        if len(members) == size:
            return list(members)
        whole = self._costs(aggregator, members, operation, vectors, size, 0)
        with_drops = self._costs(aggregator, members, operation, vectors, size, size - len(members))
        extra = {
            c: OperationCost(b.seconds - a.seconds, b.up_bytes - a.up_bytes, b.down_bytes - a.down_bytes)
            for c, a, b in zip(members, whole, with_drops, strict=True)
        }
        steps = self._operate(aggregator, extra, tag.with_purpose(f"{operation.kind}-recovery"))
        return (yield from steps)

    def _costs(
        self,
        aggregator: str,
        members: Sequence[int],
        operation: GroupOperation,
        vectors: int,
        size: int,
        dropped: int,
    ) -> list[OperationCost]:
        world = self._world
        kinds = world.batch.kind_of[list(members)].tolist()
        return world.batch.costs(operation, world.fleet.device(aggregator), kinds, vectors, size, dropped)

    def _operate(self, aggregator: str, costs: Mapping[int, OperationCost], tag: Tag) -> StepsTo[list[int]]:
        world, left, names = self._world, list(costs), self._world.fleet.client_names
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
