"""The two client traces of FedScale (Lai et al., ICML 2022): what devices can do, and when they are there.

``client_device_capacity`` is a pickled dict of clients: milliseconds that inference takes for a sample, and kbit/s::

    {1: {'computation': 162.0, 'communication': 5648.1}, 2: ...}

``client_behave_trace`` is a pickled dict of clients: from ``active[i]`` to ``inactive[i]`` (seconds) a client is there, and at
``finish_time`` its days begin anew::

    {1: {'duration': 98, 'active': [12, 100], 'inactive': [65, 145], 'finish_time': 518400, 'model': 'CPH1801'}, 2: ...}

Only pickles of plain data are read, and none is run before that is sure (`traces.pickles`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from emulator.contracts.files import TraceFormatFacts, trace_formats
from emulator.errors import InputError, quote_all
from emulator.registry import Params
from traces.content import DeviceMix, Trace, weighted_median
from traces.pickles import load_plain
from traces.source import LARGEST, Head, wrong
from traces.step import StepFunction


class FedScaleParams(Params):
    """``clients`` reads only so many of the first clients; without it, all."""

    clients: Annotated[int, Field(ge=1)] | None = None


def _is_pickle(head: Head) -> bool:
    return head.raw[:1] in (b"\x80", b"(", b"}")  # how a dict begins, from the newest protocol to the oldest


@trace_formats.register(
    "fedscale-capacity",
    FedScaleParams,
    TraceFormatFacts(gives=DeviceMix, fits=lambda head: _is_pickle(head) and b"computation" in head.raw),
)
def fedscale_capacity(path: Path, params: FedScaleParams) -> DeviceMix:
    """Computing speed and bandwidth of each of FedScale's clients."""
    names: list[str] = []
    sample_s: list[float] = []
    bandwidth_bps: list[float] = []
    for name, entry in _clients(path, params, ("computation", "communication")):
        names.append(name)
        sample_s.append(_positive(path, name, entry, "computation") / 1e3)
        bandwidth_bps.append(_positive(path, name, entry, "communication") * 1e3)
    speeds = 1 / np.array(sample_s)
    shares = np.full(len(names), 1 / len(names))
    return DeviceMix(
        tuple(names), shares, speeds / weighted_median(speeds, shares), np.array(sample_s), np.array(bandwidth_bps)
    )


@trace_formats.register(
    "fedscale-behaviour",
    FedScaleParams,
    TraceFormatFacts(gives=Trace, fits=lambda head: _is_pickle(head) and b"finish_time" in head.raw),
)
def fedscale_behaviour(path: Path, params: FedScaleParams) -> Trace:
    """When each of FedScale's clients is available."""
    return Trace(
        {
            ("availability", name): _availability(path, name, entry)
            for name, entry in _clients(path, params, ("active", "inactive", "finish_time"))
        }
    )


def _clients(path: Path, params: FedScaleParams, keys: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    data = load_plain(path)
    if not isinstance(data, dict) or not data:
        raise wrong(path, 0, "must be a dict of clients with at least one of them")
    for name, entry in itertools.islice(data.items(), params.clients):
        if not isinstance(name, int | str):
            raise wrong(
                path, 0, f"the name of a client is of the type {type(name).__name__}; it must be a number or a text"
            )
        if not isinstance(entry, dict) or any(key not in entry for key in keys):
            raise _unfit(path, name, f"must be a dict with the keys {quote_all(keys)}")
        yield str(name), entry


def _unfit(path: Path, name: object, message: str) -> InputError:
    return wrong(path, 0, f"client {str(name)[:60]}: {message}")


def _positive(path: Path, name: str, entry: dict[str, Any], key: str) -> float:
    value = entry[key]
    if not _is_number(value) or value < 1e-9:
        given = repr(str(value)[:40]) if isinstance(value, int | float | str) else f"of the type {type(value).__name__}"
        raise _unfit(path, name, f"'{key}' is {given}; it must be a number greater than zero")
    return float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def _availability(path: Path, name: str, entry: dict[str, Any]) -> StepFunction:
    """1 from each ``active`` to its ``inactive``, else 0. Stays that touch are one; what is beyond the end is cut off."""
    period_s = _positive(path, name, entry, "finish_time")
    on, off = (_times(path, name, entry, key) for key in ("active", "inactive"))
    if len(on) != len(off):
        raise _unfit(path, name, f"has {len(on)} times in 'active' and {len(off)} in 'inactive'; they come in pairs")
    stays: list[tuple[float, float]] = []
    for i, (begin, finish) in enumerate(zip(on, off, strict=True)):
        if finish < begin:
            raise _unfit(path, name, f"inactive[{i}] ({finish:g}) is before active[{i}] ({begin:g})")
        finish = min(finish, period_s)
        if stays and begin <= stays[-1][1]:
            stays[-1] = (stays[-1][0], max(finish, stays[-1][1]))
        elif begin < finish:
            stays.append((begin, finish))
    steps = {0.0: 0.0}
    for begin, finish in stays:
        steps |= {begin: 1.0, finish: 0.0}
    steps.pop(period_s, None)
    return StepFunction.of(list(steps), list(steps.values()), period_s)


def _times(path: Path, name: str, entry: dict[str, Any], key: str) -> list[float]:
    given = entry[key]
    if not isinstance(given, list | tuple) or not all(_is_number(time) and time >= 0 for time in given):
        raise _unfit(path, name, f"'{key}' must be a list of times that are not negative")
    for i, (before, after) in enumerate(itertools.pairwise(given)):
        if after < before:
            raise _unfit(
                path, name, f"time goes backwards: {key}[{i + 1}] ({after:g}) is before {key}[{i}] ({before:g})"
            )
    return [float(time) for time in given]
