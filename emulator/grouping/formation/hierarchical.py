"""Like clients together by hierarchical clustering: the HierCluster baseline of S1 (Briggs, Fan and Andras 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.grouping import Distance, FormationFacts, formations
from emulator.grouping.formation.limits import Least, least_clients, most_groups, too_many
from emulator.grouping.view import ClientView, Floats
from emulator.registry import Params, Scale


class HierarchicalParams(Params):
    """How many groups, and what makes clients alike."""

    groups: Least | None = Field(
        None, description="groups (L); with 'size', without it as many as there are clients for"
    )
    size: Least | None = Field(
        None,
        description="exactly so many clients of each cluster (k), or else the nearest; who is left over stays out. "
        "Without it sizes are free",
    )
    linkage: Literal["average", "complete", "single"] = Field(
        "average", description="distance of two clusters: the mean, the largest or the smallest between their clients"
    )
    distance: Distance = Field({"kind": "cosine"}, validate_default=True, description="how unlike two clients are")

    @model_validator(mode="after")
    def _how_many(self) -> HierarchicalParams:
        if self.groups is None and self.size is None:
            raise PydanticCustomError("limits", "give 'groups' (how many), 'size' (how large), or both")
        return self

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """Every group needs a client, or as many as it is to have."""
        if self.size is not None:
            yield from too_many(self.size, self.groups, scale)
        elif self.groups is not None and self.groups > scale.clients:
            yield "groups", f"{self.groups} groups cannot be formed from {scale.clients} clients"


@formations.register(
    "hierarchical",
    HierarchicalParams,
    FormationFacts(
        needs=("estimates",),
        smallest=lambda params: least_clients(params.size or 1, params.groups),
        most=lambda params, clients: most_groups(params.size or 1, params.groups, clients),
        largest=lambda params, clients: min(params.size or clients, clients),
    ),
)
def hierarchical(clients: ClientView, rng: np.random.Generator, params: HierarchicalParams) -> list[list[int]]:
    """Like clients together: the two nearest clusters are merged until so many groups are left.

    Groups may differ much in size. With ``size``, each group has so many clients of its own cluster, drawn at random where
    it has more. A cluster that has fewer is filled with those clients that are nearest to it on average and that no group
    has; others stay out. Groups come in the order of their lowest client number. A distance that is not symmetric counts
    with the mean of both directions.
    """
    n = len(clients.samples)
    groups = min(params.groups or n, n) if params.size is None else max(1, most_groups(params.size, params.groups, n))
    if n < 2 or groups == n:
        return [[client] for client in range(n)]
    distances = params.distance(clients.learnt, clients.learnt)
    distances = (distances + distances.T) / 2
    clusters = _clusters(distances, groups, params.linkage)
    return clusters if params.size is None else _of_size(clusters, distances, params.size, rng)


def _clusters(distances: Floats, count: int, linkage: str) -> list[list[int]]:
    """So many clusters of like clients, in the order of their lowest client number."""
    from sklearn.cluster import AgglomerativeClustering

    labels = AgglomerativeClustering(count, metric="precomputed", linkage=linkage).fit(distances).labels_
    return sorted(np.flatnonzero(labels == label).tolist() for label in range(count))


def _of_size(clusters: list[list[int]], distances: Floats, size: int, rng: np.random.Generator) -> list[list[int]]:
    """So many clients of each cluster, and of those that are left the nearest where a cluster has too few."""
    groups = [
        rng.choice(cluster, size, replace=False).tolist() if len(cluster) > size else cluster for cluster in clusters
    ]
    free = sorted({client for cluster in clusters for client in cluster}.difference(*groups))
    filled: list[list[int]] = []
    for members in groups:
        nearest = np.argsort(distances[np.ix_(free, members)].mean(axis=1), kind="stable")[: size - len(members)]
        joining = [free[position] for position in nearest]
        free = [client for client in free if client not in joining]
        filled.append(sorted(members + joining))
    return sorted(filled)
