"""Which client has which device: as its row or kind says, or drawn from shares or a measured mix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from devices.profile import DeviceProfile
from emulator.rng import derive, stream
from emulator.scenario.roster import Roster
from emulator.scenario.topology_schema import MeasuredDevices, Topology
from emulator.world.mixes import assign_from_mix
from emulator.world.profiles import Profiles

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Assigned:
    """Devices of the clients by number: profiles, what each is made of (a profile's name, and how many times as fast it is), and,
    where a mix gives them, access bandwidths (bit/s).
    """

    profiles: list[DeviceProfile]
    made_of: list[tuple[str, float]]
    access_bps: Floats | None = None


def client_devices(topology: Topology, roster: Roster, seed: int) -> Assigned:
    """A device for each client. Where its row or kind says it, that counts; all others are drawn as if nobody had said any."""
    count, access_bps, known = len(roster.names), None, Profiles(topology)
    if isinstance(topology.devices, MeasuredDevices):
        profiles, speeds, bandwidths = assign_from_mix(topology.devices, count, seed, known)
        access_bps = None if bandwidths is None else np.array(bandwidths)
        made_of = [(topology.devices.median, speed) for speed in speeds]
    else:
        made_of = [(name, 1.0) for name in assign_devices(topology.devices, count, seed)]
        profiles = [known[name] for name, _ in made_of]
    said: dict[int, str] = {}
    for kind, shares in roster.kind_devices.items():
        theirs = np.flatnonzero(roster.kind_of == kind).tolist()
        said |= zip(theirs, assign_devices(shares, len(theirs), derive(seed, "kind", kind)), strict=True)
    said |= {client: name for client, name in enumerate(roster.devices or ()) if name}
    for client, name in said.items():
        profiles[client], made_of[client] = known[name], (name, 1.0)
    faster: dict[tuple[int, float], DeviceProfile] = {}
    for client in [] if roster.speeds is None else np.flatnonzero(~np.isnan(roster.speeds)).tolist():
        device, speed = profiles[client], float(roster.speeds[client])  # type: ignore[index]
        if speed != 1:
            key = (id(device), speed)
            if key not in faster:
                faster[key] = device.faster(speed, f"{device.name}, {speed:g} times as fast")
            profiles[client], made_of[client] = faster[key], (made_of[client][0], made_of[client][1] * speed)
    return Assigned(profiles, made_of, access_bps)


def assign_devices(shares: Mapping[str, float], clients: int, seed: int) -> list[str]:
    """A device for each client: counts by largest remainder, dealt out at random."""
    exact = {name: share * clients for name, share in shares.items()}
    counts = {name: int(value + 1e-9) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda n: (counts[n] - exact[n], n))
    for name in by_remainder[: clients - sum(counts.values())]:
        counts[name] += 1
    names = [name for name in sorted(counts) for _ in range(counts[name])]
    order = stream(seed, "devices").permutation(clients)
    return [names[i] for i in order]
