"""What clients do while a run lasts: compute, operate, send, receive, or wait; worked out from the rows of its ledger.

Every instant of a client counts once. Where it does two things at a time, what stands first in `KINDS` counts. It *waits* while
it does nothing in a round that it takes part in, from the first to the last activity of that round in the whole fleet; what comes
before the first round counts as a round. So the parts of a client add up to the length of its rounds. Compute and group
operations add up to the cost of S2 Eq. 5, as metrics.csv has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.runs import Run
from emulator.accounting import disjoint_spans
from emulator.errors import InputError
from emulator.ledger import (
    BROKEN,
    CLIENT_CLIENT,
    CLIENT_SERVER,
    COMPUTE,
    EVALUATION,
    GROUP_OPERATION,
    SERVER_CLIENT,
    TRANSFER,
)

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

KINDS = ("compute", "group operation", "client to client", "up", "down")
WAITING = "waiting"
PARTS = (*KINDS, WAITING)
TITLES = {
    "compute": "compute", "group operation": "group operation", "client to client": "client to client",
    "up": "up (client to server)", "down": "down (server to client)", WAITING: "waiting",
}  # fmt: skip
COLUMNS = {part: f"{part.replace(' ', '_')}_s" for part in PARTS}

# Of each kind: which rows, and in which columns its clients stand.
_ROWS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("compute", COMPUTE, "", ("who",)),
    ("group operation", GROUP_OPERATION, "", ("who",)),
    ("client to client", TRANSFER, CLIENT_CLIENT, ("who", "peer")),
    ("up", TRANSFER, CLIENT_SERVER, ("who",)),
    ("down", TRANSFER, SERVER_CLIENT, ("peer",)),
)


def client_spans(run: Run) -> pd.DataFrame:
    """A row for everything that a client did: ``client`` (its number), ``kind`` (of `KINDS`), ``start_s``, ``end_s``, ``broken``,
    ``round``, ``group`` and ``group_round``.

    A transfer between clients has a row for each of them. Raises `InputError` where the run has no ledger, or nothing in it.
    """
    import pandas as pd

    ledger = run.ledger
    kept = ["start_s", "end_s", "round", "group", "group_round"]
    parts = []
    for kind, row_kind, hop, columns in _ROWS:
        rows = ledger[(ledger["kind"] == row_kind) & (ledger["hop"] == hop)]
        for column in columns:
            numbers = client_numbers(rows[column])
            part = rows.loc[numbers >= 0, kept].assign(broken=(rows["status"] == BROKEN)[numbers >= 0])
            part.insert(0, "kind", kind)
            part.insert(0, "client", numbers[numbers >= 0])
            parts.append(part)
    table = pd.concat(parts, ignore_index=True)
    if table.empty:
        raise InputError(f"no client did anything in the run in '{run.folder}'")
    return table


def client_numbers(names: pd.Series[Any]) -> NDArray[np.int64]:
    """The numbers of clients by their names (``client-17``); -1 for other nodes."""
    texts = names.astype("category")
    known = [int(n.removeprefix("client-")) if n.startswith("client-") else -1 for n in texts.cat.categories]
    codes = texts.cat.codes.to_numpy(dtype=np.int64)
    return np.append(np.array(known, dtype=np.int64), -1)[codes]


def divided(
    whose: NDArray[np.int64], spans: pd.DataFrame, present: tuple[NDArray[np.int64], Floats, Floats], count: int
) -> dict[str, Floats]:
    """Seconds of each part (`PARTS`) by whose they are, from 0 to ``count`` - 1.

    ``whose`` are the owners of the rows of ``spans``; ``present`` are owners, starts and ends of the time that is to be divided.
    """
    start_s, end_s = spans["start_s"].to_numpy(dtype=float), spans["end_s"].to_numpy(dtype=float)
    kinds = spans["kind"].to_numpy()
    busy: list[Any] = []
    before: Floats = np.zeros(count)
    seconds: dict[str, Floats] = {}
    for part in PARTS:
        if part == WAITING:
            busy.append(present)
        else:
            mine = kinds == part
            busy.append((whose[mine], start_s[mine], end_s[mine]))
        busy = [disjoint_spans(busy)]
        owners, starts, ends = busy[0]
        now: Floats = np.bincount(owners, ends - starts, count).astype(float)
        seconds[part] = np.maximum(0.0, now - before)
        before = now
    return seconds


def by_client(run: Run) -> pd.DataFrame:
    """A row for each client that took part: its number, its seconds in each part (the values of `COLUMNS`) and its rounds."""
    import pandas as pd

    spans = client_spans(run)
    clients, whose = np.unique(spans["client"].to_numpy(dtype=np.int64), return_inverse=True)
    taken = pd.DataFrame({"whose": whose, "round": spans["round"]}).drop_duplicates().join(round_spans(run), on="round")
    starts, ends = (taken[c].to_numpy(dtype=float) for c in ("start_s", "end_s"))
    seconds = divided(whose, spans, (taken["whose"].to_numpy(dtype=np.int64), starts, ends), len(clients))
    rounds = taken[taken["round"] > 0].groupby("whose").size().reindex(range(len(clients)), fill_value=0)
    return pd.DataFrame(
        {"client": clients, **{COLUMNS[p]: seconds[p] for p in PARTS}, "rounds": rounds.to_numpy(dtype=np.int64)}
    )


def by_round(run: Run) -> pd.DataFrame:
    """A row for each client and round that it took part in: ``client``, ``round``, and its seconds in each part (`COLUMNS`).

    Each round is divided by itself, from the first to the last activity in it of the whole fleet.
    """
    spans = client_spans(run)
    taken = spans[["client", "round"]].drop_duplicates(ignore_index=True)
    whose = spans.merge(taken.reset_index(names="whose"), on=["client", "round"], how="left")["whose"]
    lasted = taken.join(round_spans(run), on="round")
    present = (np.arange(len(taken)), lasted["start_s"].to_numpy(dtype=float), lasted["end_s"].to_numpy(dtype=float))
    seconds = divided(whose.to_numpy(dtype=np.int64), spans, present, len(taken))
    return taken.assign(**{COLUMNS[part]: seconds[part] for part in PARTS})


def round_spans(run: Run) -> pd.DataFrame:
    """``start_s`` and ``end_s`` by round: its first and its last activity, of servers too; evaluations are none."""
    everything = run.ledger[run.ledger["kind"] != EVALUATION]
    return everything.groupby("round").agg(start_s=("start_s", "min"), end_s=("end_s", "max"))


def totals(run: Run) -> dict[str, float]:
    """Client-seconds of each part (`PARTS`) over the whole run."""
    table = by_client(run)
    return {part: float(table[COLUMNS[part]].sum()) for part in PARTS}


def stragglers(run: Run) -> pd.DataFrame:
    """A row for each client: its mean seconds in each part *of a group round*, from the quickest to the slowest.

    A group round lasts from the first to the last activity of a group's members in it; what a member does not use of it is
    waiting. ``own_s`` is what it was busy, ``turns`` how many group rounds it took part in, ``slowest`` in how many of these it
    was busy longest of all members (of several, all), ``device`` its kind (empty where energy.csv is missing). What comes before
    the first round is left out. Raises `InputError` as `client_spans`, and where there is no round.
    """

    spans = client_spans(run)
    spans = spans[spans["round"] > 0].reset_index(drop=True)
    if spans.empty:
        raise InputError(f"the run in '{run.folder}' has no round")
    turn = ["round", "group", "group_round"]
    turns = spans.groupby(turn, sort=True).agg(start_s=("start_s", "min"), end_s=("end_s", "max"))
    members = spans[["client", *turn]].drop_duplicates(ignore_index=True)
    whose = spans.merge(members.reset_index(names="whose"), on=["client", *turn], how="left")["whose"]
    lasted = members.join(turns, on=turn)
    present = (np.arange(len(members)), lasted["start_s"].to_numpy(dtype=float), lasted["end_s"].to_numpy(dtype=float))
    seconds = divided(whose.to_numpy(dtype=np.int64), spans, present, len(members))
    for part in PARTS:
        members[COLUMNS[part]] = seconds[part]
    members["own_s"] = members[[COLUMNS[k] for k in KINDS]].sum(axis=1)
    longest = members.groupby(turn)["own_s"].transform("max")
    members["slowest"] = members["own_s"] >= longest * (1 - 1e-9)
    columns = [*COLUMNS.values(), "own_s"]
    table = members.groupby("client")[columns].mean()
    table["turns"] = members.groupby("client").size()
    table["slowest"] = members.groupby("client")["slowest"].sum()
    table = table.reset_index()
    devices = _devices(run)
    table.insert(1, "device", [devices.get(c, "") for c in table["client"]])
    return table.sort_values(["own_s", "client"], ignore_index=True)


def _devices(run: Run) -> Mapping[int, str]:
    """The kinds of devices of a run's clients by number; nothing where no file says it."""
    if not (run.folder / "energy.csv").is_file():
        return {}
    return dict(zip(client_numbers(run.energy["client"]).tolist(), run.energy["device"], strict=True))
