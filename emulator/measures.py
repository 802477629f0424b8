"""What tells how good a model is: measures, the names of their columns, and whether high or low values are better."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from emulator.errors import InputError


@dataclass(frozen=True)
class Measure:
    """A measure of models: the name of its column in ``metrics.csv``, and which values are better.

    ``share``: it is a share from 0 to 1 and written in per cent. ``title`` is what people call it, by default its name.
    """

    name: str
    better: Literal["higher", "lower"] = "higher"
    share: bool = False
    title: str = ""

    @property
    def called(self) -> str:
        """What people call it."""
        return self.title or self.name

    @property
    def heading(self) -> str:
        """As `called`, at the beginning of a line."""
        return self.called[:1].upper() + self.called[1:]

    @property
    def sign(self) -> float:
        """1 where higher is better, else -1: times this, more is better."""
        return 1.0 if self.better == "higher" else -1.0

    @property
    def factor(self) -> float:
        """From a value to what stands on an axis: 100 for per cent, else 1."""
        return 100.0 if self.share else 1.0

    def axis(self, title: str = "") -> str:
        """The title of an axis: "Accuracy (%)"."""
        return (title or self.heading) + (" (%)" if self.share else "")

    def text(self, value: float) -> str:
        """A value for people: ``61.3 %``, ``43.27``."""
        return f"{100 * value:.1f} %" if self.share else f"{value:.4g}"

    def brief(self, value: float) -> str:
        """As `text`, where room is short: ``61.3%``."""
        return f"{value:.1%}" if self.share else self.text(value)

    def goal_text(self, value: float) -> str:
        """A target for people: ``60 %``, ``43.5``."""
        return f"{100 * value:.4g} %" if self.share else f"{value:.4g}"

    def best(self, values: Iterable[float]) -> float:
        """The best of values that are known; nan where none is."""
        known = [value for value in values if not math.isnan(value)]
        return (max if self.better == "higher" else min)(known, default=math.nan)

    def reached(self, value: float, goal: float) -> bool:
        """Whether a value is as good as a goal, or better; nan is not."""
        return value >= goal if self.better == "higher" else value <= goal

    def check(self, goal: float) -> float:
        """A goal, if it can be one; raises `InputError` otherwise."""
        if self.share and not 0 <= goal <= 1:
            advice = f"; for {goal:g} per cent write {goal / 100:g}" if 1 < goal <= 100 else ""
            raise InputError(f"a target {self.called} is a share from 0 to 1, not {goal:g}{advice}")
        if not math.isfinite(goal):
            raise InputError(f"a target {self.called} is a number, not {goal:g}")
        return goal

    def whole(self, value: float) -> float:
        """A round goal that is no better than a value: whole per cent of a share, else three digits."""
        if not math.isfinite(value) or not value:
            return value
        # The slack keeps 0.29, whose hundredfold is a hair under 29, at 29 per cent.
        digits = 2 if self.share else 2 - math.floor(math.log10(abs(value)))
        scaled = self.sign * value * 10.0**digits
        return self.sign * math.floor(scaled + 1e-9) / 10.0**digits

    def named(self, column: str) -> str:
        """A column of results: where it is about what a run is judged by, this measure takes the place of the accuracy."""
        return column.replace(ACCURACY.name, self.name) if _JUDGED.match(column) else column

    @property
    def picture(self) -> str:
        """The file in a run folder in which it is drawn."""
        return f"{ACCURACY.name}.png" if self.name == ACCURACY.name else "measure.png"

    def to_json(self) -> dict[str, Any]:
        """As run folders say it."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Any) -> Measure:
        """The measure that a run folder names; the accuracy where it names none."""
        return cls(**found) if isinstance(found, dict) else ACCURACY


_JUDGED = re.compile("(final|best|target)_accuracy|accuracy_(last_rounds|drop|at_)")
ACCURACY = Measure("accuracy", share=True)
