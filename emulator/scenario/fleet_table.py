"""Fleets in files: a row for each client, server, link or move (or measured activity), as CSV, Parquet or YAML.

    name,parent,device,up [Mbit/s],down,latency
    phone-1,edge-0,phone,4,20 Mbit/s,30 ms

Units stand in cells or in headers. All that is wrong in a file is said at once, each with its place. Whether the parents, devices
and files that it names exist is for others to check.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emulator import yamlfile
from emulator.errors import InputError, suggestion
from emulator.files import replacing
from emulator.units import RATE, TIME, Dimension
from traces.source import LARGEST, is_number, read_bytes, read_text, wrong

MAX_PROBLEMS = 20  # that a message lists
MAX_NAME = 80  # characters
MAX_NUMBER = 100  # characters, with its unit
MAX_TEXT = 1000  # characters
CLIENTS, SERVERS, LINKS, MOVES, TIMINGS = "clients", "servers", "links", "moves", "timings"
_NOT_IN_NAMES = re.compile(r"[/>\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLAIN = re.compile(r"[0-9]{1,20}(\.[0-9]{1,30})?")
_DIGITS = re.compile(r"[+-]?[0-9.,]*")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)\b", re.IGNORECASE)


@dataclass(frozen=True)
class _Number:
    """What a column of numbers takes: quantities of a dimension, or plain numbers."""

    holds: Callable[[float], bool]
    rule: str
    dimension: Dimension | None = None


_RATE = _Number(lambda v: v > 0, "a bandwidth here must be greater than zero", RATE)
_TIME = _Number(lambda v: v >= 0, "a time here must not be negative", TIME)
_SHARE = _Number(lambda v: 0 <= v < 1, "write a share from 0 to below 1, such as 0.02")
_FACTOR = _Number(lambda v: v > 0, "write a factor greater than zero, such as 1.5")
_COUNT = _Number(lambda v: v >= 1 and v.is_integer(), "write a whole number from 1, such as 600")
_WHOLE = _Number(lambda v: v >= 0 and v.is_integer(), "write a whole number from 0, such as 12")
_PLACE = _Number(lambda v: True, "write a number without a unit, such as -12.5")
_LINK = {"up": _RATE, "down": _RATE, "latency": _TIME, "jitter": _TIME, "overhead": _TIME, "loss": _SHARE}
_COLUMNS: dict[str, dict[str, _Number | None]] = {  # texts are None
    CLIENTS: dict.fromkeys(("name", "parent", "device", "trace", "availability", "owner", "jitter_kind"))
    | _LINK
    | {"speed": _FACTOR, "samples": _COUNT, "x": _PLACE, "y": _PLACE},
    SERVERS: dict.fromkeys(("name", "parent", "tier", "device", "trace", "jitter_kind"))
    | _LINK
    | {"cell_up": _RATE, "cell_down": _RATE, "x": _PLACE, "y": _PLACE},
    LINKS: dict.fromkeys(("a", "b", "jitter_kind"))
    | {"bandwidth": _RATE}
    | {name: column for name, column in _LINK.items() if column is not _RATE},
    MOVES: dict.fromkeys(("client", "parent")) | {"time": _TIME},
    TIMINGS: dict.fromkeys(("client", "phase"))
    | {"round": _WHOLE, "start": _TIME, "end": _TIME, "bytes": _WHOLE}
    | {"samples": _COUNT, "batch_size": _COUNT, "group_size": _COUNT},
}
_NEEDED = {CLIENTS: {"name": "every row needs a name"}, SERVERS: {"name": "every row needs a name"}} | {
    LINKS: {"a": "every link has two ends", "b": "every link has two ends", "bandwidth": "every link has one"},
    MOVES: {
        "client": "every move is a client's",
        "time": "every move has one",
        "parent": "every move leads to a server",
    },
    TIMINGS: {
        "round": "every activity is in a round, from 1; 0 is what came before the first",
        "client": "every activity is a client's",
        "phase": "every activity is one of down, train, group and up",
        "start": "every activity has one",
        "end": "every activity has one",
    },
}
_BLANK = {MOVES: ("parent",)}  # needed columns of which cells may be empty: no server is in reach


@dataclass(frozen=True)
class FleetTable:
    """The rows of a fleet file, by column. What a row leaves out is "" in a text column and nan in a numeric one.

    Columns that the file does not have are missing from both. Numbers are in SI units (bit/s, s); shares and factors are as they
    are. ``lines`` says where each row stands: its line in a CSV or YAML file, its number in a Parquet file, both from 1.
    """

    file: str
    texts: Mapping[str, Sequence[str]]
    numbers: Mapping[str, NDArray[np.float64]]
    lines: Sequence[int]

    def place(self, row: int, column: str = "") -> str:
        """Where a row (from 0) or a cell of it stands, for messages: ``fleet.csv:12: column "up"``."""
        return _place(self.file, self.lines[row], column)

    def __len__(self) -> int:
        return len(self.lines)


def read_clients(file: str) -> FleetTable:
    """The clients in a fleet file; raises `InputError` with all that is wrong in it."""
    return _Draft(file, CLIENTS).table()


def read_servers(file: str) -> FleetTable:
    """The servers in a fleet file; raises `InputError` with all that is wrong in it."""
    return _Draft(file, SERVERS).table()


def read_links(file: str) -> FleetTable:
    """The links between pairs in a fleet file; raises `InputError` with all that is wrong in it."""
    return _Draft(file, LINKS).table()


def read_moves(file: str) -> FleetTable:
    """Which client is behind which server from when on; raises `InputError` with all that is wrong in it."""
    return _Draft(file, MOVES).table()


def read_timings(file: str) -> FleetTable:
    """When clients of a real deployment did what; raises `InputError` with all that is wrong in the file."""
    return _Draft(file, TIMINGS).table()


def write_table(path: Path, columns: Mapping[str, Sequence[str]]) -> None:
    """Writes columns of one length as a CSV file, whole or not at all; blanks around a cell are lost when it is read."""
    with replacing(path) as aside, aside.open("w", encoding="utf-8", newline="") as out:
        for row in (tuple(columns), *zip(*columns.values(), strict=True)):
            cells = ['"' + c.replace('"', '""') + '"' if re.search(r'[,;\t"\r\n]', c) else c for c in row]
            if cells[0].startswith("#") or not "".join(cells).strip():  # such a line would be passed over
                cells[0] = f'"{cells[0]}"'
            out.write(",".join(cells) + "\n")


def _place(file: str, line: int, column: str = "") -> str:
    where = (f"{file}: row {line}" if _is_parquet(file) else f"{file}:{line}") if line else file
    return f'{where}: column "{_short(column)}"' if column else where


def _is_parquet(file: str) -> bool:
    return file.lower().endswith((".parquet", ".pq"))


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _split(header: str) -> tuple[str, str | None]:
    """The name of a column as we spell it, and the unit in its brackets; None where it has no brackets."""
    name, unit = header.strip(), None
    for begin, end in ("[]", "()"):
        if begin in name and name.endswith(end):
            name, _, unit = name[:-1].rpartition(begin)
            break
    return re.sub(r"[\s_-]+", "_", name.strip().lower()), None if unit is None else unit.strip()


@dataclass(frozen=True)
class _Column:
    """A column before it is checked. ``typed`` numbers have no units of their own; ``trouble`` says why it has no cells."""

    header: str
    line: int  # of the header
    cells: Sequence[str]
    typed: bool = False
    trouble: str = ""


@dataclass
class _Draft:
    """A table on its way from the file, and all that is wrong with it: lines (0 for the whole file) and messages."""

    file: str
    kind: str
    columns: list[_Column] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    decimal_commas: bool = False
    problems: list[tuple[int, str]] = field(default_factory=list)

    def table(self) -> FleetTable:
        """Reads and checks the file; raises `InputError` where anything is wrong."""
        if _is_parquet(self.file):
            _read_parquet(self)
        elif self.file.lower().endswith((".yaml", ".yml")):
            _read_yaml(self)
        else:
            _read_csv(self)
        texts: dict[str, Sequence[str]] = {}
        numbers: dict[str, NDArray[np.float64]] = {}
        found: set[str] = set()
        for at, column in enumerate(self.columns, 1):
            name, unit = _split(column.header)
            refusal = "the column is there twice" if name in found else self._refusal(name, unit, column)
            found.add(name)
            if refusal:
                self.wrong(column.line, column.header.strip() or f"number {at}", refusal)
                continue
            number = _COLUMNS[self.kind][name]
            if number is None:
                texts[name] = [cell.strip() for cell in column.cells]
                for line, cell in zip(self.lines, texts[name], strict=False):
                    if len(cell) > MAX_TEXT and name != "name":
                        self.wrong(
                            line, name, f"'{_short(cell)}' has {len(cell):,} characters; at most {MAX_TEXT:,} are read"
                        )
            else:
                numbers[name] = self._numbers(name, unit or "", number, column.cells)
        if "name" in texts:
            self._check_names(texts["name"])
        for name in (name for name in _NEEDED[self.kind] if name not in found):
            first = self.columns[0].line if self.columns else 0
            self.wrong(first, "", f"has no column '{name}'; {_NEEDED[self.kind][name]}")
        if self.kind in (LINKS, MOVES, TIMINGS):
            self._check_complete(texts, numbers)
        self.check()
        return FleetTable(self.file, texts, numbers, self.lines)

    def wrong(self, line: int, column: str, message: str) -> None:
        """Notes a problem."""
        self.problems.append((line, f"{_place(self.file, line, column)}: {message}"))

    def check(self) -> None:
        """Raises `InputError` with all problems so far, a line for each."""
        if self.problems:
            self.problems.sort(key=lambda problem: problem[0])
            said = [_one_line(message) for _, message in self.problems[:MAX_PROBLEMS]]
            more = len(self.problems) - len(said)
            raise InputError("\n".join([*said, f"... and {more} more"] if more else said))

    def _refusal(self, name: str, unit: str | None, column: _Column) -> str:
        """What is wrong with a header; "" where nothing is."""
        known = _COLUMNS[self.kind]
        if not name:
            return "has no name in the header"
        if name not in known:
            return f"unknown column of {self.kind}; {suggestion(_short(name), known, 'known columns')}"
        number = known[name]
        if column.trouble:
            return column.trouble
        if number is None or number.dimension is None:
            return "" if unit is None else f"this column has no unit; write '{name}' as its header"
        if unit is None:
            hint = f"has numbers without a unit; write it in the header: '{_with_unit(name, number)}'"
            return hint if column.typed else ""
        try:
            number.dimension.parse(f"1 {unit}")
        except ValueError as error:
            return str(error) if unit else f"the brackets are empty; write for example '{_with_unit(name, number)}'"
        return ""

    def _numbers(self, name: str, unit: str, number: _Number, cells: Sequence[str]) -> NDArray[np.float64]:
        """The numbers in a column; each distinct text is read once."""
        values: dict[str, float] = {}
        refused: dict[str, str] = {}
        size = number.dimension.units.get(unit) if number.dimension else 1.0
        for cell in set(cells):
            if size is not None and _PLAIN.fullmatch(cell):  # most are, and need no further look
                values[cell] = float(cell) * size
                if values[cell] <= LARGEST and number.holds(values[cell]):
                    continue
            values[cell] = math.nan
            try:
                if text := cell.strip():
                    values[cell] = _value(text, name, unit, number, self.decimal_commas)
            except ValueError as error:
                refused[cell] = str(error)
        if refused:
            for line, cell in zip(self.lines, cells, strict=True):
                if cell in refused:
                    self.wrong(line, name, refused[cell])
        return np.array([values[cell] for cell in cells], dtype=np.float64)

    def _check_complete(self, texts: Mapping[str, Sequence[str]], numbers: Mapping[str, NDArray[np.float64]]) -> None:
        """Cells that every row needs; names have been checked where they were given."""
        if self.problems:
            return
        for name, why in _NEEDED[self.kind].items():
            if name in _BLANK.get(self.kind, ()):
                continue
            empty = np.isnan(numbers[name]).tolist() if name in numbers else [not text for text in texts[name]]
            for line in itertools.compress(self.lines, empty):
                self.wrong(line, name, f"is missing; {why}")

    def _check_names(self, names: Sequence[str]) -> None:
        first: dict[str, int] = {}
        for row, (name, line) in enumerate(zip(names, self.lines, strict=True)):
            if not name:
                self.wrong(line, "name", "the name is missing")
            elif len(name) > MAX_NAME:
                self.wrong(line, "name", f"'{_short(name)}' has {len(name)} characters; a name has at most {MAX_NAME}")
            elif _NOT_IN_NAMES.search(name):
                self.wrong(line, "name", f"'{_short(name)}': a name has no '/', no '>' and no control characters in it")
            elif name == "cloud" and self.kind == CLIENTS:
                self.wrong(line, "name", "a client cannot be called 'cloud'; choose another name")
            elif first.setdefault(name, row) != row:
                where = f"{'row' if _is_parquet(self.file) else 'line'} {self.lines[first[name]]}"
                self.wrong(line, "name", f"'{_short(name)}' is there twice (first in {where}); names are unique")


def _with_unit(name: str, number: _Number) -> str:
    return f"{name} [{number.dimension.example.split()[1]}]" if number.dimension else name


def _value(text: str, name: str, unit: str, number: _Number, decimal_commas: bool) -> float:
    """The value of a cell; raises ``ValueError`` with a message for the user."""
    shown, dimension = _short(text), number.dimension
    if len(text) > MAX_NUMBER:
        raise ValueError(f"'{shown}' is too long for a number")
    if "," in text or text.count(".") > 1:
        text = _with_point(text, decimal_commas)
    if _NOT_FINITE.match(text):
        raise ValueError(f"'{shown}' is not a finite number; leave it out where nothing is known")
    if dimension is None:
        if not is_number(text):
            raise ValueError(f"'{shown}' is not a plain number; {number.rule}")
        value = float(text)
    elif text[-1] in "0123456789." and is_number(text.replace("_", "")):  # no unit ends like this
        if not unit:
            cell, header = f"{shown} {dimension.example.split()[1]}", _with_unit(name, number)
            raise ValueError(f"'{shown}' has no unit; write it in the cell ('{cell}') or in the header ('{header}')")
        value = dimension.parse(f"{text} {unit}")
    else:
        value = dimension.parse(text)
    if abs(value) > LARGEST:
        raise ValueError(f"'{shown}' is too large")
    if not number.holds(value):
        raise ValueError(f"'{shown}': {number.rule}")
    return value


def _with_point(text: str, decimal_commas: bool) -> str:
    """The text with a decimal point in place of its decimal comma."""
    digits = _DIGITS.match(text)
    signs = re.findall("[.,]", digits[0] if digits else "")
    if len(signs) > 1:
        raise ValueError(f"'{_short(text)}' has signs between thousands; write digits and one point, such as '1234.5'")
    if "," in signs and not decimal_commas:
        raise ValueError(f"'{_short(text)}' has a comma in its number; write '3.5', or '3500' for thousands")
    return text.replace(",", ".", 1) if signs else text


def _read_csv(draft: _Draft) -> None:
    text, begin = read_text(Path(draft.file)), 0  # the line where the present row begins

    def rows_of_text() -> Iterator[str]:
        nonlocal begin
        for number, line in enumerate(io.StringIO(text, newline=""), 1):
            if not begin:  # else a quoted text goes on
                if not line.strip() or line.startswith("#"):
                    continue
                begin = number
            yield line

    separator = max(",;\t", key=re.sub(r'"[^"]*"', "", next(rows_of_text(), "")).count)
    begin = header_line = 0
    header: list[str] = []
    rows: list[list[str]] = []
    try:
        for row in csv.reader(rows_of_text(), delimiter=separator, strict=True):
            if not header:
                header, header_line = row, begin
            elif len(row) == len(header):
                rows.append(row)
                draft.lines.append(begin)
            else:
                split = separator == "," and len(row) > len(header) and re.search(r"\d,\d", ",".join(row))
                hint = "; is there a decimal comma? Write '3.5' for '3,5', or put ';' between fields" if split else ""
                draft.wrong(begin, "", f"has {len(row)} fields; the header has {len(header)}{hint}")
            begin = 0
    except csv.Error as error:
        reasons = {
            "end of data": "a quote is opened and never closed",
            "field limit": f"a field has more than {csv.field_size_limit():,} characters",
        }
        reason = next((said for part, said in reasons.items() if part in str(error)), f"is no CSV: {error}")
        draft.wrong(begin, "", reason)
    if not (rows or draft.problems):
        example = "write for example 'name,parent,up [Mbit/s]'"
        draft.wrong(header_line, "", "no row follows the header" if header else f"has no header; {example}")
    draft.decimal_commas = separator != ","
    cells = list(zip(*rows, strict=True)) or [()] * len(header)
    draft.columns = [_Column(name, header_line, each) for name, each in zip(header, cells, strict=True)]


def _read_parquet(draft: _Draft) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    raw = read_bytes(Path(draft.file))
    try:
        table = pq.ParquetFile(pa.BufferReader(raw)).read()
        table.validate(full=True)
        draft.lines = list(range(1, table.num_rows + 1))
        for header, column in zip(table.column_names, table.columns, strict=True):
            kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            whole, fractions = pa.types.is_integer(kind), pa.types.is_floating(kind) or pa.types.is_decimal(kind)
            numeric = _COLUMNS[draft.kind].get(_split(header)[0]) is not None
            if str(kind) in ("string", "large_string", "string_view", "null") or whole or (fractions and numeric):
                cells = ["" if value is None else str(value) for value in column.to_pylist()]
                draft.columns.append(_Column(header, 0, cells, typed=whole or fractions))
            else:
                trouble = (
                    f"has values of type {_short(str(kind))}; it must have text or {'' if numeric else 'whole '}numbers"
                )
                draft.columns.append(_Column(header, 0, (), trouble=trouble))
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = _one_line(str(error).partition("\n")[0][:80])
        raise wrong(Path(draft.file), 0, f"is not a Parquet file, or is damaged: {reason}") from None
    if not draft.lines:
        draft.wrong(0, "", "has no rows")


def _read_yaml(draft: _Draft) -> None:
    text = read_text(Path(draft.file))
    if len(text) > yamlfile.MAX_BYTES:
        raise wrong(Path(draft.file), 0, "is too large for YAML; write a fleet of this size as CSV or Parquet")
    document, line = yamlfile.parse(text, draft.file), 0
    if isinstance(document.data, dict):
        for key in (key for key in document.data if key not in _COLUMNS):
            tip = suggestion(_short(key), tuple(_COLUMNS))
            draft.wrong(document.keys[(key,)].line, "", f"unknown key '{_short(key)}'; {tip}")
        if draft.kind not in document.data:
            draft.wrong(0, "", f"has no '{draft.kind}:'")
        draft.check()
        document = document.below((draft.kind,))
        line = document.values[()].line
    example = "'- {name: a, up: 10 Mbit/s}'"
    if not isinstance(document.data, list) or not document.data:
        draft.wrong(line, "", f"has no list of {draft.kind}; write each as {example}")
        draft.check()
    places = [document.values[(at,)].line for at in range(len(document.data))]
    rows = {at: row for at, row in enumerate(document.data) if isinstance(row, dict)}
    for at in set(range(len(places))) - rows.keys():
        draft.wrong(places[at], "", f"is not a mapping; write each row as {example}")
    draft.lines = [places[at] for at in rows]
    columns: dict[str, list[str]] = {}
    for number, (at, row) in enumerate(rows.items()):
        for key, value in row.items():
            if key not in columns:
                columns[key] = [""] * len(rows)
                draft.columns.append(_Column(key, document.keys[(at, key)].line, columns[key]))
            numeric = _COLUMNS[draft.kind].get(_split(key)[0]) is not None
            refused = isinstance(value, list | dict | bool) or (isinstance(value, int | float) and not numeric)
            if refused:
                needed = "a number or a text" if numeric else "text; put it in quotes"
                draft.wrong(document.keys[(at, key)].line, key, f"must be {needed}")
            if value is not None and not (refused and numeric):  # a name that is refused is not missing
                columns[key][number] = str(value)
