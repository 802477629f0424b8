"""Claims of a study, judged by its runs: pairs of runs with the same seed, alike in all that the claim does not name.

The *advantage* of a pair is by how much its first run is better: the difference of the two figures, with the sign of the claim. A
verdict comes from the 95 % interval of the mean advantage (Student's t on the pairs). Where a run never reached what the quantity
counts to (a target, or clusters), there is no difference to average: such a run is worse than any that did, two such runs are
level, and the exact sign test on the pairs decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from analysis.quantities import bytes_text, carbon_text, cost_text, energy_text, time_text
from analysis.seeds import CONFIDENCE, detectable, mean_and_interval, sign_test
from analysis.studies import StudyResults, each_run, per_run
from analysis.tables import with_budget
from analysis.texttable import TextTable
from emulator.measures import ACCURACY, Measure
from emulator.study.claims import Place, least_difference, places, side_text, title
from emulator.study.quantities import COUNT, QUANTITIES, SHARE, Quantity
from emulator.study.schema import Claim
from emulator.units import CLIENT_TIME, ENERGY, MASS, SIZE, TIME

if TYPE_CHECKING:
    import pandas as pd

LEAST_PAIRS = 3
SHOWN = "shown"  # better, and by more than matters least
CONTRADICTED = "contradicted"  # worse, and by more than that
LEVEL = "level"  # no difference that matters
UNDECIDED = "undecided"
TOO_FEW = "too few seeds"
NOT_MEASURED = "not measured"
VERDICTS = (SHOWN, CONTRADICTED, LEVEL, UNDECIDED, TOO_FEW, NOT_MEASURED)
EQUAL = 1e-9  # figures that differ by a smaller share of themselves are equal but for rounding


@dataclass(frozen=True)
class Judged:
    """A claim at one point, and what became of it. Figures are in SI units; what there is not is nan.

    ``pairs`` have a figure on both sides; ``better_reached`` and ``than_reached`` say how many of them got as far as the
    quantity counts to. ``wins`` and ``losses`` are pairs whose advantage is more than ``by``, or less than minus that.
    ``detectable`` is the mean advantage that so many pairs, as scattered as these, would show in 80 % of all studies, ``by``
    included.
    """

    claim: int  # counted from 1
    text: str
    at: str
    quantity: str
    verdict: str
    test: str  # "t", "sign", or nothing
    pairs: int
    better: float  # mean of those that got as far
    than: float
    advantage: float
    low: float
    high: float
    detectable: float
    by: float
    wins: int
    losses: int
    p: float  # of the sign test
    better_reached: int
    than_reached: int
    source: str


def judge_all(results: StudyResults, claims: Sequence[Claim]) -> pd.DataFrame:
    """A row for each claim at each point that it leaves open: the fields of `Judged`.

    Raises `InputError` where a claim is about something that the study does not vary.
    """
    import pandas as pd

    found = [row for number, claim in enumerate(claims, 1) for row in _judge(results, claim, number)]
    return pd.DataFrame([asdict(row) for row in found], columns=list(Judged.__dataclass_fields__))


def verdict_of(advantages: Sequence[float], by: float = 0.0) -> str:
    """What pairs say of a claim: a value of `VERDICTS`. ``advantages`` are finite, ``by`` is the least that matters."""
    if len(advantages) < LEAST_PAIRS:
        return TOO_FEW
    mean, half = mean_and_interval(advantages)
    if mean - half > by:
        return SHOWN
    if mean + half < -by:
        return CONTRADICTED
    return LEVEL if -by <= mean - half and mean + half <= by else UNDECIDED


def _judge(results: StudyResults, claim: Claim, number: int) -> list[Judged]:
    import pandas as pd

    quantity, measure = QUANTITIES[claim.quantity], results.measure
    by = least_difference(claim, measure)
    if quantity.judged:
        quantity = replace(quantity, higher=measure.better == "higher")
    if claim.budget is not None:
        parts = [with_budget(rows, claim.budget.limits, results.measure) for rows in each_run(results.table)]
        results = replace(results, table=pd.concat(parts, ignore_index=True))
    if claim.target is not None:
        results = replace(results, target=claim.target)
    runs = [{str(k): v for k, v in row.items()} for row in per_run(results).to_dict("records")]
    judged = []
    for place in places(claim, results.columns, results.planned or runs):
        pairs = _pairs(runs, place, quantity)
        about = title(claim, place, results.columns, results.target, measure)
        judged.append(_row(pairs, quantity, by, (number, about, side_text(place.at, results.columns)), claim))
    return judged


def _pairs(runs: Sequence[Mapping[str, Any]], place: Place, quantity: Quantity) -> list[tuple[float, float]]:
    """The figures of each seed's two runs, where both are known; infinite where a run never got as far."""
    better = {run["seed"]: _figure(run, quantity) for run in runs if place.is_better(run)}
    other = {run["seed"]: _figure(run, quantity) for run in runs if place.is_other(run)}
    both = [(better[seed], other[seed]) for seed in better if seed in other]
    return [pair for pair in both if not any(math.isnan(figure) for figure in pair)]


