"""What no section can see by itself: rules between the sections of a scenario that is well-formed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from devices.profile import find_profile
from emulator.conformance import place_of
from emulator.contracts.grouping import ESTIMATES, FormationChoice, SamplingChoice
from emulator.contracts.learning import DataSetChoice, LocalRuleChoice
from emulator.contracts.methods import TrainingChoice, estimators
from emulator.contracts.tasks import tasks
from emulator.errors import InputError, quote_all, suggestion
from emulator.registry import Scale, choices
from emulator.scenario import prices, privacy_schema
from emulator.scenario.contents import content
from emulator.scenario.declared import shared_tables
from emulator.scenario.direct_links import neighbourhoods
from emulator.scenario.fleet_table import read_clients, read_links, read_servers
from emulator.scenario.roster import roster_of
from emulator.scenario.schema import Scenario
from emulator.scenario.server_tree import EDGE, read
from emulator.scenario.topology_schema import MeasuredDevices, Topology
from emulator.yamlfile import Path_
from traces.content import DeviceMix, LatencyMatrix


def without_effect(scenario: Scenario) -> Iterator[tuple[Path_, str]]:
    """Pairs of a key that changes nothing in this scenario, and why: to be said to whoever changes it."""
    devices = scenario.topology.devices
    if isinstance(devices, MeasuredDevices) and devices.bandwidth:
        why = "has no effect: 'topology.devices.bandwidth: true' gives each client the bandwidth of its device"
        for way in ("up", "down"):
            yield ("topology", "links", "access", way), f"{why}; say 'topology.devices.bandwidth: false' too"


def problems(scenario: Scenario, training: bool = True) -> Iterator[tuple[Path_, str]]:
    """Pairs of a path in the scenario and what is wrong there.

    Without ``training`` a fleet may be larger than its data set, and accuracy alone ends no run.
    """
    topology = scenario.topology
    if scenario.uncertain is not None:
        yield from ((("uncertain", *path), message) for path, message in scenario.uncertain.wrong())
    found = list(_of_fleet(topology))
    yield from found
    yield from _of_devices(topology)
    if found:
        return  # all else depends on who there is
    scale = scale_of(scenario)
    yield from _of_latencies(topology)
    yield from _of_dedicated(topology)
    if any(roster_of(topology).owners) and scenario.data.partition.kind != "natural":
        message = "its rows say whose data clients have; that goes with 'data.partition: natural'"
        yield ("topology", "fleet"), message
    yield from _of_disturbances(scenario)
    yield from _of_attacks(scenario)
    yield from privacy_schema.problems_of(scenario)
    yield from prices.problems_of(scenario)
    yield from _of_task(scenario)
    for name in shared_tables(scenario):
        others = "attack and method both" if scenario.attacks is not None else "method and selection both"
        place = ("attacks",) if scenario.attacks is not None else ("method", "selection")
        yield place, f"{others} write the table '{name}'; take another {place[-1].removesuffix('s')}"
    if scale.train_samples is not None and scale.train_samples <= 0:
        kept = _public_samples(scenario)
        total = scale.train_samples + kept
        yield ("data", "public"), f"the set has only {total} training samples; {kept} public ones leave none"
    else:
        if training and scale.train_samples is not None and scale.clients > scale.train_samples:
            beside = " beside the public ones" if scenario.data.kept_back else ""
            message = f"{scale.clients} clients for {scale.train_samples} training samples{beside}"
            yield ("topology", "clients"), f"{message} would leave clients without data"
        for name in type(scenario).model_fields:
            # What a set cannot even give to one client it can give to nobody; how many they are does not matter.
            here = dataclasses.replace(scale, clients=1) if name == "data" and not training else scale
            yield from _of_choices(getattr(scenario, name), (name,), here)
    if not any(topology.transport.params.problems(scale)):
        topology.transport()  # raises what is wrong with one of the user's own
    if scenario.data.public_set is not None and not scenario.data.public:
        yield ("data", "public_set"), "say with data.public how many samples of each of its classes are public"
    stop = scenario.stop
    if not training and all(limit is None for limit in (stop.rounds, *stop.budget.values())):
        what = next(iter(stop.goals))
        yield ("stop",), f"{what} is not measured without training; give 'rounds', 'time', 'cost' or 'bytes' too"


def _of_task(scenario: Scenario) -> Iterator[tuple[Path_, str]]:
    """Measures that the task has not, and what needs classes where samples have numbers."""
    task, named = scenario.objective, scenario.data.set.task
    known = [measure.name for measure in task.plugin.facts.measures]
    unknown = [name for name in task.params.measures if name not in known]
    for name in unknown:
        yield ("task", "measures"), f"'{task.kind}' has no measure '{name}'; {suggestion(name, known)}"
    if task.plugin.facts.labels != tasks[named].facts.labels:
        message = (
            f"'{task.kind}' cannot be learned from the set '{scenario.data.set.kind}', whose labels are for '{named}'"
        )
        yield ("task",), f"{message}; leave 'task' out, or take another set"
    if unknown:
        return
    measured = [measure.name for measure in task.measures]
    for name in scenario.stop.goals:
        if name not in measured:
            key = (
                ("stop", "accuracy")
                if scenario.stop.accuracy is not None and name == "accuracy"
                else ("stop", "measure")
            )
            instead = f"give 'stop.measure' for {quote_all(measured)}, such as {{{measured[0]}: ...}}"
            yield key, f"'{name}' is not measured, with the task '{task.kind}'; {instead}"
    for path, chosen in choices(scenario):
        if isinstance(chosen, DataSetChoice) and path != ("data", "set") and tasks[chosen.task].facts.labels != "class":
            yield (
                path,
                f"the samples of '{chosen.kind}' have numbers, and here they must have one class each; take another set",
            )
    if task.by_class:
        return
    why = f"needs samples that have one class each, and those of the task '{task.kind}' have numbers"
    for name in ("clusters", "personal"):
        if getattr(scenario.evaluate, name):
            yield ("evaluate", name), f"{why}; leave it out"
    for path, chosen in choices(scenario):
        if isinstance(chosen, LocalRuleChoice) and chosen.params.smoothing:
            yield (*path, "smoothing"), f"{why}; leave it at 0"
        if chosen.plugin.facts.by_class:
            yield path, f"'{chosen.kind}' {why}; take another {chosen.slot}"


def _of_dedicated(topology: Topology) -> Iterator[tuple[Path_, str]]:
    """Traces of links, where links do not change over time."""
    if topology.sharing != "dedicated":
        return
    backhaul, roster = topology.links.backhaul.trace, roster_of(topology)
    keys = [] if backhaul is None else ["topology.links.backhaul.trace"]
    keys += [each.key for each in roster.traces]
    section = "topology.servers" if topology.tiers is None else "topology.tiers"
    keys += [section for server in roster.servers if server.link.trace not in (None, backhaul)]
    for key in dict.fromkeys(keys):
        yield tuple(key.split(".")), "traces need 'topology.sharing: max-min'; dedicated links do not change over time"


def _of_disturbances(scenario: Scenario) -> Iterator[tuple[Path_, str]]:
    """What needs links that change over time, where links do not."""
    topology = scenario.topology
    if topology.sharing != "dedicated":
        return
    message = "needs 'topology.sharing: max-min'; dedicated links do not change over time"
    if topology.availability is not None and topology.availability.work == "paused":
        yield ("topology", "availability", "work"), f"'paused' {message}"
    for number, fault in enumerate(scenario.faults):
        if fault.kind == "backhaul-outage":
            yield ("faults", number), f"'backhaul-outage' {message}"


def _of_attacks(scenario: Scenario) -> Iterator[tuple[Path_, str]]:
    """Attacks on groups, where the method has none in which clients train on their own labels."""
    attack, method = scenario.attacks, scenario.method
    if attack is None:
        return
    if attack.plugin.facts.models and method.plugin.facts.central:
        message = f"'{attack.kind}' attackers send poisoned models, and with method '{method.kind}' clients send none"
        yield ("attacks",), f"{message}; take one in which they train, such as 'fedavg'"
        return
    by_group = attack.plugin.facts.groups or getattr(attack.params, "superclients", None) is not None
    if by_group and "formation" not in type(method.params).model_fields:
        message = f"'{attack.kind}' attackers sit in groups, and method '{method.kind}' forms none"
        yield ("attacks",), f"{message}; take one that does, such as 'fedseq' or 'fedavg'"
        return
    for _, training in choices(method.params) if attack.plugin.facts.groups else ():
        if isinstance(training, TrainingChoice) and training.plugin.facts.headers:
            message = f"'{attack.kind}' swaps labels in local training, and with '{training.kind}' headers alone"
            yield ("attacks",), f"{message} train, on what others distilled; take 'sequential' or 'parallel' training"


def scale_of(scenario: Scenario) -> Scale:
    """How large everything in the scenario is, as far as it is known before data is read."""
    total, roster = scenario.data.set.train_samples, roster_of(scenario.topology)
    tiers = {tier: roster.sizes(tier) for tier in roster.tiers}
    lowest = np.bincount(roster.home_of)
    return Scale(
        clients=len(roster.names),
        edges=len(roster.tiers.get(EDGE, ())),
        smallest_edge=min(tiers.get(EDGE) or lowest[lowest > 0].tolist()),
        tiers=tiers,
        neighbourhoods=neighbourhoods(roster.tiers, roster.neighbours),
        moving=scenario.topology.movement is not None,
        classes=scenario.objective.kinds(scenario.data.set.classes),
        train_samples=None if total is None else total - _public_samples(scenario),
        public=scenario.data.public,
        own_public=scenario.data.public_set is None,
        shape=scenario.data.set.shape,
        owners=bool(scenario.data.set.plugin.facts.owners),
        clusters=scenario.data.partition.plugin.facts.clusters,
    )


def _public_samples(scenario: Scenario) -> int:
    return scenario.data.kept_back * (scenario.objective.kinds(scenario.data.set.classes) or 0)


def _of_fleet(topology: Topology) -> Iterator[tuple[Path_, str]]:
    """What is wrong with who there is; of each file that cannot be read by itself too."""
    named = (
        ("topology.fleet", topology.fleet, read_clients),
        ("topology.servers", topology.servers, read_servers),
        ("topology.links.direct", topology.links.direct, read_links),
    )
    found: dict[tuple[str, str], None] = {}
    try:
        roster_of(topology)
    except InputError as error:
        found = dict.fromkeys((error.key, line) for line in error.message.split("\n"))
        for key, file, reader in named:
            if isinstance(file, str):
                try:
                    read(reader, file, key)
                except InputError as further:
                    found |= dict.fromkeys((key, line) for line in further.message.split("\n"))
    for key, line in found:
        yield tuple(key.split(".")), line


def _of_devices(topology: Topology) -> Iterator[tuple[Path_, str]]:
    devices, named = topology.devices, list[tuple[Path_, str]]()
    if isinstance(devices, MeasuredDevices):
        yield from _of_mix(devices, topology)
        named += [(("topology", "devices", "median"), devices.median)]
    else:
        total = math.fsum(devices.values())
        if abs(total - 1) > 1e-6:
            yield ("topology", "devices"), f"the shares add up to {total:g}; they must add up to 1"
        named += [(("topology", "devices", n), n) for n in devices]
    for number, kind in enumerate(topology.clients if isinstance(topology.clients, tuple) else ()):
        named += [(("topology", "clients", number, "devices"), n) for n in kind.devices or ()]
    for section in ("tiers", "servers"):
        given = getattr(topology, section)
        for number, each in enumerate(given if isinstance(given, tuple) else ()):
            named += [(("topology", section, number, "device"), each.device)] if each.device else []
    named += [
        (("topology", "edge_device"), topology.edge_device),
        (("topology", "cloud_device"), topology.cloud_device),
    ]
    named += [(("topology", "profiles", name), name) for name in topology.profiles]
    for path, name in named:
        try:
            find_profile(name)
        except InputError as error:
            for line in error.message.split("\n"):  # a profile of the user's own may have several problems
                yield path, line


def _of_mix(devices: MeasuredDevices, topology: Topology) -> Iterator[tuple[Path_, str]]:
    if devices.bandwidth and topology.links.access.trace is not None:
        message = "'topology.links.access.trace' gives the bandwidth; it cannot be both"
        yield ("topology", "devices", "bandwidth"), message
    try:
        mix = content(devices.mix, devices.format, DeviceMix, "topology.devices", "mix")
    except InputError as error:
        yield tuple(error.key.split(".")), error.message
    else:
        if devices.bandwidth and mix.bandwidth_bps is None:
            yield ("topology", "devices", "bandwidth"), f"{devices.mix} has no bandwidths; say 'bandwidth: false'"


def _of_latencies(topology: Topology) -> Iterator[tuple[Path_, str]]:
    latencies, path = topology.links.latencies, ("topology", "links", "latencies")
    if latencies is None:
        return
    if len(roster_of(topology).servers) == 1:
        yield path, "there are no edges that could be at a site; give topology.edges"
    try:
        sites = len(content(latencies.file, latencies.format, LatencyMatrix, ".".join(path)).latency_s)
    except InputError as error:
        yield tuple(error.key.split(".")), error.message
        return
    if sites < 2:
        yield (*path, "file"), f"{latencies.file} has one site only; cloud and edges need two"
    if (latencies.cloud or 1) > sites:
        yield (*path, "cloud"), f"{latencies.file} has only {sites} sites"


def _of_choices(value: Any, path: Path_, scale: Scale) -> Iterator[tuple[Path_, str]]:
    """What each plug-in says of its own parameters in a fleet of this scale, and what it needs that nobody says."""
    for place, chosen in choices(value, path):
        if isinstance(chosen, FormationChoice | SamplingChoice):
            known = (ESTIMATES, *estimators.names())
            for need in (n for n in chosen.plugin.facts.needs if n not in known):
                who = f"'{chosen.kind}' ({place_of(chosen.plugin.function)}) needs '{need}', which is no estimator"
                yield place, f"{who}; {suggestion(need, known)}"
        found = chosen.problems() if isinstance(chosen, LocalRuleChoice) else ()
        for key, message in (*found, *chosen.params.problems(scale)):
            yield (*place, *(key.split(".") if key else ())), message
