"""Tables of run folders (CSV), read strictly: what the emulator would not have written is damaged, and is said with its line.

Columns are told apart by their names, which mean the same in all tables: `TEXTS`, whole numbers (`WHOLE`, and ``label_0`` and so
on), seconds (``_s``), and other numbers, which alone may be missing (nan), but for `NEEDED`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.errors import InputError, quote_all

if TYPE_CHECKING:
    import pandas as pd

TEXTS = ("aggregator", "layer", "members", "parents", "reason", "swaps")
WHOLE = (
    "chosen", "client", "cluster", "from_round", "group", "groups", "header", "images", "kind", "label", "largest", "other",
    "ripe", "round", "samples", "size", "smallest", "staleness", "used",
)  # fmt: skip
NEEDED = ("at", "accuracy", "distance")  # other numbers that are never missing, and never negative
MOST = 2**53  # whole numbers beyond are not exact any more


def read_table(
    path: Path, columns: Sequence[str], texts: Sequence[str] = TEXTS, optional: Sequence[str] = ()
) -> pd.DataFrame:
    """A table with at least these columns and one row; of them, ``texts`` hold no numbers.

    ``optional`` are whole numbers that may be missing: they are -1 then.

    Raises `InputError` that names the file, and the line where there is one, where it is damaged or of another version.
    """
    import pandas as pd

    raw = path.read_bytes()
    try:
        text = raw.decode()
        header = _check_form(text)
        missing = [name for name in columns if name not in header]
        if missing:
            raise InputError(f"'{path}' was written by another version: it has no column {quote_all(missing)}")
        numbers = [name for name in header if name not in texts]
        table = pd.read_csv(
            io.StringIO(text),
            dtype={name: str for name in header if name in texts},
            keep_default_na=False,
            na_values={name: ["", "nan"] for name in numbers},
            low_memory=False,
        )
        for name in numbers:
            if name in columns or name.startswith("label_"):
                if name in optional:
                    table[name] = table[name].fillna(-1)
                _check_numbers(table, name, -1 if name in optional or name == "kind" else 0)  # -1: of no kind
    except (ValueError, OverflowError, csv.Error) as error:  # also what is no UTF-8, and what pandas says of no table
        raise InputError(f"'{path}' is damaged: {str(error).strip()}") from None
    if table.empty:
        raise InputError(f"'{path}' has no rows")
    return table


def read_ledger(path: Path) -> pd.DataFrame:
    """A ledger file with the columns of `emulator.ledger.Row`; raises `InputError` where it is damaged or of another version."""
    import numpy as np

    from emulator.ledger import TEXTS, Row, read

    try:
        table = read(path)
    except (OSError, ValueError, TypeError, LookupError, MemoryError) as error:  # what pyarrow says of a damaged file
        raise InputError(f"'{path}' is damaged: {error}") from None
    missing = [name for name in Row._fields if name not in table.columns]
    if missing:
        raise InputError(f"'{path}' was written by another version: it has no column {quote_all(missing)}")
    for name in Row._fields:
        numbers = name not in TEXTS
        if numbers != (table[name].dtype.kind in "if") or (numbers and not np.isfinite(table[name].to_numpy()).all()):
            raise InputError(
                f"'{path}' is damaged: '{name}' holds something that is no {'number' if numbers else 'text'}"
            )
    for name in ("who", "peer"):
        check_clients(path, table[name].astype("category").cat.categories)
    return table


def check_clients(path: Path, names: Iterable[str]) -> None:
    """Raises `InputError` where the name of a client is none: it must be ``client-`` and a number."""
    for name in names:
        if name.startswith("client-") and not (name[7:].isascii() and name[7:].isdigit() and len(name) < 20):
            raise InputError(f"'{path}' is damaged: '{name[:40]}' is no name of a client")


def _check_form(text: str) -> list[str]:
    """The names of the columns. Raises `ValueError` where a line is cut off, or has another number of fields."""
    if not text.endswith("\n") or "\0" in text:
        raise ValueError("it is empty" if not text else "it is not text" if "\0" in text else "its end is cut off")
    lines = text.split("\n")[:-1]
    header = next(csv.reader(lines[:1]), [])
    if '"' in text or text.count(",") != (len(header) - 1) * len(lines):  # the usual case is told quickly
        for number, fields in enumerate(csv.reader(lines), 1):
            if len(fields) != len(header):
                raise ValueError(f"line {number} has {len(fields)} fields; the header has {len(header)}")
    return header


def _check_numbers(table: pd.DataFrame, name: str, least: int) -> None:
    """Raises `ValueError` where a column of numbers holds something else; makes one of whole numbers (from ``least``) int64."""
    import pandas as pd

    given = table[name]
    whole = name in WHOLE or name.startswith("label_")
    values = pd.to_numeric(given, errors="coerce").astype(float)
    wrong = values.isna() & given.notna()
    if given.dtype.kind in "bO":  # for pandas a truth value is a number
        wrong |= given.map(lambda value: isinstance(value, bool))
    if whole:
        wrong |= ~values.between(least, MOST) | (values % 1 != 0)
    elif name.endswith("_s") or name in NEEDED:
        wrong |= ~values.between(0, MOST)
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        what = "nothing" if pd.isna(given.iloc[row]) else f"'{str(given.iloc[row])[:40]}'"
        raise ValueError(f"line {row + 2}: '{name}' is {what}; it must be a {'whole ' if whole else ''}number")
    if whole:
        table[name] = values.astype("int64")
