"""Groups that grow client by client, and the clients that are left, for rules that go by squared label counts.

With S2 the sum of the squared label counts of a group, N its samples and m the number of labels,

    CoV² = m·S2/N² − 1    and    Σ_j (L_j/N − 1/m)² = S2/N² − 1/m = CoV²/m.

For every remaining client c at once,

    N(g∪c) = N(g) + N(c)    and    S2(g∪c) = S2(g) + 2 L(g)·L(c) + S2(c),

which makes one step a product of a vector with the table of the remaining clients. All of these are whole
numbers. Below 2^53 (an edge with less than 90 million samples) float64 computes them without rounding, in
whatever order a BLAS adds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from emulator.grouping.view import Counts, Floats

_COMPACT_AT = 1 / 16  # share of taken clients among the columns at which they are dropped


class Step(NamedTuple):
    """A client that may join: its column in the pool, and S2 and N of the group with it."""

    position: int
    squares: int
    samples: int


class Pool:
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
        self._squares, self._sums, self.room = np.empty((3, len(self.numbers)))

    def position(self, k: int) -> int:
        """The column of the k-th client that is left."""
        return int(np.flatnonzero(np.isfinite(self.table[self.labels]))[k])

    def joined(self, group: GrowingGroup) -> tuple[Floats, Floats]:
        """S2 (infinite for those taken) and N of the group with each client. The next call overwrites them."""
        np.dot(group.weights, self.table, out=self._squares)
        np.add(self.samples, group.samples, out=self._sums)
        return self._squares, self._sums

    def step(self, position: int) -> Step:
        """The step to a client, after `joined`."""
        return Step(position, int(self._squares[position]), int(self._sums[position]))

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


class GrowingGroup:
    """A group that grows, at first without anybody. ``weights`` is [L(g), 1, S2(g)], the factor of the table."""

    def __init__(self, pool: Pool) -> None:
        self.members: list[int] = []
        self.labels, self.squares, self.samples = pool.labels, 0, 0
        self.weights = np.zeros(pool.labels + 2)
        self.weights[pool.labels] = 1

    def start(self, pool: Pool, position: int) -> None:
        """Takes its first client out of the pool."""
        self.add(pool, Step(position, int(pool.table[pool.labels, position]), int(pool.samples[position])))

    def add(self, pool: Pool, step: Step) -> None:
        """Takes a client out of the pool."""
        self.weights[: pool.labels] += pool.table[: pool.labels, step.position] / 2
        self.weights[-1] = step.squares
        self.squares, self.samples = step.squares, step.samples
        self.members.append(pool.take(step.position))
