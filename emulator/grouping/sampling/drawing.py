"""Drawing without replacement by log-weights of any size."""

from __future__ import annotations

import numpy as np

from emulator.grouping.view import Floats


def draw(log_weights: Floats, count: int, rng: np.random.Generator) -> list[int]:
    """``count`` different indices, ascending, drawn one after another by weight from those not yet drawn.

    The ``count`` largest of log-weight plus standard Gumbel noise have exactly this distribution (Gumbel
    top-k; Kool, van Hoof and Welling 2019, arXiv:1903.06059), and no weight is ever computed. Infinite
    log-weights come before all others and those of minus infinity after all others, in both cases uniformly
    among themselves. Raises ``ValueError`` where a log-weight is NaN or there are fewer than ``count``.
    """
    check(log_weights)
    if not 0 <= count <= len(log_weights):
        raise ValueError(f"cannot draw {count} of {len(log_weights)}")
    noise = rng.gumbel(size=len(log_weights))
    # Where sums are equal the noise decides again: infinite ones, and those so large that rounding swallows
    # it.
    order = np.lexsort((noise, log_weights + noise))
    return sorted(order[len(order) - count :].tolist())


def log_probabilities(log_weights: Floats) -> Floats:
    """The logarithms of the probabilities of being drawn first; their exponentials add up to 1.

    Infinite log-weights share everything equally; where all are minus infinity, so do they. Raises
    ``ValueError`` where there are none or one is NaN.
    """
    check(log_weights)
    if len(log_weights) == 0:
        raise ValueError("there are no weights")
    largest = log_weights.max()
    if np.isinf(largest):
        sharing = log_weights == largest
        return np.where(sharing, -np.log(sharing.sum()), -np.inf)
    shifted = log_weights - largest
    result: Floats = shifted - np.log(np.exp(shifted).sum())
    return result


def check(log_weights: Floats) -> None:
    """Raises ``ValueError`` where these are no log-weights."""
    if log_weights.ndim != 1 or np.isnan(log_weights).any():
        raise ValueError("log-weights must be a vector without NaN")
