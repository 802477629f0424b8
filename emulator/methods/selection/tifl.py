"""TiFL (Chai et al., HPDC 2020): in each round clients of one tier, who take about equally long.

Clients were timed before the first round (estimator ``response-time``) and stand in tiers of equally many, the quickest first.
In every round one tier is drawn, by fixed probabilities or, if the selection is ``adaptive``, by Algorithm 2: every ``interval``
rounds in which the tier that was drawn last has not become better, tiers with lower accuracy become more likely; a tier
without credits left is not drawn. A tier's accuracy is the mean of what its clients sent last, measured on their own samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from emulator.contracts.selection import Call, Report, SelectionFacts, selections
from emulator.learning.recipes import Handle
from emulator.methods.selecting import SELECTIONS
from emulator.methods.selection import Selector
from emulator.methods.session import Session
from emulator.registry import Params, Scale
from emulator.rng import stream
from emulator.scenario.words import Count
from emulator.units import PositiveSeconds
from emulator.world.world import StepsTo

TIMES = "response-time"


class TiflParams(Params):
    """Tiers, and how they are drawn."""

    tiers: Count = Field(5, description="tiers of clients that answer about equally quickly")
    probabilities: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        (), description="how likely each tier is, the quickest first, in proportion; without them all are alike"
    )
    adaptive: bool = Field(False, description="tiers with lower accuracy become more likely as training goes on")
    interval: Count = Field(10, description="adaptive: after how many rounds probabilities may change (I)")
    credits: Count | None = Field(
        None, description="adaptive: how often each tier may be drawn; null: as often as it is"
    )
    timeout: PositiveSeconds | None = Field(
        None, description="who took at least that long to answer only takes part where there is nobody else"
    )

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """Tiers that cannot be made or drawn."""
        if self.tiers > scale.clients:
            yield "tiers", f"{self.tiers} tiers, but only {scale.clients} clients"
        if self.probabilities and (len(self.probabilities) != self.tiers or not sum(self.probabilities) > 0):
            yield "probabilities", f"must be {self.tiers} numbers, one for each tier, not all of them 0"


def changed_probabilities(accuracies: Sequence[float], able: Sequence[bool]) -> list[float]:
    """How likely each tier is now (Algorithm 2, ChangeProbs): the i-th of n with credits left (n - i) / (n (n - 1) / 2).

    Tiers with lower accuracy come first; equal ones in their order.
    """
    order = sorted((tier for tier, credit in enumerate(able) if credit), key=lambda tier: accuracies[tier])
    n, found = len(order), [0.0] * len(able)
    for i, tier in enumerate(order, start=1):
        found[tier] = (n - i) / (n * (n - 1) / 2) if n > 1 else 1.0
    return found


@selections.register(
    "tifl",
    TiflParams,
    SelectionFacts(needs=(TIMES,), reports=lambda params: int(params.adaptive), tables=(SELECTIONS,)),
)
class Tifl(Selector):
    """TiFL: in each round clients of one tier of about equal response times, all of a tier alike (Chai et al. 2020).

    Where a tier has fewer candidates than are wanted, those of the nearest tiers take the places that are left.
    """

    def __init__(self, session: Session, params: TiflParams) -> None:
        self._session, self._params = session, params
        self._likely = list(params.probabilities) or [1.0] * params.tiers
        self._credits = [math.inf if params.credits is None or not params.adaptive else params.credits] * params.tiers
        self._tier_of = np.zeros(0, np.int64)  # by client; those who did not answer in time are behind the last
        self._reports: dict[int, Report] = {}
        self._current, self._latest, self._rounds = 0, -1, 0
        self._history: list[list[float]] = []  # the accuracies of all tiers, by round

    def choose(self, call: Call) -> StepsTo[Sequence[int]]:
        """So many of a tier that is drawn."""
        yield from ()
        if not len(self._tier_of):
            self._tier_of = np.array(tiers_of(self.estimates[TIMES][:, 0], self._params))
        if call.at.round > self._latest:  # asynchronous groups may be rounds behind
            self._latest = call.at.round
            if self._params.adaptive:
                self._adapt()
            self._rounds += 1
            self._current = self._drawn(call)
        tiers = self._tier_of[call.candidates]
        by_distance = sorted(np.unique(tiers).tolist(), key=self._distance)
        chosen: list[int] = []
        for tier in by_distance:
            members = call.candidates[tiers == tier]
            some = min(len(members), call.count - len(chosen))
            chosen += call.rng.choice(members, some, replace=False).tolist()
        return chosen

    def _distance(self, tier: int) -> tuple[bool, int, int]:
        return tier == self._params.tiers, abs(tier - self._current), tier

    def _drawn(self, call: Call) -> int:
        """A tier for this round, among those with credits left; where none has any, among all."""
        chances = [p * (credit > 0) for p, credit in zip(self._likely, self._credits, strict=True)]
        able = np.array(chances if sum(chances) else self._likely)
        rng = stream(self._session.seed, "tier", call.at.round)
        tier = int(rng.choice(len(able), p=able / able.sum()))
        self._credits[tier] -= 1
        return tier

    def _adapt(self) -> None:
        """Every interval of rounds, where the current tier has not become better since the last (Algorithm 2)."""
        interval, tiers = self._params.interval, range(self._params.tiers)
        due = self._rounds >= interval and self._rounds % interval == 0
        if self._rounds % interval == 0:
            self._history.append([self._accuracy(tier) for tier in tiers])
        if due and self._history[-1][self._current] <= self._history[-2][self._current]:
            self._likely = changed_probabilities(self._history[-1], [credit > 0 for credit in self._credits])

    def _accuracy(self, tier: int) -> float:
        """What the clients of a tier sent last, in the mean; below everything where none has sent anything."""
        found = [self._reports[c].numbers() for c in sorted(self._reports) if self._tier_of[c] == tier]
        return float(np.mean([goodness for (goodness,) in found])) if found else -math.inf

    def sends(self, client: int, model: Handle) -> Callable[[], Sequence[float]]:
        """How good the model that it got is on its samples: its accuracy; without classes, minus its loss."""
        if not self._params.adaptive:
            return tuple
        asked = self._session.lab.announce("fit", [model], client)

        def said() -> Sequence[float]:
            loss, accuracy = self._session.lab.measure("fit", asked.models, client)[0]
            return [float(-loss if math.isnan(accuracy) else accuracy)]

        return said

    def told(self, report: Report) -> None:
        """Keeps the latest of every client."""
        if report.seconds < math.inf:
            self._reports[report.client] = report

    def scores(self, client: int) -> Mapping[str, float]:
        """Its response time and its tier."""
        return {"system": float(self.estimates[TIMES][client, 0]), "tier": int(self._tier_of[client])}


def tiers_of(seconds: np.ndarray, params: TiflParams) -> list[int]:
    """The tier of each client, from 0 for the quickest; those who did not answer in time are behind the last."""
    late = seconds >= (math.inf if params.timeout is None else params.timeout)
    order = np.argsort(seconds, kind="stable")
    tiers = np.full(len(seconds), params.tiers)
    for tier, members in enumerate(np.array_split(order[~late[order]], params.tiers)):
        tiers[members] = tier
    return [int(tier) for tier in tiers]
