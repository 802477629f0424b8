"""Like clients together by hierarchical clustering: the HierCluster baseline of S1 (Briggs, Fan and Andras 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from emulator.grouping.formation.limits import Least
from emulator.grouping.view import ClientView
from emulator.registry import Distance, Params, Scale, formations


class HierarchicalParams(Params):
    """How many groups, and what makes clients alike."""

    groups: Least = Field(description="groups (L)")
    linkage: Literal["average", "complete", "single"] = Field(
        "average", description="distance of two clusters: the mean, the largest or the smallest between their clients"
    )
    distance: Distance = Field({"kind": "cosine"}, validate_default=True, description="how unlike two clients are")

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """Every group needs a client."""
        if self.groups > scale.clients:
            yield "groups", f"{self.groups} groups cannot be formed from {scale.clients} clients"


@formations.register(
    "hierarchical",
    HierarchicalParams,
    needs=("estimates",),
    smallest=lambda params: params.groups,
    most=lambda params, clients: min(params.groups, clients),
)
def hierarchical(clients: ClientView, rng: np.random.Generator, params: HierarchicalParams) -> list[list[int]]:
    """Like clients together: the two nearest clusters are merged until so many groups are left.

    Groups may differ much in size. They come in the order of their lowest client number. A distance that is not
    symmetric counts with the mean of both directions.
    """
    n = len(clients.samples)
    groups = min(params.groups, n)
    if n < 2 or groups == n:
        return [[client] for client in range(n)]
    from sklearn.cluster import AgglomerativeClustering

    distances = params.distance(clients.learnt, clients.learnt)
    clustering = AgglomerativeClustering(groups, metric="precomputed", linkage=params.linkage)
    labels = clustering.fit((distances + distances.T) / 2).labels_
    return sorted(np.flatnonzero(labels == label).tolist() for label in range(groups))
