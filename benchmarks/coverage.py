"""In which share of simulated certificates the interval of P(A beats B) holds the truth, and how wide it is (docs/certainty.md).

The logarithm of the ratio is a sum of what the world, the seed and their interplay say, all normal, so that the truth is known.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from analysis.certainty.worldwise import compare

CERTIFICATES = 400
MIXTURES = (  # mean, and standard deviations over worlds, over seeds, of their interplay
    (-0.5, 1, 0.5, 0.1), (0, 1, 0.5, 0.1), (-0.5, 1, 0.05, 0), (-0.5, 1, 0, 0), (-0.5, 0.3, 1, 0.1), (-1, 0.3, 1, 0.3),
    (-1, 1, 0.3, 1), (-2, 1, 0.3, 0.1),
)  # fmt: skip


def simulated(mixture: tuple[float, float, float, float], worlds: int, seeds: int) -> tuple[float, float]:
    """The share of certificates whose interval holds the truth, and its mean width."""
    mean, world_sd, seed_sd, rest_sd = mixture
    rng, truth = np.random.default_rng(1), norm.cdf(-mean / world_sd)
    intervals = []
    for _ in range(CERTIFICATES):
        logarithms = rng.normal(mean, world_sd, (worlds, 1)) + rng.normal(0, seed_sd, (1, seeds))
        logarithms += rng.normal(0, rest_sd, (worlds, seeds))
        better = compare(np.exp(logarithms), np.ones_like(logarithms)).better
        intervals.append((better.low, better.high))
    low, high = np.array(intervals).T
    return float(np.mean((low <= truth) & (truth <= high))), float(np.mean(high - low))


if __name__ == "__main__":
    for seeds in (2, 3, 5):
        found = {(m, n): simulated(m, n, seeds) for m in MIXTURES for n in (30, 300)}
        for (mixture, worlds), (covered, width) in found.items():
            print(f"{seeds} seeds, {worlds} worlds, {mixture}: {covered:.1%} of {CERTIFICATES}, mean width {width:.2f}")
        print(f"{seeds} seeds: at least {min(covered for covered, _ in found.values()):.1%}\n")
