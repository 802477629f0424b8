"""Clients that are left when they are too few for a group of their own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from emulator.grouping.sizes import LeastSize
from emulator.grouping.view import Counts, Floats, group_view

Measure = Callable[[Counts], Floats]


def settle(groups: list[list[int]], params: LeastSize, label_counts: Counts, measure: Measure) -> None:
    """Dissolves the last group where it is too small and not the only one: its clients join others or stay out, as asked."""
    if len(groups) > 1 and len(groups[-1]) < params.min_size:
        left = groups.pop()
        if params.leftover == "join":
            spread(left, groups, label_counts, measure)


def spread(left: list[int], groups: list[list[int]], label_counts: Counts, measure: Measure) -> None:
    """Adds each client that is left to the group that it harms least; of several, to the first.

    ``measure`` gives for label counts [G, m] how bad each row is, ``inf`` where a row has no samples.
    """
    totals = group_view(label_counts, groups).label_counts
    for client in left:
        before, after = measure(totals), measure(totals + label_counts[client])
        harm = np.zeros(len(groups))  # stays so where neither has samples: inf - inf
        np.subtract(after, before, out=harm, where=np.isfinite(after))
        chosen = int(harm.argmin())
        totals[chosen] += label_counts[client]
        groups[chosen] = sorted([*groups[chosen], client])
