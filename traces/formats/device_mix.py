"""Our own format of a mix of devices: a CSV file with a row for each kind.

    # Lines that begin with a hash are comments.
    device,share [%],speed [1],bandwidth [Mbit/s]
    budget phone,50,0.6,4
    mid-range phone,30,1,12
    flagship phone,20,2.5,40

Shares (``1`` or ``%``) add up to 1. Speeds are whatever is proportional to computing speed (``1`` or ``%``): only their ratios
count, for a mix says how devices compare with their median. The bandwidth of a kind's access may be left out of the file.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np

from emulator.contracts.files import TraceFormatFacts, trace_formats
from emulator.errors import quote_all, suggestion
from emulator.registry import NoParams
from emulator.units import RATE, Dimension
from traces.content import RELATIVE_SPEED, DeviceMix, weighted_median
from traces.source import Head, lines, number, wrong

SHARE = Dimension("share", "1", {"1": 1.0, "%": 0.01}, "20 %")
_COLUMNS = {"share": SHARE, "speed": RELATIVE_SPEED, "bandwidth": RATE}
_NEEDED = ("share", "speed")
_COLUMN = re.compile(r"\s*(\w+)\s*\[\s*(.*?)\s*\]\s*")
_EXAMPLE = "write for example 'device,share [%],speed [1],bandwidth [Mbit/s]'"
_ROUNDING = 1e-6  # shares are written with a few digits


def _fits(head: Head) -> bool:
    first = next((line for line in head.lines if not line.startswith("#")), "")
    return re.match(r"\s*device\s*,", first) is not None


@trace_formats.register("device-mix", facts=TraceFormatFacts(gives=DeviceMix, fits=_fits))
def device_mix(path: Path, params: NoParams) -> DeviceMix:
    """Kinds of devices with their shares, their speeds and, where known, their bandwidths."""
    header: dict[str, float] = {}
    rows: dict[str, dict[str, float]] = {}
    line = 0
    for line, text in lines(path):
        if text.startswith("#"):
            continue
        cells = [cell.strip() for cell in text.split(",")]
        if not header:
            header = _header(path, line, cells)
            continue
        if len(cells) != 1 + len(header):
            raise wrong(path, line, f"has {len(cells)} cells; the header has {1 + len(header)}")
        if not cells[0]:
            raise wrong(path, line, "the device has no name")
        if cells[0] in rows:
            raise wrong(path, line, f"device '{cells[0][:60]}' is there twice")
        rows[cells[0]] = {
            name: _positive(path, line, cell, name) * size
            for cell, (name, size) in zip(cells[1:], header.items(), strict=True)
        }
    if not rows:
        raise wrong(path, line, "no row follows the header" if header else f"has no header; {_EXAMPLE}")
    total = math.fsum(row["share"] for row in rows.values())
    if abs(total - 1) > _ROUNDING:
        raise wrong(path, 0, f"the shares add up to {total:g}; they must add up to 1")
    columns = {name: np.array([row[name] for row in rows.values()]) for name in header}
    shares, speeds = columns["share"] / total, columns["speed"]
    relative = speeds / weighted_median(speeds, shares)
    return DeviceMix(tuple(rows), shares, relative, bandwidth_bps=columns.get("bandwidth"))


def _header(path: Path, line: int, cells: list[str]) -> dict[str, float]:
    """The columns after the name, each with the size of its unit."""
    if cells[0] != "device":
        raise wrong(path, line, f"the first column is '{cells[0][:60]}'; it must be 'device': {_EXAMPLE}")
    found: dict[str, float] = {}
    for cell in cells[1:]:
        match = _COLUMN.fullmatch(cell)
        if match is None:
            raise wrong(path, line, f"column '{cell[:60]}' is no quantity with a unit; {_EXAMPLE}")
        name, unit = match.groups()
        if name not in _COLUMNS:
            raise wrong(path, line, f"unknown column '{name[:60]}'; {suggestion(name, _COLUMNS)}")
        if name in found:
            raise wrong(path, line, f"has more than one column '{name}'")
        try:
            found[name] = _COLUMNS[name].parse(f"1 {unit}")
        except ValueError as error:
            raise wrong(path, line, str(error)) from None
    missing = [name for name in _NEEDED if name not in found]
    if missing:
        raise wrong(path, line, f"has no column {quote_all(missing)}; {_EXAMPLE}")
    return found


def _positive(path: Path, line: int, cell: str, what: str) -> float:
    value = number(path, line, cell, what)
    if value == 0:
        raise wrong(path, line, f"{what} is 0; it must be greater than zero")
    return value
