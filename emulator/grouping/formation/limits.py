"""How large groups are: the limits of S4 §III-B, or exactly so many clients; for rules that fill one group after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.errors import InputError
from emulator.grouping.view import Counts
from emulator.registry import Params, Scale

Least = Annotated[int, Field(ge=1)]


class SampleLimits(Params):
    """At least so many samples and at most so many clients in a group."""

    min_samples: Least | None = Field(
        None, description="a group is complete when it has so many samples (|D_S|min of S4)"
    )
    max_clients: Least = Field(11, description="the most clients in a group (K_S,max)")

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """There must be samples enough for as many groups as the clients must at least become."""
        if self.min_samples is None or scale.train_samples is None:
            return
        groups = -(-scale.clients // self.max_clients)
        if groups * self.min_samples > scale.train_samples:
            yield (
                "min_samples",
                f"{scale.clients} clients, {self.max_clients} a group at most, make {groups} groups or more; "
                f"{self.min_samples} samples for each are more than the {scale.train_samples} there are",
            )


class FillLimits(SampleLimits):
    """Limits of S4, or groups of exactly ``size`` clients in their place (S1)."""

    size: Least | None = Field(
        None,
        description="exactly so many clients in a group (k), in place of the other limits; who is left over stays out",
    )
    groups: Least | None = Field(None, description="with 'size': so many groups and no more (L)")

    @model_validator(mode="after")
    def _one_kind(self) -> FillLimits:
        if self.size is not None and self.min_samples is not None:
            raise PydanticCustomError("limits", "'size' takes the place of 'min_samples'; give one of them")
        if self.size is None and self.groups is not None:
            raise PydanticCustomError("limits", "'groups' needs 'size'")
        return self

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """Groups cannot have more clients than the fleet, nor more samples than there are."""
        if self.size is None:
            yield from super().problems(scale)
        else:
            yield from too_many(self.size, self.groups, scale)

    def is_complete(self, clients: int, samples: int) -> bool:
        """Whether a group of so many clients with so many samples in all takes no more."""
        if self.size is not None:
            return clients == self.size
        return clients == self.max_clients or (self.min_samples is not None and samples >= self.min_samples)

    def least_clients(self) -> int:
        """The fact ``smallest`` of a rule with these limits."""
        return least_clients(self.size or 1, self.groups)

    def largest(self, clients: int) -> int:
        """The fact ``largest`` of a rule with these limits."""
        return min(self.size or self.max_clients, clients)

    def most_groups(self, clients: int) -> int:
        """The fact ``most`` of a rule with these limits."""
        return clients if self.size is None else most_groups(self.size, self.groups, clients)


def least_clients(size: int, groups: int | None) -> int:
    """The clients that so many groups (one, where None) of a size need."""
    return size * (groups or 1)


def most_groups(size: int, groups: int | None, clients: int) -> int:
    """The most groups of exactly ``size`` that clients can become, and no more than ``groups``."""
    return min(groups or clients, clients // size)


def too_many(size: int, groups: int | None, scale: Scale) -> Iterator[tuple[str, str]]:
    """What is wrong with so many groups of exactly this size in a fleet of this scale."""
    if size > scale.clients:
        yield "size", f"groups of {size} clients cannot be formed from {scale.clients}"
    elif groups is not None and groups * size > scale.clients:
        yield "groups", f"{groups} groups of {size} clients need {groups * size}; there are {scale.clients}"


def fill(samples: Counts, limits: FillLimits, take: Callable[[Sequence[int]], int]) -> list[list[int]]:
    """Groups that are filled one after another. ``take(members)`` takes a client out of its pool for a group of these.

    Where the last group stays short of samples, its clients join others (see `spread`). Raises `InputError` where the limits
    cannot be kept.
    """
    left = len(samples)
    groups: list[list[int]] = []
    wanted = left if limits.size is None else max(1, limits.most_groups(left))
    while left and len(groups) < wanted:
        members: list[int] = []
        while left and not limits.is_complete(len(members), int(samples[members].sum())):
            members.append(take(members))
            left -= 1
        groups.append(members)
    if limits.min_samples is not None:
        groups = spread(groups, samples, limits.min_samples, limits.max_clients)
    return [sorted(members) for members in groups]


def spread(groups: list[list[int]], samples: Counts, min_samples: int, max_clients: int) -> list[list[int]]:
    """Dissolves groups that are short of samples: each client joins the group with fewest samples that has room for it.

    Raises `InputError` where there is no room.
    """
    held = [int(samples[members].sum()) for members in groups]
    good = [g for g, total in enumerate(held) if total >= min_samples]
    short = [g for g, total in enumerate(held) if total < min_samples]
    for client in (c for g in short for c in groups[g]):
        room = [g for g in good if len(groups[g]) < max_clients]
        if not room:
            raise cannot_keep(samples, min_samples, max_clients)
        to = min(room, key=lambda g: held[g])
        groups[to].append(client)
        held[to] += int(samples[client])
    return [groups[g] for g in good]


def cannot_keep(samples: Counts, min_samples: int, max_clients: int) -> InputError:
    """The error for limits that these clients' samples do not allow."""
    return InputError(
        f"no groups with at least {min_samples} samples and at most {max_clients} clients each were found for "
        f"{len(samples)} clients with {int(samples.sum())} samples; lower min_samples or raise max_clients",
        "method.formation.min_samples",
    )
