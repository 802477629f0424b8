"""Aggregation rules: how much the model of each sampled group counts in the global model.

A rule is a function ``(groups: SampledGroups, params) -> weights [S]``. Those here are Group-FEL's (S2 §2.2,
§5.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from emulator.contracts.grouping import aggregations
from emulator.errors import InputError
from emulator.grouping.sampling import log_inclusion, log_probabilities
from emulator.grouping.view import Counts, Floats
from emulator.registry import NoParams


@dataclass(frozen=True, eq=False)
class SampledGroups:
    """The groups that trained in a round. Raises `InputError` where none of them holds any samples."""

    samples: Counts  # [S] n_g
    total_samples: int  # n, over all groups, sampled or not
    log_weights: Floats  # [G] by which the groups were drawn, of all groups
    drawn: Sequence[int]  # [S] which of them were, and came back
    asked: int = 0  # how many were drawn; 0: all of them came back

    def __post_init__(self) -> None:
        if self.samples.shape != (len(self.drawn),):
            raise ValueError(f"samples {self.samples.shape} must be [S] for {len(self.drawn)} groups that were drawn")
        if self.samples.sum() == 0:
            raise InputError(
                "none of the sampled groups holds any samples; sample more groups or give every client data"
            )

    @cached_property
    def log_inclusion(self) -> Floats:
        """The logarithm of how likely each of these groups was to be drawn [S] (see `log_inclusion`)."""
        return log_inclusion(self.log_weights, self.asked or len(self.drawn))[list(self.drawn)]


@aggregations.register("samples")
def samples(groups: SampledGroups, params: NoParams) -> Floats:
    """By samples, n_g/n_t: biased towards the groups that are drawn often (Alg. 1, line 15)."""
    weights: Floats = groups.samples / groups.samples.sum()
    return weights


@aggregations.register("unbiased")
def unbiased(groups: SampledGroups, params: NoParams) -> Floats:
    """Inverse to the probability of taking part, n_g/(n π_g): what is drawn seldom counts more (Eq. 4).

    Over many rounds the expected aggregate is the average of all groups by samples (Horvitz and Thompson
    1952); the weights add up to 1 on average, not in each round. S2 Eq. 4 has p_g S in place of π_g, the
    probability that g is among the S drawn. That is the same for one group a round and for equal
    probabilities. Otherwise groups that are drawn without replacement have another π_g, never above 1, and
    the printed weights are biased.
    """
    return np.exp(_log_unbiased(groups))


@aggregations.register("stabilised")
def stabilised(groups: SampledGroups, params: NoParams) -> Floats:
    """The unbiased weights scaled to add up to 1 (Eq. 39)."""
    return np.exp(log_probabilities(_log_unbiased(groups)))


def _log_unbiased(groups: SampledGroups) -> Floats:
    """log(n_g/(n π_g)); minus infinity for a group without samples, whatever its probability."""
    result = np.full(len(groups.samples), -np.inf)
    held = groups.samples > 0
    result[held] = np.log(groups.samples[held] / groups.total_samples) - groups.log_inclusion[held]
    return result
