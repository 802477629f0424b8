"""Like clients together by hierarchical clustering: the HierCluster baseline of S1 (Briggs, Fan and Andras 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.grouping import Distance, FormationFacts, formations
from emulator.grouping.formation.limits import Least, least_clients, most_groups, too_many
from emulator.grouping.view import ClientView
from emulator.registry import Params, Scale


class HierarchicalParams(Params):
    """How many groups, and what makes clients alike."""

    groups: Least | None = Field(
        None, description="groups (L); with 'size', without it as many as there are clients for"
    )
    size: Least | None = Field(
        None,
        description="exactly so many clients in a group (k); who is left over stays out. Without it sizes are free",
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

    Groups may differ much in size. With ``size`` all clients are merged into one tree, and its leaves, in which like clients
    stand beside each other, are cut into groups of that size. Groups come in the order of their lowest client number. A
    distance that is not symmetric counts with the mean of both directions.
    """
    n = len(clients.samples)
    if params.size is not None and n > 1:
        return _of_size(clients, params, max(1, most_groups(params.size, params.groups, n)), params.size)
    groups = min(params.groups or n, n)
    if n < 2 or groups == n:
        return [[client] for client in range(n)]
    from sklearn.cluster import AgglomerativeClustering

    distances = params.distance(clients.learnt, clients.learnt)
    clustering = AgglomerativeClustering(groups, metric="precomputed", linkage=params.linkage)
    labels = clustering.fit((distances + distances.T) / 2).labels_
    return sorted(np.flatnonzero(labels == label).tolist() for label in range(groups))


def _of_size(clients: ClientView, params: HierarchicalParams, groups: int, size: int) -> list[list[int]]:
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    distances = params.distance(clients.learnt, clients.learnt)
    distances = np.maximum((distances + distances.T) / 2, 0.0)
    np.fill_diagonal(distances, 0.0)
    order = leaves_list(linkage(squareform(distances, checks=False), params.linkage)).tolist()
    return sorted(sorted(order[g * size : (g + 1) * size]) for g in range(groups))
