"""Group operations: what every member of a group pays for working in a group, such as secure aggregation.

An operation costs each member seconds on its own device, and bytes to and from the aggregator beside the model itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from devices.profile import DeviceProfile, Terms
from emulator.contracts.world import GroupOperation, GroupOperationFacts, Meeting, OperationCost, group_operations
from emulator.errors import InputError
from emulator.registry import NoParams, Params, Scale
from emulator.units import Seconds

if TYPE_CHECKING:
    from devices.secagg.constants import Constants

KEY = "method.group_operation"


# The device's curve for secure aggregation, by the vectors that each member brings.
SECURE_AGGREGATION = {1: "secure-aggregation", 2: "scaffold-secure-aggregation"}

_KEY_BYTES = 32  # an X25519 public key
_SHARE_BYTES = 32  # a Shamir share of a 256-bit secret


class CurveParams(Params):
    """``a + b n + c n²`` in place of the device's own curve, whatever the model.

    Terms that are left out keep the device's value for the size of the model.
    """

    a: Seconds | None = Field(None, description="seconds a member, whatever the size of the group")
    b: Seconds | None = Field(None, description="seconds a member for each member of the group")
    c: Seconds | None = Field(None, description="seconds a member for each pair (member, member)")


def _named_constants(schema: dict[str, Any]) -> None:
    """What may stand for constants, for the JSON schema: a bundled name, a file, or nothing."""
    from devices.secagg.constants import constants_names

    schema["anyOf"] = [{"enum": constants_names()}, {"type": "string", "pattern": r"\.ya?ml$"}, {"type": "null"}]


class SecureAggregationParams(CurveParams):
    """Which model of secure aggregation, against whom, and how often members drop out of it."""

    model: Literal["quadratic", "protocol"] = Field(
        "quadratic",
        description="'quadratic': a curve for the size of the model, the device's own or that of 'constants'; "
        "'protocol': the steps of Bonawitz et al., counted",
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.05,
        description="protocol or 'constants': share of the members that drop out, beside those whose failure is emulated",
    )
    threshold: Annotated[float, Field(gt=0.5, le=1)] = Field(
        0.66, description="protocol or 'constants': share of the members that must stay to the end; above one half"
    )
    adversary: Literal["passive", "active"] = Field(
        "passive",
        description="protocol: 'passive': the server follows it but is curious; 'active': the server may lie, so members sign "
        "their keys and the list of survivors",
    )
    constants: str | None = Field(
        None,
        description="whose implementation: a name (hfl list secure-aggregation) or a file of measured constants (hfl calibrate "
        "secure-aggregation); without it, quadratic: the device's own curve, protocol: 'python-2022'",
        json_schema_extra=_named_constants,
    )
    mask_element: Seconds | None = Field(
        None,
        description="seconds on one core of the Xeon that a number of a mask takes, in place of those of 'constants' (without "
        "these, of 'python-2022', in place of the device's own curve too)",
    )

    @field_validator("adversary")
    @classmethod
    def _counted(cls, adversary: str, info: ValidationInfo) -> str:
        if adversary == "active" and info.data.get("model") == "quadratic":
            raise PydanticCustomError(
                "adversary", "'active' needs 'model: protocol', which counts signatures; a device's curve has none"
            )
        return adversary

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """Constants that are not there, or that lack signatures."""
        if self.constants is None and self.mask_element is None:
            return
        try:
            _constants(self)
        except InputError as error:
            for line in error.message.split("\n"):  # a file of the user's own may have several problems
                yield "constants", line


class SumParams(Params):
    """Several operations."""

    of: tuple[GroupOperation, ...] = Field(
        strict=False, min_length=1, description="operations that all take place, one by one"
    )


def _least_of_protocol(size: int, params: SecureAggregationParams) -> int:
    if params.model == "quadratic" or size == 1:
        return 1
    from devices.secagg.shamir import threshold_of

    return threshold_of(size, params.threshold)


@group_operations.register("none", facts=GroupOperationFacts(alone=True))
def none(at: Meeting, params: NoParams) -> OperationCost:
    """No group operation: models are averaged in the clear, at no charge."""
    return OperationCost(0.0, 0, 0)


@group_operations.register(
    "secure-aggregation",
    SecureAggregationParams,
    GroupOperationFacts(least=_least_of_protocol, sums_only=lambda params: True),
)
def secure_aggregation(at: Meeting, params: SecureAggregationParams) -> OperationCost:
    """Secure aggregation (Bonawitz et al., CCS 2017): a quadratic curve (S2 Eq. 5), or the steps of the protocol.

    Whose implementation it is, ``constants`` says, for both models: the curve is then that of the protocol's counts.
    Bytes of the quadratic model follow that paper's count of what a user sends and receives beside its masked model: two
    public keys up and those of all others down, two encrypted shares for each other member in both directions, one share
    of each member revealed. For each member that dropped out, the masks that it has in common with all others are made
    again: another c n a member; its share is among those that are revealed anyway.
    """
    if params.model == "protocol":
        return _protocol(at, params)
    others = at.size - 1
    return OperationCost(
        seconds=_curve_s(
            SECURE_AGGREGATION[at.vectors], at, params, at.dropped * at.size, _curve_of_constants(at, params)
        ),
        up_bytes=2 * _KEY_BYTES + 2 * others * _SHARE_BYTES + at.size * _SHARE_BYTES,
        down_bytes=2 * others * _KEY_BYTES + 2 * others * _SHARE_BYTES,
    )


@group_operations.register("backdoor-detection", CurveParams)
def backdoor_detection(at: Meeting, params: CurveParams) -> OperationCost:
    """Backdoor detection: every pair of updates is compared; quadratic time, no bytes beside the models."""
    return OperationCost(_curve_s("backdoor-detection", at, params), 0, 0)


def _least_of_all(size: int, params: SumParams) -> int:
    return max(operation.least_members(size) for operation in params.of)


def _any_sums(params: SumParams) -> bool:
    return any(operation.sums_only for operation in params.of)


@group_operations.register("sum", SumParams, GroupOperationFacts(least=_least_of_all, sums_only=_any_sums))
def sum_of(at: Meeting, params: SumParams) -> OperationCost:
    """Several operations, one after another."""
    costs = [operation(at) for operation in params.of]
    return OperationCost(
        sum(c.seconds for c in costs), sum(c.up_bytes for c in costs), sum(c.down_bytes for c in costs)
    )


def _protocol(at: Meeting, params: SecureAggregationParams) -> OperationCost:
    from devices.secagg.cost import protocol_cost

    constants, (slowdown, server_slowdown) = _constants(params), _slowdowns(at)
    share = min(params.dropout + at.dropped / at.size, (at.size - 1) / at.size)
    cost = protocol_cost(
        at.size, at.parameters, share, params.threshold, constants, at.vectors, adversary=params.adversary
    )
    # A member waits for the server as long as the server computes.
    seconds = slowdown * cost.client_s + server_slowdown * cost.server_s
    return OperationCost(seconds, cost.overhead_up_bytes, cost.down_bytes)


def _curve_of_constants(at: Meeting, params: SecureAggregationParams) -> Terms | None:
    """The curve of the implementation that a scenario names, for the model at hand."""
    if params.constants is None and params.mask_element is None:
        return None
    from devices.secagg.cost import protocol_curve

    constants, (slowdown, server_slowdown) = _constants(params), _slowdowns(at)
    return protocol_curve(
        at.parameters, params.dropout, params.threshold, constants, slowdown, server_slowdown, at.vectors
    )


def _constants(params: SecureAggregationParams) -> Constants:
    from devices.secagg.constants import DEFAULT, find_constants

    name = params.constants or DEFAULT
    constants = find_constants(name).constants
    if params.mask_element is not None:
        constants = constants.model_copy(update={"mask_element": params.mask_element})
    if params.adversary == "active" and (constants.sign is None or constants.verify is None):
        message = f"{name} has no 'sign' or no 'verify', which an active adversary asks for"
        raise InputError(f"{message}; measure again with 'hfl calibrate secure-aggregation'", f"{KEY}.constants")
    return constants


def _slowdowns(at: Meeting) -> tuple[float, float]:
    return _slowdown(at.device), _slowdown(at.server)


def _slowdown(device: DeviceProfile) -> float:
    if device.core_slowdown is None:
        message = (
            f"device '{device.name}' has no 'core_slowdown', which seconds by 'model: protocol' or 'constants' need"
        )
        raise InputError(message, KEY)
    return device.core_slowdown


def _curve_s(
    operation: str, at: Meeting, params: CurveParams, further_pairs: int = 0, named: Terms | None = None
) -> float:
    curve = at.device.group_operations.get(operation)
    own = named or (curve and curve.of(at.parameters))
    given = (params.a, params.b, params.c)
    if own is None and None in given:
        raise InputError(f"device '{at.device.name}' has no curve for {operation}; give a, b and c", KEY)
    known = (own.a, own.b, own.c) if own else (0.0, 0.0, 0.0)
    a, b, c = (mine if mine is not None else its for mine, its in zip(given, known, strict=True))
    return max(0.0, a + b * at.size + c * (at.size * at.size + further_pairs))
