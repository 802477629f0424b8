"""Oort (Lai et al., OSDI 2021, Algorithm 1): clients whose samples teach the model most, unless they are too slow.

A client's statistical utility is |B| · sqrt(mean of its squared sample losses), of the model that it got last, before it
trained. The losses are a by-product of its first epoch; their mean square goes up with its model. Its utility is that, clipped
at a quantile of all that are known, plus sqrt(0.1 · log R / L) for not having been heard since round L; times (T / t)^alpha
where its last round took t seconds and more than the preferred duration T. A share of the clients is drawn from those whose
utility is at least ``cutoff`` of that of the last who would get in, in proportion to it; the rest from those who were never
chosen. The pacer makes T longer where the last rounds gained less than those before. Sizes stand as in Algorithm 1; what comes
to nothing by rounding is drawn for, so that shares hold in the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from emulator.contracts.selection import Call, Report, SelectionFacts, selections
from emulator.grouping.sampling import draw
from emulator.learning.recipes import Handle
from emulator.methods.selecting import SELECTIONS
from emulator.methods.selection import Selector
from emulator.methods.session import Session
from emulator.registry import Params
from emulator.rng import stream
from emulator.scenario.words import Count
from emulator.units import PositiveJoules, PositiveSeconds
from emulator.world.world import StepsTo

UNCERTAINTY = 0.1  # of utilities that are old (Algorithm 1, line 10)

Share = Annotated[float, Field(ge=0, le=1)]


class OortParams(Params):
    """How clients are judged, and how many are tried that are not known yet."""

    exploration: Share = Field(0.9, description="share of the clients of a round that were never chosen, at first (ε)")
    exploration_decay: Share = Field(0.98, description="by what that share is multiplied after every round")
    least_exploration: Share = Field(0.2, description="what it never falls below")
    pacer_step: PositiveSeconds = Field(
        "10 s",
        validate_default=True,
        description="the preferred duration of a round at first, and what the pacer adds (Δ)",
    )
    pacer_window: Count = Field(20, description="rounds that the pacer compares with as many before them (W)")
    penalty: Annotated[float, Field(ge=0)] = Field(2.0, description="how much longer rounds count against a client (α)")
    cutoff: Share = Field(0.95, description="share of the utility of the last who would get in, that gets in too (c)")
    clip: Annotated[float, Field(gt=0, le=1)] = Field(0.95, description="the quantile at which utilities are clipped")
    most_rounds: Count | None = Field(
        None, description="who took part more often is only chosen where there is nobody else"
    )


@dataclass
class Known:
    """What the server knows of a client: statistical utility, last round, how often it was chosen, and how long it took."""

    statistical: float
    last: int
    times: int
    seconds: float


def clipped(known: Mapping[int, Known], quantile: float) -> dict[int, float]:
    """Statistical utilities, those above a quantile of all as that."""
    highest = float(np.quantile([each.statistical for each in known.values()], quantile)) if known else 0.0
    return {client: min(each.statistical, highest) for client, each in known.items()}


def system_factor(preferred_s: float, seconds: float, penalty: float) -> float:
    """What is left of the utility of a client that takes so long."""
    return (preferred_s / seconds) ** penalty if seconds > preferred_s else 1.0


def utilities(known: Mapping[int, Known], round: int, preferred_s: float, params: OortParams) -> dict[int, float]:  # noqa: A002
    """The utilities of clients that were chosen before (Algorithm 1, lines 9 to 12); rounds count from 1."""
    found = {}
    for client, statistical in clipped(known, params.clip).items():
        each = known[client]
        fresh = statistical + math.sqrt(UNCERTAINTY * math.log(round) / each.last)
        found[client] = fresh * system_factor(preferred_s, each.seconds, params.penalty)
    return found


def exploited(utility: Mapping[int, float], count: int, cutoff: float, rng: np.random.Generator) -> list[int]:
    """So many clients, drawn in proportion to utility from those who are near the best (Algorithm 1, lines 13 to 15)."""
    if count <= 0 or not utility:
        return []
    best = sorted(utility.values(), reverse=True)
    least = cutoff * best[min(count, len(best)) - 1]
    near = [client for client, value in utility.items() if value >= least]
    with np.errstate(divide="ignore"):
        weights = np.log(np.array([utility[client] for client in near]))
    return [near[i] for i in draw(weights, min(count, len(near)), rng)]


class Pacer:
    """The preferred duration of a round (Algorithm 1, lines 5 to 7)."""

    def __init__(self, step_s: float, window: int) -> None:
        self.preferred_s = step_s
        self._step_s, self._window = step_s, window
        self._gained: list[float] = []  # the statistical utility of those who came back, by round

    def round_over(self, gained: float) -> None:
        """Another round is over; after every window of them, they are compared with those before."""
        self._gained.append(gained)
        w, rounds = self._window, len(self._gained)
        if rounds % w == 0 and sum(self._gained[-2 * w : -w]) > sum(self._gained[-w:]):
            self.preferred_s += self._step_s


class ByUtility(Selector):
    """Some that are known, by utility, and some that are not: what Oort and its relatives have in common."""

    params: OortParams

    def __init__(self, session: Session, params: OortParams) -> None:
        self.session, self.params = session, params
        self.known: dict[int, Known] = {}
        self.pacer = Pacer(params.pacer_step, params.pacer_window)
        self.rounds = 0  # in which somebody was chosen (R)
        self._exploration = params.exploration
        self._news: list[Report] = []
        self._latest = -1  # the method's number of the last of these rounds
        self._utility: dict[int, float] = {}

    def sends(self, client: int, model: Handle) -> Callable[[], Sequence[float]]:
        """The mean squared loss of the model that it got."""
        asked = self.session.lab.announce("squared-loss", [model], client)
        return lambda: [float(self.session.lab.measure("squared-loss", asked.models, client)[0])]

    def told(self, report: Report) -> None:
        """Keeps it until somebody is to be chosen."""
        self._news.append(report)

    def judged(self) -> dict[int, float]:
        """The utility of every client that is known."""
        return utilities(self.known, self.rounds, self.pacer.preferred_s, self.params)

    def choose(self, call: Call) -> StepsTo[Sequence[int]]:
        """A share of those that were never heard of, and the others by utility."""
        yield from ()
        gained, params = self._take_news(), self.params
        if call.at.round > self._latest:  # asynchronous groups may be rounds behind
            if self.rounds:
                self.pacer.round_over(gained)
                self._exploration = max(params.least_exploration, self._exploration * params.exploration_decay)
            self._latest, self.rounds = call.at.round, self.rounds + 1
        self._utility = self.judged()
        able = self._able(call)
        new, tried = [c for c in able if c not in self.known], {c: self._utility[c] for c in able if c in self.known}
        wanted = int(self._exploration * call.count + call.rng.random())
        explored = min(len(new), max(wanted, call.count - len(tried)))
        fresh: list[int] = call.rng.choice(new, explored, replace=False).tolist() if explored else []
        return [*exploited(tried, call.count - explored, params.cutoff, call.rng), *fresh]

    def _able(self, call: Call) -> list[int]:
        """The candidates without those who took part too often, as long as there are enough others."""
        candidates: list[int] = call.candidates.tolist()
        if self.params.most_rounds is None:
            return candidates
        times = {c: self.known[c].times if c in self.known else 0 for c in candidates}
        able = [c for c in candidates if times[c] <= self.params.most_rounds]
        worn = sorted((c for c in candidates if times[c] > self.params.most_rounds), key=lambda c: times[c])
        return able + worn[: max(0, call.count - len(able))]

    def _take_news(self) -> float:
        """Takes in what was heard since somebody was chosen; returns how much statistical utility came back."""
        news, self._news, gained = self._news, [], 0.0
        for report in news:
            before = self.known.get(report.client)
            times, seconds, utility = (1, 0.0, 0.0) if before is None else (before.times + 1, before.seconds, 0.0)
            if report.seconds < math.inf:
                numbers, seconds = report.numbers(), report.seconds
                utility = report.samples * math.sqrt(numbers[0]) if math.isfinite(numbers[0]) else 0.0
                self.heard(report.client, numbers)
            self.known[report.client] = Known(utility, self.rounds, times, seconds)
            gained += utility
        return gained

    def heard(self, client: int, numbers: Sequence[float]) -> None:
        """What a client sent along with its model."""

    def scores(self, client: int) -> Mapping[str, float]:
        """By what it was judged, where it is known."""
        if client not in self.known:
            return {}
        each = self.known[client]
        system = system_factor(self.pacer.preferred_s, each.seconds, self.params.penalty)
        return {"statistical": each.statistical, "system": system, "utility": self._utility[client]}


@selections.register("oort", OortParams, SelectionFacts(reports=lambda params: 1, watches=True, tables=(SELECTIONS,)))
class Oort(ByUtility):
    """Oort: clients whose losses are large and whose rounds are not long, and some that are not known yet (Lai et al. 2021)."""


class EnergyAwareParams(OortParams):
    """As for Oort; and what batteries hold, and count."""

    capacity: PositiveJoules = Field(
        "40 kJ", validate_default=True, description="what a client's battery holds when the run begins"
    )
    spread: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="batteries hold up to this share more or less, drawn evenly for each client"
    )
    utility: Share = Field(0.25, description="how much utility counts, and not what is left in the battery (f)")


@selections.register(
    "energy-aware", EnergyAwareParams, SelectionFacts(reports=lambda params: 2, watches=True, tables=(SELECTIONS,))
)
class EnergyAware(ByUtility):
    """Energy-aware: as Oort, but clients with more left in their batteries come first (EAFL; Arouj and Abdelmoniem 2022).

    The reward is f · utility / largest utility + (1 - f) · share left in the battery, which a client sends with its model.
    Batteries are neither charged nor do devices die of them.
    """

    params: EnergyAwareParams

    def __init__(self, session: Session, params: EnergyAwareParams) -> None:
        super().__init__(session, params)
        self._left: dict[int, float] = {}
        session.meter.keep_clients()

    def sends(self, client: int, model: Handle) -> Callable[[], Sequence[float]]:
        """The mean squared loss, and which share of its battery is left."""
        session, params, loss = self.session, self.params, super().sends(client, model)
        drawn = stream(session.seed, "battery", client).uniform(-1, 1)
        used_j = session.meter.client_energy_j(session.world.fleet.client_names[client], session.world.now)
        left = max(0.0, 1 - used_j / (params.capacity * (1 + params.spread * drawn)))
        return lambda: [*loss(), left]

    def heard(self, client: int, numbers: Sequence[float]) -> None:
        """Keeps what is left in its battery."""
        self._left[client] = numbers[1]

    def judged(self) -> dict[int, float]:
        """The rewards; who never sent what is left counts as full."""
        utility, share = super().judged(), self.params.utility
        largest = max(utility.values(), default=0.0) or 1.0
        return {c: share * value / largest + (1 - share) * self._left.get(c, 1.0) for c, value in utility.items()}
