"""Cluster sampling (S5 §IV-B, Algorithm 1): like clients are gathered, then one of each kind makes a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import numpy as np
from pydantic import Field

from emulator.contracts.grouping import Distance, FormationFacts, formations
from emulator.grouping.formation import LOGARITHM_FLOPS
from emulator.grouping.kmeans import flops, kmeans
from emulator.grouping.view import ClientView, Counts
from emulator.registry import Params

STARTS = 10  # of k-means, of which the best is kept


class ClusterSamplingParams(Params):
    """How many kinds of clients are told apart, and by what."""

    clusters: Annotated[int, Field(ge=1)] = Field(
        10, description="homogeneous clusters (K); no more than there are clients"
    )
    distance: Distance = Field(
        {"kind": "kl"},
        validate_default=True,
        description="how unlike two clients are; clusters are of rows of its matrix",
    )


class KindredGroups(list[list[int]]):
    """Groups that were drawn from clusters of like clients; ``kinds`` [n] is the cluster of every client."""

    def __init__(self, groups: Iterable[list[int]], kinds: Counts) -> None:
        super().__init__(groups)
        self.kinds = kinds


def _flops(clients: int, numbers: int, groups: int, params: ClusterSamplingParams) -> float:
    """The matrix (a logarithm for each number of an estimate, three operations for each pair and number), and k-means."""
    matrix = numbers * clients * (LOGARITHM_FLOPS + 3 * clients)
    return matrix + STARTS * flops(clients, clients, min(params.clusters, clients))


@formations.register(
    "cluster-sampling",
    ClusterSamplingParams,
    FormationFacts(
        needs=("estimates",),
        smallest=lambda params: 1,
        most=lambda params, clients: clients,
        largest=lambda params, clients: min(params.clusters, clients),
        flops=_flops,
    ),
)
def cluster_sampling(clients: ClientView, rng: np.random.Generator, params: ClusterSamplingParams) -> KindredGroups:
    """One of each kind together: k-means on the rows of the distance matrix, then groups take a client of every cluster (S5).

    Groups take, one after another, a random client of every cluster that has one left, until none is. So there are as many groups
    as the largest cluster has clients, and the last ones may lack kinds, down to a single client. Fewer clusters are found
    where clients cannot be told apart.
    """
    estimates = clients.learnt
    if len(estimates) == 0:
        return KindredGroups([], np.zeros(0, dtype=np.int64))
    kinds = kmeans(params.distance(estimates, estimates), params.clusters, rng, starts=STARTS)
    pools = [rng.permutation(np.flatnonzero(kinds == kind)).tolist() for kind in range(kinds.max() + 1)]
    turns = range(max(len(pool) for pool in pools))
    return KindredGroups([sorted(pool[turn] for pool in pools if len(pool) > turn) for turn in turns], kinds)
