"""A run beside the same run in a changed world: what the same accuracies take in each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from analysis.quantities import bytes_text, charged_in, cost_text, currency_of, energy_text, time_text
from analysis.runs import Run, check_trained, measure_of
from analysis.tables import NOT_REACHED, UNKNOWN, first_reach
from analysis.texttable import TextTable
from emulator.measures import ACCURACY, Measure
from emulator.priced import CURRENCY

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
    runs, measure = (before, after), measure_of((before, after))
    start = measure.best(float(run.judged.iloc[0]) for run in runs)
    best = measure.sign * min(measure.sign * measure.best(run.judged) for run in runs)
    steps = [start + (best - start) * i / TARGETS for i in range(1, TARGETS + 1)]
    found = {measure.whole(step) for step in steps}
    return sorted({t for t in found if t > 0 or not measure.share}, key=lambda t: measure.sign * t)


def side_by_side(before: Run, after: Run) -> pd.DataFrame:
    """A row for each accuracy of `targets_between`: round, time, bytes, cost and energy to reach it, before and after.

    Raises `InputError` where a run has no accuracies.
    """
    import pandas as pd

    check_trained((before, after))
    columns = (*_COLUMNS, *charged_in(run.metrics for run in (before, after)))
    rows = []
    for target in targets_between(before, after):
        row: dict[str, Any] = {before.measure.name: target}
        for name, run in (("before", before), ("after", after)):
            reach = first_reach(run.metrics, target, run.measure)
            for column in ("round", *columns):
                row[f"{column}_{name}"] = math.nan if reach is None else float(reach.get(column, math.nan))  # type: ignore[arg-type]
        rows.append(row)
    known = {CURRENCY: currency} if (currency := currency_of(run.metrics for run in (before, after))) else {}
    return pd.DataFrame(rows).assign(**known)


def as_text(table: pd.DataFrame, measure: Measure = ACCURACY) -> str:
    """The table of `side_by_side` for a terminal."""
    rows = []
    columns = _COLUMNS | charged_in([table.rename(columns=lambda name: name.removesuffix("_before"))])
    for row in table.to_dict("records"):
        cells = [measure.text(row[measure.name])]
        for column, (_, text) in columns.items():
            for name in ("before", "after"):
                value = row[f"{column}_{name}"]
                reached = not math.isnan(row[f"round_{name}"])
                cells.append(text(value) if value == value else UNKNOWN if reached else NOT_REACHED)
        rows.append(tuple(cells))
    title = "To reach the same accuracies" if measure == ACCURACY else f"To reach the same {measure.called}"
    header = (measure.called, *(word for title, _ in columns.values() for word in (title, "what if")))
    return TextTable(title, header, tuple(rows), (True,) * len(header)).text()
