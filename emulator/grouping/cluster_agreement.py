"""How well clusters that were found agree with the true ones.

Both are given as the cluster of every client, int [clients]. The numbers of the clusters do not matter, only who is together.
"""

from __future__ import annotations

import numpy as np

from emulator.grouping.view import Counts


def adjusted_rand_index(found: Counts, truth: Counts) -> float:
    """The share of pairs of clients on which both agree, corrected for chance (Hubert and Arabie 1985).

    1 for the same clusters, 0 on average for clusters drawn at random with the same sizes; may be negative. 1 where both put all
    clients into one cluster, or both each client into its own. Raises ``ValueError`` where the shapes do not fit.
    """
    table = _contingency(found, truth)
    together = _pairs(table).sum()
    found_pairs, true_pairs = _pairs(table.sum(axis=1)).sum(), _pairs(table.sum(axis=0)).sum()
    by_chance = found_pairs * true_pairs / max(_pairs(table.sum()), 1.0)
    most = (found_pairs + true_pairs) / 2
    return float((together - by_chance) / (most - by_chance)) if most != by_chance else 1.0


def purity(found: Counts, truth: Counts) -> float:
    """The share of clients that belong to the true cluster which is most frequent in the cluster they were put into.

    1 where no found cluster mixes true ones, so also where each client is alone: to be read beside the number of clusters. Raises
    ``ValueError`` where the shapes do not fit.
    """
    table = _contingency(found, truth)
    return float(table.max(axis=1).sum() / table.sum())


def _contingency(found: Counts, truth: Counts) -> np.ndarray:
    """How many clients of each true cluster [columns] are in each cluster that was found [rows]."""
    if found.ndim != 1 or found.shape != truth.shape or not len(found):
        raise ValueError(f"found {found.shape} and true clusters {truth.shape} must both be [clients], of at least one")
    rows, row = np.unique(found, return_inverse=True)
    columns, column = np.unique(truth, return_inverse=True)
    return np.bincount(row * len(columns) + column, minlength=len(rows) * len(columns)).reshape(len(rows), len(columns))


def _pairs(count: np.ndarray) -> np.ndarray:
    """How many pairs there are among so many, as floats."""
    exact = np.asarray(count, np.float64)
    return np.asarray(exact * (exact - 1) / 2)
