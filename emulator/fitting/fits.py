"""The fit: figures of devices, links and group operations with which the emulator charges what was measured.

- Devices: effective speed and overhead of a batch, of each kind of device; and how many times as fast as its kind each client is.
  Where trainings do not tell the two apart (one size of batch), their ratio stays as the profile has it.
- Group operations: the curve over sizes of groups, where there are at least `SIZES` of them; else one factor on what there is.
- Links: bandwidth up and down and latency of each client (or each kind), and of all edges together. Where all transfers have
  about the same size, latency stays as the scenario has it. What transfers vary is jitter.

Transfers are taken to be alone on their links, which those of clients are unless they share a cell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from devices import robust
from devices.profile import Curve, DeviceProfile, Terms
from emulator.errors import InputError
from emulator.fitting.base import Base, Floats
from emulator.fitting.links import LinkFit, backhaul_of, known_backhaul, links_of, sent_s
from emulator.fitting.timings import BACKHAUL, BACKHAUL_UP, DOWN, GROUP, TRAIN, UP

if TYPE_CHECKING:
    import pandas as pd

APART = 1.2  # by which factor arithmetic in a batch must differ to tell speed from overhead
SIZES = 3  # of groups that make a curve
CURVES = {
    "secure-aggregation": ("secure-aggregation", "scaffold-secure-aggregation"),
    "backdoor-detection": ("backdoor-detection",) * 2,
}
PASSES, SETTLED = 50, 1e-10  # between the figures of a kind and the speeds of its clients
VAGUE = 0.25  # the relative standard error of a speed beyond which it is not told from the overhead
NO_SPREAD = 1e-6  # a relative deviation that is rounding


@dataclass(frozen=True)
class DeviceFit:
    """A kind of device. ``speeds`` are those of its clients as multiples of its own. Spreads are relative standard deviations."""

    profile: DeviceProfile
    speeds: dict[str, float]
    trainings: int = 0
    separate: bool = False  # whether speed and overhead of a batch were told apart
    deviation: float = 0.0  # of single trainings
    between_clients: float = 0.0
    group_factor: float = 1.0
    group_operations: int = 0
    group_sizes: int = 0
    group_deviation: float = 0.0
    curve: str = ""  # the curve that was fitted as such, not by a factor

    @property
    def spread(self) -> dict[str, float]:
        """How uncertain its figures are, by their names in a profile."""
        speed = math.hypot(self.between_clients, self.deviation / math.sqrt(max(1, self.trainings)))
        group = self.group_deviation / math.sqrt(max(1, self.group_operations))
        found = {"effective_speed": speed if self.trainings else 0.0}
        if self.profile.core_slowdown is not None and not self.curve:
            found["core_slowdown"] = group
        return {name: value for name, value in found.items() if value > NO_SPREAD}


@dataclass(frozen=True)
class Fit:
    """Everything that was fitted: devices by kind, links by client, and that of the edges to the cloud (None: as it was)."""

    base: Base
    devices: dict[str, DeviceFit]
    links: dict[str, LinkFit]
    backhaul: LinkFit | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def found(self) -> bool:
        """Whether anything was fitted at all."""
        devices = any(each.trainings or each.group_operations for each in self.devices.values())
        return devices or self.backhaul is not None or any(link.transfers for link in self.links.values())

    def predict(self, timings: pd.DataFrame) -> Floats:
        """The seconds that the emulator charges for each activity with these figures; nan where it knows nothing of it."""
        found = np.full(len(timings), np.nan)
        rows = timings.reset_index(drop=True)
        for (phase, client), part in rows.groupby(["phase", "client"], sort=False):
            found[part.index] = self._seconds(str(phase), str(client), part)
        return found

    def _seconds(self, phase: str, client: str, part: pd.DataFrame) -> Floats | float:
        if phase in BACKHAUL:
            if self.backhaul is None:
                return math.nan
            return sent_s(self.base, part, self.backhaul, phase == BACKHAUL_UP)
        if phase in (UP, DOWN):
            return sent_s(self.base, part, self.links[client], phase == UP, self.backhaul or known_backhaul(self.base))
        kind = self.base.kind_of[client]
        device, speed = self.devices[kind], self.devices[kind].speeds[client]
        if phase == TRAIN:
            flops, batches = self.base.work(kind, part)
            return (flops / device.profile.effective_speed + batches * device.profile.batch_overhead) / speed
        own = device.profile if speed == 1 else device.profile.faster(speed, device.profile.name)
        return self.base.operation_s(own, client, part["group_size"].to_numpy(dtype=np.int64))


def fit(base: Base, timings: pd.DataFrame, by_client: bool = True) -> Fit:
    """Fits a world to measured activities. With ``by_client`` each client has a speed and a link of its own; else those of a kind
    are alike.

    Raises `InputError` where times do not grow with what was done.
    """
    notes: list[str] = []
    devices = {}
    for kind in base.kinds:
        clients = [name for name in base.clients if base.kind_of[name] == kind]
        rows = timings[timings["client"].isin(clients)]
        trained = _device(base, kind, clients, rows[rows["phase"] == TRAIN], by_client, notes)
        devices[kind] = _operations(base, kind, trained, rows[rows["phase"] == GROUP], notes)
    backhaul = backhaul_of(base, timings[timings["phase"].isin(BACKHAUL)], notes)
    above = backhaul or known_backhaul(base)
    links = dict(links_of(base, timings[timings["phase"].isin((UP, DOWN))], above, by_client, notes))
    return Fit(base, devices, links, backhaul, tuple(dict.fromkeys(notes)))


def _device(
    base: Base, kind: str, clients: list[str], rows: pd.DataFrame, by_client: bool, notes: list[str]
) -> DeviceFit:
    profile = base.kinds[kind]
    made_of = dict(zip(base.clients, base.fleet.assigned.made_of, strict=True))
    if rows.empty:
        notes.append(f"{kind}: nothing was trained on it; its speed stays as it is")
        return DeviceFit(profile, {name: made_of[name][1] for name in clients})
    seconds = rows["seconds"].to_numpy(dtype=float)
    flops, batches = base.work(kind, rows)
    dense = flops / batches
    separate = bool(dense.max() > APART * dense.min())
    ratio = profile.batch_overhead * profile.effective_speed  # FLOPs that take as long as the overhead of a batch
    while True:
        table = np.stack([flops, batches], axis=1) if separate else (flops + ratio * batches)[:, None]
        found, speeds, places = _speeds(table, seconds, rows, clients, by_client)
        if not separate or found.standard_errors[0] <= VAGUE * found.values[0]:
            break
        separate = False
    whose = rows["client"].to_numpy()
    per_flop = float(found.values[0])
    if per_flop <= 0:
        raise InputError(f"{kind}: the times of its trainings do not grow with the arithmetic, so they give no speed")
    overhead_s = float(found.values[1]) if separate else ratio * per_flop
    errors = 1 - seconds * np.array([speeds[name] for name in whose]) / (table @ found.values)
    if not separate:
        notes.append(
            f"{kind}: its trainings do not tell the speed from the overhead of a batch; their ratio stays as the profile has it"
        )
    unmeasured = [name for name in clients if name not in places]
    if unmeasured and by_client:
        notes.append(
            f"{kind}: {len(unmeasured)} of {len(clients)} clients trained nothing; they are as fast as the mean of the others"
        )
    fitted = profile.model_copy(update={"effective_speed": 1 / per_flop, "batch_overhead": overhead_s, "measured": ()})
    fitted._name = profile.name
    logs = [math.log(speeds[name]) for name in places]
    return DeviceFit(
        fitted, speeds, len(rows), separate, robust.deviation_of(errors) if len(errors) > 1 else 0.0,
        float(np.std(logs, ddof=1)) if len(logs) > 1 and by_client else 0.0,
    )  # fmt: skip


def _speeds(
    table: Floats, seconds: Floats, rows: pd.DataFrame, clients: list[str], by_client: bool
) -> tuple[robust.Robust, dict[str, float], dict[str, Any]]:
    """The coefficients of a kind and the speeds of its clients, whose geometric mean is 1; and the rows of each client."""
    speeds = dict.fromkeys(clients, 1.0)
    whose = rows["client"].to_numpy()
    places = {str(name): own for name, own in rows.groupby("client").indices.items()}
    for _ in range(PASSES):
        found = robust.linear(table, seconds * np.array([speeds[name] for name in whose]))
        if not by_client:
            break
        predicted = table @ found.values
        own = {name: 1 / float(robust.factor(seconds[at], predicted[at]).values[0]) for name, at in places.items()}
        middle = math.exp(math.fsum(math.log(v) for v in own.values()) / len(own))
        before, speeds = speeds, speeds | {name: speed / middle for name, speed in own.items()}
        if all(abs(speeds[name] / before[name] - 1) < SETTLED for name in clients):
            break
    return found, speeds, places


def _operations(base: Base, kind: str, device: DeviceFit, rows: pd.DataFrame, notes: list[str]) -> DeviceFit:
    """The device with what group operations take on it."""
    from dataclasses import replace

    if rows.empty or base.operation is None:
        return device
    seconds = rows["seconds"].to_numpy(dtype=float)
    sizes = rows["group_size"].to_numpy(dtype=np.int64)
    own = np.array([device.speeds[name] for name in rows["client"]])
    client = rows["client"].iloc[0]
    charged = base.operation_s(device.profile, client, sizes)
    several = len(set(sizes.tolist()))
    name = _curve_name(base)
    if several >= SIZES and name in device.profile.group_operations:
        found = robust.linear(np.stack([np.ones(len(sizes)), sizes, sizes**2.0], axis=1), seconds * own)
        terms: dict[str, Any] = dict(zip("abc", map(float, found.values), strict=True))
        before = device.profile.group_operations[name]
        curve = Curve.model_construct(
            **terms, parameters=base.workload.parameters, proportional=_share(before, base, terms)
        )
        profile = _with(device.profile, {"group_operations": {**device.profile.group_operations, name: curve}})
        counts: dict[str, Any] = {
            "group_operations": len(rows),
            "group_sizes": several,
            "group_deviation": found.deviation,
        }
        return replace(device, profile=profile, curve=name, **counts)
    if not (charged > 0).all():
        notes.append(
            f"{kind}: the scenario charges nothing for its group operation; what was measured of it stays unexplained"
        )
        return device
    found = robust.factor(seconds * own, charged)
    slower = float(found.values[0])
    slowdown = device.profile.core_slowdown
    update = {
        "group_operations": {each: curve.faster(1 / slower) for each, curve in device.profile.group_operations.items()},
        "core_slowdown": None if slowdown is None else slowdown * slower,
    }
    profile = _with(device.profile, update)
    notes.append(
        f"{kind}: groups of fewer than {SIZES} sizes make no curve; its group operations take {slower:.4g} times "
        "what the profile says"
    )
    return replace(
        device, profile=profile, group_factor=slower, group_operations=len(rows), group_sizes=several,
        group_deviation=found.deviation,
    )  # fmt: skip


def _curve_name(base: Base) -> str:
    """The curve of a profile that the method's group operation reads; "" where it reads none, or several."""
    assert base.operation is not None
    params = base.operation.params
    if getattr(params, "model", "quadratic") != "quadratic" or getattr(params, "constants", None) is not None:
        return ""
    if any(getattr(params, term, None) is not None for term in "abc"):
        return ""
    names = CURVES.get(base.operation.kind)
    return names[base.vectors - 1] if names and base.vectors <= len(names) else ""


def _share(before: Curve, base: Base, terms: Mapping[str, float]) -> Terms | None:
    """What of a curve goes with the size of the model: the same share of each term as before."""
    if before.parameters is None or before.proportional is None:
        return None
    whole, grown = before.of(base.workload.parameters), base.workload.parameters / before.parameters
    part = before.proportional

    def share(term: str) -> float:
        now = getattr(whole, term)
        return min(1.0, max(0.0, getattr(part, term) * grown / now)) if now > 0 else 0.0

    scaled: dict[str, Any] = {term: share(term) * value for term, value in terms.items()}
    return Terms.model_construct(**scaled)


def _with(profile: DeviceProfile, update: Mapping[str, Any]) -> DeviceProfile:
    other = profile.model_copy(update=update)
    other._name = profile.name
    return other
