"""Clusters of equal size: k-means in which every cluster must have the same number of members.

Alternates as k-means does between centres and the best division for these centres. That division is a transport problem
(Bradley, Bennett and Demiriz 2000, *Constrained k-means clustering*), solved exactly by successive shortest paths: everybody
begins in the cheapest cluster, and as long as one is too full, the cheapest chain of moves leads from it to one with
room (a member moves to another cluster, one of whose members moves on, and so forth). Chains run between clusters, of
which there are few, not between clients. The same by `scipy.optimize.linear_sum_assignment`, with a column for each place,
takes about 4 s for 3,500 clients, and groups that are formed often need it often.
"""

from __future__ import annotations

import numpy as np

from emulator.grouping.view import Counts, Floats

ITERATIONS = 10  # at most; S4's own number, and most divisions are stable before
_ROUNDING = 1e-9  # of the largest cost: less is no gain


def balanced_clusters(points: Floats, clusters: int, rng: np.random.Generator) -> Counts:
    """The cluster [n] of each row of points, all clusters of equal size; raises ``ValueError`` where n does not divide so."""
    n = len(points)
    if clusters < 1 or n % clusters:
        raise ValueError(f"{n} points cannot be divided into {clusters} clusters of equal size")
    if clusters in (1, n):  # one for all, or one for each
        return np.arange(n) % clusters
    size = n // clusters
    centres = _apart(points, clusters, rng)
    labels = np.full(n, -1)
    for _ in range(ITERATIONS):
        costs = np.stack([_squared(points, centre) for centre in centres], axis=1)
        before, labels = labels, cheapest_division(costs, size)
        if (labels == before).all():
            break
        centres = points[np.argsort(labels, kind="stable")].reshape(clusters, size, -1).mean(axis=1)
    return labels


def _apart(points: Floats, clusters: int, rng: np.random.Generator) -> Floats:
    """So many points to begin with, each drawn by its squared distance to those drawn before (k-means++)."""
    from sklearn.cluster import kmeans_plusplus
    from threadpoolctl import threadpool_limits

    seed = int(rng.integers(2**31))
    with threadpool_limits(1):  # several threads add up in the order in which they end
        centres: Floats = kmeans_plusplus(points, clusters, random_state=seed)[0]
    return centres


def _squared(points: Floats, centre: Floats) -> Floats:
    result: Floats = ((points - centre) ** 2).sum(axis=1)
    return result


def cheapest_division(costs: Floats, size: int) -> Counts:
    """The cluster [n] of each client so that the sum of costs [n, clusters] is least and no cluster has more than ``size``.

    Raises ``ValueError`` where there is no room for all.
    """
    n, clusters = costs.shape
    if n > clusters * size:
        raise ValueError(f"{n} clients do not fit into {clusters} clusters of {size}")
    labels: Counts = costs.argmin(axis=1)
    counts = np.bincount(labels, minlength=clusters)
    moves = _Moves(costs, labels)
    while (counts > size).any():
        way = moves.chain(counts > size, counts < size)
        counts[way[0]] -= 1
        counts[way[-1]] += 1
    return labels


class _Moves:
    """The cheapest move of a member of each cluster to each other: what it costs, and who. Moves change ``labels``."""

    def __init__(self, costs: Floats, labels: Counts) -> None:
        clusters = costs.shape[1]
        self._costs, self._labels = costs, labels
        self._cost = np.full((clusters, clusters), np.inf)
        self._who = np.zeros((clusters, clusters), dtype=np.int64)
        self._least_gain = _ROUNDING * float(np.abs(costs).max(initial=0.0))
        for cluster in range(clusters):
            self._update(cluster)

    def _update(self, cluster: int) -> None:
        members = np.flatnonzero(self._labels == cluster)
        if len(members) == 0:
            self._cost[cluster] = np.inf
            return
        costs = self._costs[members] - self._costs[members, cluster][:, None]
        best = costs.argmin(axis=0)
        self._who[cluster] = members[best]
        self._cost[cluster] = costs[best, np.arange(len(best))]

    def chain(self, full: np.ndarray, room: np.ndarray) -> list[int]:
        """Makes the cheapest chain of moves from a cluster that is too full to one with room; the clusters on the way."""
        total, came_from = np.where(full, 0.0, np.inf), np.full(len(room), -1)
        every = np.arange(len(room))
        reached = np.flatnonzero(full)
        for _ in every:  # as many as a chain can have moves; mostly two or three are enough
            through = total[reached, None] + self._cost[reached]
            best = through.argmin(axis=0)
            cost = through[best, every]
            cheaper = np.flatnonzero(cost < total - self._least_gain)
            if len(cheaper) == 0:
                break
            total[cheaper], came_from[cheaper] = cost[cheaper], reached[best[cheaper]]
            reached = cheaper
        way = [int(np.where(room, total, np.inf).argmin())]
        while came_from[way[0]] >= 0:
            here = int(came_from[way[0]])
            self._labels[self._who[here, way[0]]] = way[0]
            way.insert(0, here)
        for cluster in way:
            self._update(cluster)
        return way
