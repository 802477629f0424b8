"""What no section can see by itself: rules between the sections of a scenario that is well-formed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from devices.profile import find_profile
from emulator.errors import InputError
from emulator.registry import Chosen, Scale
from emulator.scenario.schema import Scenario
from emulator.yamlfile import Path_


def problems(scenario: Scenario) -> Iterator[tuple[Path_, str]]:
    """Pairs of a path in the scenario and what is wrong there."""
    scale = scale_of(scenario)
    topology = scenario.topology
    if topology.edges > topology.clients:
        yield (
            ("topology", "edges"),
            f"{topology.edges} edges for {topology.clients} clients would leave edges without any",
        )
    total = math.fsum(topology.devices.values())
    if abs(total - 1) > 1e-6:
        yield ("topology", "devices"), f"the shares add up to {total:g}; they must add up to 1"
    named: list[tuple[Path_, str]] = [(("topology", "devices", n), n) for n in topology.devices]
    named += [
        (("topology", "edge_device"), topology.edge_device),
        (("topology", "cloud_device"), topology.cloud_device),
    ]
    for path, name in named:
        try:
            find_profile(name)
        except InputError as error:
            yield path, error.message
    if scale.train_samples is not None:
        kept = scenario.data.public * (scale.classes or 0)
        if kept >= scale.train_samples:
            yield (
                ("data", "public"),
                f"the set has only {scale.train_samples} training samples; {kept} public ones leave none",
            )
        elif scale.clients > scale.train_samples - kept:
            left = scale.train_samples - kept
            yield (
                ("topology", "clients"),
                f"{scale.clients} clients for {left} training samples would leave clients without data",
            )
    yield from _of_choices(scenario, (), scale)


def scale_of(scenario: Scenario) -> Scale:
    """How large everything in the scenario is, as far as it is known before data is read."""
    facts = scenario.data.set.plugin.facts
    return Scale(
        clients=scenario.topology.clients,
        edges=scenario.topology.edges,
        smallest_edge=min(len(block) for block in scenario.topology.clients_of_edges()),
        classes=facts.get("classes"),
        train_samples=facts.get("train_samples"),
    )


def _of_choices(value: Any, path: Path_, scale: Scale) -> Iterator[tuple[Path_, str]]:
    """What each plug-in says of its own parameters in a fleet of this scale."""
    if isinstance(value, Chosen):
        for key, message in value.params.problems(scale):
            yield (*path, key) if key else path, message
        yield from _of_choices(value.params, path, scale)
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _of_choices(getattr(value, name), (*path, name), scale)
    elif isinstance(value, tuple | list):
        for i, entry in enumerate(value):
            yield from _of_choices(entry, (*path, i), scale)
