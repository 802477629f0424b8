"""The ledger: one row for everything that happened on the emulated clock.

A row states facts only: who did what with whom, from when to when, with how many bytes and samples, in which round and
group, and what for. Costs, energy and totals are computed from rows afterwards (`emulator.accounting`, `analysis`).
Rows stand in the order in which they were booked: an activity when it ends, those of several that wait for one another together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from emulator.files import replacing

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

# Kinds of rows.
TRANSFER = "transfer"
COMPUTE = "compute"
GROUP_OPERATION = "group-operation"
EVALUATION = "evaluation"

# How an activity ended: done, or cut off on the way. What was sent and computed until then counts, and was for nothing.
DONE = "done"
BROKEN = "broken"

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
    status: str


class Ledger:
    """Rows in the order in which things ended, and their file.

    With a ``spill`` file, rows beyond a chunk go there, so that a long run does not fill the memory; ``rows`` then holds
    the latest only. ``before_spill`` is called while the rows that are about to leave are still there.
    """

    CHUNK = 200_000

    def __init__(self, spill: Path | None = None) -> None:
        self.rows: list[Row] = []
        self.before_spill: Callable[[], None] = lambda: None
        self._spill = spill
        self._writer: Any = None

    def add(
        self,
        kind: str,
        who: str,
        start_s: float,
        end_s: float,
        tag: Tag,
        peer: str = "",
        size_bytes: int = 0,
        samples: int = 0,
        hop: str = "",
        status: str = DONE,
    ) -> None:
        """Appends a row."""
        place = (tag.round, tag.group, tag.group_round)
        self.rows.append(Row(kind, who, peer, start_s, end_s, size_bytes, samples, tag.what, hop, *place, status))
        if self._spill is not None and len(self.rows) >= self.CHUNK:
            self.before_spill()
            self._write_rows(self._spill)
            self.rows.clear()

    def write(self, path: Path) -> None:
        """Writes all rows, spilled ones included, as Parquet to ``path``, whole or not at all. Ends the ledger."""
        with replacing(path) as aside:
            target = self._spill or aside
            self._write_rows(target)
            self._writer.close()
            if target != aside:
                target.replace(aside)

    def _write_rows(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        text, real, whole = pa.dictionary(pa.int32(), pa.string()), pa.float64(), pa.int64()
        kinds = {"start_s": real, "end_s": real}
        kinds |= dict.fromkeys(("bytes", "samples", "round", "group", "group_round"), whole)
        schema = pa.schema([(name, kinds.get(name, text)) for name in Row._fields])
        columns = list(zip(*self.rows, strict=True)) or [()] * len(Row._fields)
        arrays = [pa.array(column, type=schema.field(i).type) for i, column in enumerate(columns)]
        if self._writer is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def read(path: Path) -> pd.DataFrame:
    """The rows of a ledger file as a data frame with the columns of `Row`."""
    import pandas as pd

    return pd.read_parquet(path)


def batches(path: Path, *columns: str) -> Iterator[pa.RecordBatch]:
    """Columns of a ledger file, some rows at a time."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(Ledger.CHUNK, columns=list(columns))
