"""Clients whose devices are drawn from a mix, such as the measured phones of a population."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from devices.profile import DeviceProfile
from emulator.rng import stream
from emulator.scenario.contents import content
from emulator.scenario.topology_schema import MeasuredDevices
from emulator.world.profiles import Profiles
from traces.content import DeviceMix
from traces.step import Floats


def assign_from_mix(
    devices: MeasuredDevices, clients: int, seed: int, profiles: Profiles
) -> tuple[list[DeviceProfile], list[float], list[float] | None]:
    """A device for each client, how fast it is, and, where the mix is to give it, its access bandwidth (bit/s).

    A kind's device is the profile of the median device, as many times faster as the mix says; clients of one kind have the same
    object. Raises `InputError` with the scenario key where mix or profile cannot be read.
    """
    mix = content(devices.mix, devices.format, DeviceMix, "topology.devices", "mix")
    median = profiles[devices.median]
    kinds = assign_kinds(mix.shares, clients, stream(seed, "devices"))
    made = {k: median.faster(float(mix.relative_speeds[k]), mix.names[k]) for k in np.unique(kinds).tolist()}
    bandwidths = mix.bandwidth_bps[kinds].tolist() if devices.bandwidth and mix.bandwidth_bps is not None else None
    return [made[k] for k in kinds.tolist()], mix.relative_speeds[kinds].tolist(), bandwidths


def assign_kinds(shares: Floats, clients: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """A kind for each client. Every kind gets its share of the clients, rounded up or down, and exactly its share in the mean.

    This is systematic sampling (Madow, 1949) from the kinds in random order: of a few kinds it deals out the right numbers, and
    of more kinds than clients it draws by chance, none twice whose share is below that of one client.
    """
    order = rng.permutation(len(shares))
    ends = np.cumsum(shares[order])
    points = (rng.random() + np.arange(clients)) / clients * ends[-1]
    # A point may be rounded up to the very end.
    places = np.minimum(np.searchsorted(ends, points, "right"), len(shares) - 1)
    assigned: NDArray[np.intp] = order[places][rng.permutation(clients)]
    return assigned
