"""How sure a share of worlds is, with both sources of chance counted: which worlds were drawn, and which seeds were trained.

**Worlds.** The share of drawn worlds estimates the share of all worlds that the distributions allow. Its interval is Clopper
and Pearson's (*The use of confidence or fiducial limits illustrated in the case of the binomial*, Biometrika 26, 1934): exact
for independent draws, and honest at 0 and 1, where 200 worlds of 200 give 98.2 to 100 %. Points of Sobol and of Latin
hypercubes fill space more evenly than chance, which the interval does not count in its favour: it is rather too wide.

**Seeds.** All worlds replay the same few trainings, so an unlucky seed tilts all worlds at once and more worlds do not help.
In each world the seeds say by Student's t (n - 1 degrees of freedom, so few seeds widen much) whether one method is better on
the mean or nothing is decided. The share of worlds decided for A is the lower end of the seeds' interval, and one minus the
share decided for B the upper end: seeds move all worlds together, so the worlds whose sign the interval of their mean leaves
open are those that another set of seeds could turn over.

**Together.** The two are independent, and are combined by squares on each side (the method of variance estimates recovery;
Zou and Donner, *Construction of confidence limits about effect measures: a general approach*, Statistics in Medicine 27,
2008).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from analysis.seeds import CONFIDENCE


@dataclass(frozen=True)
class Interval:
    """A figure with the ends of its 95 % interval; nan where there is none."""

    value: float
    low: float
    high: float


def share(found: int, of: int) -> Interval:
    """A share of worlds, with the interval that counts which worlds were drawn; all is nan of no worlds."""
    from scipy.special import betaincinv

    if not of:
        return Interval(math.nan, math.nan, math.nan)
    tail = (1 - CONFIDENCE) / 2
    low = float(betaincinv(found, of - found + 1, tail)) if found else 0.0
    high = float(betaincinv(found + 1, of - found, 1 - tail)) if found < of else 1.0
    return Interval(found / of, low, high)


def with_seeds(worlds: Interval, least: float, most: float) -> Interval:
    """The interval that counts seeds too: ``least`` and ``most`` are the shares of worlds that other seeds could give."""
    p = worlds.value
    low = p - math.hypot(p - worlds.low, max(0.0, p - least))
    high = p + math.hypot(worlds.high - p, max(0.0, most - p))
    return Interval(p, max(0.0, low), min(1.0, high))