def _figure(run: Mapping[str, Any], quantity: Quantity) -> float:
    figure = float(run.get(quantity.column, math.nan))
    if not quantity.reached:
        return figure
    so_far = float(run.get(quantity.reached, math.nan))
    if quantity.needs == "target":  # which may be reached before the first round
        return math.inf if math.isnan(so_far) else figure
    return math.inf if so_far == 0 else figure


def _row(
    pairs: Sequence[tuple[float, float]], quantity: Quantity, by: float, about: tuple[int, str, str], claim: Claim
) -> Judged:
    number, text, at = about
    reached = [sum(math.isfinite(pair[side]) for pair in pairs) for side in (0, 1)]
    advantages = [_advantage(*pair, quantity.higher) for pair in pairs]
    wins, losses = sum(a > by for a in advantages), sum(a < -by for a in advantages)
    means = [mean_and_interval([pair[side] for pair in pairs if math.isfinite(pair[side])])[0] for side in (0, 1)]
    test, p, mean, half, found = "", math.nan, math.nan, math.nan, math.nan
    if not pairs:
        verdict = NOT_MEASURED
    elif all(math.isfinite(a) for a in advantages) and min(reached) == len(pairs):
        verdict = verdict_of(advantages, by)
        if verdict != TOO_FEW:
            test, (mean, half), found = "t", mean_and_interval(advantages), by + detectable(advantages)
    elif len(pairs) < LEAST_PAIRS:
        verdict = TOO_FEW
    else:
        test, p = "sign", sign_test(wins, losses)
        verdict = UNDECIDED if p >= 1 - CONFIDENCE else SHOWN if wins > losses else CONTRADICTED
    return Judged(
        number, text, at, claim.quantity, verdict, test, len(pairs), means[0], means[1], mean, mean - half, mean + half,
        found, by, wins, losses, p, reached[0], reached[1], claim.source,
    )  # fmt: skip


def _advantage(better: float, than: float, higher: bool) -> float:
    """By how much the first is better; 0 where both are equal, also where neither got as far."""
    if better == than or abs(better - than) <= EQUAL * max(abs(better), abs(than)) < math.inf:
        return 0.0
    return better - than if higher else than - better


_TEXTS: dict[Any, Callable[[float], str]] = {
    SHARE: lambda value: f"{100 * value:.1f}", COUNT: lambda value: f"{value:.3g}",
    TIME: time_text, SIZE: bytes_text, CLIENT_TIME: cost_text, ENERGY: energy_text, MASS: carbon_text,
}  # fmt: skip


def figure_text(quantity: str, value: float, measure: Measure = ACCURACY) -> str:
    """A figure, or a difference of figures, for people; of shares in per cent points."""
    if math.isnan(value):
        return "–"
    if QUANTITIES[quantity].judged and not measure.share:
        return measure.text(value)
    return ("-" if value < 0 else "") + _TEXTS[QUANTITIES[quantity].unit](abs(value))


def table_of(claims: pd.DataFrame, measure: Measure = ACCURACY) -> TextTable:
    """A table of `judge_all` for people. Differences of accuracies are in per cent points."""
    rows = []
    for row in claims.to_dict("records"):
        sought = ("better", "than", "advantage", "low", "high")
        text = {key: figure_text(row["quantity"], row[key], measure) for key in sought}
        if row["test"] == "t":
            advantage = f"{text['advantage']} ({text['low']} to {text['high']})"
        elif row["test"] == "sign":
            advantage = f"{row['wins']} of {row['pairs']} pairs, {row['losses']} against"
        else:
            advantage = "–"
        if row["verdict"] == UNDECIDED and row["test"] == "t":
            more = f"{figure_text(row['quantity'], row['detectable'], measure)} detectable"
        elif row["test"] == "sign":
            more = f"reached by {row['better_reached']} and {row['than_reached']} of {row['pairs']}"
        else:
            more = ""
        sides = (text["better"], text["than"])
        rows.append(
            (f"{row['claim']}", row["text"], row["at"], f"{row['pairs']}", *sides, advantage, row["verdict"], more)
        )
    header = ("", "claim", "at", "seeds", "first", "second", "advantage (95 % interval)", "verdict", "")
    places = [i for i, _ in enumerate(header) if header[i] != "at" or any(row[i] for row in rows)]
    right = (True, False, False, True, True, True, True, False, False)
    return TextTable(
        "Claims, on pairs of runs with the same seed",
        tuple(header[i] for i in places),
        tuple(tuple(row[i] for i in places) for row in rows),
        tuple(right[i] for i in places),
    )
