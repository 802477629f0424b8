"""Groups drawn by their quadratic class imbalance (QCID): what S2 §6.1 takes over from Fed-CBS (Zhang et al., ICML 2023).

The imbalance of a group is Σ_j (L_j/N − 1/m)², which is (m·S2 − N²)/(m·N²) in the terms of
`emulator.grouping.pool`: exactly zero where all labels are equally frequent. The k-th client of a group is
drawn with probability proportional to the power −k of the imbalance that the group would have with it.
Fed-CBS takes these growing powers so that a whole set is about as likely as its last factor says, and adds a
term for clients that were seldom chosen. Here every client is in a group, so nobody is left to explore.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from emulator.contracts.grouping import FormationFacts, formations
from emulator.grouping import quality
from emulator.grouping.formation import LOGARITHM_FLOPS
from emulator.grouping.leftovers import settle
from emulator.grouping.pool import GrowingGroup, Pool
from emulator.grouping.sizes import LeastSize
from emulator.grouping.view import ClientView, Floats

# For a group without samples: worse than any imbalance, better than the inf of a client that was taken.
_WORST = np.finfo(np.float64).max


class QcidParams(LeastSize):
    """How large the groups are, and how strongly balance counts."""

    power: Annotated[float, Field(gt=0)] = Field(
        1.0, description="the k-th client of a group is drawn by imbalance to the power -k times this"
    )


def _flops(clients: int, classes: int, groups: int, params: QcidParams) -> float:
    """Every client takes a step, which sees half of the clients on average, each with a power (two logarithms)."""
    return clients * clients / 2 * (2 * (classes + 2) + 8 + 2 * LOGARITHM_FLOPS)


@formations.register(
    "qcid", QcidParams, FormationFacts(needs=("label-counts",), smallest=lambda params: params.min_size, flops=_flops)
)
def qcid(clients: ClientView, rng: np.random.Generator, params: QcidParams) -> list[list[int]]:
    """Groups drawn client by client, the likelier the more balanced the labels of the group become (Fed-CBS).

    A group is full with ``min_size`` clients. Clients that are left at the end join the groups whose
    imbalance they raise least, or stay out (``leftover``).
    """
    pool = Pool(clients.label_counts)
    groups: list[list[int]] = []
    while pool.left:
        group = GrowingGroup(pool)
        while pool.left and len(group.members) < params.min_size:
            power = params.power * (len(group.members) + 1)
            group.add(pool, pool.step(_drawn(_imbalances(pool, group), power, rng)))
        groups.append(sorted(group.members))
        pool.compact()
    # CoV² is m times the imbalance.
    settle(groups, params, clients.label_counts, lambda counts: quality.cov(counts) ** 2)
    return groups


def _imbalances(pool: Pool, group: GrowingGroup) -> Floats:
    """The imbalance of the group with each client; infinite for those that were taken."""
    squares, samples = pool.joined(group)
    scale = np.multiply(samples, samples, out=pool.room)
    excess: Floats = pool.labels * squares
    excess -= scale
    scale *= pool.labels
    if group.samples:
        excess /= scale
        return excess
    # Clients without samples leave such a group without samples.
    result = np.where(np.isfinite(squares), _WORST, np.inf)
    np.divide(excess, scale, out=result, where=scale > 0)
    return result


def _drawn(imbalances: Floats, power: float, rng: np.random.Generator) -> int:
    """A position, drawn by the imbalances to the power of minus ``power``; uniformly among those that have none."""
    least = imbalances.min()
    weights = (least / imbalances) ** power if least > 0 else (imbalances == 0).astype(np.float64)
    upto = weights.cumsum()
    # In (0, 1], so that what cannot be drawn, at the beginning or at the end, is not.
    return int(np.searchsorted(upto, (1 - rng.random()) * upto[-1]))
