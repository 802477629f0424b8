"""How likely each group is to be among those that are drawn: the inclusion probabilities of `draw`.

Drawing one after another without replacement makes the chance π_g of being among the S drawn something else
than S p_g (unless S = 1 or all p_g are equal), and there is no closed form. But `draw` takes the S largest of
X_g = log-weight φ_g + standard Gumbel noise, and these are independent: g is drawn where fewer than S others
lie above X_g. With f and F the density and distribution function of the noise,

    π_g = ∫ f(x − φ_g) H_g(x) dx,    H_g(x) = P(fewer than S of the others lie above x).

H_g(x) is the tail of a Poisson binomial distribution, by dynamic programming over the others. All its terms are
positive, so nothing cancels.

Where to integrate. Let τ be the S-th largest φ and σ the next. Below σ at least S of the others lie above with
a probability that falls short of 1 by e^(−e^d) at a distance of d, so H_g vanishes there; far above τ it is 1,
short by less than n e^(−d), and ∫ f is known. If σ is far below τ, the S largest are drawn for certain and
H_g of the others vanishes well above σ. So a stretch of some 90 from below σ or far below τ to above τ decides,
however far apart the weights are. Within it H_g is worked out only where it is not 0 or 1 by Chernoff's bounds.

The trapezoidal rule on an analytic integrand that vanishes at both ends converges exponentially (Trefethen and
Weideman 2014): at steps of 1/8 its error on f is below rounding. H_g rises from 0 to 1 like the distribution
function of the S-th largest of the others, which has a standard deviation of about 1/sqrt(S) or more; steps of
half of that take it in.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from emulator.grouping.sampling.drawing import check
from emulator.grouping.view import Floats

_BELOW = 6.0  # e^-e^6 is 10^-175
_ABOVE = 38.0  # e^-38 is below rounding
_NEVER, _ALWAYS = 100.0, 40.0  # probabilities of e^-100 and of all but e^-40 count as 0 and 1
_CELLS = 1 << 21  # numbers in one table of the dynamic programme: 16 MB


def log_inclusion(log_weights: Floats, count: int) -> Floats:
    """The logarithm of the probability that each index is among the ``count`` that `draw` draws.

    The probabilities add up to ``count``. Infinite log-weights and those of minus infinity count as they do
    in `draw`. Raises ``ValueError`` where a log-weight is NaN or there are fewer than ``count``, or where
    ``count`` is below one. The same question is answered from memory.
    """
    check(log_weights)
    if not 1 <= count <= len(log_weights):
        raise ValueError(f"cannot draw {count} of {len(log_weights)}")
    return np.frombuffer(_remembered(log_weights.astype(np.float64).tobytes(), count))


@lru_cache(maxsize=64)
def _remembered(log_weights: bytes, count: int) -> bytes:
    weights: Floats = np.frombuffer(log_weights)
    result = np.full(len(weights), -np.inf)
    for chosen in (np.isposinf(weights), np.isfinite(weights), np.isneginf(weights)):  # in the order of drawing
        here = min(count, int(chosen.sum()))
        if here:
            finite = np.where(np.isfinite(weights[chosen]), weights[chosen], 0.0)  # infinite ones are all alike
            result[chosen] = _finite(finite, here)
        count -= here
    return result.tobytes()


def _finite(log_weights: Floats, count: int) -> Floats:
    n = len(log_weights)
    if count == n:
        return np.zeros(n)
    if (log_weights == log_weights[0]).all():
        return np.full(n, math.log(count / n))
    ordered = np.sort(log_weights)[::-1]
    phi = log_weights - ordered[count - 1]  # so that τ is 0
    low = max(ordered[count] - ordered[count - 1], -_ABOVE) - _BELOW
    high = _ABOVE + math.log(n)
    step = min(1 / 8, 0.5 / math.sqrt(count))
    x = np.arange(low, high + step, step)
    with np.errstate(over="ignore"):
        rates = np.exp(phi[:, None] - x)  # [n, points]; F is e^-rate
    expected = -np.expm1(-rates).sum(axis=0)  # how many lie above
    never = (expected - 1 > count - 1) & (_exponent(count - 1, expected - 1) > _NEVER)
    always = (expected < count) & (_exponent(count, expected) > _ALWAYS)
    few = always.astype(np.float64) * np.ones((n, 1))
    at_once = max(1, _CELLS // (n * count))
    open_ = np.flatnonzero(~(never | always))
    for begin in range(0, len(open_), at_once):
        points = open_[begin : begin + at_once]
        few[:, points] = _few_others_above(rates[:, points], count)
    with np.errstate(divide="ignore"):
        log_terms = np.log(few) + (phi[:, None] - x) - rates
    log_sums = np.logaddexp.reduce(log_terms, axis=1) + math.log(step)
    # Above the last point fewer than S others lie, so all of that counts: 1 - F.
    result: Floats = np.minimum(np.logaddexp(log_sums, _log_above(phi - x[-1])), 0.0)
    return result


def _exponent(k: int, mean: Floats) -> Floats:
    """Chernoff: that a sum of independent events is k or farther from its mean has at most e to the minus this."""
    return mean - k + (k * (math.log(k) - np.log(np.maximum(mean, 1e-300))) if k else 0.0)


def _log_above(log_rates: Floats) -> Floats:
    """log(1 − F), where F is e^-rate: the rate itself where it is small."""
    with np.errstate(over="ignore"):
        rates = np.exp(log_rates)
    result: Floats = np.where(rates < 1e-12, log_rates, np.log(-np.expm1(-np.maximum(rates, 1e-12))))
    return result


def _few_others_above(rates: Floats, count: int) -> Floats:
    """For each index and point [n, points] the probability that fewer than ``count`` of the others lie above.

    ``before[i, k]`` is the probability that exactly k of the indices before i lie above, ``after[k]`` the
    same for those after i; sets with ``count`` or more are left out, since they count for nothing.
    """
    n, points = rates.shape
    below, above = np.exp(-rates), -np.expm1(-rates)
    before = np.zeros((n + 1, count, points))
    before[0, 0] = 1
    for i in range(n):
        before[i + 1] = before[i] * below[i]
        before[i + 1, 1:] += before[i, :-1] * above[i]
    result = np.empty((n, points))
    after = np.zeros((count, points))
    after[0] = 1
    for i in range(n - 1, -1, -1):
        # k before i, and at most count - 1 - k after it.
        result[i] = (before[i] * after.cumsum(axis=0)[::-1]).sum(axis=0)
        passed = after * above[i]
        after *= below[i]
        after[1:] += passed[:-1]
    return result
