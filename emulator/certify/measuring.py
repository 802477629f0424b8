"""What runs are compared by in a world: what reaching an accuracy takes, and the accuracy on a budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from emulator.errors import InputError
from emulator.measures import Measure
from emulator.standing import last_within

# What is spent: its column in the measurements of a run, its unit, and what stands behind a column's name.
# Money and carbon are there in runs with a price list.
AXES = {
    "time": ("time_s", "s", "_s"), "bytes": ("bytes_total", "B", ""), "cost": ("cost_s", "client-s", "_s"),
    "energy": ("energy_j", "J", "_j"), "money": ("money", "", ""), "carbon": ("carbon_g", "g", "_g"),
}  # fmt: skip

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Compared:
    """Something that runs are compared by. ``goal`` is the target or the budget, in SI units."""

    kind: Literal["to", "at"]
    axis: str
    goal: float
    measure: Measure

    @property
    def column(self) -> str:
        """``time_to_0.8_s``, ``accuracy_at_time_60``."""
        if self.kind == "to":
            return f"{self.axis}_to_{self.goal:g}{AXES[self.axis][2]}"
        return f"{self.measure.name}_at_{self.axis}_{self.goal:g}"

    @property
    def higher(self) -> bool:
        """Whether more of it is better."""
        return self.kind == "at" and self.measure.better == "higher"

    def of(self, rows: Rows) -> float:
        """Its value in a run with these measurements.

        Infinite where a target is never reached; of an accuracy within a budget in which nothing was tested, the worst there is.
        """
        if self.kind == "to":
            column = AXES[self.axis][0]
            reached = (
                row for row in rows if self.measure.reached(float(row.get(self.measure.name, math.nan)), self.goal)
            )
            return next((float(row[column]) for row in reached), math.inf)
        last = last_within(rows, {self.axis: self.goal})
        if last is not None:
            return float(last.get(self.measure.name, math.nan))
        known = any(not math.isnan(row.get(AXES[self.axis][0], math.nan)) for row in rows)
        return -self.measure.sign * math.inf if known else math.nan

    def to_json(self) -> dict[str, Any]:
        """As ``certificate.yaml`` says it."""
        unit = AXES[self.axis][1] if self.kind == "to" else ("share" if self.measure.share else "")
        goal = {"target" if self.kind == "to" else "budget": self.goal}
        better = "higher" if self.higher else "lower"
        judged = {"measure": self.measure.name}
        return {
            "column": self.column,
            "kind": self.kind,
            "axis": self.axis,
            **goal,
            **judged,
            "unit": unit,
            "better": better,
        }


def compared(
    measure: Measure, baselines: Sequence[Rows], targets: Sequence[float], budgets: Mapping[str, float]
) -> tuple[Compared, ...]:
    """What runs are compared by. ``baselines`` are their measurements in the world as it is written.

    Without ``targets``, the target is the best accuracy that all reached there, rounded down to whole per cent; without
    ``budgets``, these are what every run has spent there in the end, to three digits.
    """
    goals = [measure.check(target) for target in targets] or [common_target(measure, baselines)]
    limits = dict(budgets) or common_budgets(baselines)
    known = [
        axis for axis, (column, *_) in AXES.items() if all(math.isfinite(_last(rows, column)) for rows in baselines)
    ]
    if unknown := [axis for axis in limits if axis not in known]:
        raise InputError(f"the runs do not say what they take in {unknown[0]}, so it can be no budget")
    found = [Compared("to", axis, goal, measure) for goal in dict.fromkeys(goals) for axis in known]
    return (*found, *(Compared("at", axis, limit, measure) for axis, limit in limits.items()))


def common_target(measure: Measure, baselines: Sequence[Rows]) -> float:
    """The best accuracy that all runs reached, rounded down to whole per cent; or so of another measure."""
    best = [measure.best(float(row.get(measure.name, math.nan)) for row in rows) for rows in baselines]
    return measure.whole(min(best, key=lambda value: measure.sign * value))


def common_budgets(baselines: Sequence[Rows]) -> dict[str, float]:
    """What every run has spent in the end, to three digits; what is not known is left out."""
    least = {axis: [_last(rows, column) for rows in baselines] for axis, (column, *_) in AXES.items()}
    return {
        axis: float(f"{min(all_):.3g}") for axis, all_ in least.items() if all(math.isfinite(v) and v > 0 for v in all_)
    }


def _last(rows: Rows, column: str) -> float:
    """What a run has spent in the end; nan where that is not known."""
    return float(rows[-1].get(column, math.nan))
