"""Random groups of equal size: the baseline that needs to know nothing of the clients (RG of S2 §4.4)."""

from __future__ import annotations

import numpy as np

from emulator.contracts.grouping import FormationFacts, formations
from emulator.grouping.sizes import EqualSizes
from emulator.grouping.view import ClientView


class RandomParams(EqualSizes):
    """How large the groups are."""


@formations.register(
    "random",
    RandomParams,
    FormationFacts(needs=(), smallest=lambda params: params.size, largest=lambda params, n: params.largest(n)),
)
def random_groups(clients: ClientView, rng: np.random.Generator, params: RandomParams) -> list[list[int]]:
    """Shuffled clients in groups of `size` or more, as equal as possible."""
    n = len(clients.samples)
    if n == 0:
        return []
    parts = np.array_split(rng.permutation(n), max(1, n // params.size))
    return [sorted(part.tolist()) for part in parts]
