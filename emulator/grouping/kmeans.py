"""k-means in plain numpy: equal points, clusters and streams give equal clusters, whatever the number of threads.

Libraries add up partial sums in the order in which their threads end, so the last bits, and with them ties,
may differ from run to run.
"""

from __future__ import annotations

import numpy as np

from emulator.grouping.view import Counts, Floats

ROUNDS = 30  # Lloyd's at most; label mixes take about ten


def kmeans(points: Floats, clusters: int, rng: np.random.Generator) -> Counts:
    """The number of the cluster [n] of each point [n, m], by Lloyd's rounds from k-means++ starts.

    There are fewer clusters where there are not as many different points. The starts are drawn one after
    another with probability proportional to the squared distance to the nearest start so far (Arthur and
    Vassilvitskii, SODA 2007).
    """
    if len(points) == 0:
        return np.zeros(0, dtype=np.int64)
    centres = _starts(points, clusters, rng)
    labels = _nearest(points, centres)
    for _ in range(ROUNDS):
        for cluster in range(len(centres)):
            members = labels == cluster
            if members.any():  # a cluster that has lost all its points stays where it is
                centres[cluster] = points[members].mean(axis=0)
        before, labels = labels, _nearest(points, centres)
        if (labels == before).all():
            break
    return labels


def flops(points: int, dimensions: int, clusters: int) -> float:
    """Floating-point operations of `kmeans` where it takes all its rounds."""
    return float((ROUNDS + 1) * points * clusters * 3 * dimensions)


def _starts(points: Floats, clusters: int, rng: np.random.Generator) -> Floats:
    chosen = [int(rng.integers(len(points)))]
    distances = _squared(points, points[chosen[0]])
    while len(chosen) < clusters and distances.max() > 0:
        chosen.append(int(rng.choice(len(points), p=distances / distances.sum())))
        distances = np.minimum(distances, _squared(points, points[chosen[-1]]))
    return points[chosen]


def _nearest(points: Floats, centres: Floats) -> Counts:
    """The nearest centre of each point; of several, the first."""
    distances = np.stack([_squared(points, centre) for centre in centres])
    nearest: Counts = distances.argmin(axis=0).astype(np.int64)
    return nearest


def _squared(points: Floats, centre: Floats) -> Floats:
    away = points - centre
    result: Floats = (away * away).sum(axis=1)
    return result
