"""Traces played in the world: bandwidth and latency of links, and speed of devices, over time.

Each link or device plays its trace from an instant of its own, drawn from the scenario's seed, unless all are to start together.
Everything here raises `InputError` with the scenario key where a trace cannot be read or played.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from emulator.errors import InputError
from emulator.rng import stream
from emulator.scenario.contents import content as read_content
from emulator.scenario.link_schema import PlayedTrace
from emulator.scenario.roster import Each, at, roster_of
from emulator.scenario.topology_schema import Topology
from traces.content import Quantity, Trace
from traces.step import StepFunction

DIRECTIONS = ("up", "down")
ALWAYS = StepFunction.constant(1.0)
RESTART = "say 'end: repeat' or 'start: together'"
SOME = 100  # clients whose availability is made to see whether it can be played
_MOST_TRACES = 1000  # that a generator makes; further clients play the same ones from other instants


@dataclass(frozen=True)
class Played:
    """What changes over time: bandwidths (bit/s) and latencies (s) by the name of the link, speeds by client number."""

    bandwidths: dict[str, StepFunction] = field(default_factory=dict)
    latencies: dict[str, StepFunction] = field(default_factory=dict)
    speeds: dict[int, StepFunction] = field(default_factory=dict)


def played(topology: Topology, seed: int, everybody: bool = True) -> Played:
    """All that a topology's traces say. Not of ``everybody``: of one player each, which shows whether they can be played."""
    result, roster = Played(), roster_of(topology)
    count = len(roster.names)

    def play(trace: PlayedTrace, key: str, kind: str, names: Sequence[str], players: Sequence[int], loss: Each) -> None:
        """Some of the players of a kind, who all have a start of their own, play a trace."""
        content = _load(trace, key)
        series = {d: _series(trace, content, "bandwidth", d, key) for d in DIRECTIONS}
        latency = {d: _get(trace, content, "latency", d, key) for d in DIRECTIONS} if content.of("latency") else {}
        scaled: dict[tuple[float, str], StepFunction] = {}
        starts = _starts(trace, len(names), seed, kind)
        for player in players if everybody else players[:1]:
            name, start, left = names[player], starts[player], 1 - float(at(loss, player))
            for way in DIRECTIONS:
                if (left, way) not in scaled:
                    scaled[left, way] = series[way].scaled(left)
                result.bandwidths[f"{name}/{way}"] = _from(scaled[left, way], start)
                if latency:
                    result.latencies[f"{name}/{way}"] = _from(latency[way], start)

    for each in roster.traces:
        play(each.trace, each.key, "access", roster.names, each.clients, roster.access.loss)
    servers = roster.servers[1:]
    for place, server in enumerate(servers):
        if server.link.trace is not None:
            own = server.link.trace != topology.links.backhaul.trace
            section = "topology.servers" if topology.tiers is None else "topology.tiers"
            key = section if own else "topology.links.backhaul.trace"
            names = [each.name for each in servers]
            play(server.link.trace, key, "backhaul", names, [place], server.link.loss)
    if topology.speed is not None:
        key = "topology.speed"
        speed = _series(topology.speed, _load(topology.speed, key), "speed", "", key)
        for client, start in enumerate(_starts(topology.speed, count, seed, "speed")):
            result.speeds[client] = _from(speed, start)
    return result


