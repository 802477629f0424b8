"""CoV-Grouping word for word (S2 Alg. 2), in plain Python and whole numbers: the measure of the fast rule."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np


def naive_cov(label_counts: np.ndarray, rng: np.random.Generator, min_size: int, max_cov: float) -> list[list[int]]:
    counts: list[list[int]] = label_counts.tolist()
    remaining = list(range(len(counts)))
    groups: list[list[int]] = []
    while remaining:
        group = [remaining.pop(int(rng.integers(len(remaining))))]
        while remaining and (len(group) < min_size or over(totals(group, counts), max_cov)):
            current = totals(group, counts)
            best = remaining[0]
            for client in remaining[1:]:
                if less(plus(current, counts[client]), plus(current, counts[best])):
                    best = client
            if not (less(plus(current, counts[best]), current) or len(group) < min_size):
                break
            group.append(best)
            remaining.remove(best)
        groups.append(sorted(group))
    if len(groups) > 1 and len(groups[-1]) < min_size:
        for client in groups.pop():
            harms = [harm(totals(group, counts), counts[client]) for group in groups]
            groups[harms.index(min(harms))].append(client)
        groups = [sorted(group) for group in groups]
    return groups


def totals(group: list[int], counts: list[list[int]]) -> list[int]:
    return [sum(labels) for labels in zip(*(counts[client] for client in group), strict=True)]


def plus(a: list[int], b: list[int]) -> list[int]:
    return [x + y for x, y in zip(a, b, strict=True)]


def variation(labels: list[int]) -> tuple[int, int]:
    """CoV² as numerator and denominator (0: infinite): the squared deviations, each m-fold, over m·N²."""
    total = sum(labels)
    return sum((len(labels) * x - total) ** 2 for x in labels), len(labels) * total**2


def less(a: list[int], b: list[int]) -> bool:
    """CoV(a) < CoV(b)."""
    (above_a, below_a), (above_b, below_b) = variation(a), variation(b)
    if below_a == 0 or below_b == 0:
        return below_a > 0
    return above_a * below_b < above_b * below_a


def over(labels: list[int], max_cov: float) -> bool:
    above, below = variation(labels)
    return below == 0 or Fraction(above, below) > Fraction(str(max_cov)) ** 2


def harm(labels: list[int], client: list[int]) -> float:
    before, after = root(labels), root(plus(labels, client))
    return 0.0 if math.isinf(after) else after - before


def root(labels: list[int]) -> float:
    """CoV, rounded as little as floats allow."""
    above, below = variation(labels)
    return math.sqrt(above / len(labels)) / sum(labels) if below else math.inf
