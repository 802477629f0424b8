"""A run beside the same run in a changed world: what the same accuracies take in each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from analysis.quantities import accuracy_text, bytes_text, cost_text, energy_text, time_text
from analysis.runs import Run, check_trained
from analysis.tables import NOT_REACHED, first_reach
from analysis.texttable import TextTable

if TYPE_CHECKING:
    import pandas as pd

TARGETS = 5  # accuracies that are compared

_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "time_s": ("time", time_text),
    "bytes_total": ("data", bytes_text),
    "cost_s": ("cost", cost_text),
    "energy_j": ("energy", energy_text),
}


def targets_between(before: Run, after: Run) -> list[float]:
    """A few accuracies, in whole per cent, evenly spread between the start and the best that both runs reach."""
    start = max(float(run.metrics["accuracy"].iloc[0]) for run in (before, after))
    best = min(float(run.metrics["accuracy"].max()) for run in (before, after))
    steps = [start + (best - start) * i / TARGETS for i in range(1, TARGETS + 1)]
    found = [math.floor(100 * step + 1e-9) / 100 for step in steps]
    return sorted({t for t in found if t > 0})


def side_by_side(before: Run, after: Run) -> pd.DataFrame:
    """A row for each accuracy of `targets_between`: round, time, bytes, cost and energy to reach it, before and after.

    Raises `InputError` where a run has no accuracies.
    """
    import pandas as pd

    check_trained((before, after))
    rows = []
    for target in targets_between(before, after):
        row: dict[str, Any] = {"accuracy": target}
        for name, run in (("before", before), ("after", after)):
            reach = first_reach(run.metrics, target)
            for column in ("round", *_COLUMNS):
                row[f"{column}_{name}"] = math.nan if reach is None else float(reach[column])  # type: ignore[literal-required]
        rows.append(row)
    return pd.DataFrame(rows)


def as_text(table: pd.DataFrame) -> str:
    """The table of `side_by_side` for a terminal."""
    rows = []
    for row in table.to_dict("records"):
        cells = [accuracy_text(row["accuracy"])]
        for column, (_, text) in _COLUMNS.items():
            for name in ("before", "after"):
                value = row[f"{column}_{name}"]
                cells.append(NOT_REACHED if math.isnan(value) else text(value))
        rows.append(tuple(cells))
    header = ("accuracy", *(word for title, _ in _COLUMNS.values() for word in (title, "what if")))
    return TextTable("To reach the same accuracies", header, tuple(rows), (True,) * len(header)).text()
