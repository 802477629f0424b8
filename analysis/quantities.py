"""What runs are measured against (time, bytes, cost, energy, rounds, privacy), and how such quantities are written for people.

Numbers stay in SI units everywhere else; only texts and plot axes take another scale. ``k``, ``M``, ``G`` are
powers of 1000.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from emulator.errors import InputError, quote_all, suggestion
from emulator.measures import ACCURACY
from emulator.priced import CARBON, CURRENCY, MONEY, NO_PRICES

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Unit:
    """A unit of a plot axis; ``size`` is in the unit of the column."""

    name: str
    size: float


@dataclass(frozen=True)
class Axis:
    """Something that accumulates during a run; ``units`` from small to large, or none for a count."""

    name: str
    column: str  # of metrics.csv
    title: str
    units: tuple[Unit, ...] = ()
    unknown: str = "a device has no power figures"  # why a run may not know it

    def check_known(self, metrics: pd.DataFrame, whose: str = "these runs") -> None:
        """Raises `InputError` where a run's evaluations do not all say how much it was."""
        if self.column not in metrics or not metrics[self.column].abs().lt(math.inf).all():
            raise InputError(f"nothing is known of the {self.name} of {whose}: {self.unknown}")

    def unit(self, largest: float) -> Unit:
        """The unit for an axis that reaches ``largest``: the largest of which it holds at least two."""
        if not self.units:
            return Unit("", 1.0)
        return next((u for u in reversed(self.units) if largest >= 2 * u.size), self.units[0])

    def label(self, unit: Unit) -> str:
        """The text beside the axis, with its unit."""
        return f"{self.title} ({unit.name})" if unit.name else self.title


_BYTES = tuple(Unit(name, 1000.0**i) for i, name in enumerate(("B", "kB", "MB", "GB", "TB", "PB")))
_GRAMS = (Unit("mg", 1e-3), Unit("g", 1.0), Unit("kg", 1e3), Unit("t", 1e6))
_JOULES = tuple(Unit(name, 1000.0**i) for i, name in enumerate(("J", "kJ", "MJ", "GJ", "TJ")))

AXES = {
    axis.name: axis
    for axis in (
        Axis("cost", "cost_s", "Cost", (Unit("client-seconds", 1.0), Unit("client-hours", 3600.0))),
        Axis("time", "time_s", "Emulated time", (Unit("s", 1.0), Unit("min", 60.0), Unit("h", 3600.0))),
        Axis("bytes", "bytes_total", "Data over all links", _BYTES),
        Axis("energy", "energy_j", "Energy of the clients", _JOULES),
        Axis("round", "round", "Global round"),
        Axis("money", MONEY, "Money", (Unit("", 1.0),), NO_PRICES),
        Axis("carbon", CARBON, "CO2 of the clients' energy", _GRAMS, NO_PRICES),
        Axis("epsilon", "epsilon", "Privacy spent, ε", (), "a scenario has no 'privacy', or no noise"),
    )
}


def axis_named(name: str) -> Axis:
    """The axis of this name; raises `InputError` if there is none."""
    if name not in AXES:
        raise InputError(f"unknown axis '{name[:60]}'; {suggestion(name, AXES)}")
    return AXES[name]


def axis_in(name: str, metrics: Iterable[pd.DataFrame]) -> Axis:
    """The axis of this name for these evaluations, with their currency. Raises `InputError` as `axis_named` and `currency_of`."""
    axis = axis_named(name)
    return replace(axis, units=(Unit(currency_of(metrics), 1.0),)) if axis.column == MONEY else axis


def currency_of(metrics: Iterable[pd.DataFrame]) -> str:
    """The currency of all of these tables; "" where none says any. Raises `InputError` where there are several."""
    found = {str(each) for table in metrics if CURRENCY in table for each in table[CURRENCY].dropna().unique()}
    if len(found) > 1:
        raise InputError(f"money is in {quote_all(sorted(found))}: apply one price list to all runs with 'hfl prices'")
    return next(iter(found), "")


def charged_in(metrics: Iterable[pd.DataFrame]) -> dict[str, tuple[str, Callable[[float], str]]]:
    """Of money and CO2, what any of these tables has: by its column what it is called, and how it is written."""
    tables = list(metrics)
    amount = partial(money_text, currency=currency_of(tables))
    every: dict[str, tuple[str, Callable[[float], str]]] = {MONEY: ("money", amount), CARBON: ("CO2", carbon_text)}
    return {column: how for column, how in every.items() if any(column in table for table in tables)}


def check_accuracy(value: float) -> float:
    """``value``, if it can be a target accuracy as a share from 0 to 1; raises `InputError` otherwise."""
    return ACCURACY.check(value)


def accuracy_text(share: float) -> str:
    """``0.6127`` as ``61.3 %``."""
    return ACCURACY.text(share)


def time_text(seconds: float) -> str:
    """``42.5 s``, ``5 min 03 s``, ``3 h 05 min``, ``2 d 07 h``."""
    if seconds < 59.95:
        return f"{_three_digits(seconds)} s"
    if (whole := round(seconds)) < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if (minutes := round(seconds / 60)) < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"


def bytes_text(count: float) -> str:
    """``512 B``, ``1.2 GB``: three significant digits."""
    return _scaled(count, _BYTES)


def energy_text(joules: float) -> str:
    """``830 J``, ``4.07 MJ``: three significant digits."""
    return _scaled(joules, _JOULES)


def carbon_text(grams: float) -> str:
    """``16.3 mg``, ``1.2 kg``: three significant digits."""
    return _scaled(grams, _GRAMS)


def money_text(amount: float, currency: str) -> str:
    """``0.00322 USD``: three significant digits, but all before the point."""
    return f"{_three_digits(amount)} {currency}".strip()


def cost_text(client_seconds: float) -> str:
    """``412 client-s``, ``17,676 client-s``: always in one unit, so that costs compare at a glance."""
    return f"{_three_digits(client_seconds)} client-s"


def _scaled(value: float, units: tuple[Unit, ...]) -> str:
    # Below 999.5 nothing rounds to 1000, so there is never a "1000 MB" that should be "1 GB".
    unit = next((u for u in units if abs(value) < 999.5 * u.size), units[-1])
    return f"{_three_digits(value / unit.size)} {unit.name}"


def _three_digits(value: float) -> str:
    """Three significant digits, but all digits before the point; no exponent from 0.0001 up."""
    if not math.isfinite(value) or abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.3g}"
