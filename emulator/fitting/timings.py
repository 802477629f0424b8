"""Measured seconds of clients as one table, from the ledger of a run or from a file of somebody's real deployment.

A row is an activity: ``round``, ``client`` (its name), ``phase`` (of `PHASES`), ``start_s``, ``seconds``, ``bytes``, ``samples``
(all epochs counted), ``batch_size`` and ``group_size``; 0 where a column does not apply. Transfers between edges and the cloud
are of the phases `BACKHAUL`; their client is the edge. ``through`` says that a client's transfer went through its edge to or from
the cloud: it was one transfer on both links, and has no row of these phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.errors import InputError, quote_all, suggestion
from emulator.ledger import (
    CLIENT_CLIENT,
    CLIENT_SERVER,
    CLOUD_EDGE,
    COMPUTE,
    DONE,
    EDGE_CLOUD,
    GROUP_OPERATION,
    SERVER_CLIENT,
    TRANSFER,
)
from emulator.scenario.fleet_table import FleetTable, read_timings

if TYPE_CHECKING:
    import pandas as pd

DOWN, TRAIN, GROUP, UP = PHASES = ("down", "train", "group", "up")
BACKHAUL_DOWN, BACKHAUL_UP = BACKHAUL = ("cloud to edge", "edge to cloud")
TRAINING = "training"  # what a ledger calls local training
_PLACE = ("round", "group", "group_round")
_NEEDS = {DOWN: "bytes", UP: "bytes", TRAIN: "samples", GROUP: "group_size"}


def from_ledger(ledger: pd.DataFrame, clients: Sequence[str]) -> pd.DataFrame:
    """What was done, not cut off, and took time. Work on clients' devices that is no local training is left out."""
    import pandas as pd

    rows = ledger.astype(dict.fromkeys(("kind", "who", "peer", "what", "hop", "status"), str))
    rows = rows[(rows["status"] == DONE) & (rows["end_s"] > rows["start_s"])]
    rows = pd.concat(
        [rows[rows["kind"] != GROUP_OPERATION], _whole(rows[rows["kind"] == GROUP_OPERATION])], ignore_index=True
    )
    through = _through(rows)
    sizes = rows.groupby(["kind", "what", "round", "group", "group_round"])["who"].transform("size")
    parts = []
    for phase, chosen, column in (
        (DOWN, (rows["kind"] == TRANSFER) & (rows["hop"] == SERVER_CLIENT), "peer"),
        (TRAIN, (rows["kind"] == COMPUTE) & (rows["what"] == TRAINING) & (rows["samples"] > 0), "who"),
        (GROUP, rows["kind"] == GROUP_OPERATION, "who"),
        (UP, (rows["kind"] == TRANSFER) & (rows["hop"] == CLIENT_SERVER), "who"),
        (BACKHAUL_DOWN, (rows["kind"] == TRANSFER) & (rows["hop"] == CLOUD_EDGE), "peer"),
        (BACKHAUL_UP, (rows["kind"] == TRANSFER) & (rows["hop"] == EDGE_CLOUD), "who"),
    ):
        part = rows[chosen & ((rows[column].isin(clients)) if phase in PHASES else ~through)]
        parts.append(
            pd.DataFrame(
                {
                    "round": part["round"], "client": part[column], "phase": phase, "start_s": part["start_s"],
                    "seconds": part["end_s"] - part["start_s"], "bytes": part["bytes"], "samples": part["samples"],
                    "batch_size": 0, "group_size": sizes[part.index] if phase == GROUP else 0,
                    "through": through[part.index],
                }
            )
        )  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def _through(rows: pd.DataFrame) -> pd.Series[bool]:
    """Which rows are hops of longer ways: transfers between clients and the cloud, or to other clients through servers.

    Such a transfer has a row for each hop, with the same instants.
    """
    import pandas as pd

    edge = rows["who"].where(rows["hop"].isin((SERVER_CLIENT, EDGE_CLOUD)), rows["peer"])
    up = rows["hop"].isin((CLIENT_SERVER, EDGE_CLOUD))
    above = rows["hop"].isin((CLOUD_EDGE, EDGE_CLOUD))
    keys = pd.MultiIndex.from_arrays([edge, up, rows["what"], rows["start_s"], rows["end_s"], rows["bytes"]])
    below = rows["hop"].isin((SERVER_CLIENT, CLIENT_SERVER)).to_numpy()
    whole = pd.MultiIndex.from_arrays([rows["what"], rows["start_s"], rows["end_s"], rows["bytes"]])
    relayed = above.to_numpy() & whole.isin(whole[rows["hop"] == CLIENT_CLIENT])
    both = relayed | (below & keys.isin(keys[above])) | (above.to_numpy() & keys.isin(keys[below]))
    return pd.Series(both, index=rows.index)


