"""The ledger: one row for everything that happened on the emulated clock.

A row states facts only: who did what with whom, from when to when, with how many bytes and samples, in which round and
group, and what for. Costs, energy and totals are computed from rows afterwards (`emulator.accounting`, `analysis`).
Rows stand in the order in which things ended.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from emulator.files import replacing

if TYPE_CHECKING:
    import pandas as pd

# Kinds of rows.
TRANSFER = "transfer"
COMPUTE = "compute"
GROUP_OPERATION = "group-operation"
EVALUATION = "evaluation"

# Kinds of hops: which pair of neighbours a transfer row connects. A "server" is whoever stands right above the client.
SERVER_CLIENT = "server-client"
CLIENT_SERVER = "client-server"
CLIENT_CLIENT = "client-client"
CLOUD_EDGE = "cloud-edge"
EDGE_CLOUD = "edge-cloud"
HOPS = (SERVER_CLIENT, CLIENT_SERVER, CLIENT_CLIENT, CLOUD_EDGE, EDGE_CLOUD)


@dataclass(frozen=True)
class Tag:
    """What an activity belongs to. ``round`` counts global rounds from 1 (0: before the first); -1 means none."""

    what: str
    round: int = 0
    group: int = -1
    group_round: int = -1

    def but(self, what: str) -> Tag:
        """The same place in the run, for another purpose."""
        return dataclasses.replace(self, what=what)


class Row(NamedTuple):
    """One row. Times are emulated seconds; ``hop`` is empty for anything but a transfer."""

    kind: str
    who: str
    peer: str
    start_s: float
    end_s: float
    bytes: int
    samples: int
    what: str
    hop: str
    round: int
    group: int
    group_round: int


class Ledger:
    """Rows in memory, and their file."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(
        self, kind: str, who: str, start_s: float, end_s: float, tag: Tag,
        peer: str = "", size_bytes: int = 0, samples: int = 0, hop: str = "",
    ) -> None:  # fmt: skip
        """Appends a row."""
        self.rows.append(
            Row(
                kind,
                who,
                peer,
                start_s,
                end_s,
                size_bytes,
                samples,
                tag.what,
                hop,
                tag.round,
                tag.group,
                tag.group_round,
            )
        )

    def write(self, path: Path) -> None:
        """Writes all rows as Parquet to ``path``, whole or not at all."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        text, real, whole = pa.dictionary(pa.int32(), pa.string()), pa.float64(), pa.int64()
        types = {str: text, float: real, int: whole}
        kinds = {"start_s": float, "end_s": float} | dict.fromkeys(
            ("bytes", "samples", "round", "group", "group_round"), int
        )
        columns = list(zip(*self.rows, strict=True)) or [()] * len(Row._fields)
        arrays = [pa.array(c, type=types[kinds.get(n, str)]) for n, c in zip(Row._fields, columns, strict=True)]
        with replacing(path) as aside:
            pq.write_table(pa.Table.from_arrays(arrays, names=list(Row._fields)), aside, compression="zstd")


def read(path: Path) -> pd.DataFrame:
    """The rows of a ledger file as a data frame with the columns of `Row`."""
    import pandas as pd

    return pd.read_parquet(path)
