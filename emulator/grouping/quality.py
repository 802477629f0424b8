"""How good groups are: the CoV of their labels, and the diagnostics of Group-FEL's bound (S2 §3 and §4)."""

from __future__ import annotations

import math

import numpy as np

from emulator.grouping.sampling.drawing import log_probabilities
from emulator.grouping.view import Counts, Floats, Groups, laid_out


def cov(label_counts: Counts) -> Floats:
    """The coefficient of variation of each row of label counts [G, m]: population standard deviation / mean.

    0 where all labels are equally frequent, sqrt(m - 1) where there is only one, ``inf`` where there are no
    samples. S2 Eq. 31 as printed lacks the factor sqrt(m); its Table 1 has it.
    """
    labels = label_counts.shape[1]
    samples = label_counts.sum(axis=1)
    # Deviations times m are whole numbers. Their squares add up without rounding (to 2^53), so rows that
    # differ only in the order of their labels get the same CoV to the last bit.
    scaled = (labels * label_counts - samples[:, None]).astype(np.float64)
    deviation = np.sqrt((scaled * scaled).sum(axis=1) / labels)
    result: Floats = np.divide(deviation, samples, out=np.full(len(samples), np.inf), where=samples > 0)
    return result


def kld(label_counts: Counts, reference: Counts) -> Floats:
    """The Kullback-Leibler divergence (in nats) of the label mix of each row [G, m] from that of ``reference`` [m].

    0 where the mixes are equal, ``inf`` where a row has no samples or a label that the reference lacks.
    """
    samples = label_counts.sum(axis=1)
    mixes = label_counts / np.maximum(samples, 1)[:, None]
    expected = np.broadcast_to(reference / max(1, int(reference.sum())), mixes.shape)
    ratio = np.ones(mixes.shape)
    with np.errstate(divide="ignore"):
        np.divide(mixes, expected, out=ratio, where=mixes > 0)
    divergence = np.maximum((mixes * np.log(ratio)).sum(axis=1), 0)  # rounding may leave less than nothing
    return np.where(samples > 0, divergence, np.inf)


def gamma(samples: Counts) -> float:
    """γ of a group whose clients hold ``samples`` [n] samples: 1 + CoV² of these numbers (S2 Eq. 11).

    1 where all hold equally many; ``inf`` where none holds any.
    """
    return 1 + float(cov(samples[None, :])[0]) ** 2


def gammas(samples: Counts, groups: Groups) -> Floats:
    """γ of each group, from the samples [n] of the clients."""
    rows, sizes = laid_out(groups)
    group_of, held = np.repeat(np.arange(len(groups)), sizes), samples[rows]
    totals = np.bincount(group_of, held, len(groups)).astype(np.int64)
    # Whole numbers, as in `cov`: their squares add up without rounding.
    scaled = (sizes[group_of] * held - totals[group_of]).astype(np.float64)
    deviations = np.sqrt(np.bincount(group_of, scaled * scaled, len(groups)) / np.maximum(sizes, 1))
    covs = np.divide(deviations, totals, out=np.full(len(groups), np.inf), where=totals > 0)
    return np.asarray(1 + covs**2, dtype=np.float64)


def gamma_groups(group_samples: Counts) -> float:
    """Γ: 1 + CoV² of the numbers of samples [G] of the groups (S2 Eq. 12)."""
    return gamma(group_samples)


def gamma_p(log_weights: Floats) -> float:
    """Γ_p = Σ 1/p_g for sampling by these log-weights [G] (S2 Eq. 12); ``inf`` where it is beyond floats."""
    inverse = -log_probabilities(log_weights)
    largest = float(inverse.max())
    if math.isinf(largest):
        return math.inf
    log_sum = largest + math.log(float(np.exp(inverse - largest).sum()))
    try:
        return math.exp(log_sum)
    except OverflowError:
        return math.inf
