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
    """The unbiased weights scaled to add up to 1 (Eq. 39, with π_g in place of p_g S)."""
    return np.exp(log_probabilities(_log_unbiased(groups)))


@aggregations.register("unbiased-as-printed")
def unbiased_as_printed(groups: SampledGroups, params: NoParams) -> Floats:
    """Inverse to the probability of the first draw, n_g/(n p_g S): S2 Eq. 4 as it is printed.

    It is odd in two ways. p_g S is not the probability that g is among S groups drawn without replacement, and is above 1 for
    groups that are drawn often; so the weights are biased (for S = 1 and for equal probabilities they are `unbiased`). And a
    group that is drawn although its p_g is minute, as S groups must be found, counts without bound: under ESRCoV the weights
    of a round add up to 10^5 and more, and training diverges. Raises `InputError` where a weight is beyond floats.
    """
    with np.errstate(over="ignore"):
        found: Floats = np.exp(_log_printed(groups))
    if not np.isfinite(found).all():
        group = groups.drawn[int((~np.isfinite(found)).argmax())]
        raise InputError(
            f"group {group} was drawn though its probability is as good as 0, and S2's Eq. 4 as printed divides by that; "
            f"sample fewer groups, or take 'stabilised-as-printed', 'unbiased' or 'stabilised'",
            "method.aggregation",
        )
    return found


@aggregations.register("stabilised-as-printed")
def stabilised_as_printed(groups: SampledGroups, params: NoParams) -> Floats:
    """The weights n_g/(n p_g S) scaled to add up to 1: S2 Eq. 39 as it is printed.

    p_g S is not the probability of taking part (see `unbiased_as_printed`), and S cancels out. So the group that was least
    likely to be drawn takes nearly all the weight, also where every group takes part and none should be corrected for; S2
    §5.3 warns of that. Groups whose probability is 0 share all the weight by their samples.
    """
    log_weights = _log_printed(groups)
    impossible = np.isposinf(log_weights)
    if impossible.any():
        log_weights = np.where(impossible, np.log(np.maximum(groups.samples, 1)), -np.inf)
    return np.exp(log_probabilities(log_weights))


def _log_printed(groups: SampledGroups) -> Floats:
    """log(n_g/(n p_g S)); minus infinity for a group without samples, infinite for one that no chance draws."""
    drawn = log_probabilities(groups.log_weights)[list(groups.drawn)]
    result = np.full(len(groups.samples), -np.inf)
    held = groups.samples > 0
    of_all = np.log(groups.samples[held] / groups.total_samples)
    result[held] = of_all - drawn[held] - np.log(groups.asked or len(groups.drawn))
    return result


def _log_unbiased(groups: SampledGroups) -> Floats:
    """log(n_g/(n π_g)); minus infinity for a group without samples, whatever its probability."""
    result = np.full(len(groups.samples), -np.inf)
    held = groups.samples > 0
    result[held] = np.log(groups.samples[held] / groups.total_samples) - groups.log_inclusion[held]
    return result
