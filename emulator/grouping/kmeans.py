"""k-means as scikit-learn has it, with the same clusters in every run: one thread, and starts from the caller's stream."""

from __future__ import annotations

import numpy as np

from emulator.grouping.view import Counts, Floats

ROUNDS = 30  # Lloyd's at most; label mixes take about ten


def kmeans(points: Floats, clusters: int, rng: np.random.Generator, starts: int = 1) -> Counts:
    """The number of the cluster [n] of each point [n, m]: the best of so many starts.

    There are fewer clusters where there are not as many different points.
    """
    if len(points) == 0:
        return np.zeros(0, dtype=np.int64)
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    clusters = min(clusters, len(np.unique(points, axis=0)))
    seed = int(rng.integers(2**31))
    with threadpool_limits(1):  # several threads add up in the order in which they end
        labels = KMeans(clusters, n_init=starts, max_iter=ROUNDS, tol=0, random_state=seed).fit(points).labels_
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def flops(points: int, dimensions: int, clusters: int) -> float:
    """Floating-point operations of `kmeans` from one start where it takes all its rounds."""
    return float((ROUNDS + 1) * points * clusters * 3 * dimensions)
