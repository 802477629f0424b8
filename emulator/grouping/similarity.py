"""How alike the clients inside groups are, and the groups among themselves: the set metrics of VISIT (S1 §IV-A).

S1 calls Intra-CS and Inter-CS means, but as printed they are sums over pairs divided by the number of clients and of
groups. Both readings are here, under names of their own. A group's estimate is the mean of its clients'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from emulator.grouping.distances import cosine_similarity
from emulator.grouping.view import Floats, Groups


@dataclass(frozen=True)
class SetSimilarity:
    """The set metrics of one grouping, all made of cosines. Those over pairs are NaN where there is no pair.

    Little likeness inside groups (intra) and much between them (inter) and to the virtual target [1, ..., 1] (VTS) is what S1
    looks for.
    """

    intra_cs: float  # as printed: the sum over pairs of clients of one group, over the clients of all groups (L·k)
    intra_cs_mean: float  # the mean over pairs of clients of one group
    inter_cs: float  # as printed: the sum over pairs of groups, over the groups (L)
    inter_cs_mean: float  # the mean over pairs of groups
    vts: float  # the mean over groups of the likeness to the virtual target


def set_similarity(estimates: Floats, groups: Groups) -> SetSimilarity:
    """The set metrics of groups of rows of estimates [n, d]; raises ``ValueError`` where a group, or the list, is empty."""
    if not groups or not all(len(members) for members in groups):
        raise ValueError("set metrics need groups, and clients in each of them")
    inside = [_pairs(estimates[list(members)]) for members in groups]
    means = np.stack([estimates[list(members)].mean(axis=0) for members in groups])
    between = _pairs(means)
    within = np.concatenate(inside)
    clients = sum(len(members) for members in groups)
    target = np.ones((1, estimates.shape[1]))
    return SetSimilarity(
        intra_cs=float(within.sum()) / clients,
        intra_cs_mean=_mean(within),
        inter_cs=float(between.sum()) / len(groups),
        inter_cs_mean=_mean(between),
        vts=float(cosine_similarity(means, target).mean()),
    )


def _pairs(vectors: Floats) -> Floats:
    """The cosines of all pairs of rows, each pair once."""
    result: Floats = cosine_similarity(vectors, vectors)[np.triu_indices(len(vectors), 1)]
    return result


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan
