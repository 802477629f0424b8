"""What is measured in every world: columns of ``outcomes.parquet``, what they are called, and how people read their values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from analysis.quantities import bytes_text, cost_text, energy_text, time_text
from emulator.measures import Measure

_AXES: dict[str, tuple[str, str, Callable[[float], str]]] = {  # noun, a verb phrase for verdicts, text of a value
    "time": ("time", "in less time", time_text),
    "bytes": ("data", "with less data", bytes_text),
    "cost": ("cost", "at a lower cost", cost_text),
    "energy": ("energy", "with less energy", energy_text),
    "money": ("money", "for less money", lambda value: f"{value:,.4g}"),
    "carbon": ("carbon", "with less carbon", lambda value: f"{value:,.4g} g"),
}
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Measured:
    """A measure: its ``column``, and the ``axis`` on which it was measured.

    ``of`` is `to` (what reaching a target takes) or `at` (the accuracy on a budget). ``amount`` is the target (in the units
    of ``judged``) or the budget (in the unit of the axis).
    """

    column: str
    of: str
    axis: str
    amount: float
    judged: Measure
    higher: bool

    @property
    def ratios(self) -> bool:
        """Whether values are compared as ratios; accuracies are as differences."""
        return self.of == "to"

    @property
    def title(self) -> str:
        """A short name: ``time to 80 %``, ``accuracy within 1 h 00 min``."""
        if self.of == "to":
            return f"{self._noun} to {self.judged.goal_text(self.amount)}"
        return f"{self.judged.called} within {self._amount}"

    @property
    def deed(self) -> str:
        """What the better one does, for a sentence: ``reaches 80 % accuracy in less time than``."""
        if self.of == "to":
            phrase = _AXES[self.axis][1] if self.axis in _AXES else f"with less {self.axis}"
            return f"reaches {self.judged.goal_text(self.amount)} {self.judged.called} {phrase} than"
        word = "a higher" if self.higher else "a lower"
        return f"has {word} {self.judged.called} within {self._amount} than"

    def relative_text(self, value: float) -> str:
        """How A compares with B: ``0.62``; of accuracies by how much it is better, ``+3.1 points``."""
        return f"{self._relative(value)}{self._points}"

    def span_text(self, middle: float, low: float, high: float) -> str:
        """The same with a range: ``0.62 (0.41–0.98)``, ``+1.20 (-0.20 to +3.10) points``."""
        if math.isnan(middle):
            return UNKNOWN
        between = "–" if self.ratios else " to "
        return f"{self._relative(middle)} ({self._relative(low)}{between}{self._relative(high)}){self._points}"

    @property
    def _points(self) -> str:
        return " points" if self.judged.share and not self.ratios else ""

    def _relative(self, value: float) -> str:
        if math.isnan(value):
            return UNKNOWN
        if math.isinf(value):
            return "∞" if value > 0 else "-∞"
        if self.ratios:
            return f"{value:.3g}"
        return f"{100 * value:+.2f}" if self.judged.share else f"{value:+.3g}"

    @property
    def _noun(self) -> str:
        return _AXES[self.axis][0] if self.axis in _AXES else self.axis

    @property
    def _amount(self) -> str:
        return _AXES[self.axis][2](self.amount) if self.axis in _AXES else f"{self.amount:,.4g}"
