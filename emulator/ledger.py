"""The ledger: one row for everything that happened on the emulated clock.

A row states facts only: who did what with whom, from when to when, with how many bytes and samples, in which round and
group, and what for. Costs, energy and totals are computed from rows afterwards (`emulator.accounting`, `analysis`).
Rows stand in the order in which they were booked: an activity when it ends, those of several that wait for one another together.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

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


# How rows are kept: texts as numbers in the ledger's list of texts, in the columns of `Row`.
TEXTS = ("kind", "who", "peer", "what", "hop")
PACKED = np.dtype(
    [(name, "i4" if name in TEXTS else "f8" if name in ("start_s", "end_s") else "i8") for name in Row._fields]
)

Numbers = npt.NDArray[np.int32]  # of texts
Reals = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class Ledger:
    """Rows in the order in which things ended, and their file.

    With a ``spill`` file, rows beyond a chunk go there, so that a long run does not fill the memory; what is kept is
    then the latest only. ``before_spill`` is called while the rows that are about to leave are still there.
    """

    CHUNK = 200_000

    def __init__(self, spill: Path | None = None) -> None:
        self.texts: list[str] = []
        self.before_spill: Callable[[], None] = lambda: None
        self._numbers: dict[str, int] = {}
        self._packed = np.zeros(512, PACKED)
        self._count = self._room = 0  # rows that are there, and that there can be before more room is made
        self._spill = spill
        self._writer: Any = None
        self.number("")  # the empty text is number 0

    @property
    def packed(self) -> np.ndarray:
        """The rows that are kept, as `PACKED`; valid until the next one is added."""
        return self._packed[: self._count]

    @property
    def rows(self) -> list[Row]:
        """The rows that are kept, with their texts."""
        where = [name in TEXTS for name in Row._fields]
        return [
            Row(*(self.texts[v] if text else v for v, text in zip(values, where, strict=True)))
            for values in self.packed.tolist()
        ]

    def number(self, text: str) -> int:
        """The number of a text in `texts`; a new one where it is new."""
        known = self._numbers.get(text)
        if known is None:
            known = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return known

    def numbers(self, texts: Iterable[str]) -> Numbers:
        """The numbers of several texts, for `add_all`."""
        return np.array([self.number(text) for text in texts], np.int32)

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
    ) -> None:
        """Appends a row."""
        known = self._numbers
        try:
            texts = known[kind], known[who], known[peer], known[tag.what], known[hop]
        except KeyError:
            texts = tuple(map(self.number, (kind, who, peer, tag.what, hop)))  # type: ignore[assignment]
        if self._count == self._room:
            self._make_room(1)
        self._packed[self._count] = (
            *texts[:3], start_s, end_s, size_bytes, samples, *texts[3:], tag.round, tag.group, tag.group_round,
        )  # fmt: skip
        self._count += 1

    def add_all(
        self,
        count: int,
        kind: str,
        who: Numbers | int,
        start_s: Reals | float,
        end_s: Reals | float,
        tag: Tag,
        peer: Numbers | int = 0,
        size_bytes: Counts | int = 0,
        samples: Counts | int = 0,
        hop: str = "",
    ) -> None:
        """Appends ``count`` rows that differ in what is given as an array. Texts of nodes are given by their numbers."""
        if self._count + count > self._room:
            self._make_room(count)
        rows, number = self._packed[self._count : self._count + count], self.number
        rows[:] = (
            number(kind), 0, 0, 0.0, 0.0, 0, 0, number(tag.what), number(hop), tag.round, tag.group, tag.group_round,
        )  # fmt: skip
        rows["who"], rows["peer"] = who, peer
        rows["start_s"], rows["end_s"] = start_s, end_s
        rows["bytes"], rows["samples"] = size_bytes, samples
        self._count += count

    def _make_room(self, count: int) -> None:
        """Room for so many more rows. Where they would be more than a chunk, those before them leave first."""
        most = sys.maxsize if self._spill is None else self.CHUNK
        if self._spill is not None and self._count and self._count + count > most:
            self.before_spill()
            self._write_rows(self._spill)
            self._count = 0
        if self._count + count > len(self._packed):
            self._packed = np.concatenate([self.packed, np.zeros(len(self._packed) + count, PACKED)])
        self._room = max(self._count + count, min(len(self._packed), most))

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

        types = {"f8": pa.float64(), "i8": pa.int64(), "i4": pa.dictionary(pa.int32(), pa.string())}
        schema = pa.schema([(name, types[PACKED[name].str[1:]]) for name in Row._fields])
        columns = []
        for name in Row._fields:
            values = np.ascontiguousarray(self.packed[name])
            if name in TEXTS:
                used = np.flatnonzero(np.bincount(values, minlength=len(self.texts)))
                place_of = np.zeros(len(self.texts), np.int32)
                place_of[used] = np.arange(len(used))
                texts = pa.array([self.texts[v] for v in used.tolist()], pa.string())
                columns.append(pa.DictionaryArray.from_arrays(place_of[values], texts))
            else:
                columns.append(pa.array(values))
        if self._writer is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def read(path: Path) -> pd.DataFrame:
    """The rows of a ledger file as a data frame with the columns of `Row`."""
    import pandas as pd

    return pd.read_parquet(path)
