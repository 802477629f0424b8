"""All groups, uniform, and the CoV-based sampling of Group-FEL (S2 §5.1): p_g ∝ w(1/CoV(g))."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated

import numpy as np
from pydantic import Field

from emulator.contracts.grouping import DrawingParams, SamplingFacts, samplings
from emulator.grouping import quality
from emulator.grouping.view import Floats, GroupView
from emulator.registry import Scale


class SamplingParams(DrawingParams):
    """How many groups train in a round: a number, or a share of all groups (S2 has 12 of about 60)."""

    groups: Annotated[int, Field(ge=1)] | None = Field(
        None, description="groups in a round (all, where there are fewer); takes the place of 'share'"
    )
    share: Annotated[float, Field(gt=0, le=1)] = Field(
        0.2, description="share of the groups in a round, rounded to the nearest number, at least one group"
    )

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """There are never more groups than clients."""
        if self.groups is not None and self.groups > scale.clients:
            message = f"{self.groups} groups cannot be drawn: {scale.clients} clients make at most as many"
            yield "groups", message

    def count(self, total: int) -> int:
        """How many of ``total`` groups train in a round. A half is rounded up."""
        if self.groups is not None:
            return min(self.groups, total)
        # By the decimal number that the user wrote: 0.145 * 100 is 14.499999999999998 in floats.
        exact = Fraction(str(self.share)) * total
        return min(total, max(1, math.floor(exact + Fraction(1, 2))))


@samplings.register("all", facts=SamplingFacts(everyone=True))
def all_groups(groups: GroupView, params: DrawingParams) -> Floats:
    """All groups train in every round."""
    return np.zeros(len(groups.samples))


@samplings.register("uniform", SamplingParams, SamplingFacts(needs=()))
def uniform(groups: GroupView, params: SamplingParams) -> Floats:
    """All groups are equally likely."""
    return np.zeros(len(groups.samples))


@samplings.register("rcov", SamplingParams, SamplingFacts(needs=("label-counts",)))
def rcov(groups: GroupView, params: SamplingParams) -> Floats:
    """Weight 1/CoV."""
    return _log_inverse_cov(groups)


@samplings.register("srcov", SamplingParams, SamplingFacts(needs=("label-counts",)))
def srcov(groups: GroupView, params: SamplingParams) -> Floats:
    """Weight 1/CoV²."""
    return 2 * _log_inverse_cov(groups)


@samplings.register("esrcov", SamplingParams, SamplingFacts(needs=("label-counts",)))
def esrcov(groups: GroupView, params: SamplingParams) -> Floats:
    """Weight exp(1/CoV²): nearly always the most balanced groups."""
    cov = quality.cov(groups.label_counts)
    with np.errstate(divide="ignore"):  # a CoV of 0 has an infinite weight
        weights = 1 / cov**2
    # exp(0) = 1 is the formula's weight of a group without samples, which has nothing to train.
    return np.where(np.isinf(cov), -np.inf, weights)


def _log_inverse_cov(groups: GroupView) -> Floats:
    """log(1/CoV): infinite where the CoV is 0, minus infinity in a group without samples."""
    with np.errstate(divide="ignore"):
        result: Floats = -np.log(quality.cov(groups.label_counts))
    return result
