"""What a trace file holds: series over time, a mix of devices, or the latencies between sites. All in base units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emulator.errors import InputError, quote_all
from emulator.units import RATE, TIME, Dimension
from traces.step import Floats, StepFunction

Quantity = Literal["bandwidth", "latency", "availability", "speed", "carbon"]
Series = tuple[Quantity, str]  # what is measured, and of whom: ("bandwidth", "up"); "" where there is but one

AVAILABILITY = Dimension("availability", "1", {"1": 1.0, "%": 0.01}, "80 %")
CARBON = Dimension("carbon", "g/kWh", {"g/kWh": 1.0, "kg/kWh": 1e3, "kg/MWh": 1.0}, "350 g/kWh")
RELATIVE_SPEED = Dimension("speed", "1", {"1": 1.0, "%": 0.01}, "80 %")

# The unit of a quantity is the base of its dimension: bit/s, seconds one way, a share from 0 (off) to 1 (on), the multiple
# of the speed that the device's profile states, and grams of CO2 for each kWh.
DIMENSIONS: dict[Quantity, Dimension] = {
    "bandwidth": RATE,
    "latency": TIME,
    "availability": AVAILABILITY,
    "speed": RELATIVE_SPEED,
    "carbon": CARBON,
}


@dataclass(frozen=True)
class Trace:
    """Functions of time, in the base units of their quantities (see `DIMENSIONS`).

    Without ``end_stated`` the file does not say what comes after its end; the functions then hold their last value.
    """

    series: Mapping[Series, StepFunction]
    end_stated: bool = True

    def of(self, quantity: Quantity) -> dict[str, StepFunction]:
        """The series of one quantity by name, in the order of the file."""
        return {name: function for (what, name), function in self.series.items() if what == quantity}

    @property
    def open_end_s(self) -> float | None:
        """When the trace ends without a word about what comes then; None where it is said, or where nothing ever changes."""
        last_s = max(function.span_s for function in self.series.values())
        return last_s if not self.end_stated and last_s else None

    def ending(self, end: Literal["repeat", "hold"]) -> Trace:
        """The same trace, which at its end starts over or keeps its last values (see `StepFunction.ending`)."""
        return Trace({series: function.ending(end) for series, function in self.series.items()})

    def get(self, quantity: Quantity, name: str = "") -> StepFunction:
        """The series of this name, or the one without a name, which is for all; raises `InputError` where there is neither."""
        found = self.of(quantity)
        for known in (name, ""):
            if known in found:
                return found[known]
        if not found:
            others = quote_all(dict.fromkeys(what for what, _ in self.series))
            raise InputError(f"the trace has no {quantity}; it has {others}")
        wanted = f"{quantity} '{name[:60]}'" if name else f"{quantity} without a name"
        names = list(found)
        more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
        raise InputError(f"the trace has no {wanted}; it has {quote_all(names[:10])}{more}")


def label(series: Series) -> str:
    """``bandwidth up``."""
    return " ".join(part for part in series if part)


@dataclass(frozen=True)
class DeviceMix:
    """Kinds of devices, or single ones, and how they differ. All arrays have an entry for each name.

    ``shares`` add up to 1. ``relative_speeds`` are multiples of the median device's speed.
    """

    names: tuple[str, ...]
    shares: Floats
    relative_speeds: Floats
    sample_s: Floats | None = None  # seconds that inference takes for one sample
    bandwidth_bps: Floats | None = None


@dataclass(frozen=True)
class LatencyMatrix:
    """``latency_s[i, j]`` seconds from site i to site j, one way; ``filled`` of them were missing and are estimated."""

    latency_s: Floats
    filled: int = 0


Content = Trace | DeviceMix | LatencyMatrix


def weighted_median(values: Floats, weights: Floats) -> float:
    """The smallest value up to which at least half of the weight lies."""
    order = np.argsort(values, kind="stable")
    heaps = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(heaps, heaps[-1] / 2)])
