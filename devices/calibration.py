"""Figures of a device profile from measurements on this host.

Training time is fitted as ``seconds = Σ FLOPs of a kind / (effective speed · its efficiency) + batches · batch overhead``,
which is what `devices.compute` charges for full batches. Whoever calls gives a function that trains, so that nothing here
knows how. What cannot be measured from within, above all power, must be given.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from devices.compute import PASSES
from devices.profile import Curve, DeviceProfile, Power, Terms
from emulator import yamlfile
from emulator.errors import HflError
from emulator.rng import stream
from emulator.units import POWER, SIZE, SPEED, TIME, Dimension

_TIMES = ("s", "ms", "us", "ns")
SHORTER = 0.1  # vectors of a second length have this share of the numbers of the first

Train = Callable[[int, int], None]  # trains on so many batches of such a size: train(batch_size, batches)


@dataclass(frozen=True)
class Misses:
    """By which share of what was measured a fit misses it: in the mean and at most."""

    mean: float
    worst: float

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f} % in the mean and {100 * self.worst:.1f} % at most"


@dataclass(frozen=True)
class Fit:
    """What least squares found: a coefficient for each column, and by how much they miss."""

    coefficients: tuple[float, ...]
    misses: Misses


@dataclass(frozen=True)
class Timing:
    """Measured: so many seconds for so many floating-point operations (all passes) in so many batches.

    ``by_kind`` are those of the operations in layers that are not dense.
    """

    flops: float
    batches: int
    seconds: float
    by_kind: tuple[tuple[str, float], ...] = ()

    def with_kinds(self, forward_flops: float, by_kind: Sequence[tuple[str, float]]) -> Timing:
        """The same of a network with so many forward FLOPs, of which so many are in layers of other kinds."""
        return replace(self, by_kind=tuple((kind, some / forward_flops * self.flops) for kind, some in by_kind))


@dataclass(frozen=True)
class Speed:
    """Effective speed in FLOP/s, seconds of overhead a batch, efficiency of layers that are not dense, and their misses."""

    effective_speed: float
    batch_overhead_s: float
    misses: Misses
    efficiency: Mapping[str, float] = field(default_factory=dict)

    def seconds(self, flops: float, batches: int, by_kind: Sequence[tuple[str, float]] = ()) -> float:
        """The seconds that these figures give."""
        slower = sum(some * (1 / self.efficiency.get(kind, 1.0) - 1) for kind, some in by_kind)
        return (flops + slower) / self.effective_speed + batches * self.batch_overhead_s


def least_squares(table: np.ndarray, seconds: Sequence[float]) -> Fit:
    """Coefficients, none negative, with which the columns of ``table`` add up to ``seconds`` with the least relative errors.

    Raises ``ValueError`` where there is nothing to fit or a time is not greater than zero.
    """
    from sklearn.linear_model import LinearRegression

    measured = np.asarray(seconds, dtype=np.float64)
    if table.ndim != 2 or len(table) != len(measured) or not len(measured):
        raise ValueError("there must be one row for each time, and at least one")
    if not (np.isfinite(measured).all() and (measured > 0).all()):
        raise ValueError("times must be numbers greater than zero")
    relative = table / measured[:, None]
    scale = relative.max(axis=0)
    scale[scale == 0] = 1.0  # a column of zeros explains nothing and gets zero
    model = LinearRegression(positive=True, fit_intercept=False).fit(relative / scale, np.ones(len(measured)))
    coefficients = model.coef_ / scale
    errors = np.abs(relative @ coefficients - 1)
    return Fit(tuple(float(c) for c in coefficients), Misses(float(errors.mean()), float(errors.max())))


def fit_speed(timings: Sequence[Timing]) -> Speed:
    """Speed, overhead and efficiencies from timings; raises `HflError` where they do not depend on the arithmetic."""
    kinds = sorted({kind for t in timings for kind, _ in t.by_kind})
    rows = [
        [t.flops - sum(dict(t.by_kind).values()), t.batches, *(dict(t.by_kind).get(k, 0.0) for k in kinds)]
        for t in timings
    ]
    found = least_squares(np.array(rows, dtype=np.float64), [t.seconds for t in timings])
    per_flop, overhead_s, *slower = found.coefficients
    if per_flop <= 0:
        raise HflError("the times do not grow with the arithmetic, so they give no speed; measure larger models")
    # A kind whose times do not grow with its arithmetic gives no efficiency.
    efficiency = {kind: per_flop / each for kind, each in zip(kinds, slower, strict=True) if each > 0}
    return Speed(1 / per_flop, overhead_s, found.misses, efficiency)


def fit_curve(
    sizes: Sequence[int], seconds: Sequence[float], parameters: int | None = None, shorter: Sequence[float] = ()
) -> tuple[Curve, Fit]:
    """The curve ``a + b n + c n²``, none of them negative, through seconds by size of group.

    ``shorter`` are the seconds with vectors of a tenth of ``parameters`` numbers: nine tenths of what is proportional to the
    numbers are missing there. With them the curve says how it scales.
    """
    table = np.array([[1.0, n, n * n] for n in sizes])
    found = least_squares(table, seconds)
    terms: dict[str, Any] = dict(zip("abc", found.coefficients, strict=True))
    if parameters is None:
        return Curve.model_construct(**terms), found
    grown = (np.array(seconds) - np.array(shorter)) / (1 - SHORTER)
    told = grown > 0  # of a busy host, a shorter vector may have taken longer
    growing = least_squares(table[told], grown[told].tolist()).coefficients if told.any() else (0.0, 0.0, 0.0)
    part: dict[str, Any] = dict(zip("abc", growing, strict=True))
    return Curve.model_construct(**terms, parameters=parameters, proportional=Terms.model_construct(**part)), found


def time_training(
    train: Train,
    forward_flops: float,
    batch_size: int,
    span_s: float,
    repeats: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """The shortest of ``repeats`` timings (what else the host does only adds), each of about ``span_s`` seconds.

    ``forward_flops`` are those of one sample. Two batches are trained before, untimed, and one to see how long it takes.
    """
    train(batch_size, 2)
    began = clock()
    train(batch_size, 1)
    batches = max(1, round(span_s / max(clock() - began, 1e-9)))
    spans = []
    for _ in range(repeats):
        began = clock()
        train(batch_size, batches)
        spans.append(clock() - began)
    return Timing(PASSES * forward_flops * batch_size * batches, batches, min(spans))


def time_pair(parameters: int, repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds to compare two updates of so many parameters by their cosine, the shortest of ``repeats`` times."""
    x, y = stream(0, "calibration", "pair").standard_normal((2, parameters), dtype=np.float32)
    spans = []
    for _ in range(repeats):
        began = clock()
        float(x @ y) / math.sqrt(float(x @ x) * float(y @ y))
        spans.append(clock() - began)
    return min(spans)


