"""Clustering, then distribution (CDG): what S2 §4.4 takes over from OUEA (Mhaisen et al. 2021).

Clients with a similar label mix form a cluster; each cluster is dealt out over all groups. So every group gets
its share of every kind of client.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from emulator.contracts.grouping import FormationFacts, formations
from emulator.grouping.kmeans import flops, kmeans
from emulator.grouping.sizes import EqualSizes
from emulator.grouping.view import ClientView


class CdgParams(EqualSizes):
    """How large the groups are, and how many kinds of clients are told apart."""

    clusters: Annotated[int, Field(ge=1)] | None = Field(
        None, description="clusters of similar clients; null: as many as there are labels"
    )


def _flops(clients: int, classes: int, groups: int, params: CdgParams) -> float:
    return flops(clients, classes, min(params.clusters or classes, clients))


@formations.register(
    "cdg",
    CdgParams,
    FormationFacts(
        needs=("label-counts",),
        smallest=lambda params: params.size,
        largest=lambda params, clients: params.largest(clients),
        flops=_flops,
    ),
)
def cdg(clients: ClientView, rng: np.random.Generator, params: CdgParams) -> list[list[int]]:
    """Similar clients apart: k-means on the label mixes, then each cluster dealt out over the groups.

    Groups have ``size`` clients or more and are as equal as possible: dealing goes on with the next cluster
    at the group where the last one ended.
    """
    n, labels = clients.label_counts.shape
    if n == 0:
        return []
    held = clients.label_counts.sum(axis=1, keepdims=True)
    mixes = clients.label_counts / np.maximum(held, 1)  # clients without samples are a kind of their own
    cluster = kmeans(mixes, params.clusters or labels, rng)
    shuffled = rng.permutation(n)
    dealt = shuffled[np.argsort(cluster[shuffled], kind="stable")]
    groups = max(1, n // params.size)
    return [sorted(dealt[g::groups].tolist()) for g in range(groups)]
