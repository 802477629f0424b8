"""Group operations: what every member of a group pays for working in a group, such as secure aggregation.

An operation costs each member ``a + b n + c n²`` seconds on its own device, n being the size of the group (S2 §2.3), and
bytes to and from the aggregator beside the model itself. The curves are in the device profiles; a scenario may give
its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from devices.profile import Curve, DeviceProfile
from emulator.errors import InputError
from emulator.registry import NoParams, Params, group_operations
from emulator.units import Seconds


@dataclass(frozen=True)
class OperationCost:
    """What one member pays."""

    seconds: float
    up_bytes: int
    down_bytes: int


NOTHING = OperationCost(0.0, 0, 0)

# The device's curve for secure aggregation, by the vectors of the model's size that each member brings (SCAFFOLD brings two).
SECURE_AGGREGATION = {1: "secure-aggregation", 2: "scaffold-secure-aggregation"}

_KEY_BYTES = 32  # an X25519 public key
_SHARE_BYTES = 32  # a Shamir share of a 256-bit secret


class CurveParams(Params):
    """Takes the place of the device's own curve. Terms that are left out keep the device's value."""

    a: Seconds | None = Field(None, description="seconds a member, whatever the size of the group")
    b: Seconds | None = Field(None, description="seconds a member for each member of the group")
    c: Seconds | None = Field(None, description="seconds a member for each pair (member, member)")


@group_operations.register("none")
def none(device: DeviceProfile, size: int, vectors: int, params: NoParams) -> OperationCost:
    """No group operation: models are averaged in the clear, at no charge."""
    return NOTHING


@group_operations.register("secure-aggregation", CurveParams)
def secure_aggregation(device: DeviceProfile, size: int, vectors: int, params: CurveParams) -> OperationCost:
    """Secure aggregation: quadratic time on each member's device; keys and shares as in Bonawitz et al., CCS 2017.

    Bytes follow that paper's count of what a user sends and receives beside its masked model: two public keys up and those
    of all others down, two encrypted shares for each other member in both directions, one share of each member revealed.
    """
    others = size - 1
    return OperationCost(
        seconds=_seconds(SECURE_AGGREGATION[vectors], device, size, params),
        up_bytes=2 * _KEY_BYTES + 2 * others * _SHARE_BYTES + size * _SHARE_BYTES,
        down_bytes=2 * others * _KEY_BYTES + 2 * others * _SHARE_BYTES,
    )


@group_operations.register("backdoor-detection", CurveParams)
def backdoor_detection(device: DeviceProfile, size: int, vectors: int, params: CurveParams) -> OperationCost:
    """Backdoor detection: every pair of updates is compared; quadratic time, no bytes beside the models."""
    return OperationCost(_seconds("backdoor-detection", device, size, params), 0, 0)


def _seconds(operation: str, device: DeviceProfile, size: int, params: CurveParams) -> float:
    own = device.group_operations.get(operation)
    if own is None and None in (params.a, params.b, params.c):
        raise InputError(
            f"device '{device.name}' has no curve for {operation}; give a, b and c", "method.group_operation"
        )
    base = own or Curve(a=0.0, b=0.0, c=0.0)
    a, b, c = (
        given if given is not None else known
        for given, known in zip((params.a, params.b, params.c), (base.a, base.b, base.c), strict=True)
    )
    return a + b * size + c * size * size
