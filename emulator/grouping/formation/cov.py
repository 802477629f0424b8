"""CoV-Grouping: groups whose clients together hold every label about equally often (Group-FEL, S2 Alg. 2).

With S2 the sum of the squared label counts of a group, N its samples and m the number of labels,
CoV² = m·S2/N² − 1. So the smallest CoV is the smallest S2/N², which `emulator.grouping.pool` gives for every
remaining client at once.

Exactness. S2 and N are whole numbers without rounding; then one correctly rounded division follows, which
keeps order. So equal CoVs compare as equal on every machine and the lowest client number wins; a larger
CoV is never taken for a smaller one; only CoVs that differ by less than one part in 10^15 may be taken for
equal. What decides whether a group goes on (is the CoV over the limit, does it get lower) is compared in
whole numbers, unrounded.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated

import numpy as np
from pydantic import Field

from emulator.contracts.grouping import FormationFacts, formations
from emulator.grouping import quality
from emulator.grouping.leftovers import settle
from emulator.grouping.pool import GrowingGroup, Pool, Step
from emulator.grouping.sizes import LeastSize
from emulator.grouping.view import ClientView

# For an infinite CoV: worse than any other, better than the inf of a client that was taken.
_WORST = np.finfo(np.float64).max


class CovParams(LeastSize):
    """When a group is good enough."""

    max_cov: Annotated[float, Field(ge=0)] = Field(
        0.5, description="a group is closed when its CoV is at most this (MaxCoV), or cannot be lowered"
    )


def _flops(clients: int, classes: int, groups: int, params: CovParams) -> float:
    """All but the first client of each group take a step, which sees half of the clients on average."""
    return (clients - groups) * clients / 2 * (2 * (classes + 2) + 3)


@formations.register(
    "cov", CovParams, FormationFacts(needs=("label-counts",), smallest=lambda params: params.min_size, flops=_flops)
)
def cov(clients: ClientView, rng: np.random.Generator, params: CovParams) -> list[list[int]]:
    """Greedy groups of balanced labels: a random client, then always the one that gives the least CoV.

    Groups come in the order in which they were formed. Where the clients that are left at the end do not make
    a group of ``min_size``, each of them (in ascending order) joins the group whose CoV it raises least, or with
    ``leftover: out`` they stay out; S2 does not say which. So no group is smaller than ``min_size`` unless there
    are fewer clients than that.
    """
    # Of m·S2/N². From the decimal number that the user wrote: the float nearest to 0.3 is less than 3/10.
    limit = 1 + Fraction(str(params.max_cov)) ** 2
    pool = Pool(clients.label_counts)
    groups: list[list[int]] = []
    while pool.left:
        group = GrowingGroup(pool)
        group.start(pool, pool.position(int(rng.integers(pool.left))))
        while pool.left and (len(group.members) < params.min_size or _is_above(group, limit)):
            step = _best(pool, group)
            if len(group.members) >= params.min_size and not _is_lowered(group, step):
                break
            group.add(pool, step)
        groups.append(sorted(group.members))
        pool.compact()
    settle(groups, params, clients.label_counts, quality.cov)
    return groups


def _best(pool: Pool, group: GrowingGroup) -> Step:
    """The client with which the group's CoV is least; of several, the one with the lowest number."""
    squares, samples = pool.joined(group)
    ratio = pool.room
    if group.samples:
        np.multiply(samples, samples, out=ratio)
        np.divide(squares, ratio, out=ratio)
    else:  # clients without samples leave such a group without samples: 0/0 here, an infinite CoV
        ratio = np.where(np.isfinite(squares), _WORST, np.inf)
        np.divide(squares, samples * samples, out=ratio, where=samples > 0)
    return pool.step(int(ratio.argmin()))


def _is_above(group: GrowingGroup, limit: Fraction) -> bool:
    """Whether m·S2/N² is above the limit; it is infinite without samples."""
    over = group.labels * group.squares * limit.denominator > limit.numerator * group.samples**2
    return over or group.samples == 0


def _is_lowered(group: GrowingGroup, step: Step) -> bool:
    """Whether the group's CoV gets less with this client; it is infinite without samples."""
    if group.samples == 0:
        return step.samples > 0
    return step.squares * group.samples**2 < group.squares * step.samples**2
