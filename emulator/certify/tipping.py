"""Where the winner changes: at which value of one quantity, while all others are at their middle. Found by search.

Methods are compared by the mean over their seeds, the geometric one of what they take. Between points at which different
methods win, the difference is followed to where it changes its sign (Brent's method), on a logarithmic scale where the quantity
has one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emulator.certify.measuring import Compared
from emulator.certify.order import Row
from emulator.certify.quantities import Quantity

POINTS = 9  # between which changes of the winner are looked for; of two within one interval neither is seen
ENDS = (0.005, 0.995)  # shares of all worlds that are below the first and the last of them
PRECISION = 1e-4  # relative, of where it tips
EVERYWHERE, BELOW = "everywhere", "below"

Outcomes = Sequence[Row]  # of all runs in one world
At = Callable[
    [Sequence[tuple[int, float]]], Sequence[Outcomes]
]  # of quantities (by number) at values, all else in the middle


@dataclass(frozen=True)
class _Pair:
    """Two methods and what they are compared by."""

    one: str
    other: str
    measure: Compared

    def difference(self, outcomes: Outcomes) -> float:
        """Above 0 where the first is better, below 0 where the second is; infinite where one alone gets anywhere.

        Nan where it is unknown, or neither gets anywhere.
        """
        by_method = [
            {row["seed"]: float(row[self.measure.column]) for row in outcomes if row["method"] == method}
            for method in (self.one, self.other)
        ]
        common = by_method[0].keys() & by_method[1].keys()
        if not common:
            return math.nan
        taken = [[found[seed] for seed in sorted(common)] for found in by_method]
        if self.measure.kind == "to" and all(each > 0 for values in taken for each in values):
            taken = [[math.log(each) for each in values] for values in taken]
        one, other = (math.fsum(values) / len(common) for values in taken)
        if math.isnan(one) or math.isnan(other) or (math.isinf(one) and one == other):
            return math.nan
        return one - other if self.measure.higher else other - one


def tipping_points(
    quantities: Sequence[Quantity], methods: Sequence[str], measures: Sequence[Compared], at: At
) -> Iterator[dict[str, Any]]:
    """Rows of ``tipping.csv``, quantity by quantity. ``at`` replays all runs, and remembers what it has replayed."""
    pairs = [_Pair(*two, measure) for two in itertools.combinations(methods, 2) for measure in measures]
    for number, quantity in enumerate(quantities):
        if quantity.labels is not None:
            continue
        values = points_of(quantity)
        found = at([(number, value) for value in values])
        for pair in pairs:
            yield from _of_pair(pair, number, quantity, values, [pair.difference(each) for each in found], at)


def points_of(quantity: Quantity) -> list[float]:
    """Values of a quantity from nearly its lowest to nearly its highest, in equal steps on its scale."""
    low, high = (float(each) for each in quantity.at(np.array(ENDS)))
    spaced = np.geomspace if _logarithmic(quantity, low) else np.linspace
    values = spaced(low, high, POINTS)
    return [float(v) for v in (np.unique(values.round()) if quantity.whole else values)]


def _logarithmic(quantity: Quantity, low: float) -> bool:
    return quantity.scale == "log" and low > 0


def _of_pair(
    pair: _Pair, number: int, quantity: Quantity, values: Sequence[float], differences: Sequence[float], at: At
) -> Iterator[dict[str, Any]]:
    known = [(v, d) for v, d in zip(values, differences, strict=True) if not math.isnan(d) and d != 0]
    if not known:
        return
    signs = {math.copysign(1, d) for _, d in known}
    if len(signs) == 1:
        yield _row(pair, quantity, signs.pop() > 0, "", EVERYWHERE)
        return
    for (low, before), (high, after) in itertools.pairwise(known):
        if (before > 0) != (after > 0):
            tips = _search(pair, number, quantity, (low, before), (high, after), at)
            yield _row(pair, quantity, before > 0, tips, BELOW)


def _row(pair: _Pair, quantity: Quantity, first_wins: bool, at: float | str, side: str) -> dict[str, Any]:
    better, than = (pair.one, pair.other) if first_wins else (pair.other, pair.one)
    named = {"measure": pair.measure.column, "quantity": quantity.name}
    return {"better": better, "than": than, **named, "at": at, "side": side}


def _search(
    pair: _Pair, number: int, quantity: Quantity, low: tuple[float, float], high: tuple[float, float], at: At
) -> float:
    from scipy.optimize import brentq

    logarithmic = _logarithmic(quantity, low[0])
    there, back = (math.log, math.exp) if logarithmic else (float, float)
    known: Mapping[float, float] = {there(low[0]): low[1], there(high[0]): high[1]}
    # Where one of them never gets anywhere, only the sign tells.
    largest = 1 + max((abs(d) for d in known.values() if math.isfinite(d)), default=0.0)
    last = known[there(low[0])]

    def difference(place: float) -> float:
        nonlocal last
        found = known.get(place)
        if found is None:
            (outcomes,) = at([(number, back(place))])
            found = pair.difference(outcomes)
        if math.isnan(found):
            found = last  # unknown: as on the side from where the search comes
        last = found
        return max(-largest, min(largest, found))

    ends = (there(low[0]), there(high[0]))
    size = 1e-6 * max(abs(low[0]), abs(high[0]))  # near zero nothing is relative
    tolerances = {"xtol": PRECISION, "rtol": 1e-12} if logarithmic else {"xtol": size, "rtol": PRECISION}
    place = brentq(difference, *ends, **tolerances)
    return back(float(place))
