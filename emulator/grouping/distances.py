"""Distances between what servers know of clients: how differently two clients' data are distributed (S4 §III-B, §IV-C).

A distance is a function ``(a, b, params) -> [n, k]`` of estimates a [n, d] and b [k, d], one row a client or a
group. The larger, the more the two differ. `kl` is not symmetric, and `gini` and `entropy` are not 0 between
equals: they say how mixed the two are together. Those that compare distributions take rows of numbers that are
not negative and scale each to add up to 1; a row of zeros, which says nothing, counts as uniform. They raise
`InputError` where an estimate is negative.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from emulator.contracts.grouping import distances
from emulator.errors import InputError
from emulator.grouping.view import Floats
from emulator.registry import NoParams

KEY = "method.formation.distance"
LEAST = 1e-12  # a probability in `kl`: none counts as less, so that the distance stays finite


@distances.register("euclidean")
def euclidean(a: Floats, b: Floats, params: NoParams) -> Floats:
    """The length of the difference."""
    return _table(len(a), b, lambda row: np.sqrt(((a - row) ** 2).sum(axis=1)))


@distances.register("cosine")
def cosine(a: Floats, b: Floats, params: NoParams) -> Floats:
    """1 - cosine of the angle: 0 in the same direction, 1 at right angles, 2 in opposite ones."""
    return 1 - cosine_similarity(a, b)


@distances.register("kl")
def kl(a: Floats, b: Floats, params: NoParams) -> Floats:
    """Kullback-Leibler divergence KL(a ‖ b) of two distributions, in nats.

    Between soft labels of several samples, laid end to end, it is the mean over the samples (S5 Eq. 4).
    """
    p, q = (np.maximum(_distributions("kl", x), LEAST) for x in (a, b))
    logs = np.log(p)
    return np.maximum(_table(len(a), np.log(q), lambda row: (p * (logs - row)).sum(axis=1)), 0)


@distances.register("gini")
def gini(a: Floats, b: Floats, params: NoParams) -> Floats:
    """Gini index 1 - Σ p² of the even mixture p of two distributions: 0 if both are one and the same class."""
    p, q = _distributions("gini", a), _distributions("gini", b)
    return _table(len(a), q, lambda row: 1 - (((p + row) / 2) ** 2).sum(axis=1))


@distances.register("entropy")
def entropy(a: Floats, b: Floats, params: NoParams) -> Floats:
    """Entropy of the even mixture of two distributions, in nats.

    It is log m less the divergence of the mixture from uniform, which is the sense in which S4 calls KL a
    measure of disomogeneity, as it does the Gini index.
    """
    p, q = _distributions("entropy", a), _distributions("entropy", b)

    def of_mixtures(row: Floats) -> Floats:
        mixture = (p + row) / 2
        logs = np.log(mixture, out=np.zeros_like(mixture), where=mixture > 0)
        result: Floats = -(mixture * logs).sum(axis=1)
        return result

    return _table(len(a), q, of_mixtures)


@distances.register("normalised-cosine")
def normalised_cosine(a: Floats, b: Floats, params: NoParams) -> Floats:
    """Cosine distance of a/(a+b) and b/(a+b), entry by entry: Task2Vec's, whatever the scale of an entry.

    Achille et al. 2019, §4.1; for estimates that are not negative. Entries that are 0 in both count for nothing.
    """
    for x in (a, b):
        _check_not_negative("normalised-cosine", x)

    def to(row: Floats) -> Floats:
        total = a + row
        ours = np.divide(a, total, out=np.zeros_like(a), where=total > 0)
        theirs = np.divide(np.broadcast_to(row, a.shape), total, out=np.zeros_like(a), where=total > 0)
        result: Floats = 1 - (_unit(ours) * _unit(theirs)).sum(axis=1)
        return result

    return _table(len(a), b, to)


def cosine_similarity(a: Floats, b: Floats) -> Floats:
    """Cosines [n, k] between the rows of a and of b; 0 where one of two is zero."""
    ours, theirs = _unit(a), _unit(b)
    return np.clip(_table(len(a), theirs, lambda row: (ours * row).sum(axis=1)), -1, 1)


def _table(rows: int, b: Floats, column: Callable[[Floats], Floats]) -> Floats:
    """A matrix with one column for each row of b.

    Not by matrix products: there the rounding depends on where a row stands, and equal clients would not be equally far.
    """
    result = np.empty((rows, len(b)))
    for j, row in enumerate(b):
        result[:, j] = column(row)
    return result


def _unit(vectors: Floats) -> Floats:
    """The rows scaled to length 1; those of zeros stay so."""
    lengths = np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    result: Floats = np.divide(vectors, lengths, out=np.zeros_like(vectors, dtype=np.float64), where=lengths > 0)
    return result


def _distributions(name: str, values: Floats) -> Floats:
    """The rows scaled to add up to 1; those of zeros uniform."""
    _check_not_negative(name, values)
    totals = values.sum(axis=1, keepdims=True)
    uniform = np.full(values.shape, 1 / max(1, values.shape[1]))
    result: Floats = np.divide(values, totals, out=uniform, where=totals > 0)
    return result


def _check_not_negative(name: str, values: Floats) -> None:
    if (values < 0).any():
        raise InputError(
            f"'{name}' compares numbers that are not negative, and the estimates hold negative ones; "
            "choose 'euclidean' or 'cosine', or another method.estimator",
            KEY,
        )
