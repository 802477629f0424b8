"""Whether profiles of the clients' devices fit what they are to train: its memory, and its measured seconds."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from devices.compute import measurements
from devices.memory import Need, missing_bytes, swapping
from devices.profile import DeviceProfile, Swap
from emulator.errors import InputError
from emulator.world.workload import Workload

log = logging.getLogger(__name__)


BatchSizes = Iterable[tuple[str, int]]  # sizes of batches, each with its key in the scenario


def fits(devices: Iterable[DeviceProfile], workload: Workload, batch_sizes: BatchSizes) -> bool:
    """Whether all devices have the memory to train in batches of all these sizes."""
    most = max((workload.need(size).training_bytes for _, size in batch_sizes), default=0)
    return not any(missing_bytes(device, most) for device in kinds_of(devices))


def kinds_of(devices: Iterable[DeviceProfile]) -> list[DeviceProfile]:
    """Each kind of device once."""
    return list({id(device): device for device in devices}.values())


def check_memory(devices: Iterable[DeviceProfile], workload: Workload, batch_sizes: BatchSizes) -> None:
    """Raises `InputError` where a device cannot train in batches of a size, about the key of the size.

    Where the device swaps instead, a warning says how much slower it is.
    """
    kinds = kinds_of(devices)
    for key, batch_size in dict.fromkeys(batch_sizes):
        need = workload.need(batch_size)
        for device in kinds:
            if not missing_bytes(device, need.training_bytes):
                continue
            if isinstance(device.out_of_memory, Swap):
                slower = swapping(device, need.training_bytes)
                log.warning("%s: it swaps, and trains %.3g times slower", _too_much(device, need, batch_size), slower)
            else:
                advice = _advice(device, workload, batch_size)
                raise InputError(f"{_too_much(device, need, batch_size)}; {advice}", key)


def check_measured(devices: Iterable[DeviceProfile], workload: Workload) -> None:
    """Warns where a profile has measured seconds of a model of this kind, but not of this very network."""
    forward = workload.forward
    for device in kinds_of(devices):
        if any(m.model == workload.model for m in device.measured) and not measurements(device, forward):
            what = f"{workload.forward_flops:,.0f} forward FLOPs and {workload.parameters:,} parameters"
            which = f"'{device.name}' has measured seconds of '{workload.model}', but of another network than this one"
            log.warning("device %s, which has %s: the formula is taken", which, what)


def _too_much(device: DeviceProfile, need: Need, batch_size: int) -> str:
    parts = ", ".join(f"{_mib(size)} {what}" for what, size in need.parts(device).items() if size)
    total = device.reserve + need.training_bytes
    assert device.memory is not None
    return (
        f"training in batches of {batch_size} needs {_mib(total)} of memory ({parts}), and a '{device.name}' has "
        f"{_mib(device.memory)}"
    )


def _advice(device: DeviceProfile, workload: Workload, batch_size: int) -> str:
    """What would help: a smaller batch, where one fits, or else another device."""
    other = "give the clients devices with more memory, or a profile that swaps ('out_of_memory: {swap: 10}')"
    fixed = workload.need(batch_size).training_bytes - workload.need(batch_size).activations_bytes
    assert device.memory is not None
    room = device.memory - device.reserve - fixed
    most = int(room // workload.activation_bytes) if room > 0 and workload.activation_bytes else 0
    return f"a batch size of {most} would fit; otherwise {other}" if most else f"no batch size would fit; {other}"


def _mib(size_bytes: float) -> str:
    """A size to four digits, so that what is needed differs from what is there."""
    mib = size_bytes / 2**20
    return f"{mib:,.0f} MiB" if mib >= 1000 else f"{mib:.4g} MiB"
