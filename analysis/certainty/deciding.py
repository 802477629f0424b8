"""Which unknown decides between two methods: Sobol indices of how A compares with B over the worlds.

The first-order index of an unknown is the share of the variance that its value alone explains, ``Var(E[Y | X]) / Var(Y)``;
the total index is the share that is left when all others are known, interactions included (Sobol, *Sensitivity estimates for
nonlinear mathematical models*, 1993; Homma and Saltelli, *Importance measures in global sensitivity analysis of nonlinear
models*, Reliability Engineering & System Safety 52, 1996). ``Y`` is the logarithm of the ratio (the difference, of
accuracies), its mean over seeds. Where a method never reaches the target in some world there is no ratio to take a variance
of, and ``Y`` is the winner itself: 1, 0 or -1.

From the worlds of a Saltelli design SALib computes both (Saltelli et al., *Variance based sensitivity analysis of model
output*, Computer Physics Communications 181, 2010), with intervals by resampling base points. A base point is left out where
one of its worlds is unknown. Without such worlds, only the first-order index is known, from the drawn worlds: the correlation
ratio over √n equal parts of n worlds, corrected for chance (epsilon squared; Kelley, *An unbiased correlation ratio measure*,
PNAS 21, 1935), with its interval by resampling worlds. The intervals count which worlds were drawn, not the seeds.

A Saltelli design varies one unknown while the others stay, which makes no sense of unknowns that are correlated: of these only
the first-order index is given, from the drawn worlds, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from analysis.certainty.certificate import SALTELLI, Certificate
from analysis.certainty.measured import Measured
from analysis.certainty.worldwise import EQUAL, Worldwise
from analysis.seeds import CONFIDENCE

if TYPE_CHECKING:
    import pandas as pd

RESAMPLES = 400
LEAST_BASE = 16  # base points below which nothing is computed from a Saltelli design
LEAST_WORLDS = 40
SEED = 26  # of the resampling
DESIGNED, GIVEN = "Saltelli", "correlation ratio"  # estimators


@dataclass(frozen=True)
class Influence:
    """How much a quantity matters: indices with half the widths of their 95 % intervals; nan is not known."""

    quantity: str
    first: float
    first_half: float
    total: float
    total_half: float

    @property
    def weight(self) -> float:
        """What quantities are ordered by: the total index, or the first-order one where that is all there is."""
        return self.first if math.isnan(self.total) else self.total

    @property
    def text(self) -> str:
        """The index that counts, for a sentence: ``total Sobol index 0.57 ± 0.12``."""
        if math.isnan(self.total):
            return f"first-order Sobol index {self.first:.2f} ± {self.first_half:.2f}"
        return f"total Sobol index {self.total:.2f} ± {self.total_half:.2f}"


@dataclass(frozen=True)
class Deciding:
    """Quantities by weight, the weightiest first.

    ``of`` is what varies (`ratio`, `difference` or `winner`), ``estimator`` how it was found. ``worlds`` is the number of
    worlds behind it. Without any influences, ``why`` says why not.
    """

    influences: tuple[Influence, ...]
    of: str
    estimator: str
    worlds: int
    why: str = ""


_known: WeakKeyDictionary[Certificate, dict[tuple[str, str, str], Deciding]] = WeakKeyDictionary()


def deciding(certificate: Certificate, a: str, b: str, measure: Measured) -> Deciding:
    """Which unknowns decide between A and B; raises `InputError` where no seed pairs them. Worked out once for all who ask."""
    known = _known.setdefault(certificate, {})
    key = (a, b, measure.column)
    if key not in known:
        known[key] = _deciding(certificate, a, b, measure)
    return known[key]


def _deciding(certificate: Certificate, a: str, b: str, measure: Measured) -> Deciding:
    names = [each.name for each in certificate.quantities]
    if not names:
        return Deciding((), "", "", 0, "nothing is uncertain")
    drawn = certificate.against(a, b, measure)
    given, of = _output(drawn, drawn.known)
    if certificate.base:
        side = certificate.against(a, b, measure, SALTELLI)
        blocks = side.known.reshape(certificate.base, len(names) + 2).all(axis=1)
        if blocks.sum() >= LEAST_BASE:
            values, of = _output(side, np.repeat(blocks, len(names) + 2))
            if np.ptp(values) <= EQUAL:
                return Deciding((), of, DESIGNED, len(values), f"the {of} is the same in all worlds")
            found = saltelli(values, names)
            if certificate.correlated:
                found = _without_correlated(certificate, drawn, found)
            return Deciding(_ordered(found), of, DESIGNED, len(values))
    if drawn.known.sum() < LEAST_WORLDS:
        return Deciding((), "", "", int(drawn.known.sum()), f"only {drawn.known.sum()} worlds are known")
    if np.ptp(given) <= EQUAL:
        return Deciding((), of, GIVEN, len(given), f"the {of} is the same in all worlds")
    return Deciding(_ordered(correlation_ratios(given, certificate.drawn[drawn.known][names])), of, GIVEN, len(given))


def _without_correlated(certificate: Certificate, drawn: Worldwise, found: Sequence[Influence]) -> list[Influence]:
    """In place of the indices of correlated quantities, their first-order ones from the drawn worlds; nan of too few worlds."""
    names = [each.quantity for each in found if each.quantity in certificate.correlated]
    values, _ = _output(drawn, drawn.known)
    if drawn.known.sum() < LEAST_WORLDS or np.ptp(values) <= EQUAL:
        return [each for each in found if each.quantity not in names]
    own = {each.quantity: each for each in correlation_ratios(values, certificate.drawn[drawn.known][names])}
    return [own.get(each.quantity, each) for each in found]


def saltelli(values: np.ndarray, names: Sequence[str]) -> list[Influence]:
    """Indices from a Saltelli design without second order, base point by base point, as SALib orders it."""
    from SALib.analyze import sobol

    problem = {"num_vars": len(names), "names": list(names), "bounds": [[0.0, 1.0]] * len(names)}
    found = sobol.analyze(
        problem,
        np.asarray(values, dtype=float),
        calc_second_order=False,
        num_resamples=RESAMPLES,
        conf_level=CONFIDENCE,
        seed=SEED,
    )
    return [
        Influence(name, *(float(found[key][i]) for key in ("S1", "S1_conf", "ST", "ST_conf")))
        for i, name in enumerate(names)
    ]


def correlation_ratios(values: np.ndarray, worlds: pd.DataFrame) -> list[Influence]:
    """First-order indices from any independent worlds; of numbers over parts of equally many worlds, of texts by value."""
    rng = np.random.default_rng(SEED)
    picks = rng.integers(len(values), size=(RESAMPLES, len(values)))
    tail = (1 - CONFIDENCE) / 2
    found = []
    for name in worlds.columns:
        parts = parts_of(worlds[name], round(math.sqrt(len(values))))[0]
        drawn = np.array([_epsilon_squared(values[pick], parts[pick]) for pick in picks])
        low, high = np.nanquantile(drawn, [tail, 1 - tail])
        found.append(Influence(str(name), _epsilon_squared(values, parts), float(high - low) / 2, math.nan, math.nan))
    return found


def parts_of(column: pd.Series, count: int) -> tuple[np.ndarray, list[object]]:
    """The number of the part that each world is in, and what bounds the parts: edges of numbers, or the texts of a choice."""
    if column.dtype.kind not in "fiu":
        texts, numbers = np.unique(column.astype(str).to_numpy(), return_inverse=True)
        return numbers, list(texts)
    values = column.to_numpy(dtype=float)
    edges = np.unique(np.quantile(values, np.linspace(0, 1, count + 1)))
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(len(edges) - 2, 0)), list(edges)


def _epsilon_squared(values: np.ndarray, parts: np.ndarray) -> float:
    count = np.bincount(parts).astype(float)
    used = count > 0
    mean = np.bincount(parts, weights=values)[used] / count[used]
    total = float(np.sum((values - values.mean()) ** 2))
    if not total:
        return math.nan
    between = float(np.sum(count[used] * (mean - values.mean()) ** 2))
    groups, n = int(used.sum()), len(values)
    within = (total - between) / max(n - groups, 1)
    return (between - (groups - 1) * within) / total


def _output(side: Worldwise, keep: np.ndarray) -> tuple[np.ndarray, str]:
    if np.isfinite(side.advantage[keep]).all():
        return side.advantage[keep], "ratio" if side.ratios else "difference"
    return side.sign[keep].astype(float), "winner"


def _ordered(found: Sequence[Influence]) -> tuple[Influence, ...]:
    return tuple(sorted(found, key=lambda each: -each.weight))
