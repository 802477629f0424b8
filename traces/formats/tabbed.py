"""Measured bandwidths as they are used in studies of video streaming: seconds, a tab, Mbit/s (10⁶ bit/s).

    66.51	0.643
    68.90	0.666
    71.02	0.685

A row is a measurement over the time since the row before, which is also how simulators of video streaming play such files (the
first row only marks the start). With ``covers: after`` a value lasts until the next row instead, and the last for as long as the
median step. The first row becomes time 0; at the end the trace starts over.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from emulator.contracts.files import TraceFormatFacts, trace_formats
from emulator.registry import Params
from traces.content import Trace
from traces.source import Head, is_number, later, lines, number, wrong
from traces.step import StepFunction


class TabbedParams(Params):
    """``covers`` says whether a value holds for the time before its row or after it."""

    covers: Literal["before", "after"] = "before"


def _fits(head: Head) -> bool:
    rows = [line.split("\t") for line in head.lines]
    return bool(rows) and all(len(row) == 2 and all(is_number(cell) for cell in row) for row in rows)


@trace_formats.register("tabbed", TabbedParams, TraceFormatFacts(gives=Trace, fits=_fits))
def tabbed(path: Path, params: TabbedParams) -> Trace:
    """Rows of seconds and Mbit/s with a tab between them."""
    times: list[float] = []
    values: list[float] = []
    line = 0
    for line, text in lines(path):
        cells = text.split("\t")
        if len(cells) != 2:
            raise wrong(path, line, f"has {len(cells)} cells; a row is seconds, a tab, and Mbit/s")
        time = number(path, line, cells[0], "time")
        later(path, line, time, times)
        times.append(time)
        values.append(1e6 * number(path, line, cells[1], "bandwidth"))
    if len(times) < 2:
        raise wrong(path, line, "is the only row; a trace needs two")
    since = np.array(times) - times[0]
    if not (np.diff(since) > 0).all():
        raise wrong(path, 0, "its times are too close to each other to be told apart")
    if params.covers == "before":
        return Trace({("bandwidth", ""): StepFunction.of(since[:-1], values[1:], float(since[-1]))})
    period_s = float(since[-1] + np.median(np.diff(since)))
    return Trace({("bandwidth", ""): StepFunction.of(since, values, period_s)})
