"""Published figures of boards against what device profiles say; see published_boards.yaml."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from devices.calibration import Timing, fit_speed
from devices.compute import PASSES, Arithmetic, training_s
from devices.profile import DeviceProfile, Efficiency, find_profile
from emulator.world.heat import Heat
from emulator.world.workload import Workload

FILE = Path(__file__).with_name("published_boards.yaml")
SYSTEM_MIB = 120  # of a profile's reserve


@dataclass(frozen=True)
class Compared:
    """A published figure beside that of a profile, and beside one of a profile that was fitted without it (else nan)."""

    what: str
    of: str
    fitted: str
    measured: float
    says: float
    without: float = math.nan

    @property
    def error(self) -> float:
        """By which share the profile is above what was measured."""
        return self.says / self.measured - 1

    @property
    def error_without(self) -> float:
        """The same of the profile that was fitted without it."""
        return self.without / self.measured - 1


def published() -> dict[str, Any]:
    """What the file holds."""
    loaded: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return loaded


def arithmetic(network: dict[str, Any]) -> Arithmetic:
    """The forward pass of a network of the file."""
    depthwise = float(network["depthwise"])
    return Arithmetic(float(network["forward_flops"]), (("depthwise", depthwise),) if depthwise else ())


def compared() -> Iterator[Compared]:
    """Every figure of the file against the profiles."""
    data = published()
    for row in data["speeds"]:
        network = arithmetic(data["networks"][row["network"]])
        says = 1 / training_s(find_profile(row["device"]), network, 1, row["batch"])
        what = f"{row['device']}: {row['network']}, batch {row['batch']}, samples/s"
        without = _without(data, row)
        left_out = math.nan if without is None else 1 / training_s(without, network, 1, row["batch"])
        yield Compared(what, row["of"], row["fitted"], row["measured"], says, left_out)
    for row in data["ratios"]:
        network = arithmetic(data["networks"][row["network"]])
        slow, fast = (training_s(find_profile(row[name]), network, 1, row["batch"]) for name in ("slow", "fast"))
        yield Compared(f"{row['slow']} : {row['fast']}, times", row["of"], row["fitted"], row["measured"], slow / fast)
    for row in data["heat"]:
        throttling = find_profile(row["device"]).throttling
        assert throttling is not None
        cold_s, heat, now_s = row["cold"], Heat(throttling), 0.0
        for seconds in cold_s:
            end_s = heat.end_of_work(now_s, seconds)
            heat.worked(now_s, end_s)
            now_s = end_s
        what = f"{row['device']}: {row['network']}, {len(cold_s)} rounds, times slower"
        yield Compared(what, row["of"], row["fitted"], sum(row["hot"]) / sum(cold_s), now_s / sum(cold_s))
    for row in data["memory"]:
        network, profile = data["networks"][row["network"]], find_profile(row["device"])
        size = network["parameters"]
        load = Workload(4 * size, 1.0, size, activation_bytes=network["activation_bytes"], state_vectors=1)
        says = (profile.reserve + load.need(row["batch"]).training_bytes) / 2**20 - SYSTEM_MIB
        what = f"{row['device']}: {row['network']}, batch {row['batch']}, MiB"
        yield Compared(what, row["of"], row["fitted"], row["measured"], says)


def fit_depthwise(profile: DeviceProfile, rows: list[tuple[Arithmetic, int, float]]) -> float:
    """The efficiency of depth-wise layers with the least relative errors, speed and overhead being those of the profile.

    ``rows`` are networks, batch sizes and samples a second. The seconds of a sample are linear in 1 / efficiency.
    """
    top = bottom = 0.0
    for network, batch, measured in rows:
        dense = training_s(profile, Arithmetic(network.flops - dict(network.by_kind)["depthwise"]), 1, batch) * measured
        slope = PASSES * dict(network.by_kind)["depthwise"] / profile.effective_speed * measured
        top, bottom = top + slope * (1 - dense), bottom + slope * slope
    return bottom / top


def _without(data: dict[str, Any], left_out: dict[str, Any]) -> DeviceProfile | None:
    """The profile, fitted to what it was fitted to but for one figure; None where that one was not among these."""
    if not left_out["fitted"]:
        return None
    profile = find_profile(left_out["device"])
    same = [r for r in data["speeds"] if r["device"] == left_out["device"] and r["fitted"] == left_out["fitted"]]
    rows = [(arithmetic(data["networks"][r["network"]]), r["batch"], r["measured"]) for r in same if r is not left_out]
    if left_out["fitted"] == "depthwise":
        efficiency = Efficiency(depthwise=fit_depthwise(profile, rows))
        return profile.model_copy(update={"efficiency": efficiency})
    speed = fit_speed([Timing(PASSES * a.flops * batch, 1, batch / measured) for a, batch, measured in rows])
    return profile.model_copy(
        update={"effective_speed": speed.effective_speed, "batch_overhead": speed.batch_overhead_s}
    )
