"""Traces played on links: bandwidth over time for the links that a scenario gives a trace."""

from __future__ import annotations

from collections.abc import Iterator

from emulator.errors import InputError
from emulator.rng import stream
from emulator.scenario.schema import LinkTrace, Topology
from emulator.world.fleet import client_name, edge_name
from traces.content import Trace
from traces.reading import find, read
from traces.step import StepFunction

DIRECTIONS = ("up", "down")


def bandwidths(topology: Topology, seed: int) -> dict[str, StepFunction]:
    """Bandwidth over time (bit/s) by the name of the link, for every link that has a trace.

    Each link plays its trace from an instant of its own, drawn from the scenario's seed, unless they are to start together.
    Raises `InputError` with the scenario key where a trace cannot be read or played.
    """
    played = {}
    access, backhaul = topology.links.access, topology.links.backhaul
    owners = {
        "access": (access, [client_name(c) for c in range(topology.clients)]),
        "backhaul": (backhaul, [edge_name(e) for e in range(topology.edges)]),
    }
    for kind, (link, names) in owners.items():
        if link.trace is None:
            continue
        functions = load(link.trace, f"topology.links.{kind}.trace")
        rng = stream(seed, "trace", kind)
        for name in names:
            start = float(rng.uniform(0, 1)) if link.trace.start == "random" else 0.0
            for direction in DIRECTIONS:
                function = functions[direction].scaled(1 - link.loss)
                if function.end == "repeat":
                    function = function.shifted(start * (function.period_s or 0.0))
                played[f"{name}/{direction}"] = function
    return played


def load(trace: LinkTrace, key: str) -> dict[str, StepFunction]:
    """The bandwidth of both directions; raises `InputError` where the file does not have it, or where it ends at nothing."""
    try:
        content = read(find(trace.file), trace.format)
        if not isinstance(content, Trace):
            raise InputError(f"{trace.file} holds no series over time")
        functions = {direction: content.get("bandwidth", direction) for direction in DIRECTIONS}
        for problem in _unplayable(trace, functions):
            raise InputError(f"{trace.file}: {problem}")
    except InputError as error:
        raise InputError(error.message, f"{key}.file") from error
    return functions


def _unplayable(trace: LinkTrace, functions: dict[str, StepFunction]) -> Iterator[str]:
    for direction, function in functions.items():
        if function.end == "hold" and function.values[-1] == 0:
            yield f"the bandwidth {direction} is 0 for ever after its last step, so that transfers would never end"
        if function.end == "repeat" and function.mean == 0:
            yield f"the bandwidth {direction} is always 0"
        if function.end == "hold" and trace.start == "random" and len(function.values) > 1:
            yield "it does not start over, so it cannot be played from random instants; say 'start: together'"
