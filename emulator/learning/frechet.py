"""The Fréchet distance between two sets of features: how different two kinds of images are (Heusel et al. 2017, FID).

Each set is taken for a draw of a normal distribution. The distance of two such is, in closed form (Dowson and Landau 1982),
|m1 - m2|² + tr(C1 + C2 - 2 (C1 C2)^½). As in FID this is the squared distance.
"""

from __future__ import annotations

import numpy as np


def frechet_distance(first: np.ndarray, second: np.ndarray) -> float:
    """The distance between two sets of features [n, d] and [m, d], from their means and covariances, in double precision.

    Sets of fewer than d + 1 samples have singular covariances. The distance exists for these too, but few samples make it larger
    than it is. Raises `ValueError` where a set has fewer than two samples.
    """
    if min(len(first), len(second)) < 2:
        raise ValueError("a covariance needs at least two samples")
    moments = [
        (s.mean(axis=0), np.atleast_2d(np.cov(s, rowvar=False))) for s in (np.float64(first), np.float64(second))
    ]
    return normal_distance(*moments[0], *moments[1])


def normal_distance(mean1: np.ndarray, cov1: np.ndarray, mean2: np.ndarray, cov2: np.ndarray) -> float:
    """The distance between two normal distributions: means [d] and covariances [d, d]. Never below 0."""
    # (C1 C2)^½ has the trace of (S C2 S)^½, S being the root of C1; that is symmetric, so its eigenvalues are real. Rounding
    # makes those that are 0 a little negative.
    values, vectors = np.linalg.eigh(cov1)
    root = (vectors * np.sqrt(values.clip(min=0))) @ vectors.T
    inner = np.linalg.eigvalsh(root @ cov2 @ root)
    trace = np.trace(cov1) + np.trace(cov2) - 2 * np.sqrt(inner.clip(min=0)).sum()
    return max(0.0, float(((mean1 - mean2) ** 2).sum() + trace))
