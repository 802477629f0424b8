"""Packet-delivery traces of the mahimahi link emulator (Netravali et al., USENIX ATC 2015).

    0
    12
    12
    15

Each line is a time in whole milliseconds at which one packet of 1500 bytes may pass; a time that is repeated lets as many
packets pass. At the last time the trace starts over. A file is one direction; names that end in ``.up`` and ``.down`` say which.

Packets become a bandwidth by counting them in bins. The last bin takes what is left over and is up to twice as long; a packet
at the very end belongs to it. The bits of a round are those of its packets, whatever the bins.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from emulator.contracts.files import TraceFormatFacts, trace_formats
from emulator.registry import Params
from emulator.units import PositiveSeconds
from traces.content import Trace
from traces.source import Head, lines, wrong
from traces.step import StepFunction

PACKET_BITS = 1500 * 8
MAX_BINS = 10_000_000


class MahimahiParams(Params):
    """``bin`` is how long packets are counted for one step of the bandwidth."""

    bin: PositiveSeconds = Field("100 ms", validate_default=True)  # read as a user's own text would be


def _fits(head: Head) -> bool:
    return bool(head.lines) and all(_is_time(line) for line in head.lines)


@trace_formats.register("mahimahi", MahimahiParams, TraceFormatFacts(gives=Trace, fits=_fits))
def mahimahi(path: Path, params: MahimahiParams) -> Trace:
    """Times in milliseconds at which a packet may pass, one a line."""
    times: list[int] = []
    line = 0
    for line, text in lines(path):
        if not _is_time(text):
            raise wrong(path, line, f"'{text.strip()[:40]}' is no time; each line is one whole number of milliseconds")
        time = int(text)
        if times and time < times[-1]:
            raise wrong(path, line, f"time {time} comes after {times[-1]}; time goes backwards")
        times.append(time)
    if times[-1] == 0:
        raise wrong(path, line, "all packets pass at time 0; a trace must last some time")
    bin_ms = params.bin * 1000
    bins = max(1, int(times[-1] / bin_ms * (1 + 1e-12)))  # ten seconds hold three bins of ten thirds
    if bins > MAX_BINS:
        raise wrong(
            path, line, f"lasts {times[-1]:,} ms, more than {MAX_BINS:,} bins of {params.bin:g} s; take longer bins"
        )
    edges_ms = np.append(np.arange(bins) * bin_ms, times[-1])
    counts, _ = np.histogram(times, edges_ms)  # the last bin has both its ends
    edges_s = edges_ms / 1000
    bandwidth = StepFunction.of(edges_s[:-1], counts * PACKET_BITS / np.diff(edges_s), edges_s[-1])
    return Trace({("bandwidth", path.suffix[1:] if path.suffix in (".up", ".down") else ""): bandwidth})


def _is_time(text: str) -> bool:
    text = text.strip()
    return text.isascii() and text.isdigit() and len(text) < 16
