"""Two methods side by side in every world: which is better there, by how much, and whether the seeds are enough to say so.

A method is better in a world where it takes less on the geometric mean over seeds (has the higher accuracy on the mean). In a
replay the seed determines how many rounds a method needs and the world how long a round takes, so logarithms of what was
taken are nearly a sum of the two; that is why means, and Student's t, are of logarithms. Seeds are paired: the same seed
means the same clients' data for both methods. What never reached a target took infinitely much and is worse than all that
did: with such seeds there is no mean, the majority of the seeds decides, and by the exact sign test whether it is decided.
Where neither reached, nobody is better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from analysis.certainty.probability import Interval, share, with_seeds
from analysis.seeds import CONFIDENCE, sign_test

QUANTILES = (0.05, 0.5, 0.95)
EQUAL = 1e-9  # figures that differ by a smaller share of themselves are equal but for rounding


@dataclass(frozen=True, eq=False)
class Worldwise:
    """A against B by world.

    ``advantage`` is by how much A is better: minus the logarithm of A's share of B (their difference, of accuracies), the
    mean over seeds; infinite where the majority of the seeds decides by never reaching, nan where neither reached or the
    world is not known. ``sign`` is 1 where A is better, -1 where B is and 0 where nobody is; ``decided`` says where the seeds
    are enough to say so. ``known`` are worlds in which all seeds have figures; of ``seeds``, the number of pairs. Where
    ``ratios``, the advantage is a logarithm.
    """

    advantage: np.ndarray
    sign: np.ndarray
    decided: np.ndarray
    known: np.ndarray
    reached: np.ndarray  # the share of the seeds in which A got as far, and B
    seeds: int
    ratios: bool

    @property
    def better(self) -> Interval:
        """P(A beats B): in which share of the worlds A is better, counting worlds and seeds."""
        return self._share(1)

    @property
    def worse(self) -> Interval:
        """P(B beats A)."""
        return self._share(-1)

    @property
    def neither(self) -> float:
        """The share of the known worlds in which nobody is better."""
        return float(np.mean(self.sign[self.known] == 0)) if self.known.any() else math.nan

    @property
    def open(self) -> float:
        """In which share of the known worlds the seeds leave it open who is better; 0 of one seed, which says nothing of it."""
        return float(1 - np.mean(self.decided[self.known])) if self.known.any() and self.seeds > 1 else 0.0

    def decided_for(self, sign: int) -> float:
        """In which share of the known worlds the seeds decide for A (1) or B (-1)."""
        if not self.known.any():
            return math.nan
        return float(np.mean(((self.sign == sign) & self.decided)[self.known]))

    def _share(self, sign: int) -> Interval:
        found = share(int((self.sign == sign)[self.known].sum()), int(self.known.sum()))
        if self.seeds < 2 or not self.known.any():  # of one seed nothing is known of how much another would differ
            return found
        # Worlds in which no seed of either gets as far stay nobody's.
        nobody = float(np.mean(((self.sign == 0) & self.decided)[self.known]))
        return with_seeds(found, self.decided_for(sign), 1 - self.decided_for(-sign) - nobody)

    def ratio(self) -> tuple[float, float, float]:
        """What A takes as a multiple of what B takes (by how much its accuracy is better): 5 %, median, 95 % of the worlds.

        Worlds in which only A never reached count as infinite and those in which only B did as 0, or an infinite difference;
        those in which neither did are left out, and nan is where an end falls between a number and infinity.
        """
        values = self.values
        if not len(values):
            return math.nan, math.nan, math.nan
        low, middle, high = (float(v) for v in np.quantile(values, QUANTILES, method="inverted_cdf"))
        return low, middle, high

    @property
    def values(self) -> np.ndarray:
        """The ratios (differences) of the known worlds in which one of them got as far, in the order of the worlds."""
        advantage = self.advantage[self.known & ~np.isnan(self.advantage)]
        return np.asarray(np.exp(-advantage) if self.ratios else advantage)


def compare(a: np.ndarray, b: np.ndarray, ratios: bool = True, higher: bool = False) -> Worldwise:
    """Sets A against B: arrays of [worlds, seeds] with the same seeds in the same order.

    Infinite is what never reached, nan what is not known. ``ratios``: figures are compared as ratios, else as differences;
    ``higher`` values are better, or lower. Raises `ValueError` where the shapes differ or there is no seed.
    """
    if a.shape != b.shape or a.ndim != 2 or not a.shape[1]:
        raise ValueError(f"A and B must have the same worlds and at least one common seed: {a.shape}, {b.shape}")
    known = ~(np.isnan(a) | np.isnan(b)).any(axis=1)
    each = _advantages(a, b, ratios, higher)
    seeds = a.shape[1]
    finite = np.isfinite(each).all(axis=1) & known
    advantage = np.full(len(a), math.nan)
    sign = np.zeros(len(a), dtype=int)
    decided = np.zeros(len(a), dtype=bool)
    if finite.any():
        mean = each[finite].mean(axis=1)
        advantage[finite] = mean
        sign[finite] = np.sign(mean)
        decided[finite] = _by_t(each[finite], mean)
    for world in np.flatnonzero(known & ~finite):
        row = each[world]
        wins, losses = int((row > 0).sum()), int((row < 0).sum())
        sign[world] = np.sign(wins - losses)
        advantage[world] = sign[world] * math.inf if sign[world] else math.nan
        decided[world] = sign_test(wins, losses) < 1 - CONFIDENCE or np.isnan(row).all()
    reached = np.stack([np.isfinite(a).mean(axis=1), np.isfinite(b).mean(axis=1)], axis=1)
    return Worldwise(advantage, sign, decided, known, reached, seeds, ratios)


def _advantages(a: np.ndarray, b: np.ndarray, ratios: bool, higher: bool) -> np.ndarray:
    """By world and seed: positive where A is better, 0 where they are equal, nan where neither got as far or one is not known."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(b) - np.log(a) if ratios else np.asarray(b - a, dtype=float)
        found[a == b] = 0.0
        found[np.isinf(a) & np.isinf(b)] = math.nan
        found[np.abs(found) < EQUAL] = 0.0
    return -found if higher else found


def _by_t(each: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Where the 95 % interval of a mean over seeds (Student's t) lies on one side of zero."""
    from scipy.special import stdtrit

    seeds = each.shape[1]
    if seeds < 2:
        return np.zeros(len(each), dtype=bool)
    half = float(stdtrit(seeds - 1, (1 + CONFIDENCE) / 2)) * each.std(axis=1, ddof=1) / math.sqrt(seeds)
    return np.asarray(np.abs(mean) > np.maximum(half, EQUAL))
