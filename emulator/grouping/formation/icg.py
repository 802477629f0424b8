"""Inter-Cluster Grouping (ICG of FedGSP, Zeng et al. 2022) as S4 §III-B relaxes it, for groups that are formed often.

Like clients are gathered in clusters of as many clients as there are to be groups; each group gets one client of each cluster.
Clients that are left because the numbers do not divide are spread over the groups.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from emulator.contracts.grouping import FormationFacts, formations
from emulator.grouping.balanced import balanced_clusters
from emulator.grouping.formation.limits import Least, SampleLimits, cannot_keep
from emulator.grouping.view import ClientView
from emulator.registry import Scale


class IcgParams(SampleLimits):
    """How many groups there are: a number, or as many as the limits allow."""

    groups: Least | None = Field(None, description="so many groups, in place of the other limits (N_S)")

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """Every group needs a client, and samples enough."""
        if self.groups is None:
            yield from super().problems(scale)
        elif self.groups > scale.clients:
            yield "groups", f"{self.groups} groups cannot be formed from {scale.clients} clients"


@formations.register(
    "icg",
    IcgParams,
    FormationFacts(
        needs=("estimates",),
        smallest=lambda params: params.groups or 1,
        most=lambda params, clients: min(params.groups or clients, clients),
        largest=lambda params, clients: (
            -(-clients // params.groups) if params.groups else min(params.max_clients, clients)
        ),
    ),
)
def icg(clients: ClientView, rng: np.random.Generator, params: IcgParams) -> list[list[int]]:
    """Unlike clients together: one from each of several equally large clusters of like ones.

    Groups differ by at most one client. Without ``groups``, ``max_clients`` alone gives as few groups as it
    allows, and ``min_samples`` as many as bisection finds with samples enough; raises `InputError` where it finds none.
    """
    n = len(clients.samples)
    if n == 0:
        return []
    if params.groups is not None:
        return one_of_each_cluster(clients, min(params.groups, n), rng)
    fewest = -(-n // params.max_clients)
    if params.min_samples is None:
        return one_of_each_cluster(clients, fewest, rng)
    found: list[list[int]] | None = None
    low, high = fewest, min(n, int(clients.samples.sum()) // params.min_samples)
    count = high  # clients of equal size need no search
    while low <= high:
        groups = one_of_each_cluster(clients, count, rng)
        if min(int(clients.samples[members].sum()) for members in groups) >= params.min_samples:
            found, low = groups, count + 1
        else:
            high = count - 1
        count = (low + high + 1) // 2
    if found is None:
        raise cannot_keep(clients.samples, params.min_samples, params.max_clients)
    return found


def one_of_each_cluster(clients: ClientView, groups: int, rng: np.random.Generator) -> list[list[int]]:
    """So many groups, each with one client of every cluster; who is left over joins those with fewest samples, one each."""
    n = len(clients.samples)
    clusters = n // groups
    order = rng.permutation(n)
    evenly, left = order[: clusters * groups], order[clusters * groups :]
    labels = balanced_clusters(clients.learnt[evenly], clusters, rng)
    chosen = np.stack([rng.permutation(evenly[labels == cluster]) for cluster in range(clusters)], axis=1)
    result: list[list[int]] = chosen.tolist()
    poorest = np.argsort(clients.samples[chosen].sum(axis=1), kind="stable")
    for group, client in zip(poorest[: len(left)], left, strict=True):
        result[group].append(int(client))
    return [sorted(members) for members in result]
