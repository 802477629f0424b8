"""CoV-Grouping: groups whose clients together hold every label about equally often (Group-FEL, S2 Alg. 2).

With S2 the sum of the squared label counts of a group, N its samples and m the number of labels,
CoV² = m·S2/N² − 1. So the smallest CoV is the smallest S2/N². For every remaining client c at once,

    N(g∪c) = N(g) + N(c)    and    S2(g∪c) = S2(g) + 2 L(g)·L(c) + S2(c),

which makes one step a product of a vector with the table of the remaining clients.

Exactness. All of these are whole numbers. Below 2^53 (an edge with less than 90 million samples) float64
computes them without rounding, in whatever order a BLAS adds; then one correctly rounded division follows,
which keeps order. So equal CoVs compare as equal on every machine and the lowest client number wins; a larger
CoV is never taken for a smaller one; only CoVs that differ by less than one part in 10^15 may be taken for
equal. What decides whether a group goes on (is the CoV over the limit, does it get lower) is compared in
whole numbers, unrounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from emulator.grouping import quality
from emulator.grouping.view import ClientView, Counts, group_view
from emulator.registry import Params, Scale, formations

_COMPACT_AT = 1 / 16  # share of taken clients among the columns at which they are dropped
# For an infinite CoV: worse than any other, better than the inf of a client that was taken.
_WORST = np.finfo(np.float64).max


class CovParams(Params):
    """When a group is good enough."""

    min_size: Annotated[int, Field(ge=1)] = Field(5, description="the least number of clients in a group (MinGS)")
    max_cov: Annotated[float, Field(ge=0)] = Field(
        0.5, description="a group is closed when its CoV is at most this (MaxCoV), or cannot be lowered"
    )

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """A group cannot be larger than the fleet."""
        if self.min_size > scale.clients:
            message = f"groups of {self.min_size} clients or more cannot be formed from {scale.clients}"
            yield "min_size", message


@formations.register("cov", CovParams, needs=("label-counts",), smallest=lambda params: params.min_size)
def cov(clients: ClientView, rng: np.random.Generator, params: CovParams) -> list[list[int]]:
    """Greedy groups of balanced labels: a random client, then always the one that gives the least CoV.

    Groups come in the order in which they were formed. Where the clients that are left at the end do not make
    a group of ``min_size``, each of them (in ascending order) joins the group whose CoV it raises least. So
    no group is smaller than ``min_size`` unless there are fewer clients than that.
    """
    # Of m·S2/N². From the decimal number that the user wrote: the float nearest to 0.3 is less than 3/10.
    limit = 1 + Fraction(str(params.max_cov)) ** 2
    pool = _Pool(clients.label_counts)
    groups: list[list[int]] = []
    while pool.left:
        group = _Group(pool, pool.position(int(rng.integers(pool.left))))
        while pool.left and (len(group.members) < params.min_size or group.is_above(limit)):
            step = pool.best(group)
            if len(group.members) >= params.min_size and not group.is_lowered_by(step):
                break
            group.add(pool, step)
        groups.append(sorted(group.members))
        pool.compact()
    if len(groups) > 1 and len(groups[-1]) < params.min_size:
        _spread(groups.pop(), groups, clients.label_counts)
    return groups


class _Step(NamedTuple):
    """A client that may join: its column in the pool, and S2 and N of the group with it."""

    position: int
    squares: int
    samples: int


class _Pool:
    """The clients that are in no group yet, as columns of a table, in ascending order of their numbers.

    A column holds the doubled label counts, S2 of the client, and a one; [L(g), 1, S2(g)] times that is
    S2(g∪c). S2 of a client that was taken is infinite, so it is never the best. Its column goes when some
    have gathered.
    """

    def __init__(self, label_counts: Counts) -> None:
        n, m = label_counts.shape
        counts = label_counts.T.astype(np.float64)
        self.labels = m
        self.left = n
        self.numbers = np.arange(n)
        self.samples = counts.sum(axis=0)
        self.table = np.ones((m + 2, n))
        self.table[:m] = 2 * counts
        self.table[m] = (counts * counts).sum(axis=0)
        self._make_room()

    def _make_room(self) -> None:
        """Room for what every step works out, so that no step has to ask the system for memory."""
        self._squares, self._sums, self._ratio = np.empty((3, len(self.numbers)))

    def position(self, k: int) -> int:
        """The column of the k-th client that is left."""
        return int(np.flatnonzero(np.isfinite(self.table[self.labels]))[k])

    def best(self, group: _Group) -> _Step:
        """The client with which the group's CoV is least; of several, the one with the lowest number."""
        squares, samples, ratio = self._squares, self._sums, self._ratio
        np.dot(group.weights, self.table, out=squares)
        np.add(self.samples, group.samples, out=samples)
        if group.samples:
            np.multiply(samples, samples, out=ratio)
            np.divide(squares, ratio, out=ratio)
        else:  # clients without samples leave such a group without samples: 0/0 here, an infinite CoV
            ratio = np.where(np.isfinite(squares), _WORST, np.inf)
            np.divide(squares, samples * samples, out=ratio, where=samples > 0)
        position = int(ratio.argmin())
        return _Step(position, int(squares[position]), int(samples[position]))

    def take(self, position: int) -> int:
        """Marks a client as taken and returns its number."""
        self.table[self.labels, position] = np.inf
        self.left -= 1
        return int(self.numbers[position])

    def compact(self) -> None:
        """Drops the columns of taken clients where they are many enough to be worth the copy."""
        if self.left <= (1 - _COMPACT_AT) * len(self.numbers):
            keep = np.isfinite(self.table[self.labels])
            self.numbers = self.numbers[keep]
            self.samples = self.samples[keep]
            self.table = np.ascontiguousarray(self.table[:, keep])
            self._make_room()


class _Group:
    """A group that grows. ``weights`` is [L(g), 1, S2(g)], the factor of the pool's table."""

    def __init__(self, pool: _Pool, position: int) -> None:
        self.members: list[int] = []
        self.weights = np.zeros(pool.labels + 2)
        self.weights[pool.labels] = 1
        self.add(pool, _Step(position, int(pool.table[pool.labels, position]), int(pool.samples[position])))

    def add(self, pool: _Pool, step: _Step) -> None:
        """Takes a client out of the pool."""
        self.weights[: pool.labels] += pool.table[: pool.labels, step.position] / 2
        self.weights[-1] = step.squares
        self.squares, self.samples, self.labels = step.squares, step.samples, pool.labels
        self.members.append(pool.take(step.position))

    def is_above(self, limit: Fraction) -> bool:
        """Whether m·S2/N² is above the limit; it is infinite without samples."""
        over = self.labels * self.squares * limit.denominator > limit.numerator * self.samples**2
        return over or self.samples == 0

    def is_lowered_by(self, step: _Step) -> bool:
        """Whether the CoV gets less with this client; it is infinite without samples."""
        if self.samples == 0:
            return step.samples > 0
        return step.squares * self.samples**2 < self.squares * step.samples**2


def _spread(left: list[int], groups: list[list[int]], label_counts: Counts) -> None:
    """Adds each client that is left to the group whose CoV it raises least; of several, to the first."""
    totals = group_view(label_counts, groups).label_counts
    for client in left:
        before, after = quality.cov(totals), quality.cov(totals + label_counts[client])
        harm = np.zeros(len(groups))  # stays so where neither has samples: inf - inf
        np.subtract(after, before, out=harm, where=np.isfinite(after))
        chosen = int(harm.argmin())
        totals[chosen] += label_counts[client]
        groups[chosen] = sorted([*groups[chosen], client])
