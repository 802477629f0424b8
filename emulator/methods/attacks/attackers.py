"""Which clients attack: a share of all, or of some groups; with larger shares, those of smaller ones attack too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import Field

from emulator.errors import InputError
from emulator.rng import stream

if TYPE_CHECKING:
    from emulator.methods.training import Group

T = TypeVar("T")

Share = Annotated[float, Field(ge=0, le=1)]


def first(seed: int, all_of: Sequence[T], share: float, name: str | int) -> list[T]:
    """A share of these, drawn from a stream of this name: the first ones in a random order."""
    order = stream(seed, "attack", name).permutation(len(all_of))
    count = int(share * len(all_of) + 0.5 + 1e-9)  # 0.3 · 0.5 is a little less than 0.15
    return [all_of[i] for i in order[:count].tolist()]


def in_groups(seed: int, groups: Sequence[Group], superclients: float, clients: float) -> dict[int, int]:
    """Attackers in a share of the groups, a share of the clients of each, with the number of each one's group.

    Where there is one group, the product of both shares of it. Raises `InputError` where the shares are too small for anybody.
    """
    if len(groups) == 1:
        malicious, share = list(groups), superclients * clients
    else:
        malicious, share = first(seed, groups, superclients, "groups"), clients
    found = {client: group.number for group in malicious for client in first(seed, group.members, share, group.number)}
    if not found and superclients and clients:
        largest = max(len(group.members) for group in groups)
        message = f"the shares make no attacker in {len(groups)} groups of up to {largest} clients"
        raise InputError(f"{message}; give larger 'superclients' or 'clients'", "attacks")
    return found
