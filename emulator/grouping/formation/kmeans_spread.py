"""Clusters of like clients, dealt out over the groups (φ_kmeans of S4 §III-B)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from emulator.contracts.grouping import FormationFacts, formations
from emulator.grouping.formation.limits import FillLimits, fill
from emulator.grouping.kmeans import kmeans
from emulator.grouping.view import ClientView


class KmeansParams(FillLimits):
    """How large the groups are, and how many clusters they draw from."""

    clusters: Annotated[int, Field(ge=1)] | None = Field(
        None, description="clusters of like clients; without it, as many as there are classes (S4 §IV-C)"
    )


@formations.register(
    "kmeans-spread",
    KmeansParams,
    FormationFacts(
        needs=("estimates",),
        smallest=lambda params: params.least_clients(),
        most=lambda params, clients: params.most_groups(clients),
        largest=lambda params, clients: params.largest(clients),
    ),
)
def kmeans_spread(clients: ClientView, rng: np.random.Generator, params: KmeansParams) -> list[list[int]]:
    """Unlike clients together: k-means gathers like ones, and groups take a random client from each cluster in turn.

    Whose turn it is goes on from one group to the next. With ``size``, clients that fill no group stay out.
    """
    if len(clients.samples) == 0:
        return []
    labels = kmeans(clients.learnt, params.clusters or clients.label_counts.shape[1], rng, starts=10)
    pools = [rng.permutation(np.flatnonzero(labels == label)).tolist() for label in range(labels.max() + 1)]
    turns = itertools.cycle(pools)

    def take(members: Sequence[int]) -> int:
        pool = next(pool for pool in turns if pool)
        client: int = pool.pop()
        return client

    return fill(clients.samples, params, take)