def steps(ledger: pd.DataFrame) -> float:
    """In how many rows a member's group operation comes, in the mean; nan where there is none."""
    rows = ledger[ledger["kind"] == GROUP_OPERATION]
    return len(rows) / len(rows.drop_duplicates([*_PLACE, "who", "what"])) if len(rows) else float("nan")


def _whole(rows: pd.DataFrame) -> pd.DataFrame:
    """Group operations whose steps are one: real secure aggregation has several, between which members send messages."""
    key = [*_PLACE, "kind", "who", "what"]
    took_s = (rows["end_s"] - rows["start_s"]).groupby([rows[name] for name in key]).transform("sum")
    first = ~rows.duplicated(key)
    return rows[first].assign(end_s=(rows["start_s"] + took_s)[first])


def from_file(file: Path, clients: Sequence[str]) -> pd.DataFrame:
    """The activities in a file. Raises `InputError` with all that is wrong in it, each with its line and column."""
    import pandas as pd

    table = read_timings(str(file))
    found: dict[str, Any] = {"round": table.numbers["round"].astype(int)}
    problems: list[str] = []
    numbered = {str(number): name for number, name in enumerate(clients)}
    names = [numbered.get(text, text) for text in table.texts["client"]]
    found["client"] = names
    found["phase"] = list(table.texts["phase"])
    found["start_s"] = table.numbers["start"]
    found["seconds"] = table.numbers["end"] - table.numbers["start"]
    for column in ("bytes", "samples", "batch_size", "group_size"):
        values = table.numbers.get(column, np.full(len(table), np.nan))
        found[column] = np.nan_to_num(values).astype(int)
    found["through"] = False
    known = set(clients)
    for row in range(len(table)):
        problems += [f"{table.place(row, column)}: {message}" for column, message in _wrong(table, found, row, known)]
    if problems:
        shown = problems[:20]
        raise InputError("\n".join([*shown, *([f"... and {len(problems) - 20} more"] if len(problems) > 20 else [])]))
    return pd.DataFrame(found)


def _wrong(table: FleetTable, found: dict[str, Any], row: int, known: set[str]) -> list[tuple[str, str]]:
    """What is wrong in a row of a file: columns and messages."""
    phase, client = found["phase"][row], found["client"][row]
    if phase not in PHASES:
        return [("phase", f"unknown phase '{phase[:40]}'; {suggestion(phase, PHASES)}")]
    problems = []
    if client not in known:
        problems.append(("client", f"the scenario has no client '{client[:40]}'; {suggestion(client, sorted(known))}"))
    if not found["seconds"][row] > 0:
        problems.append(("end", "an activity must end after it starts"))
    needed = _NEEDS[phase]
    if not found[needed][row] > 0:
        what = "there is no such column" if needed not in table.numbers else "it is missing or 0"
        problems.append((needed, f"the phase '{phase}' needs it, greater than 0: {what}"))
    return problems


def check_enough(timings: pd.DataFrame, where: Path) -> None:
    """Raises `InputError` where there is nothing to fit to."""
    if timings.empty:
        raise InputError(f"'{where}' has nothing to fit to: no activity of the phases {quote_all(PHASES)} is done")