def availabilities(topology: Topology, seed: int, everybody: bool = True) -> list[StepFunction]:
    """When each client is online (1) and when not (0). Raises `InputError` where nobody ever is.

    Not of ``everybody``: of some, which shows whether it can be played.
    """
    plan, key, clients = topology.availability, "topology.availability", topology.client_count
    clients = clients if everybody else min(clients, SOME)
    own = _own_availabilities(topology, seed)
    if plan is None:
        return [own.get(client, ALWAYS) for client in range(clients)]
    if plan.generator is not None:
        made = [
            plan.generator(plan.period, stream(seed, "availability", number))
            for number in range(min(clients, _MOST_TRACES))
        ]
        starts = _starts(PlayedTrace(file=""), clients, seed, "availability")
    else:
        assert plan.trace is not None
        key = f"{key}.trace"
        content = _load(plan.trace, key)
        names = list(content.of("availability")) or [""]
        made = [_series(plan.trace, content, "availability", name, key, at_last_0=True) for name in names]
        starts = _starts(plan.trace, clients, seed, "availability")
    if max(float(function.values.max()) for function in made) > 1:
        raise InputError("availability goes from 0 (offline) to 1 (online), and there are values above 1", key)
    if not any(function.peak for function in made) and (plan.trace is not None or everybody):
        raise InputError("it is always 0: no client is ever online", key)
    return [own.get(client) or _from(made[client % len(made)], start) for client, start in enumerate(starts)]


def unplayable(file: str, quantity: Quantity) -> str:
    """Why a trace that a row of a fleet's file names cannot be played as a bandwidth, or as availability; "" where it can."""
    trace = PlayedTrace(file=file)
    try:
        if quantity == "availability":
            _own_availability(trace)
        else:
            for direction in DIRECTIONS:
                _series(trace, _load(trace, ""), quantity, direction, "")
    except InputError as error:
        return error.message.replace(RESTART, "say in the file what comes then, such as '# end: repeat after 1 d'")
    return ""


def _own_availability(trace: PlayedTrace, key: str = "") -> StepFunction:
    content = _load(trace, key)
    name = next(iter(content.of("availability")), "")
    function = _series(trace, content, "availability", name, key, at_last_0=True)
    if function.values.max() > 1:
        raise InputError(f"{trace.file}: availability goes from 0 (offline) to 1 (online)", key)
    return function


def _own_availabilities(topology: Topology, seed: int) -> dict[int, StepFunction]:
    """When those clients are online whose rows name a trace."""
    found: dict[int, StepFunction] = {}
    for each in roster_of(topology).presences:
        function = _own_availability(each.trace, each.key)
        starts = _starts(each.trace, topology.client_count, seed, "availability")
        found |= {client: _from(function, starts[client]) for client in each.clients}
    return found


def _starts(trace: PlayedTrace, count: int, seed: int, purpose: str) -> Sequence[float]:
    """Where each of ``count`` players starts, as a share of the trace."""
    if trace.start == "together":
        return [0.0] * count
    return [float(start) for start in stream(seed, "trace", purpose).uniform(0, 1, count)]


def _from(function: StepFunction, start: float) -> StepFunction:
    return function.shifted(start * function.period_s) if function.period_s is not None else function


def _load(trace: PlayedTrace, key: str) -> Trace:
    content = read_content(trace.file, trace.format, Trace, key)
    return content if trace.end is None else content.ending(trace.end)


def _get(trace: PlayedTrace, content: Trace, quantity: Quantity, name: str, key: str) -> StepFunction:
    try:
        return content.get(quantity, name)
    except InputError as error:
        raise InputError(f"{trace.file}: {error.message}", f"{key}.file") from error


def _series(
    trace: PlayedTrace, content: Trace, quantity: Quantity, name: str, key: str, at_last_0: bool = False
) -> StepFunction:
    """One series of a trace; raises `InputError` where the file does not have it, or where what needs it would never end.

    ``at_last_0``: it may be 0 for ever after its last step.
    """
    function = _get(trace, content, quantity, name, key)
    what, problem = " ".join(filter(None, (quantity, name))), ""
    if function.end == "hold" and function.values[-1] == 0 and not at_last_0:
        problem = f"the {what} is 0 for ever after its last step, so that what needs it would never end"
    elif function.end == "repeat" and function.mean == 0:
        problem = f"the {what} is always 0"
    elif function.end == "hold" and trace.start == "random" and len(function.values) > 1:
        problem = f"it does not start over, so it cannot be played from random instants; {RESTART}"
    if problem:
        raise InputError(f"{trace.file}: {problem}", f"{key}.file")
    return function
