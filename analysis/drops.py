"""By how much runs of a study are less accurate than those that they are compared with: attacked runs than clean ones, say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from emulator.measures import ACCURACY, Measure
from emulator.study.schema import column_named, same_value

if TYPE_CHECKING:
    import pandas as pd

DROP = "accuracy_drop"  # a column of the table of a study that has a baseline


def with_drops(
    table: pd.DataFrame, columns: Sequence[str], baseline: Mapping[str, Any], measure: Measure = ACCURACY
) -> pd.DataFrame:
    """The table of a study with a column `DROP`: by how much a run ends worse than its baseline (of accuracies, shares).

    A run's baseline is the run of the same seed that has the ``baseline``'s values in its columns and the run's own in all others
    of ``columns``. 0 for a baseline itself, nan where there is none.
    """
    wanted = {column_named(name, columns): value for name, value in baseline.items()}
    others = [c for c in (*columns, "seed") if c not in wanted]
    final = table.groupby("run", sort=False).tail(1)
    places = [tuple(row) for row in final[others].itertuples(index=False, name=None)]
    chosen = [all(same_value(v, row[c]) for c, v in wanted.items()) for _, row in final.iterrows()]
    accuracies = (measure.sign * final[measure.name]).to_list()
    clean = {place: float(a) for place, is_one, a in zip(places, chosen, accuracies, strict=True) if is_one}
    drops = {
        run: clean.get(place, math.nan) - float(a)
        for run, place, a in zip(final["run"], places, accuracies, strict=True)
    }
    return table.assign(**{DROP: table["run"].map(drops)})
