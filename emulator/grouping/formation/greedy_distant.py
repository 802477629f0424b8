"""Greedy groups of unlike clients (φ_greedy of S4 §III-B): always the one farthest from the group so far."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from emulator.contracts.grouping import Distance, FormationFacts, formations
from emulator.grouping.formation.limits import FillLimits, fill
from emulator.grouping.view import ClientView


class GreedyParams(FillLimits):
    """How large the groups are, and what 'far' means."""

    distance: Distance = Field({"kind": "cosine"}, validate_default=True, description="how unlike two clients are (τ)")


@formations.register(
    "greedy-distant",
    GreedyParams,
    FormationFacts(
        needs=("estimates",),
        smallest=lambda params: params.least_clients(),
        most=lambda params, clients: params.most_groups(clients),
        largest=lambda params, clients: params.largest(clients),
    ),
)
def greedy_distant(clients: ClientView, rng: np.random.Generator, params: GreedyParams) -> list[list[int]]:
    """Unlike clients together: a random client, then always the one farthest from the mean of the group.

    Of several that are equally far, the one with the lowest number. With ``size``, clients that fill no group stay
    out.
    """
    estimates = clients.learnt
    left = np.arange(len(estimates))

    def take(members: Sequence[int]) -> int:
        nonlocal left
        if members:
            mean = estimates[list(members)].mean(axis=0, keepdims=True)
            position = int(params.distance(estimates[left], mean)[:, 0].argmax())
        else:
            position = int(rng.integers(len(left)))
        client = int(left[position])
        left = np.delete(left, position)
        return client

    return fill(clients.samples, params, take)
