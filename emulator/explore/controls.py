"""What the page offers to change: controls that are derived from a scenario, and the changes that they stand for.

A control has options; each stands for a text as ``--set`` takes it. So the page, the command line that it shows and
``hfl whatif`` say the same thing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from devices.profile import profile_names
from emulator.errors import InputError
from emulator.registry import Params
from emulator.scenario.contents import content
from emulator.scenario.link_schema import Link, PeerLink, PlayedTrace, SharedLink
from emulator.scenario.schema import Scenario
from emulator.scenario.topology_schema import Availability, MeasuredDevices
from emulator.units import RATE, TIME, Dimension
from traces.content import DeviceMix, LatencyMatrix, Quantity, Trace
from traces.reading import bundled

STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)  # within each power of ten
AS_RUN = "as it was run"
OFF = "none"
OWN = "of the device"
NOTHING = "null"  # in YAML
CURVES = ("secure-aggregation", "backdoor-detection")  # group operations with a curve a + b n + c n²
OPERATION, DEVICES, SECOND, SHARE = "method.group_operation", "topology.devices", "second device", "share of the second"

State = Mapping[str, str]  # by the name of a control: the label of the option that is chosen


@dataclass(frozen=True)
class Control:
    """Something to change. ``options`` maps labels to what stands for them after ``key=``; a slider has them in order.

    ``start`` is the label as it was run, which changes nothing.
    """

    name: str
    section: str
    title: str
    kind: Literal["slider", "choice"]
    options: Mapping[str, str]
    start: str


def controls_of(scenario: Scenario) -> list[Control]:
    """All controls for a scenario, section by section."""
    return [
        *_of_links(scenario), *_of_devices(scenario), *_of_operation(scenario), *_of_traces(scenario),
        *_of_availability(scenario),
    ]  # fmt: skip


def changes_of(controls: Sequence[Control], state: State) -> list[str]:
    """The changes (``key=value``) that a state stands for, in the order in which they are to be made."""
    moved = {c.name: c for c in controls if state.get(c.name, c.start) != c.start}
    special = {DEVICES, SECOND, SHARE, *(name for name in moved if name.startswith(OPERATION))}
    found = [f"{c.name}={c.options[state[c.name]]}" for c in moved.values() if c.name not in special]
    by_name = {c.name: c for c in controls}
    found += _changed_devices(by_name, state, moved)
    if OPERATION in moved:
        found.append(f"{OPERATION}={moved[OPERATION].options[state[OPERATION]]}")
    operation = by_name.get(OPERATION)
    if operation is not None and state.get(OPERATION, operation.start) in CURVES:
        # Another operation has none of the terms of the one that was run.
        terms = [c for c in controls if c.name.startswith(f"{OPERATION}.")]
        chosen = {c.name: state.get(c.name, c.start) for c in terms}
        new = {c.name for c in terms if chosen[c.name] != (OWN if OPERATION in moved else c.start)}
        found += [f"{c.name}={c.options[chosen[c.name]]}" for c in terms if c.name in new]
    return found


def useless(controls: Sequence[Control], state: State) -> set[str]:
    """The names of the controls that change nothing as the others stand: terms of a curve that is not used, shares of nothing."""
    found = set()
    by_name = {c.name: c for c in controls}
    operation = by_name.get(OPERATION)
    if operation is not None and state.get(OPERATION, operation.start) not in CURVES:
        found |= {name for name in by_name if name.startswith(f"{OPERATION}.")}
    first = state.get(DEVICES, by_name[DEVICES].start)
    if first not in profile_names():
        found |= {SECOND, SHARE}
    elif state.get(SECOND, OFF) in (OFF, first):
        found.add(SHARE)
    for kind in ("access", "backhaul"):
        trace = by_name.get(f"topology.links.{kind}.trace")
        if trace is not None and state.get(trace.name, trace.start) != OFF:
            found |= {f"topology.links.{kind}.up", f"topology.links.{kind}.down"}
    if by_name.get(_LATENCIES) is not None and state.get(_LATENCIES, by_name[_LATENCIES].start) != OFF:
        found.add("topology.links.backhaul.latency")
    return found


# Links.

_LATENCIES = "topology.links.latencies"
_LINKS = {
    "access": "Access links (client to edge)",
    "backhaul": "Backhaul (edge to cloud)",
    "cell": "Cell (shared by the clients of an edge)",
    "cloud": "Cloud port (shared by all edges)",
    "peer": "Direct links between clients",
}


def _of_links(scenario: Scenario) -> Iterator[Control]:
    topology = scenario.topology
    for kind, section in _LINKS.items():
        link: Link | SharedLink | PeerLink | None = getattr(topology.links, kind)
        if link is None or (kind in ("backhaul", "cell", "cloud") and topology.edges == 0):
            continue
        ways = {"bandwidth": "bandwidth"} if isinstance(link, PeerLink) else {"up": "up", "down": "down"}
        for field, title in ways.items():
            yield _slider(f"topology.links.{kind}.{field}", section, title, getattr(link, field), RATE, 1e4, 1e10)
        if not isinstance(link, SharedLink):
            yield _slider(f"topology.links.{kind}.latency", section, "latency", link.latency, TIME, 1e-3, 10.0, True)
    if topology.edges != 0:
        own = topology.links.latencies
        yield _files(_LATENCIES, "Backhaul (edge to cloud)", "latencies between sites", own, LatencyMatrix)


def _slider(
    key: str, section: str, title: str, value: float, dimension: Dimension, low: float, high: float, zero: bool = False
) -> Control:
    """A slider from ``low`` to ``high`` in steps that look even on a logarithmic scale; the value itself is among them."""
    values = {*_series(min(low, value or low), max(high, value)), value, *([0.0] if zero else [])}
    labels = [dimension.format(v) for v in sorted(values)]
    return Control(key, section, title, "slider", {label: label for label in labels}, dimension.format(value))


def _series(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [float(f"{step}e{power}") for power in powers for step in STEPS]
    return [v for v in values if low <= v <= high]


# Devices.


def _of_devices(scenario: Scenario) -> Iterator[Control]:
    section, devices = "Devices of the clients", scenario.topology.devices
    mixes = {f"mix: {name}": f"{{mix: {name}}}" for name in _samples(DeviceMix)}
    options = {name: name for name in profile_names()} | mixes
    if isinstance(devices, MeasuredDevices):
        start = f"mix: {devices.mix}, median {devices.median}" + (", with bandwidths" if devices.bandwidth else "")
    else:
        start = ", ".join(n if len(devices) == 1 else f"{100 * s:g} % {n}" for n, s in devices.items())
    options = {start: "", **options}
    yield Control(DEVICES, section, "device", "choice", options, start)
    yield Control(SECOND, section, "second device", "choice", {OFF: "", **{n: n for n in profile_names()}}, OFF)
    percents = {f"{share} %": str(share / 100) for share in range(5, 100, 5)}
    yield Control(SHARE, section, "share of the second device", "slider", percents, "50 %")


def _changed_devices(by_name: Mapping[str, Control], state: State, moved: Mapping[str, Control]) -> Iterator[str]:
    """A device, a mix, or two devices in shares. A second device joins a single profile only."""
    first = state.get(DEVICES, by_name[DEVICES].start)
    second = state.get(SECOND, OFF)
    if second != OFF and first in profile_names() and second != first:
        share = float(by_name[SHARE].options[state.get(SHARE, by_name[SHARE].start)])
        yield f"{DEVICES}={{{first}: {round(1 - share, 2):g}, {second}: {share:g}}}"
    elif DEVICES in moved:
        yield f"{DEVICES}={by_name[DEVICES].options[first]}"


# Group operations.


def _of_operation(scenario: Scenario) -> Iterator[Control]:
    chosen = getattr(scenario.method.params, "group_operation", None)
    training = getattr(scenario.method.params, "training", None)
    if chosen is None or (training is not None and not training.plugin.facts.together):
        return
    section = "Group operation (overhead of a group)"
    start = chosen.kind + (" (protocol)" if getattr(chosen.params, "model", "") == "protocol" else "")
    options = {
        start: "",
        "none": "none",
        "secure-aggregation": "secure-aggregation",
        "secure-aggregation (protocol)": "{kind: secure-aggregation, model: protocol}",
        "backdoor-detection": "backdoor-detection",
    }
    yield Control(OPERATION, section, "operation", "choice", options, start)
    for term, title in (("a", "a, fixed"), ("b", "b, for each member"), ("c", "c, for each pair")):
        value = getattr(chosen.params, term, None)
        labels = [TIME.format(v) for v in sorted({0.0, *_series(1e-3, 100.0), *([] if value is None else [value])})]
        given = {OWN: NOTHING, **{label: label for label in labels}}
        start = OWN if value is None else TIME.format(value)
        yield Control(f"{OPERATION}.{term}", section, title, "slider", given, start)


# Traces.


def _of_traces(scenario: Scenario) -> Iterator[Control]:
    topology = scenario.topology
    kinds: list[tuple[str, str, PlayedTrace | None, Quantity]] = [
        ("topology.links.access.trace", "bandwidth of the access links", topology.links.access.trace, "bandwidth"),
        ("topology.speed", "speed of the devices", topology.speed, "speed"),
    ]
    if topology.edges != 0:
        kinds.insert(
            1,
            ("topology.links.backhaul.trace", "bandwidth of the backhaul", topology.links.backhaul.trace, "bandwidth"),
        )
    for key, title, own, quantity in kinds:
        yield _files(key, "Traces over time", title, own, Trace, quantity)


def _of_availability(scenario: Scenario) -> Iterator[Control]:
    own, section = scenario.topology.availability, "Availability of the clients"
    options = {"always online": NOTHING}
    for name in _samples(Trace, "availability"):
        options[name] = f"{{trace: {{file: {name}}}}}"
        options[f"{name}, work waits"] = f"{{trace: {{file: {name}}}, work: paused}}"
    start = "always online"
    if own is not None:
        start = _named(own)
        options = {start: "", **options}
    yield Control("topology.availability", section, "online", "choice", options, start)


def _named(own: Availability) -> str:
    source = own.trace.file if own.trace is not None else f"made by {own.generator.kind}" if own.generator else ""
    return f"{source}, work waits" if own.work == "paused" else source


def _files(
    key: str, section: str, title: str, own: Params | None, kind: type[Any], quantity: Quantity | None = None
) -> Control:
    """A choice of nothing, the bundled samples that fit, and what the scenario has itself."""
    options = {OFF: NOTHING} | {name: f"{{file: {name}}}" for name in _samples(kind, quantity)}
    start = OFF
    if own is not None:
        start = str(getattr(own, "file", AS_RUN))
        options.setdefault(start, "")
    return Control(key, section, title, "choice", options, start)


def _samples(kind: type[Any], quantity: Quantity | None = None) -> Iterator[str]:
    """The bundled samples of a kind, and with a quantity."""
    for name in bundled():
        try:
            held = content(name, None, kind, "sample")
        except InputError:
            continue
        if quantity is None or held.of(quantity):
            yield name
