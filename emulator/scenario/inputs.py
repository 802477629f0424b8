"""Files beside the scenario that a run depends on: traces, mixes, latencies, profiles and constants of the user's, and data sets.

Their paths stand in the scenario, their content does not. A manifest names them with their hashes, so that a run whose files have
changed since is neither taken for a run of the present ones nor replayed with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from emulator.contracts.learning import DataSetChoice
from emulator.contracts.world import GroupOperationChoice
from emulator.errors import InputError
from emulator.files import digest_of
from emulator.registry import choices
from emulator.scenario.roster import roster_of
from emulator.scenario.schema import Scenario
from emulator.scenario.server_tree import bundled_fleets, find_fleet
from emulator.scenario.topology_schema import Topology
from traces.reading import bundled, find

DATA_SET, PUBLIC_SET, PROBE_SET = "data set", "public data set", "data set of the probe"


def inputs_of(scenario: Scenario) -> dict[str, str]:
    """SHA-256 of each file that a scenario's topology or group operation names, by absolute path; fingerprints of data sets.

    What comes with the emulator is left out: it changes with the version alone. Raises `InputError` where a file is missing.
    """
    operations = [each.dump() for _, each in choices(scenario.method) if each.slot == GroupOperationChoice.slot]
    carbon = None if scenario.prices is None else scenario.prices.model_dump()["carbon_trace"]
    sets = [(DATA_SET, scenario.data.set), (PUBLIC_SET, scenario.data.public_set)]
    sets += [(PROBE_SET, each) for _, each in choices(scenario.method) if isinstance(each, DataSetChoice)]
    prints = {name: each.plugin.facts.fingerprint(each.params) for name, each in sets if each is not None}
    return inputs_of_world(scenario.topology, carbon, *operations) | prints


def inputs_of_world(topology: Topology, *beside: Any) -> dict[str, str]:
    """As `inputs_of`, of what a topology names, and of what stands in plain data beside it."""
    known = {*bundled().values(), *bundled_fleets().values()}
    roster = roster_of(topology)
    rows = [each.trace.model_dump() for each in (*roster.traces, *roster.presences)]
    rows += [s.link.trace.model_dump() for s in roster.servers if s.link.trace is not None]
    profiles = {"devices": list({*(roster.devices or ())})}
    named = map(Path, _named([topology.model_dump(), rows, profiles, *beside]))
    paths = {path.resolve() for path in named if path not in known}
    return {str(path): digest_of(path) for path in sorted(paths)}


def changed_inputs(recorded: Any, scenario: Scenario | None = None) -> list[str]:
    """Of what a manifest recorded, what is missing or other now; data sets are looked at where a scenario is given."""
    if not isinstance(recorded, dict):
        return []
    now = {} if scenario is None else inputs_of(scenario)
    return [name for name, digest in recorded.items() if _now(name, now) not in (None, digest)]


def _now(name: str, known: dict[str, str]) -> str | None:
    """The present hash of a recorded file, "" where there is none; None where that was not asked for."""
    if name in known or name in (DATA_SET, PUBLIC_SET, PROBE_SET):
        return known.get(name)
    path = Path(name)
    return digest_of(path) if path.is_file() else ""


def _named(value: Any, key: str = "") -> Iterator[str]:
    """The files within plain data: those of traces and mixes, and profiles and constants at a path."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _named(name)
            yield from _named(inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner)
    elif isinstance(value, str):
        if key in ("fleet", "servers", "direct", "moves"):
            yield str(find_fleet(value))
        elif key in ("file", "mix"):
            yield str(_found(value))
        elif value.endswith((".yaml", ".yml")):
            yield value


def _found(name: str) -> Path:
    path = find(name)
    if not path.is_file():
        raise InputError(f"there is no file '{name}'", "topology")
    return path
