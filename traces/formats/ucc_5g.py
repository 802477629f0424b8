"""Measurements of phones in 4G and 5G networks by University College Cork (Raca et al., ACM MMSys 2020).

    Timestamp,Longitude,Latitude,...,DL_bitrate,UL_bitrate,State,PINGAVG,...
    2019.12.02_07.26.15,-8.388,51.936,...,28,6,D,-,...
    2019.12.02_07.26.16,-8.388,51.936,...,340,23,D,52,...

Bit rates are in kbit/s. ``PINGAVG`` is a round trip in milliseconds, of which half is the latency. ``-`` means missing. Rows of
the same second are averaged; a value lasts until the next second that has one, the first also for what comes before it. The
last second lasts a second, then the trace starts over. A column without any value gives no series.
"""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path

from emulator.contracts.files import TraceFormatFacts, trace_formats
from emulator.errors import quote_all
from emulator.registry import NoParams
from traces.content import Series, Trace
from traces.source import Head, number, read_text, wrong
from traces.step import StepFunction

_COLUMNS: dict[str, tuple[Series, float]] = {
    "UL_bitrate": (("bandwidth", "up"), 1e3),
    "DL_bitrate": (("bandwidth", "down"), 1e3),
    "PINGAVG": (("latency", ""), 0.5e-3),
}


def _fits(head: Head) -> bool:
    return bool(head.lines) and head.lines[0].startswith("Timestamp,") and "L_bitrate" in head.lines[0]


@trace_formats.register("ucc-5g", facts=TraceFormatFacts(gives=Trace, fits=_fits))
def ucc_5g(path: Path, params: NoParams) -> Trace:
    """Bit rates in both directions and ping times of a phone, about every second."""
    reader = csv.reader(read_text(path).split("\n"), strict=True)
    header: list[str] = []
    seconds: dict[str, dict[int, list[float]]] = {}
    begin: datetime | None = None
    second = 0
    try:
        for cells in reader:
            line = reader.line_num
            if not cells:
                continue
            if not header:
                header = _header(path, line, cells)
                seconds = {name: {} for name in _COLUMNS if name in header}
                continue
            if len(cells) != len(header):
                raise wrong(path, line, f"has {len(cells)} cells; the header has {len(header)}")
            when = _time(path, line, cells[header.index("Timestamp")])
            begin = begin or when
            before, second = second, round((when - begin).total_seconds())
            if second < before:
                raise wrong(path, line, "is earlier than the row before it; time goes backwards")
            for name, found in seconds.items():
                cell = cells[header.index(name)].strip()
                if cell != "-":
                    found.setdefault(second, []).append(number(path, line, cell, name))
    except csv.Error as error:
        raise wrong(path, reader.line_num, f"is not CSV: {error}") from None
    series = {
        _COLUMNS[name][0]: _function(found, _COLUMNS[name][1], second + 1) for name, found in seconds.items() if found
    }
    if not series:
        raise wrong(path, 0, f"has no value in the columns {quote_all(seconds)}")
    return Trace(series)


def _header(path: Path, line: int, cells: list[str]) -> list[str]:
    header = [cell.strip() for cell in cells]
    if "Timestamp" not in header or not any(name in header for name in _COLUMNS):
        raise wrong(path, line, f"the header must name 'Timestamp' and at least one of {quote_all(_COLUMNS)}")
    return header


def _time(path: Path, line: int, text: str) -> datetime:
    try:
        return datetime.strptime(text.strip(), "%Y.%m.%d_%H.%M.%S")
    except ValueError:
        raise wrong(path, line, f"Timestamp is '{text[:40]}'; it must be of the form 2019.12.02_07.26.15") from None


def _function(found: dict[int, list[float]], unit: float, period_s: int) -> StepFunction:
    values = [unit * sum(each) / len(each) for each in found.values()]
    return StepFunction.of([0, *list(found)[1:]], values, period_s)
