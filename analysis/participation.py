"""How often clients trained, and how evenly; how stale updates were when they came to an asynchronous server."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from analysis.runs import SELECTIONS, Run
from emulator.errors import InputError
from emulator.ledger import COMPUTE, DONE

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

OFTEN = 0.95  # the quantile of staleness that tables name
FIGURES = ("jain", "least", "median", "most", "never")
STALENESS = ("staleness_mean", "staleness_p95", "staleness_max", "dropped")


def trainings(run: Run) -> pd.DataFrame:
    """A row for each client of the fleet: its ``client`` (number), ``device`` and ``trainings``, local ones that it ended.

    Where the method notes whom it chooses there is also ``passed_over``: how often a client was there and not chosen. Raises
    `InputError` where the run has no ledger or no energy.csv, or no client trained.
    """
    import pandas as pd

    energy, ledger = run.energy, run.ledger
    rows = ledger[(ledger["kind"] == COMPUTE) & ledger["what"].str.startswith("training") & (ledger["status"] == DONE)]
    counts = rows["who"].astype(str).value_counts().reindex(energy["client"], fill_value=0).to_numpy(dtype=np.int64)
    if not counts.any():
        raise InputError(f"no client trained in the run in '{run.folder}'")
    table = pd.DataFrame({"client": np.arange(len(counts)), "device": energy["device"], "trainings": counts})
    if (run.folder / SELECTIONS).is_file():
        left = run.selections[run.selections["chosen"] == 0]["client"]
        table["passed_over"] = left.value_counts().reindex(table["client"], fill_value=0).to_numpy(dtype=np.int64)
    return table


def jain(counts: NDArray[np.int64]) -> float:
    """Jain's fairness index (Σx)² / (n Σx²): 1 where all have the same, 1/n where one has everything; nan of nothing.

    R. Jain, D. Chiu and W. Hawe, *A Quantitative Measure of Fairness and Discrimination*, DEC-TR-301, 1984.
    """
    given = np.asarray(counts, dtype=float)
    squares = float((given**2).sum())
    return float(given.sum() ** 2 / (len(given) * squares)) if squares else math.nan


def figures(run: Run) -> dict[str, float]:
    """`FIGURES` of a run, and `STALENESS` where updates came to it one by one.

    ``jain`` is `jain` of the trainings by client; ``least``, ``median`` and ``most`` are trainings of a client, ``never`` the
    share of clients that never trained. Staleness counts versions, over all updates that arrived; ``dropped`` is the share of
    these that were too stale to be used. Raises `InputError` as `trainings`.
    """
    counts = trainings(run)["trainings"].to_numpy(dtype=np.int64)
    found = {
        "jain": jain(counts), "least": float(counts.min()), "median": float(np.median(counts)), "most": float(counts.max()),
        "never": float((counts == 0).mean()),
    }  # fmt: skip
    if run.has_arrivals:
        stale = run.arrivals["staleness"]
        values = (stale.mean(), stale.quantile(OFTEN), stale.max(), (run.arrivals["used"] == 0).mean())
        found |= dict(zip(STALENESS, map(float, values), strict=True))
    return found
