"""Client sets that together come closest to knowing every class (VISIT, S1 Alg. 1)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from emulator.contracts.grouping import FormationFacts, formations
from emulator.errors import InputError
from emulator.grouping.formation.limits import Least, least_clients, most_groups, too_many
from emulator.grouping.view import ClientView, Floats
from emulator.registry import Params, Scale


class VirtualTargetParams(Params):
    """How many sets of how many clients."""

    size: Least = Field(description="exactly so many clients in a set (k); who is left over stays out")
    groups: Least | None = Field(None, description="sets (L); without it, as many as the clients allow")

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """Sets cannot have more clients than the fleet."""
        yield from too_many(self.size, self.groups, scale)


@formations.register(
    "virtual-target",
    VirtualTargetParams,
    FormationFacts(
        needs=("estimates",),
        smallest=lambda params: least_clients(params.size, params.groups),
        most=lambda params, clients: most_groups(params.size, params.groups, clients),
        largest=lambda params, clients: min(params.size, clients),
        per_class=True,
    ),
)
def virtual_target(clients: ClientView, rng: np.random.Generator, params: VirtualTargetParams) -> list[list[int]]:
    """Balanced sets: a random client, then always the one that turns the set's mean estimate most towards [1, ..., 1].

    Sets come in the order in which they were formed. Of several clients that are equally good, the one with the
    lowest number joins. Raises `InputError` where estimates do not have one number for each class.
    """
    estimates = clients.learnt
    n, classes = len(estimates), clients.label_counts.shape[1]
    if n and estimates.shape[1] != classes:
        raise InputError(
            f"'virtual-target' needs one number for each of {classes} classes, and the estimates have "
            f"{estimates.shape[1]}; choose the estimator 'signature', 'confidence' or 'label-counts'",
            "method.estimator",
        )
    left = np.arange(n)
    sets: list[list[int]] = []
    for _ in range(max(1, most_groups(params.size, params.groups, n))):
        members: list[int] = []
        total = np.zeros(classes)
        while len(members) < params.size and len(left):
            position = int(similarity(total + estimates[left]).argmax()) if members else int(rng.integers(len(left)))
            members.append(int(left[position]))
            total += estimates[left[position]]
            left = np.delete(left, position)
        sets.append(sorted(members))
    return [members for members in sets if members]


def similarity(vectors: Floats) -> Floats:
    """The cosine of each row to the virtual target [1, ..., 1]; 0 for a row of zeros. Scaling a row does not change it."""
    lengths = np.sqrt((vectors**2).sum(axis=1) * vectors.shape[1])
    result: Floats = np.divide(vectors.sum(axis=1), lengths, out=np.zeros(len(vectors)), where=lengths > 0)
    return result
