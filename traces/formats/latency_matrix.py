"""Latencies between sites: a square matrix of milliseconds, comma-separated; row i, column j is from site i to site j, one way.

    0.02,183.6,90.9
    183.7,0.01,-0.5
    90.8,110.2,0.02

A ping that failed is noted as -1 in such tables, and as -0.5 where round trips were halved. With ``missing: fill`` (the
default) the other direction takes its place, or, where that is missing too, the median of what is known from the same site.
With ``missing: refuse`` they are errors, as other negative numbers always are. Lines that begin with a hash are comments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from emulator.contracts.files import TraceFormatFacts, trace_formats
from emulator.registry import Params
from traces.content import LatencyMatrix
from traces.source import Head, is_number, lines, number, wrong

_MISSING = (-1.0, -0.5)


class LatencyParams(Params):
    """``missing`` says what to do about pairs of sites that were not measured."""

    missing: Literal["fill", "refuse"] = "fill"


def _fits(head: Head) -> bool:
    rows = [line.split(",") for line in head.lines if not line.startswith("#")]
    return bool(rows) and len(rows[0]) > 1 and all(is_number(cell) for row in rows for cell in row)


@trace_formats.register("latency-matrix", LatencyParams, TraceFormatFacts(gives=LatencyMatrix, fits=_fits))
def latency_matrix(path: Path, params: LatencyParams) -> LatencyMatrix:
    """A square matrix of milliseconds between sites."""
    rows: list[list[float]] = []
    line = 0
    for line, text in lines(path):
        if text.startswith("#"):
            continue
        cells = text.split(",")
        if rows and len(cells) != len(rows[0]):
            raise wrong(path, line, f"has {len(cells)} cells; the rows before have {len(rows[0])}")
        rows.append([_latency(path, line, i, cell, params) for i, cell in enumerate(cells, 1)])
    if not rows:
        raise wrong(path, 0, "has nothing but comments")
    if len(rows) != len(rows[0]):
        raise wrong(path, line, f"there are {len(rows)} rows of {len(rows[0])} cells; the matrix must be square")
    seconds = np.array(rows) / 1e3
    missing = np.isnan(seconds)
    seconds = np.where(missing, seconds.T, seconds)
    for i in np.flatnonzero(np.isnan(seconds).any(axis=1)):
        known = seconds[i][~np.isnan(seconds[i])]
        if not len(known):
            raise wrong(path, 0, f"nothing is known about site {i + 1}")
        seconds[i][np.isnan(seconds[i])] = np.median(known)
    return LatencyMatrix(seconds, int(missing.sum()))


def _latency(path: Path, line: int, column: int, cell: str, params: LatencyParams) -> float:
    if params.missing == "fill" and is_number(cell) and float(cell) in _MISSING:
        return float("nan")
    return number(path, line, cell, f"cell {column}")
