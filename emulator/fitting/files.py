"""A fit as files: a profile for each kind of device, the clients' devices and links, and changes to a scenario that name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from devices.calibration import curve_data
from devices.profile import DeviceProfile
from emulator import yamlfile
from emulator.files import slug, write_text
from emulator.fitting.fits import DeviceFit, Fit
from emulator.fitting.links import LinkFit
from emulator.scenario.fleet_table import write_table
from emulator.units import RATE, SPEED, TIME, Dimension
from emulator.world.fleet_columns import client_columns

LINK = ("up", "down", "latency", "jitter", "jitter_kind", "overhead", "loss")  # columns
OVERLAY, FLEET = "overlay.yaml", "fleet.csv"
_UNITS = {
    SPEED: ("TFLOP/s", "GFLOP/s", "MFLOP/s", "FLOP/s"),
    TIME: ("s", "ms", "us", "ns"),
    RATE: ("Gbit/s", "Mbit/s", "kbit/s", "bit/s"),
}


def write(fit: Fit, folder: Path, source: str) -> list[Path]:
    """Writes the files of a fit to ``source`` into a folder and returns them, the changes (`OVERLAY`) first.

    The changes name the other files as ``folder`` does, so a relative folder counts from where ``hfl`` is started.
    """
    profiles: dict[str, Path] = {}
    for kind, device in fit.devices.items():
        name = slug(Path(kind).stem)
        while folder / f"{name}.yaml" in profiles.values():
            name += "-again"
        profiles[kind] = folder / f"{name}.yaml"
        write_text(profiles[kind], profile_text(device, source))
    write_table(folder / FLEET, _clients(fit, profiles))
    topology: dict[str, Any] = {"clients": None, "total": None, "fleet": str(folder / FLEET)}
    links = fit.base.loaded.scenario.topology.links
    if links.access.jitter is not None:  # the clients' rows say which have some
        topology["links"] = {"access": {"jitter": None}}
    if fit.backhaul is not None:
        left = 1 - links.backhaul.loss
        topology.setdefault("links", {})["backhaul"] = {
                "up": quantity(RATE, fit.backhaul.up_bps / left), "down": quantity(RATE, fit.backhaul.down_bps / left),
                "latency": quantity(TIME, fit.backhaul.latency_s),
                "overhead": quantity(TIME, fit.backhaul.overhead_s),
            }  # fmt: skip
    heading = f"# Fitted to {source}.\n# Put it over the scenario: hfl run SCENARIO --set @{folder / OVERLAY}\n"
    write_text(folder / OVERLAY, heading + yamlfile.dump({"topology": topology}))
    return [folder / OVERLAY, folder / FLEET, *profiles.values()]


def profile_text(device: DeviceFit, source: str) -> str:
    """A fitted kind of device as the YAML of a profile."""
    profile = device.profile
    said = profile.model_dump(exclude_defaults=True)
    data: dict[str, Any] = {
        "title": f"{profile.title}, fitted",
        "source": f"{_found(device, source)}\n\nAll else as it was: {profile.source}",
        "effective_speed": quantity(SPEED, profile.effective_speed),
        "batch_overhead": quantity(TIME, profile.batch_overhead),
    }
    if profile.core_slowdown is not None:
        data["core_slowdown"] = float(f"{profile.core_slowdown:.6g}")
    data["power"] = said["power"]
    data["group_operations"] = {name: curve_data(curve) for name, curve in profile.group_operations.items()}
    data |= {name: value for name, value in said.items() if name not in data and name not in ("measured", "spread")}
    if "spread" in DeviceProfile.model_fields and device.spread:
        data["spread"] = {
            name: {"relative": float(f"{v:.4g}"), "source": f"fitted to {source}"} for name, v in device.spread.items()
        }
    DeviceProfile.model_validate(data)
    return yamlfile.dump(data)


def _found(device: DeviceFit, source: str) -> str:
    """What was fitted, and how far it is off."""
    if not device.trainings and not device.group_operations:
        return f"Not fitted: {source} says nothing of it."
    told = (
        "speed and overhead of a batch" if device.separate else "speed (its ratio to the overhead of a batch as it was)"
    )
    text = f"Fitted to {source}: {told} to {device.trainings} trainings, off by {100 * device.deviation:.2g} %"
    if len(device.speeds) > 1:
        text += f"; {len(device.speeds)} clients, whose speeds differ by {100 * device.between_clients:.2g} %"
    if device.curve:
        text += (
            f". Group operations: the curve '{device.curve}' to {device.group_operations} of {device.group_sizes} sizes, off by "
            f"{100 * device.group_deviation:.2g} %"
        )
    elif device.group_operations:
        text += (
            f". Group operations: all curves times {device.group_factor:.4g}, to {device.group_operations} of them, off by "
            f"{100 * device.group_deviation:.2g} %"
        )
    uncertain = ", ".join(f"{name} {100 * value:.2g} %" for name, value in device.spread.items())
    return text + (f". Relative standard deviations: {uncertain}." if uncertain else ".")


def _clients(fit: Fit, profiles: dict[str, Path]) -> dict[str, list[str]]:
    """The columns of the fleet's file: as the clients were, with what was fitted in place of what they had."""
    base = fit.base
    names = base.clients
    columns = client_columns(base.fleet)
    before = {name: columns.get(name, [""] * len(names)) for name in LINK}
    columns["device"] = [str(profiles[base.kind_of[name]]) for name in names]
    columns["speed"] = [f"{fit.devices[base.kind_of[name]].speeds[name]:.6g}" for name in names]
    rows = [
        _link(fit.links[name], {column: before[column][c] for column in LINK}) if fit.links[name].transfers else
        {column: before[column][c] for column in LINK}
        for c, name in enumerate(names)
    ]  # fmt: skip
    for column in LINK:
        cells = [row[column] for row in rows]
        if any(cells):
            columns[column] = cells
        else:
            columns.pop(column, None)
    return columns


def _link(link: LinkFit, before: dict[str, str]) -> dict[str, str]:
    """The cells of a link that was fitted."""
    left = 1 - float(before["loss"] or 0)
    beside_s = link.deviation_s if link.exponential else 0.0  # the mean of an exponential jitter
    return {
        "up": quantity(RATE, link.up_bps / left),
        "down": quantity(RATE, link.down_bps / left),
        "latency": quantity(TIME, link.latency_s),
        "jitter": quantity(TIME, link.deviation_s) if link.deviation_s else "",
        "jitter_kind": ("exponential" if link.exponential else "normal") if link.deviation_s else "",
        "overhead": quantity(TIME, max(0.0, link.overhead_s - beside_s)),
        "loss": before["loss"],
    }


def quantity(dimension: Dimension, value: float) -> str:
    """A quantity to six digits, in the first of its units of which it holds at least one."""
    if value == 0:
        return f"0 {dimension.base}"
    units = _UNITS[dimension]
    unit = next((u for u in units if value >= dimension.units[u]), units[-1])
    return f"{value / dimension.units[unit]:.6g} {unit}"
