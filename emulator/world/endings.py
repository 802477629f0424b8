"""Traces that end while a run goes on: seen before anything trains where the scenario shows it, and a clean end where not.

A trace whose file says what comes after its end, or of which the scenario does, never ends; nor does one that never changes.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator

import simpy

from emulator.errors import InputError
from emulator.registry import Params
from emulator.scenario.contents import content
from emulator.scenario.fleet_table import read_clients, read_servers
from emulator.scenario.link_schema import PlayedTrace
from emulator.scenario.roster import FLEET, roster_of
from emulator.scenario.schema import Placed, Scenario
from emulator.scenario.server_tree import read, refuse
from emulator.scenario.topology_schema import Topology
from emulator.units import TIME
from emulator.world.movements import movements
from emulator.world.played import SOME, availabilities, played, unplayable
from traces.content import Quantity, Trace

_PLAYED: dict[str, Quantity] = {"trace": "bandwidth", "availability": "availability"}  # columns of fleet files


def check(scenario: Scenario) -> None:
    """As `check_traces`, with the time after which a scenario's run ends."""
    check_traces(scenario, scenario.stop.time)


def check_traces(scenario: Placed, limit_s: float | None) -> None:
    """Raises `InputError` with the scenario key where a trace cannot be read or played, or ends before the run may."""
    topology = scenario.topology
    try:
        played(topology, scenario.seed, everybody=False)
        if topology.availability is not None or roster_of(topology).presences:
            availabilities(topology, scenario.seed, everybody=topology.client_count <= SOME)
    except InputError:
        _check_rows(topology)  # where rows name such a trace, each of them is told, with its place
        raise
    movements(topology, scenario.seed)
    first = _first_end(topology)
    if first is not None and limit_s is not None and limit_s >= first[0]:  # a run ends after 'stop.time', never before
        raise _nobody_says(*first, f", and the run goes on until 'stop.time' ({TIME.format(limit_s)}) at least")


def _check_rows(topology: Topology) -> None:
    """Raises `InputError` with every row of the fleet's files that names a trace which cannot be played."""
    servers = topology.servers if isinstance(topology.servers, str) else None
    for file, reader, key in ((topology.fleet, read_clients, FLEET), (servers, read_servers, "topology.servers")):
        if file is None:
            continue
        table, problems = read(reader, file, key), list[str]()
        for column, quantity in _PLAYED.items():
            cells = table.texts.get(column, ())
            wrong = {name: unplayable(name, quantity) for name in dict.fromkeys(cells) if name}
            problems += [
                f"{table.place(row, column)}: {wrong[name]}" for row, name in enumerate(cells) if wrong.get(name)
            ]
        refuse(problems, key)


def watch(env: simpy.Environment, topology: Topology) -> None:
    """Makes a run fail, with an `InputError`, at the instant at which it outlives a trace."""
    first = _first_end(topology)
    if first is not None:
        env.process(_fail(env, *first))


def _fail(env: simpy.Environment, end_s: float, key: str, trace: PlayedTrace) -> Generator[simpy.Event, None, None]:
    yield env.timeout(math.nextafter(end_s, math.inf))  # what ends together with the trace does not outlive it
    raise _nobody_says(end_s, key, trace, ", and the run goes on")


def _nobody_says(end_s: float, key: str, trace: PlayedTrace, when: str) -> InputError:
    advice = "the file does not say what comes then, so say 'end: repeat' or 'end: hold'"
    return InputError(f"{trace.file} ends after {TIME.format(end_s)}{when}; {advice}", f"{key}.end")


def _first_end(topology: Topology) -> tuple[float, str, PlayedTrace] | None:
    """When the first trace ends of which nobody says what comes then, its scenario key, and the trace."""
    ends = [
        (end_s, key, trace)
        for key, trace in (*_traces_in(topology, "topology"), *_traces_of_files(topology))
        if trace.end is None and (end_s := content(trace.file, trace.format, Trace, key).open_end_s) is not None
    ]
    return min(ends, key=lambda each: each[:2], default=None)


def _traces_in(section: Params, key: str) -> Iterator[tuple[str, PlayedTrace]]:
    """All the traces that a section names, with their scenario keys."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, PlayedTrace):
            yield f"{key}.{name}", value
        elif isinstance(value, Params):
            yield from _traces_in(value, f"{key}.{name}")
        elif isinstance(value, tuple):
            for number, inner in enumerate(value):
                if isinstance(inner, Params):
                    yield from _traces_in(inner, f"{key}.{name}.{number}")


def _traces_of_files(topology: Topology) -> Iterator[tuple[str, PlayedTrace]]:
    """All the traces that rows of the fleet's files name."""
    roster = roster_of(topology)
    if topology.fleet is not None:
        played_by_rows = (*(each for each in roster.traces if each.key == FLEET), *roster.presences)
        yield from ((each.key, each.trace) for each in played_by_rows)
    if isinstance(topology.servers, str):
        own = (server.link.trace for server in roster.servers if server.link.trace != topology.links.backhaul.trace)
        yield from (("topology.servers", trace) for trace in own if trace is not None)
