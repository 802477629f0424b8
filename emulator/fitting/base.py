"""The world that is fitted: what the emulator would charge for a measured activity, with given figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from devices.compute import PASSES, dense_flops
from devices.profile import DeviceProfile, find_profile
from emulator.assembly import workload_of
from emulator.contracts.learning import LocalRuleChoice
from emulator.contracts.world import GroupOperationChoice, Meeting
from emulator.errors import InputError
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.timing import TimingLab
from emulator.registry import choices
from emulator.scenario import Loaded
from emulator.world.carriage import Carriage
from emulator.world.fleet import Fleet
from emulator.world.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Base:
    """A scenario's world before it is fitted: its clients with their devices and links, and what they do.

    ``kinds`` are the clients' profiles by name, ``kind_of`` the name of each client's.
    """

    loaded: Loaded
    fleet: Fleet
    workload: Workload
    batch_size: int
    step_flops: int
    operation: GroupOperationChoice | None
    vectors: int
    carriage: Carriage
    kinds: dict[str, DeviceProfile]
    kind_of: dict[str, str]

    @property
    def clients(self) -> list[str]:
        """The names of the clients."""
        return self.fleet.client_names

    def work(self, kind: str, rows: pd.DataFrame) -> tuple[Floats, Floats]:
        """FLOPs (those of dense layers that take as long) and batches of each training, on a device of a kind."""
        samples = rows["samples"].to_numpy(dtype=float)
        sizes = np.where(rows["batch_size"] > 0, rows["batch_size"], self.batch_size).astype(int)
        flops = {
            size: PASSES * dense_flops(self.kinds[kind], self.workload.training(size, self.step_flops))
            for size in set(sizes.tolist())
        }
        return samples * np.array([flops[size] for size in sizes.tolist()], dtype=float), samples / sizes

    def operation_s(self, device: DeviceProfile, client: str, sizes: npt.NDArray[np.int64]) -> Floats:
        """Seconds of the method's group operation in groups of these sizes, on such a device in the place of a client."""
        if self.operation is None:
            return np.zeros(len(sizes))
        server = self.fleet.device(self.fleet.home(self.clients.index(client)))
        seconds = {
            n: self.operation(Meeting(device, server, n, self.workload.parameters, self.vectors)).seconds
            for n in set(sizes.tolist())
        }
        return np.array([seconds[n] for n in sizes.tolist()], dtype=float)

    def transfer_s(self, sizes: npt.NDArray[np.int64], bandwidth_bps: float, latency_s: float) -> Floats:
        """Seconds of a transfer of so many bytes that is alone on one link; ``bandwidth_bps`` is what losses leave of it."""
        trip_s = 2 * latency_s
        rate = min(bandwidth_bps, self.carriage.most_bps(trip_s))
        found = {}
        for size in set(sizes.tolist()):
            lasts_s = self.carriage.wire_bits(size) / rate
            found[size] = latency_s + lasts_s + self.carriage.start_up_s(size, trip_s, lasts_s)
        return np.array([found[size] for size in sizes.tolist()], dtype=float)


def base_of(loaded: Loaded, memo: Memo) -> Base:
    """The world of a scenario. Raises `InputError` where its data or its model are not there."""
    scenario = loaded.scenario
    with loaded.locating():
        fleet = Fleet(scenario.topology, scenario.seed)
        if fleet.assigned.access_bps is not None:
            raise InputError(
                "bandwidths of a mix of devices cannot be fitted; give clients in a file", "topology.devices"
            )
        for key, trace in (
            ("links.access.trace", scenario.topology.links.access.trace),
            ("speed", scenario.topology.speed),
        ):
            if trace is not None:
                raise InputError("what follows a trace cannot be fitted; take the trace out", f"topology.{key}")
        lab = TimingLab(scenario, RunMemory(memo))
        found = list(choices(scenario.method))
        local = next((each for _, each in found if isinstance(each, LocalRuleChoice)), None)
        if local is None:
            raise InputError("this method trains in a way of its own, without 'local'; it cannot be fitted", "method")
        operation = next((each for _, each in found if isinstance(each, GroupOperationChoice)), None)
        rule = local()
        workload = workload_of(scenario, lab)
    kind_of = {name: kind for name, (kind, _) in zip(fleet.client_names, fleet.assigned.made_of, strict=True)}
    return Base(
        loaded, fleet, workload, int(local.params.batch_size), rule.step_flops, operation, rule.vectors,
        Carriage(scenario.topology.transport(), scenario.seed), {kind: find_profile(kind) for kind in kind_of.values()}, kind_of,
    )  # fmt: skip
