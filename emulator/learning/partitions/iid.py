"""Identically distributed clients."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from pydantic import Field

from emulator.contracts.learning import partitions
from emulator.learning.partitions.parts import SamplesPerClient, by_owner, equal_sizes, too_many_samples
from emulator.registry import Params, Scale


class IidParams(Params):
    """How many samples a client gets."""

    samples_per_client: SamplesPerClient | None = Field(
        None,
        description="samples of every client; without it all samples are divided, equally but for one",
    )

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """Too many samples for the set."""
        return too_many_samples(scale, self.samples_per_client)


@partitions.register("iid", IidParams)
def iid(
    labels: np.ndarray, clients: int, classes: int, rng: np.random.Generator, params: IidParams
) -> list[np.ndarray]:
    """Every client gets a random draw from the whole pool, all of the same size."""
    sizes = equal_sizes(len(labels), clients, params.samples_per_client)
    owners = np.full(len(labels), -1, np.int64)
    owners[rng.permutation(len(labels))[: sizes.sum()]] = np.repeat(np.arange(clients), sizes)
    return by_owner(owners, clients)
