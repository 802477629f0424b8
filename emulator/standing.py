"""Where a run stood: when a budget was spent, and over its last rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

# What is spent, and its column in metrics.csv.
SPENT = {
    "rounds": "round", "time": "time_s", "cost": "cost_s", "bytes": "bytes_total", "energy": "energy_j", "money": "money",
    "carbon": "carbon_g", "epsilon": "epsilon",
}  # fmt: skip
EPSILON = SPENT["epsilon"]  # there in runs with privacy alone; elsewhere it is not known

Row = TypeVar("Row", bound=Mapping[str, Any])


def last_within(rows: Iterable[Row], limits: Mapping[str, float]) -> Row | None:
    """The last of a run's evaluations that is within all ``limits`` (see `Budget.limits`); None where there is none.

    Nothing is interpolated: what was tested later had spent more. What is not known (nan) is not within a limit. The model before
    the first round (round 0) does not count.
    """
    found = None
    for row in rows:
        if row["round"] and all(row.get(SPENT[name], math.nan) <= limit for name, limit in limits.items()):
            found = row
    return found


def mean_of_last(rows: Sequence[Mapping[str, Any]], rounds: int, column: str = "accuracy") -> float:
    """The mean of what a run's evaluations within its last ``rounds`` measured; nan where there is none.

    ``column`` names the measure. The model before the first round (round 0) does not count.
    """
    known = [row for row in rows if row["round"] and not math.isnan(row[column])]
    values = [row[column] for row in known if row["round"] > known[-1]["round"] - rounds]
    return math.fsum(values) / len(values) if values else math.nan
