"""Aggregation rules: how much the model of each sampled group counts in the global model.

A rule is a function ``(groups: SampledGroups, params) -> weights [S]``. Those here are Group-FEL's (S2 §2.2,
§5.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emulator.errors import InputError
from emulator.grouping.sampling.drawing import log_probabilities
from emulator.grouping.view import Counts, Floats
from emulator.registry import NoParams, aggregations


@dataclass(frozen=True, eq=False)
class SampledGroups:
    """The groups that trained in a round. Raises `InputError` where none of them holds any samples."""

    samples: Counts  # [S] n_g
    log_p: Floats  # [S] log of p_g, the probability of being drawn first (see `log_probabilities`)
    total_samples: int  # n, over all groups, sampled or not

    def __post_init__(self) -> None:
        if self.samples.shape != self.log_p.shape or self.samples.ndim != 1:
            raise ValueError(f"samples {self.samples.shape} and log_p {self.log_p.shape} must both be [S]")
        if self.samples.sum() == 0:
            raise InputError(
                "none of the sampled groups holds any samples; sample more groups or give every client data"
            )


@aggregations.register("samples")
def samples(groups: SampledGroups, params: NoParams) -> Floats:
    """By samples, n_g/n_t: biased towards the groups that are drawn often (Alg. 1, line 15)."""
    weights: Floats = groups.samples / groups.samples.sum()
    return weights


@aggregations.register("unbiased")
def unbiased(groups: SampledGroups, params: NoParams) -> Floats:
    """Inverse to the probability, n_g/(n p_g S): what is drawn seldom counts more (Eq. 4).

    The weights add up to 1 on average over rounds, not in each of them. Even that holds only for one group a
    round or equal probabilities: groups are drawn without replacement, and p_g S is then not the chance of
    being drawn. Raises `InputError` where a weight is beyond floats.
    """
    with np.errstate(over="ignore"):
        weights: Floats = np.exp(_log_unbiased(groups))
    if np.isinf(weights).any():
        raise InputError(
            "the unbiased weight of a group is too large for a number, so unlikely was it to be drawn; "
            "use the aggregation 'stabilised', a milder sampling, or fewer groups in a round"
        )
    return weights


@aggregations.register("stabilised")
def stabilised(groups: SampledGroups, params: NoParams) -> Floats:
    """The unbiased weights scaled to add up to 1 (Eq. 39)."""
    log_weights = _log_unbiased(groups)
    infinite = np.isposinf(log_weights)
    if infinite.any():  # drawn with p = 0 because no other was left: these outweigh all others
        among = np.where(infinite, groups.samples, 0)
        return np.asarray(among / among.sum(), dtype=np.float64)
    return np.exp(log_probabilities(log_weights))


def _log_unbiased(groups: SampledGroups) -> Floats:
    """log(n_g/(n p_g S)); minus infinity for a group without samples, whatever its probability."""
    result = np.full(len(groups.samples), -np.inf)
    held = groups.samples > 0
    result[held] = np.log(groups.samples[held] / groups.total_samples) - groups.log_p[held] - np.log(len(held))
    return result
