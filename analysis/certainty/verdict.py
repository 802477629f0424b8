"""What a certificate says about two methods, in one sentence that can be quoted.

Method A is said to be better where the whole interval of P(A beats B), worlds and seeds counted, lies above one half, and
undecided otherwise. What was left out comes first: in which share of the worlds the runs would have learned something else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from analysis.certainty.certificate import WRITTEN, Certificate
from analysis.certainty.deciding import Deciding, deciding
from analysis.certainty.measured import Measured
from analysis.certainty.probability import Interval
from analysis.certainty.worldwise import Worldwise

LEAST_INDEX = 0.1  # of an unknown that is named
NAMED = 2  # unknowns and tipping points at most
BETTER, UNDECIDED, UNKNOWN = "better", "undecided", "unknown"


@dataclass(frozen=True, eq=False)
class Verdict:
    """What is said about two methods: a ``conclusion``, and a ``sentence`` with what it depends on.

    `BETTER`: ``a`` is better than ``b``. ``side`` and ``deciding`` are what it was made of, from the point of view of ``a``.
    """

    a: str
    b: str
    measure: Measured
    conclusion: str
    sentence: str
    side: Worldwise
    deciding: Deciding


def verdict(certificate: Certificate, a: str, b: str, measure: Measured) -> Verdict:
    """The verdict on two methods, the better one first; raises `InputError` where no seed pairs them."""
    side = certificate.against(a, b, measure)
    if side.known.any() and side.worse.value > side.better.value:
        a, b = b, a
        side = certificate.against(a, b, measure)
    decides = deciding(certificate, a, b, measure)
    if not side.known.any():
        reason = f"{_why_unknown(certificate)}: nothing is said of '{a}' and '{b}' by {measure.title}."
        return Verdict(a, b, measure, UNKNOWN, reason, side, decides)
    conclusion = BETTER if side.better.low > 0.5 else UNDECIDED
    parts = [_probability(a, b, measure, side, conclusion), *_ratio(certificate, measure, side, a, b)]
    parts += _depends(certificate, a, b, measure, decides)
    parts += _caveats(certificate, side, a, b, conclusion)
    sentence = f"{'; '.join([_worlds(certificate, a, b, measure), *parts])}."
    return Verdict(a, b, measure, conclusion, sentence, side, decides)


def verdicts(certificate: Certificate) -> list[Verdict]:
    """One for every pair and measure, the pairs of a measure together."""
    return [verdict(certificate, a, b, measure) for measure in certificate.measures for a, b in certificate.pairs]


def percent(value: float) -> str:
    """A share in per cent: a whole one, or with as many decimals (at most two) as it takes not to be 0 or 100."""
    if math.isnan(value):
        return "unknown"
    hundred = 100 * value
    digits = next((d for d in range(3) if 0 < round(hundred, d) < 100), 0)
    return f"{hundred:.{digits}f} %"


def percent_with_interval(found: Interval) -> str:
    """A share with the ends of its interval: ``62 % (47–72)``."""
    low, high = (percent(end).removesuffix(" %") for end in (found.low, found.high))
    return f"{percent(found.value)} ({low}–{high})"


def _worlds(certificate: Certificate, a: str, b: str, measure: Measured) -> str:
    count, known = len(certificate.drawn), 1 - certificate.unknown_share(a, b, measure)
    trained = f", or were trained afresh ({certificate.trained:,})," if certificate.trained else ""
    return (
        f"Both methods train as they did{trained} in {'all' if known == 1 else f'{percent(known)} of'} {count:,} worlds"
    )


def _probability(a: str, b: str, measure: Measured, side: Worldwise, conclusion: str) -> str:
    p = side.better
    over = f"worlds and {side.seeds} seeds" if side.seeds > 1 else "worlds alone, as there is but one seed"
    sure = f"95 % interval {percent(p.low)} to {percent(p.high)}, over {over}"
    if conclusion == UNDECIDED:
        return f"it is undecided whether {a} {measure.deed} {b}, which it does in {percent(p.value)} of these ({sure})"
    return f"in {percent(p.value)} of these ({sure}) {a} {measure.deed} {b}"


def _ratio(certificate: Certificate, measure: Measured, side: Worldwise, a: str, b: str) -> list[str]:
    low, middle, high = side.ratio()
    if math.isnan(middle):
        return []
    text = measure.relative_text
    inside = f"{text(low)} to {text(high)} in nine worlds of ten"
    written = certificate.against(a, b, measure, WRITTEN).ratio()[1]
    if not math.isnan(written):
        inside += f", {text(written)} in the world as it is written"
    if measure.ratios:
        return [f"{a} takes {text(middle)} times what {b} takes (median; {inside})"]
    return [f"the difference is {text(middle)} (median; {inside})"]


def _depends(certificate: Certificate, a: str, b: str, measure: Measured, decides: Deciding) -> list[str]:
    found = []
    weighty = [each for each in decides.influences if each.weight >= LEAST_INDEX][:NAMED]
    if weighty:
        named = " and ".join(f"{each.quantity} ({each.text})" for each in weighty)
        found.append(f"the {decides.of} depends most on {named}")
    return [*found, *_tips(certificate, a, b, measure, decides)]


def _tips(certificate: Certificate, a: str, b: str, measure: Measured, decides: Deciding) -> list[str]:
    """Where the winner changes, over the weightiest unknowns first; of one over which it changes several times, how often."""
    tips = certificate.tips(a, b, measure)
    order = {each.quantity: i for i, each in enumerate(decides.influences)}
    said = []
    for name, rows in tips[tips["at"].notna()].groupby("quantity", sort=False):
        quantity, row = certificate.quantity(str(name)), rows.iloc[0]
        text = f"{row['better']} is better where {quantity.name} is {row['side']} {quantity.value_text(row['at'])}"
        if len(rows) > 1:
            text = f"the winner changes {len(rows)} times over {quantity.name}"
        said.append((order.get(quantity.name, len(order)), f"with all else at its middle, {text}"))
    return [text for _, text in sorted(said)[:NAMED]]


def _caveats(certificate: Certificate, side: Worldwise, a: str, b: str, conclusion: str) -> list[str]:
    found = []
    if side.neither > 0:
        found.append(f"in {percent(side.neither)} neither is better")
    if side.open > 0:
        found.append(f"{side.seeds} seeds leave open which is better in {percent(side.open)}")
    known = float(side.known.mean())
    if conclusion == BETTER and side.better.value * known <= 0.5:
        found.append("the worlds left out could turn this over")
    for method, reached in ((a, side.reached[side.known, 0]), (b, side.reached[side.known, 1])):
        if (never := float(1 - reached.mean())) > 0:
            what = "never get there" if side.ratios else "are not tested within the budget"
            found.append(f"{percent(never)} of the replays of {method} {what}, and count as lost")
    return found


def _why_unknown(certificate: Certificate) -> str:
    return f"In none of {len(certificate.drawn):,} worlds do both methods train as they did"
