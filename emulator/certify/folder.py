"""The folder of a certificate: what was asked, parts that are done, and the tables that are made of them.

Outcomes are written in parts of a few worlds, each whole or not at all, and put together part by part in the end. So memory does
not grow with the number of worlds, and a certificate that was cut off goes on and ends as if nobody had cut it off.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator import yamlfile
from emulator.certify.measuring import Compared
from emulator.certify.order import Answers, Row
from emulator.errors import InputError
from emulator.files import read_json, replacing, write_json, write_text

if TYPE_CHECKING:
    import pyarrow as pa

CERTIFICATE, WORLDS, OUTCOMES, BASELINE = "certificate.yaml", "worlds.parquet", "outcomes.parquet", "baseline.parquet"
CURVES, TIPPING, PARTS, ASKED = "curves.parquet", "tipping.csv", "parts", "parts/asked.json"
TRAINED = "trained"  # run folders of worlds that were trained
TIPPING_COLUMNS = ("better", "than", "measure", "quantity", "at", "side")

DRAWN, SALTELLI = "drawn", "saltelli"


class CertificateFolder:
    """The files of one certificate."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self, asked: Mapping[str, Any]) -> None:
        """Makes the folder ready for a certificate.

        Raises `InputError` where it holds another one, or something else.
        """
        text = json.dumps(asked, sort_keys=True, default=str)
        key = hashlib.sha256(text.encode()).hexdigest()
        if (self.path / ASKED).is_file():
            found = (read_json(self.path / ASKED) or {}).get("key")
            if found != key:
                raise InputError(f"{self.path} holds a certificate of something else; choose another --out")
        elif self.path.is_dir() and any(
            p for p in self.path.iterdir() if not p.name.startswith(".") and p.name != PARTS
        ):
            raise InputError(f"{self.path} is not empty and holds no certificate; choose another --out")
        else:
            (self.path / PARTS).mkdir(parents=True, exist_ok=True)
            write_json(self.path / ASKED, {"key": key})

    def part(self, number: int) -> Path:
        """The file of a part of the outcomes; whoever writes it has written its curves before."""
        return self.path / PARTS / f"outcomes-{number:06d}.parquet"

    def curves_part(self, number: int) -> Path:
        """The file of the curves of the same worlds."""
        return self.path / PARTS / f"curves-{number:06d}.parquet"

    def write_part(self, number: int, answers: Answers, measures: Sequence[Compared]) -> None:
        """Writes what came of a part of the worlds."""
        if answers.curves:
            write_table(self.curves_part(number), answers.curves, curves_schema())
        write_table(self.part(number), answers.outcomes, outcomes_schema(measures))

    def outcomes(self, parts: int) -> Iterator[tuple[int, list[Row]]]:
        """The outcomes, part by part."""
        from pyarrow import parquet

        for number in range(parts):
            yield number, parquet.read_table(self.part(number)).to_pylist()

    def put_together(self, parts: int, measures: Sequence[Compared]) -> dict[str, int]:
        """Writes ``outcomes.parquet`` and ``curves.parquet`` from parts; returns how many outcomes there are of each status.

        ``kept_worlds`` among them counts the worlds in which every run has a figure.
        """
        from pyarrow import parquet

        from emulator.certify.order import REPLAYED, STATUSES
        from emulator.certify.order import TRAINED as KNOWN_BY_TRAINING

        counts = dict.fromkeys(STATUSES, 0)
        kept: set[int] = set()
        lost: set[int] = set()
        with (
            replacing(self.path / OUTCOMES) as aside,
            parquet.ParquetWriter(aside, outcomes_schema(measures)) as writer,
        ):
            for number in range(parts):
                table = parquet.read_table(self.part(number), schema=outcomes_schema(measures))
                writer.write_table(table)
                for world, status in zip(table["world"].to_pylist(), table["status"].to_pylist(), strict=True):
                    counts[status] += 1
                    (kept if status in (REPLAYED, KNOWN_BY_TRAINING) else lost).add(world)
        with (
            replacing(self.path / CURVES) as aside,
            parquet.ParquetWriter(aside, curves_schema()) as writer,
        ):
            for number in range(parts):
                if self.curves_part(number).is_file():
                    writer.write_table(parquet.read_table(self.curves_part(number), schema=curves_schema()))
        return counts | {"kept_worlds": len(kept - lost)}

    def write_certificate(self, said: Mapping[str, Any]) -> None:
        """Writes ``certificate.yaml``."""
        write_text(self.path / CERTIFICATE, yamlfile.dump(dict(said)))

    def write_tipping(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes ``tipping.csv``."""
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, TIPPING_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(self.path / TIPPING, text.getvalue())


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Writes rows as Parquet, whole or not at all."""
    import pyarrow as pa
    from pyarrow import parquet

    with replacing(path) as aside:
        parquet.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), aside)


def outcomes_schema(measures: Sequence[Compared]) -> pa.Schema:
    """The columns of ``outcomes.parquet``."""
    import pyarrow as pa

    texts = [("run", pa.string()), ("method", pa.string()), ("seed", pa.int64())]
    states = [("status", pa.string()), ("reason", pa.string())]
    figures = [(each.column, pa.float64()) for each in measures]
    return pa.schema([("world", pa.int64()), *texts, *states, *figures])


def curves_schema() -> pa.Schema:
    """The columns of ``curves.parquet``."""
    import pyarrow as pa

    texts = [("run", pa.string()), ("method", pa.string()), ("seed", pa.int64()), ("round", pa.int64())]
    figures = [(name, pa.float64()) for name in ("time_s", "bytes_total", "cost_s", "accuracy")]
    return pa.schema([("world", pa.int64()), *texts, *figures])


def worlds_schema(columns: Mapping[str, bool]) -> pa.Schema:
    """The columns of ``worlds.parquet``: names of quantities, and whether each has labels in place of numbers."""
    import pyarrow as pa

    named = [(name, pa.string() if labels else pa.float64()) for name, labels in columns.items()]
    return pa.schema([("world", pa.int64()), ("part", pa.string()), *named])
