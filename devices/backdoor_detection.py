"""What backdoor detection costs: the cosine of every pair of updates.

Detectors that compare all pairs are FoolsGold (Fung et al., RAID 2020) and FLAME (Nguyen et al., USENIX
Security 2022). The figures are derived, not measured: for each pair three inner products of the length of the
model at the device's effective speed, and library calls. What follows the comparison (clustering, clipping)
is left out.
"""

from __future__ import annotations

import math

from devices.profile import Curve, Terms

FLOPS_OF_A_PARAMETER = 6  # x·y, x·x and y·y: a multiplication and an addition each
CALLS_S = 20e-6  # estimate, on the Xeon of `secure_aggregation`: library calls for a pair and their Python


def curve(parameters: int, effective_speed: float, slowdown: float) -> Curve:
    """Seconds to compare the updates of a group of n: n (n + 1) / 2 pairs, an update with itself included.

    ``effective_speed`` is in FLOP/s; ``slowdown`` says how many times slower than the Xeon of
    `secure_aggregation` one core is. Raises ``ValueError`` for values out of range.
    """
    if parameters < 1:
        raise ValueError(f"parameters must be at least 1, not {parameters}")
    if not (effective_speed > 0 and math.isfinite(effective_speed) and slowdown > 0):
        raise ValueError(f"effective_speed and slowdown must be greater than 0, not {effective_speed} and {slowdown}")
    return of_pair(FLOPS_OF_A_PARAMETER * parameters / effective_speed, CALLS_S * slowdown, parameters)


def of_pair(arithmetic_s: float, calls_s: float, parameters: int) -> Curve:
    """The curve by the seconds of one pair of so many parameters each: its arithmetic, proportional to them, and its calls."""
    half_s, half_of_all_s = arithmetic_s / 2, (arithmetic_s + calls_s) / 2
    part = Terms.model_construct(a=0.0, b=half_s, c=half_s)
    return Curve.model_construct(a=0.0, b=half_of_all_s, c=half_of_all_s, parameters=parameters, proportional=part)
