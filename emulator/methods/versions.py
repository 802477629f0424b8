"""Versions of one model, and what a server makes of results that come back from older ones.

A result is a model that a unit (a client, or a group) made of the version that it had got. Its staleness τ is the number of
versions that were made in the meantime. With a share p of each result in a round (equal, or by samples) and a factor s(τ), a
new version is, of the old one w:

- ``mix``: (1 - Σ c) w + Σ c · result, with c = rate · p · s(τ). FedAsync (Xie et al., arXiv:1903.03934, Algorithm 1) has one
  result in a round; the average of what arrived in some seconds has the rate 1;
- ``add``: w + rate · Σ p · s(τ) · (result - the version that it began with). FedBuff (Nguyen et al., AISTATS 2022, Algorithm 1);
- ``latest``: the latest results of all units (the first version, where there is none yet) by weights that are the more, the
  fewer results a unit has sent so far: FedAT (Chai et al., SC 2021, Eq. 5).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from emulator.contracts.methods import GroupResult
from emulator.contracts.staleness import Staleness
from emulator.learning.interface import AnyLab
from emulator.learning.recipes import Handle
from emulator.methods.slots import chosen_by_default
from emulator.registry import Params
from emulator.scenario.words import Count
from emulator.tables import Table
from emulator.units import PositiveSeconds

# A row for each result that the cloud got: `round` is the version that was made with it, `from_round` that which its unit had.
RESULT = ("time_s", "client", "staleness", "weight", "used")
ARRIVALS = Table("arrivals", ("round", "from_round", "group", *RESULT))
# A row for each that the server of a group got, in this round of the cloud's.
GROUP_ARRIVALS = Table("group_arrivals", ("round", "group", "group_round", *RESULT))


class VersionSlots(Params):
    """When a server makes a new version of its model, and of what."""

    buffer: Count | None = Field(
        None, description="results that make a new version (K); 1 where neither this nor 'every' is given"
    )
    every: PositiveSeconds | None = Field(
        None,
        description="or seconds from one version to the next: of all that arrived; a beat without results is left out",
    )
    at_work: Count | None = Field(None, description="how many work at once at most; without it, all that are there")
    staleness: Staleness = chosen_by_default("constant", "how much a result counts that is some versions old")
    max_staleness: Annotated[int, Field(ge=0)] | None = Field(
        None, description="results that are more versions old are thrown away"
    )
    update: Literal["mix", "add", "latest"] = Field(
        "mix",
        description="a new version is the old one mixed with the results (FedAsync), the old one and the changes in them "
        "(FedBuff), or an average of each unit's latest result, in which the slow ones count more (FedAT)",
    )
    rate: Annotated[float, Field(gt=0, le=100)] = Field(
        1.0, description="how far a new version goes towards the results (FedAsync's alpha, FedBuff's server rate)"
    )
    weights: Literal["equal", "samples"] = Field("samples", description="shares of the results of one version")

    @property
    def enough(self) -> int:
        """How many results make a version, where it is not a matter of time."""
        return self.buffer or 1

    def refused(self, units: int) -> Iterable[tuple[str, str]]:
        """What does not go together, or not with so many units as there are at most."""
        if self.every is not None and self.buffer is not None:
            yield "every", "give 'buffer' or 'every', not both"
        if self.update == "mix" and self.rate > 1:
            yield "rate", f"a mix goes no further than to the results themselves; say 1 or less, not {self.rate:g}"
        if self.update == "latest":
            wrong = [
                key
                for key, default in (("rate", 1.0), ("weights", "samples"), ("max_staleness", None))
                if getattr(self, key) != default
            ]
            yield from ((key, "goes with 'update: mix' or 'add'; leave it out") for key in wrong)
            if self.staleness.kind != "constant":
                yield "staleness", "goes with 'update: mix' or 'add', in which old results count less; leave it out"
        if self.enough > units:
            yield (
                "buffer",
                f"waits for {self.enough} results, and no more than {units} can be under way; say {units} or less",
            )


@dataclass(frozen=True)
class Arrival:
    """A result that a server has got from a unit: of which version it was made, and when it came.

    ``told`` is the staleness by which its client has scaled it before it was masked; None where the server scales it itself.
    """

    unit: int
    client: int | None  # where the unit is a single one
    version: int
    start: Handle
    result: GroupResult
    time_s: float
    told: int | None = None


@dataclass
class Versions:
    """The latest version of a server's model, and how the next one is made."""

    lab: AnyLab
    how: VersionSlots
    model: Handle
    number: int = 0
    _first: Handle = field(init=False)
    _latest: dict[int, Handle] = field(default_factory=dict)
    _results: dict[int, int] = field(default_factory=dict)  # how many came of each unit so far

    def __post_init__(self) -> None:
        self._first = self.model

    def staleness(self, arrival: Arrival) -> int:
        """How many versions were made since the unit got its own, until now or until its client was told."""
        return self.number - arrival.version if arrival.told is None else arrival.told

    def too_stale(self, arrival: Arrival) -> bool:
        """Whether a result is thrown away."""
        return self.how.max_staleness is not None and self.staleness(arrival) > self.how.max_staleness

    def made_of(self, arrivals: Sequence[Arrival], units: int) -> tuple[Handle, list[float]]:
        """The next version of the model, and the weight of each result in it; ``units`` are all that there are."""
        if self.how.update == "latest":
            return self._of_latest(arrivals, units)
        held = [float(each.result.samples) if self.how.weights == "samples" else 1.0 for each in arrivals]
        total = sum(held)
        factors = [self.how.rate * self.how.staleness(self.staleness(each)) for each in arrivals]
        weights = [count / total * factor for count, factor in zip(held, factors, strict=True)]
        # Where all count in full nothing is left of the old version, whatever rounding makes of the sum.
        whole = all(factor == 1.0 for factor in factors)
        replaced = [
            n for n, each in enumerate(arrivals) if self.how.update == "mix" or each.start.key == self.model.key
        ]
        left = 1.0 - math.fsum(weights[n] for n in replaced)
        parts = [] if whole and len(replaced) == len(arrivals) else [(self.model, left)]
        parts += [(each.result.model, weight) for each, weight in zip(arrivals, weights, strict=True)]
        if self.how.update == "add":
            stale = [n for n in range(len(arrivals)) if n not in replaced]
            parts += [(arrivals[n].start, -weights[n]) for n in stale]
        return self.lab.combine([part for part, _ in parts], [weight for _, weight in parts]), weights

    def _of_latest(self, arrivals: Sequence[Arrival], units: int) -> tuple[Handle, list[float]]:
        for each in arrivals:
            self._latest[each.unit] = each.result.model
            self._results[each.unit] = self._results.get(each.unit, 0) + 1
        weights = weights_of_latest({unit: self._results.get(unit, 0) for unit in range(units)})
        counted = [unit for unit, weight in weights.items() if weight]
        models = [self._latest.get(unit, self._first) for unit in counted]
        return self.lab.combine(models, [weights[unit] for unit in counted]), [weights[a.unit] for a in arrivals]

    def forget(self) -> None:
        """Drops what is known of units: they are others now."""
        self._first = self.model
        self._latest.clear()
        self._results.clear()


def weights_of_latest(results: Mapping[int, int]) -> dict[int, float]:
    """The weight of each unit's latest model: the unit with the r-th most results counts as many as the r-th least has sent.

    With tiers in the order of their speed it is FedAT's: tier m of M counts as many as tier M + 1 - m has sent, of all.
    """
    order, total = sorted(results, key=lambda unit: (-results[unit], unit)), sum(results.values())
    return {unit: results[other] / total for unit, other in zip(order, reversed(order), strict=True)}