def profile_text(
    title: str,
    source: str,
    speed: Speed,
    power: Power,
    group_operations: Mapping[str, Curve],
    memory_bytes: int | None = None,
    core_slowdown: float | None = None,
) -> str:
    """A device profile as YAML; figures are rounded to four digits. `devices.profile.find_profile` reads it.

    Without ``core_slowdown`` it goes with no constants of secure aggregation, only with its own curves.
    """
    data: dict[str, Any] = {
        "title": title,
        "source": source,
        "effective_speed": readable(SPEED, speed.effective_speed, "TFLOP/s", "GFLOP/s", "MFLOP/s"),
        "batch_overhead": readable(TIME, speed.batch_overhead_s, *_TIMES),
        "power": {state: POWER.format(getattr(power, state)) for state in Power.model_fields},
        "group_operations": {name: curve_data(curve) for name, curve in group_operations.items()},
    }
    if core_slowdown is not None:
        data["core_slowdown"] = float(f"{core_slowdown:.4g}")
    if speed.efficiency:
        data["efficiency"] = {kind: float(f"{share:.4g}") for kind, share in speed.efficiency.items()}
    if memory_bytes:
        data["memory"] = readable(SIZE, memory_bytes, "GiB", "MiB")
    # The mean absolute error of a normal distribution is sqrt(2 / pi) of its standard deviation.
    deviation = float(f"{speed.misses.mean * math.sqrt(math.pi / 2):.2g}")
    if deviation > 0:
        source = f"the fit misses the measured times by {speed.misses.mean:.1%} in the mean"
        data["spread"] = {"speed": {"relative": deviation, "source": source}}
    DeviceProfile.model_validate(data)
    return yamlfile.dump(data)


def curve_data(curve: Curve) -> dict[str, Any]:
    """A curve as it stands in a file, rounded to four digits."""
    data: dict[str, Any] = _terms_data(curve)
    if curve.parameters is not None:
        data["parameters"] = curve.parameters
    if curve.proportional is not None:
        data["proportional"] = _terms_data(curve.proportional)
    return data


def _terms_data(terms: Terms) -> dict[str, str]:
    return times_data({term: getattr(terms, term) for term in Terms.model_fields})


def times_data(values: Mapping[str, float]) -> dict[str, str]:
    """Seconds by name as they stand in a file, rounded to four digits."""
    return {name: readable(TIME, value, *_TIMES) for name, value in values.items()}


def readable(dimension: Dimension, value: float, *units: str) -> str:
    """A quantity rounded to four digits, in the first of these units (largest first) of which it holds at least one."""
    if value == 0:
        return f"0 {dimension.base}"
    unit = next((u for u in units if value >= dimension.units[u]), units[-1])
    return f"{value / dimension.units[unit]:.4g} {unit}"


def host_cpu() -> str:
    """The name of this host's processor and its number of cores."""
    name = ""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        lines = listing.read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    cores = os.cpu_count() or 1
    return f"{name or platform.processor() or platform.machine() or 'unknown processor'} ({cores} cores)"


def host_memory_bytes() -> int | None:
    """This host's main memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
