"""Random groups of equal size: the baseline that needs to know nothing of the clients (RG of S2 §4.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from emulator.grouping.view import ClientView
from emulator.registry import Params, Scale, formations


class RandomParams(Params):
    """How large the groups are."""

    size: Annotated[int, Field(ge=1)] = Field(description="the least number of clients in a group")

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """A group cannot be larger than the fleet."""
        if self.size > scale.clients:
            yield "size", f"groups of {self.size} clients or more cannot be formed from {scale.clients}"


@formations.register("random", RandomParams, needs=(), smallest=lambda params: params.size)
def random_groups(clients: ClientView, rng: np.random.Generator, params: RandomParams) -> list[list[int]]:
    """Shuffled clients in groups of `size` or more, as equal as possible."""
    n = len(clients.samples)
    if n == 0:
        return []
    parts = np.array_split(rng.permutation(n), max(1, n // params.size))
    return [sorted(part.tolist()) for part in parts]
