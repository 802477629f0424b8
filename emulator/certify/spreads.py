"""What is uncertain without anybody having said so: the cost of secure aggregation, and figures of profiles with a spread."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from devices.profile import find_profile
from devices.secagg.constants import DEFAULT, find_constants
from emulator.certify.quantities import DEVICES, PROFILES, Path_, Quantity
from emulator.contracts.uncertainty import Distribution, DistributionChoice
from emulator.errors import InputError
from emulator.registry import choices
from emulator.scenario.roster import roster_of
from emulator.scenario.schema import Scenario
from emulator.world.assignments import client_devices

MASKS = "cost of a mask element"
CONSTANT = "mask_element"

_distribution: TypeAdapter[DistributionChoice] = TypeAdapter(Distribution)


def masks(runs: Mapping[str, Scenario], stated: Sequence[Path_]) -> tuple[Quantity, str]:
    """The cost of secure aggregation in scenarios by run, and why it has no effect on any of them, or an empty text.

    ``stated`` are places whose distribution the user gives; they are left alone.
    """
    names: list[str] = []
    found: dict[str, tuple[Path_, ...]] = {}
    fixed = False
    for run, scenario in runs.items():
        places = []
        for path, params in _operations(scenario):
            place = (*path, CONSTANT)
            if params.model == "quadratic" and None not in (params.a, params.b, params.c):
                fixed = True  # its curve is given, whoever computes
            elif place not in stated:
                places.append(place)
                names.append(params.constants or DEFAULT)
        if places:
            found[run] = tuple(places)
    name = names[0] if names else DEFAULT
    spread = find_constants(name).spread.get(CONSTANT)
    reason = ""
    if not names:
        reason = "no run has secure aggregation"
        reason = "the scenario says itself what secure aggregation takes" if fixed or stated else reason
    elif spread is None:
        reason = f"{name} states no spread of it, so it counts as measured"
        spread = find_constants(DEFAULT).spread[CONSTANT]
    else:
        lacking = sorted({d for s in runs.values() for d in devices_of(s) if find_profile(d).core_slowdown is None})
        if lacking:
            reason = f"the profile '{lacking[0]}' has no 'core_slowdown' by which it would count"
    assert spread is not None
    where = next(iter(found.values()), (("method", "group_operation", CONSTANT),))[0]
    distribution = _distribution.validate_python(spread.distribution())
    return Quantity(MASKS, where, spread.source, distribution, paths=found), reason


def _operations(scenario: Scenario) -> Iterator[tuple[Path_, Any]]:
    """Secure aggregations in a scenario: their places, and their parameters."""
    for path, chosen in choices(scenario.method, ("method",)):
        if chosen.slot == "group operation" and chosen.kind == "secure-aggregation":
            yield tuple(str(part) for part in path), chosen.params


def devices_of(scenario: Scenario) -> set[str]:
    """The names of the profiles of all clients and servers of a scenario."""
    topology = scenario.topology
    roster = roster_of(topology)
    clients = client_devices(topology, roster, scenario.seed)
    return {name for name, _ in clients.made_of} | {server.device for server in roster.servers}


def of_profiles(runs: Mapping[str, Scenario], stated: Sequence[Quantity]) -> list[Quantity]:
    """The figures with a spread of all profiles that runs, or worlds that the user describes, may use."""
    names = {name for scenario in runs.values() for name in devices_of(scenario)}
    for quantity in stated:
        if quantity.path == DEVICES or quantity.path[-1] in ("edge_device", "cloud_device", "device"):
            for name in (name for _, value in quantity.distribution.stands_for or () for name in _named(value)):
                try:
                    find_profile(name)
                except InputError as error:
                    raise quantity.wrong(error.message) from None
                names.add(name)
        if quantity.path[:2] == DEVICES and len(quantity.path) == 3:
            with contextlib.suppress(InputError):  # whoever checks the scenario says what is wrong with it
                find_profile(quantity.path[2])
                names.add(quantity.path[2])
    taken = {quantity.path for quantity in stated}
    found = []
    for name in sorted(names):
        profile = find_profile(name)
        for figure, spread in profile.spread.items():
            path = (*PROFILES, name, *figure.split("."))
            value = profile.figure(figure)
            if path in taken or value is None:
                continue
            distribution = _distribution.validate_python(spread.distribution(value))
            found.append(Quantity(f"{name} {figure}", path, spread.source, distribution, factor=True))
    return found


def _named(devices: Any) -> list[str]:
    """The profiles that a value of ``topology.devices`` names."""
    if isinstance(devices, str):
        return [devices]
    return [str(devices.get("median", "raspberry-pi-4b"))] if "mix" in devices else list(devices)
