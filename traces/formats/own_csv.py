"""Our own format: a CSV file whose header names quantities and units.

    # Lines that begin with a hash are comments; this one says what comes after the last row:
    # end: repeat after 600 s
    time [s],bandwidth up [Mbit/s],bandwidth down [Mbit/s],latency [ms]
    0,5.2,21.0,38
    1.5,4.8,19.5,41
    2.75,0,0,41

The first column is the time (``time [s]``, or any other unit of time), from 0 on and strictly increasing. Every other column is a
quantity, optionally whose, and the unit: ``bandwidth`` (bit/s, Mbit/s, kB/s, ...), ``latency`` (s, ms, ...; one way),
``availability`` (1 or %), ``speed`` (1 or %, of the device's own speed) or ``carbon`` (g/kWh, of CO2). Columns of one quantity
have one unit. A value lasts until the next row. After the last row it lasts for ever (``end: hold``), or everything starts over
at a given time. A file need not say what comes then; whoever plays it for longer must.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

import numpy as np

from emulator.contracts.files import TraceFormatFacts, trace_formats
from emulator.errors import InputError, quote_all, suggestion
from emulator.registry import Params
from emulator.units import TIME, Dimension, PositiveSeconds
from traces.content import DIMENSIONS, Quantity, Series, Trace, label
from traces.source import Head, later, lines, number, wrong
from traces.step import StepFunction

_COLUMN = re.compile(r"\s*(\w+)\s*(.*?)\s*\[\s*(.*?)\s*\]\s*")
_END = re.compile(r"#\s*end\s*:\s*(.*?)\s*", re.IGNORECASE)
_EXAMPLE = "write for example 'time [s],bandwidth [Mbit/s]'"


class CsvParams(Params):
    """``repeat_after`` counts before what the file says about its end."""

    repeat_after: PositiveSeconds | None = None


def _fits(head: Head) -> bool:
    first = next((line for line in head.lines if not line.startswith("#")), "")
    return re.match(r"\s*time\s*[\[_,]", first) is not None


@trace_formats.register("csv", CsvParams, TraceFormatFacts(gives=Trace, fits=_fits))
def own_csv(path: Path, params: CsvParams) -> Trace:
    """Columns of quantities over time, with their units in the header."""
    columns: list[tuple[Series, float]] = []
    second = 1.0
    times: list[float] = []
    rows: list[list[float]] = []
    period_s, end_line, header_line = params.repeat_after, 0, 0
    for line, text in lines(path):
        if text.startswith("#"):
            if (end := _END.fullmatch(text)) and params.repeat_after is None:
                period_s, end_line = _end(path, line, end[1]), line
        elif not header_line:
            second, columns = _header(path, line, text.split(","))
            header_line = line
        else:
            cells = text.split(",")
            if len(cells) != 1 + len(columns):
                raise wrong(path, line, f"has {len(cells)} cells; the header has {1 + len(columns)}")
            time = number(path, line, cells[0], "time") * second
            if not times and time != 0:
                raise wrong(path, line, f"the first time is {cells[0].strip()}; it must be 0")
            later(path, line, time, times)
            times.append(time)
            rows.append([_value(path, line, cell, *column) for cell, column in zip(cells[1:], columns, strict=True)])
    if not header_line:
        raise wrong(path, 0, f"has no header; {_EXAMPLE}")
    if not rows:
        raise wrong(path, header_line, "no row follows the header")
    if period_s is not None and period_s <= times[-1]:
        raise wrong(path, end_line, f"starts over after {period_s:g} s, before its last row ({times[-1]:g} s)")
    table = np.array(rows)
    functions = {series: StepFunction.of(times, table[:, i], period_s) for i, (series, _) in enumerate(columns)}
    return Trace(functions, end_stated=bool(end_line) or period_s is not None)


def column(text: str) -> tuple[Series, float]:
    """What a header such as ``bandwidth up [Mbit/s]`` stands for, and the size of its unit in the base unit.

    Raises `InputError` with a message for the user.
    """
    found = _COLUMN.fullmatch(text)
    if found is None:
        text = text.strip()[:60]
        word = text.split(" ")[0]
        if word in DIMENSIONS:
            unit = DIMENSIONS[word].example.split()[1]
            raise InputError(f"column '{text}' has no unit; write for example '{text} [{unit}]'")
        raise InputError(f"column '{text}' is no quantity with a unit; {_EXAMPLE}")
    what, name, unit = found.groups()
    if what not in get_args(Quantity):
        raise InputError(f"unknown quantity '{what[:60]}'; {suggestion(what, get_args(Quantity))}")
    return (cast(Quantity, what), name), _size(DIMENSIONS[cast(Quantity, what)], unit)


def _header(path: Path, line: int, cells: Sequence[str]) -> tuple[float, list[tuple[Series, float]]]:
    """The size of the unit of time, and the columns after it."""
    time = cells[0].strip()
    found = _COLUMN.fullmatch(time)
    try:
        if time != "time_s" and (found is None or found[1] != "time" or found[2]):
            raise InputError(f"the first column is '{time[:60]}'; it must be the time with its unit: {_EXAMPLE}")
        second = _size(TIME, found[3]) if found else 1.0
        if len(cells) == 1:
            raise InputError(f"has no column beside the time; {_EXAMPLE}")
        columns = [column(cell) for cell in cells[1:]]
        units: dict[Quantity, str] = {}
        for ((what, name), _), cell in zip(columns, cells[1:], strict=True):
            unit = cell[cell.rindex("[") :].strip()
            if units.setdefault(what, unit) != unit:
                name = label((what, name))
                raise InputError(f"units are mixed: '{name}' is in {unit}, other {what} in {units[what]}; use one unit")
    except InputError as error:
        raise wrong(path, line, error.message) from None
    names = [label(series) for series, _ in columns]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise wrong(path, line, f"has more than one column {quote_all(twice)}")
    return second, columns


def _size(dimension: Dimension, unit: str) -> float:
    try:
        return dimension.parse(f"1 {unit}")
    except ValueError as error:
        raise InputError(str(error)) from None


def _value(path: Path, line: int, cell: str, series: Series, size: float) -> float:
    value = number(path, line, cell, label(series)) * size
    if series[0] == "availability" and value > 1:
        raise wrong(path, line, f"{label(series)} is {cell.strip()}; nothing is available more than always")
    return value


def _end(path: Path, line: int, text: str) -> float | None:
    """The period, or None where the last value holds."""
    word, _, after = text.partition(" after ")
    if text == "hold":
        return None
    if word != "repeat" or not after:
        raise wrong(
            path, line, f"the end is '{text[:60]}'; write 'end: hold' or, for example, 'end: repeat after 600 s'"
        )
    try:
        period_s = TIME.parse(after)
    except ValueError as error:
        raise wrong(path, line, str(error)) from None
    if period_s <= 0:
        raise wrong(path, line, f"it cannot repeat after {after}")
    return period_s


def as_csv(trace: Trace, notes: Sequence[str] = ()) -> str:
    """A trace as the text of a file in this format, exact to the last bit, in base units.

    Raises `InputError` where its series end at different times: a file has one end.
    """
    headers = [f"{label((what, name))} [{DIMENSIONS[what].base}]" for what, name in trace.series]
    return table(dict(zip(headers, trace.series.values(), strict=True)), notes, trace.end_stated)


def table(columns: dict[str, StepFunction], notes: Sequence[str] = (), end_stated: bool = True) -> str:
    """The text of a file with these functions, by the header of their column; ``notes`` are comments at its top."""
    functions = list(columns.values())
    period_s = functions[0].period_s
    if any(f.period_s != period_s for f in functions):
        raise InputError("the series end at different times, and a CSV file has one end; choose one series")
    times = np.unique(np.concatenate([f.times_s for f in functions]))
    values = [f.sample(times).tolist() for f in functions]
    end = "hold" if period_s is None else f"repeat after {TIME.format(period_s)}"
    text = [
        *(f"# {note}" for note in notes),
        *([f"# end: {end}"] if end_stated else []),
        ",".join(["time [s]", *columns]),
    ]
    text += [",".join(map(_shortest, row)) for row in zip(times.tolist(), *values, strict=True)]
    return "\n".join(text) + "\n"


def _shortest(value: float) -> str:
    """The shortest text that reads back as the same number."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
