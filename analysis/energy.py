"""Where the clients' energy goes: by kind of device and by what the device does.

A run's ``energy.csv`` has a row for each client. ``idle_j`` is idle power over the whole run; ``compute_j``, ``send_j`` and
``receive_j`` are what these states draw above it. So the joules add up to the run's energy, whether or not states overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis.quantities import energy_text, time_text
from analysis.runs import Run, unique_labels
from analysis.tabular import check_clients, read_table
from analysis.texttable import TextTable
from emulator.accounting import STATES
from emulator.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

ENERGY = "energy.csv"
TEXTS = ("client", "device")
SECONDS = tuple(f"{state}_s" for state in STATES)
JOULES = tuple(f"{state}_j" for state in STATES)
MANY = 12  # a mix may have hundreds of kinds: in texts, those that draw least are put together


def load_energy(run: Run) -> pd.DataFrame:
    """A run's ``energy.csv``: ``client``, ``device``, `SECONDS` and `JOULES`; raises `InputError` if it is missing or damaged."""
    path = run.folder / ENERGY
    if not path.is_file():
        raise InputError(f"the run in '{run.folder}' has no {ENERGY}: it has not ended yet, or is of an older version")
    table = read_table(path, (*TEXTS, *SECONDS, *JOULES), TEXTS)
    check_clients(path, table["client"])
    return table.astype(dict.fromkeys((*SECONDS, *JOULES), float))


def by_device(runs: Sequence[Run]) -> pd.DataFrame:
    """A row for each run and kind of device: how many clients, and their seconds and joules in each state, added up.

    ``total_j`` is the sum of the joules. The kinds of a run stand in the order of their names. Raises `InputError` as
    `load_energy`, and if there are no runs.
    """
    import pandas as pd

    if not runs:
        raise InputError("give at least one run")
    parts = []
    for run, label in zip(runs, unique_labels(runs), strict=True):
        kinds = load_energy(run).groupby("device", sort=True)
        table = kinds[[*SECONDS, *JOULES]].sum()
        table["total_j"] = table[list(JOULES)].sum(axis=1)
        table.insert(0, "clients", kinds.size())
        table.insert(0, "label", label)
        parts.append(table.reset_index()[["label", "device", *table.columns[1:]]])
    return pd.concat(parts, ignore_index=True)


def as_text(table: pd.DataFrame) -> str:
    """A table of `by_device` for a terminal: of each run the energy, and the mean time of a client."""
    sections = []
    for label, rows in table.groupby("label", sort=False):
        kinds = _shortened(rows)
        head = ("device", "clients")
        sections.append(
            TextTable(
                f"{label}: energy of the clients (idle power all the time; in other states what comes on top)",
                (*head, *STATES, "all"),
                tuple((*_who(row), *(energy_text(row[c]) for c in (*JOULES, "total_j"))) for row in kinds),
                (False, *(True for _ in range(len(JOULES) + 2))),
            ).text()
        )
        sections.append(
            TextTable(
                f"{label}: mean time of a client",
                (*head, *STATES),
                tuple((*_who(row), *(time_text(row[c] / row["clients"]) for c in SECONDS)) for row in kinds),
                (False, *(True for _ in range(len(SECONDS) + 1))),
            ).text()
        )
    return "\n\n".join(sections) + "\n"


def as_csv(table: pd.DataFrame) -> str:
    """A table of `by_device` as CSV, in full precision."""
    return str(table.to_csv(index=False, lineterminator="\n"))


def _shortened(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The kinds, those that draw least as one where there are many, and a row for all of them where there is more than one."""
    ordered = rows.sort_values("total_j", ascending=False, kind="stable") if len(rows) > MANY else rows
    shown = ordered.head(MANY).to_dict("records")
    rest = ordered.iloc[MANY:]
    if len(rest):
        shown.append({"device": f"{len(rest):,} other kinds", **_added(rest)})
    if len(rows) > 1:
        shown.append({"device": "all", **_added(rows)})
    return [{str(key): value for key, value in row.items()} for row in shown]


def _added(rows: pd.DataFrame) -> dict[Any, Any]:
    return rows.drop(columns=["label", "device"]).sum().to_dict()


def _who(row: dict[str, Any]) -> tuple[str, str]:
    return row["device"], f"{row['clients']:,.0f}"
