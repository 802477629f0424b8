"""Which method is best where: over the quarters of each unknown, and in the regions of a shallow tree.

The best of all methods in a world takes least on the geometric mean over the seeds that all methods share. The tree (CART;
Breiman et al., *Classification and Regression Trees*, 1984) has at most two questions and leaves of at least a twentieth of
the worlds, so that it can be said in a sentence. It is judged on worlds that it has not seen (five-fold cross-validation)
against always naming the method that is best most often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.certainty.certificate import Certificate, Quantity
from analysis.certainty.deciding import parts_of
from analysis.certainty.measured import Measured
from emulator.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

QUARTERS = 4
DEPTH = 2
LEAF = 0.05
FOLDS = 5
NOBODY = ""  # where no method reached the target


@dataclass(frozen=True)
class Region:
    """Some worlds: what they have in common, how many they are, and in which share of them each method is best."""

    where: str
    quantity: str  # empty: of the tree
    worlds: int
    shares: dict[str, float]

    @property
    def best(self) -> str:
        """The method that is best most often; empty where most often nobody reaches the target."""
        return max(self.shares, key=self.shares.__getitem__)


@dataclass(frozen=True)
class Tree:
    """The regions of a tree, in which share of unseen worlds it names the best method, and in which always naming one would."""

    regions: tuple[Region, ...]
    right: float
    always: float

    @property
    def useful(self) -> bool:
        """Whether it knows more than the name of one method."""
        return len(self.regions) > 1 and self.right > self.always


def best_by_world(certificate: Certificate, measure: Measured) -> tuple[np.ndarray, np.ndarray]:
    """The name of the best method by drawn world (`NOBODY`: none reached), and which worlds are known.

    The best takes least (has most) on the mean over the seeds that all share; by seeds that never reached, first those count.
    """
    seeds = certificate.seeds(*certificate.methods)
    if not seeds:
        raise InputError("the methods have no seed in common")
    each = np.stack([certificate.figures(method, measure, seeds) for method in certificate.methods])
    known = ~np.isnan(each).any(axis=(0, 2))
    reached = np.isfinite(each)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(reached, np.log(each) if measure.ratios else each, 0.0)
        mean = values.sum(axis=2) / reached.sum(axis=2)
    mean = np.where(reached.any(axis=2), -mean if measure.higher else mean, math.inf)
    score = np.where(np.isnan(mean), math.inf, mean)
    most = reached.sum(axis=2)
    score = np.where(most == most.max(axis=0), score, math.inf)
    names = np.array(certificate.methods, dtype=object)[score.argmin(axis=0)]
    return np.where(np.isfinite(score).any(axis=0) | (score.min(axis=0) == -math.inf), names, NOBODY), known


def quarters(certificate: Certificate, measure: Measured) -> list[Region]:
    """For each quantity, who is best over the quarters of its worlds (or over the values of a choice)."""
    best, known = best_by_world(certificate, measure)
    found = []
    for quantity in certificate.quantities:
        column = certificate.drawn[quantity.name]
        parts, bounds = parts_of(column, QUARTERS)
        for part in range(len(bounds) if quantity.labels or column.dtype.kind not in "fiu" else len(bounds) - 1):
            inside = known & (parts == part)
            if inside.any():
                found.append(
                    Region(
                        _bounds(quantity, bounds, part, column), quantity.name, int(inside.sum()), _shares(best[inside])
                    )
                )
    return found


def tree(certificate: Certificate, measure: Measured) -> Tree | None:
    """A shallow tree of who is best; None where one method is best in all worlds, or too few worlds are known."""
    best, known = best_by_world(certificate, measure)
    names, counts = np.unique(best[known].astype(str), return_counts=True)
    if len(names) < 2 or known.sum() < 4 * FOLDS or counts.min() < FOLDS or not certificate.quantities:
        return None
    from sklearn.model_selection import cross_val_score
    from sklearn.tree import DecisionTreeClassifier

    given, asked = _features(certificate, known)
    grower = DecisionTreeClassifier(
        max_depth=DEPTH, min_samples_leaf=max(1, math.ceil(LEAF * known.sum())), random_state=0
    )
    right = float(cross_val_score(grower, given, best[known].astype(str), cv=FOLDS).mean())
    grown = grower.fit(given, best[known].astype(str))
    leaves, where = grown.apply(given), _paths(grown.tree_, asked)
    regions = tuple(
        Region(where[leaf], "", int((leaves == leaf).sum()), _shares(best[known][leaves == leaf]))
        for leaf in sorted(where)
    )
    return Tree(regions, right, float(counts.max() / counts.sum()))


def _features(certificate: Certificate, known: np.ndarray) -> tuple[np.ndarray, list[tuple[Quantity, str]]]:
    """Numbers as they are, and a column of zeros and ones for each text of a choice."""
    columns, asked = [], []
    drawn = certificate.drawn[known]
    for quantity in certificate.quantities:
        column = drawn[quantity.name]
        if column.dtype.kind in "fiu":
            columns.append(column.to_numpy(dtype=float))
            asked.append((quantity, ""))
            continue
        for text in sorted(set(column.astype(str))):
            columns.append((column.astype(str) == text).to_numpy(dtype=float))
            asked.append((quantity, text))
    return np.stack(columns, axis=1), asked


def _paths(grown: Any, asked: Sequence[tuple[Quantity, str]]) -> dict[int, str]:
    """How each leaf of a tree is reached, in words."""
    found: dict[int, str] = {}

    def go(node: int, so_far: tuple[str, ...]) -> None:
        if grown.children_left[node] < 0:
            found[node] = " and ".join(so_far) or "everywhere"
            return
        quantity, text = asked[grown.feature[node]]
        at = quantity.value_text(float(grown.threshold[node]))
        lower, higher = (f"{quantity.name} below {at}", f"{quantity.name} from {at}")
        if text:
            lower, higher = f"{quantity.name} is not {text}", f"{quantity.name} is {text}"
        go(int(grown.children_left[node]), (*so_far, lower))
        go(int(grown.children_right[node]), (*so_far, higher))

    go(0, ())
    return found


def _bounds(quantity: Quantity, bounds: Sequence[Any], part: int, column: pd.Series) -> str:
    if column.dtype.kind not in "fiu":
        return str(bounds[part])
    return f"{quantity.value_text(bounds[part])} to {quantity.value_text(bounds[part + 1])}"


def _shares(best: np.ndarray) -> dict[str, float]:
    names, counts = np.unique(best.astype(str), return_counts=True)
    return {str(name): float(count / counts.sum()) for name, count in zip(names, counts, strict=True)}
