"""The ledger: one row for everything that happened on the emulated clock.

A row states facts only: who did what with whom, from when to when, with how many bytes and samples, in which round and
group, and what for. Costs, energy and totals are computed from rows afterwards (`emulator.accounting`, `analysis`).
Rows stand in the order in which they were booked: an activity when it ends, those of several that wait for one another together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from emulator.files import naming, replacing
from emulator.hops import CLIENT_CLIENT as CLIENT_CLIENT
from emulator.hops import CLIENT_SERVER as CLIENT_SERVER
from emulator.hops import CLOUD_EDGE as CLOUD_EDGE
from emulator.hops import EDGE_CLOUD as EDGE_CLOUD
from emulator.hops import HOPS as HOPS
from emulator.hops import SERVER_CLIENT as SERVER_CLIENT
from emulator.hops import bytes_column as bytes_column

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


class Tag(NamedTuple):
    """What an activity belongs to. ``round`` counts global rounds from 1 (0: before the first); -1 means none."""

    what: str
    round: int = 0
    group: int = -1
    group_round: int = -1

    def with_purpose(self, what: str) -> Tag:
        """The same place in the run, for another purpose."""
        return Tag(what, self.round, self.group, self.group_round)


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


# How rows are kept: in the columns of `Row`, texts as numbers in the ledger's list of texts.
TEXTS = ("kind", "who", "peer", "what", "hop", "status")
MANY = ("who", "peer", "start_s", "end_s", "bytes", "samples")  # in which rows that come together may differ
PACKED = np.dtype(
    [(name, "i4" if name in TEXTS else "f8" if name in ("start_s", "end_s") else "i8") for name in Row._fields]
)

Numbers = npt.NDArray[np.int32]  # of texts
Reals = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class Ledger:
    """Rows in the order in which things ended, and their file.

    With a ``spill`` file, rows beyond a chunk go there, so that a long run does not fill the memory; what is kept is
    then the latest only. A chunk has about as many rows as there are names of nodes: the memory of a run depends on its fleet,
    not on how long it lasts. ``before_spill`` is called while the rows that are about to leave are still there.
    """

    CHUNK = 200_000  # rows of a chunk, at most
    AT_ONCE = 8192  # rows that are packed together, and those of a chunk at least
    KEPT: Sequence[str] = Row._fields  # columns; what does without some of them may save the time

    def __init__(self, spill: Path | None = None) -> None:
        self.texts: list[str] = []
        self.before_spill: Callable[[], None] = lambda: None
        self._numbers: dict[str, int] = {}
        self._new: list[tuple[Any, ...]] = []  # not packed yet: how many rows, and their values in the order of `Row`
        self._new_rows = 0
        self._packed = np.zeros(512, PACKED)
        self._count = 0
        self._spill = spill
        self._writer: Any = None
        self.number("")  # the empty text is number 0

    @property
    def packed(self) -> np.ndarray:
        """The rows that are kept, as `PACKED`; valid until the next one is added."""
        self._pack()
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
        status: str = DONE,
    ) -> None:
        """Appends a row."""
        self.add_all(1, kind, who, start_s, end_s, tag, peer, size_bytes, samples, hop, status)

    def add_all(
        self,
        count: int,
        kind: str,
        who: Numbers | str,
        start_s: Reals | float,
        end_s: Reals | float,
        tag: Tag,
        peer: Numbers | str = "",
        size_bytes: Counts | int = 0,
        samples: Counts | int = 0,
        hop: str = "",
        status: str = DONE,
    ) -> None:
        """Appends ``count`` rows that differ in what is given as an array: of several nodes, the `numbers` of their names."""
        place = (tag.round, tag.group, tag.group_round)
        self._new.append((count, kind, who, peer, start_s, end_s, size_bytes, samples, tag.what, hop, *place, status))
        self._new_rows += count
        if self._new_rows >= self.AT_ONCE or (self._spill is not None and self._new_rows >= self.CHUNK):
            self._pack()

    def _pack(self) -> None:
        """Packs the rows that are new. Where they would be more than a chunk, those before them leave first."""
        if not self._new:
            return
        new, total = self._new, self._new_rows
        self._new, self._new_rows = [], 0
        chunk = min(self.CHUNK, max(self.AT_ONCE, 2 * len(self.texts)))
        if self._spill is not None and self._count and self._count + total > chunk:
            self.before_spill()
            self._write_rows(self._spill)
            self._count = 0
        if self._count + total > len(self._packed):
            self._packed = np.concatenate([self._packed[: self._count], np.zeros(len(self._packed) + total, PACKED)])
        rows = self._packed[self._count : self._count + total]
        self._count += total
        counts, *columns = zip(*new, strict=True)
        ends = list(itertools.accumulate(counts))
        for name, values in zip(Row._fields, columns, strict=True):
            if name not in self.KEPT:
                continue
            arrays = [i for i, v in enumerate(values) if type(v) is np.ndarray] if name in MANY else []
            alone: Sequence[Any] = values
            if arrays:
                alone = [("" if name in TEXTS else 0) if type(v) is np.ndarray else v for v in values]
            if name in TEXTS:
                for text in dict.fromkeys(alone):  # in their order: a set would have another in every process
                    self.number(text)
                alone = [self._numbers[text] for text in alone]
            column = rows[name]
            column[:] = alone if total == len(new) else np.repeat(np.array(alone, PACKED[name]), counts)
            for i in arrays:
                column[ends[i] - counts[i] : ends[i]] = values[i]

    def write(self, path: Path) -> None:
        """Writes all rows, spilled ones included, as Parquet to ``path``, whole or not at all. Ends the ledger."""
        with replacing(path) as aside:
            target = self._spill or aside
            self._pack()
            self._write_rows(target)
            self._writer.close()
            if target != aside:
                target.replace(aside)

    def _write_rows(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        types = {"f8": pa.float64(), "i8": pa.int64(), "i4": pa.dictionary(pa.int32(), pa.string())}
        schema = pa.schema([(name, types[PACKED[name].str[1:]]) for name in Row._fields])
        packed = self._packed[: self._count]
        columns = [self._column(packed[name], name in TEXTS) for name in Row._fields]
        with naming(path):
            if self._writer is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._writer = pq.ParquetWriter(
                    path.absolute(), schema, compression="zstd"
                )  # a relative a:b looks like a URI
            self._writer.write_table(pa.Table.from_arrays(columns, schema=schema))

    def _column(self, values: np.ndarray, are_texts: bool) -> Any:
        import pyarrow as pa

        if not are_texts:
            return number_column(values)
        used = np.flatnonzero(np.bincount(values, minlength=len(self.texts)))
        places = np.zeros(len(self.texts), np.int32)
        places[used] = np.arange(len(used))
        words = text_column([self.texts[number] for number in used.tolist()])
        return pa.DictionaryArray.from_arrays(number_column(places[values]), words)


# Columns are made from their bytes and read so: pyarrow's own ways import pandas, which takes as long as a small run.


def number_column(values: np.ndarray) -> Any:
    """Numbers as an array of pyarrow."""
    import pyarrow as pa

    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values.tobytes())])


def numbers_of(column: Any) -> np.ndarray:
    """The numbers in an array of pyarrow without gaps, such as a column of `batches`."""
    kind = {"double": np.float64, "int64": np.int64, "int32": np.int32}[str(column.type)]
    return np.frombuffer(column.buffers()[1], kind)[column.offset : column.offset + len(column)]


def text_column(texts: Sequence[str]) -> Any:
    """Texts as an array of pyarrow."""
    import pyarrow as pa

    words = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, words)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(words), pa.py_buffer(ends), pa.py_buffer(b"".join(words)))


def read(path: Path) -> pd.DataFrame:
    """The rows of a ledger file as a data frame with the columns of `Row`."""
    import pandas as pd

    return pd.read_parquet(path.absolute())


def batches(path: Path, *columns: str) -> Iterator[pa.RecordBatch]:
    """Columns of a ledger file, some rows at a time."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path.absolute()) as file:
        yield from file.iter_batches(Ledger.CHUNK, columns=list(columns))
