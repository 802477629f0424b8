"""How much privacy a run has spent: the accountant, on `dp_accounting`, which is imported when epsilon is first asked for.

Each time that a client's update went into something that others saw is one Gaussian mechanism with some noise multiplier (the
noise's standard deviation over how far the client can shift the sum). Gaussian mechanisms compose, one depending on what the
earlier ones gave or not, to one with the multiplier ``1 / sqrt(sum of 1 / z²)``, whose epsilon is known exactly (Balle and Wang,
ICML 2018). This counts each client's own part in what happened, so it also holds against those who know who took part; the run's
epsilon is that of the client who spent most.

Where nobody knows who took part, the drawing protects too: members drawn without replacement are accounted by Rényi
divergences (Wang, Balle and Kasiviswanathan, AISTATS 2019, Theorem 27), which is proved for replacing a client's update by
any other, that is for twice the sensitivity. The composition without amplification holds as well; the smaller of the two counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np


class Accountant:
    """Adds up what the clients of a run have spent, and says the largest epsilon for one delta."""

    def __init__(self, clients: int, delta: float) -> None:
        self._delta = delta
        self._squares = np.zeros(clients)  # the sum of 1 / z²
        self._curves: np.ndarray | None = None  # Rényi divergences by client and order, where drawing protects

    def took_part(self, clients: Sequence[int], multiplier: float) -> None:
        """An update of each of these clients went into a sum with noise of this multiplier (0: without)."""
        self._squares[list(clients)] += 1 / multiplier**2 if multiplier else math.inf

    def may_have_taken_part(self, clients: Sequence[int], drawn: int, multiplier: float, hidden: bool) -> None:
        """Updates of ``drawn`` of these clients, drawn by chance, went into a sum; nobody knows whose (if ``hidden``)."""
        if self._curves is None:
            self._curves = np.zeros((len(self._squares), len(_orders())))
        curve = _sampled(len(clients), drawn, multiplier) if hidden and multiplier else math.inf
        self._curves[list(clients)] += curve
        self.took_part(clients, multiplier)

    def epsilon(self) -> float:
        """The least epsilon that is proved for every client; infinity where an update was seen without noise."""
        spent = float(self._squares.max(initial=0.0))
        plain = _gaussian(1 / math.sqrt(spent), self._delta) if spent else 0.0
        if self._curves is None or not spent:
            return plain
        from dp_accounting import rdp

        # The largest divergence at each order is nobody's in general, but no client's is larger.
        amplified, _ = rdp.compute_epsilon(_orders(), self._curves.max(axis=0), self._delta)
        return min(plain, float(amplified))


@cache
def _gaussian(multiplier: float, delta: float) -> float:
    if not multiplier:
        return math.inf
    import dp_accounting

    return float(dp_accounting.get_epsilon_gaussian(multiplier, delta))


@cache
def _orders() -> tuple[float, ...]:
    from dp_accounting import rdp

    return tuple(float(order) for order in rdp.RdpAccountant().orders)


@cache
def _sampled(members: int, drawn: int, multiplier: float) -> np.ndarray:
    """Rényi divergences by order; a replaced update shifts the sum by up to twice the clip."""
    import dp_accounting
    from dp_accounting import rdp

    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = rdp.RdpAccountant(_orders(), relation)
    inner = dp_accounting.GaussianDpEvent(multiplier / 2)
    accountant.compose(dp_accounting.SampledWithoutReplacementDpEvent(members, drawn, inner))
    return np.asarray(accountant.rdp, dtype=np.float64)
