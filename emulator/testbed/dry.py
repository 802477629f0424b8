"""A scenario looked at before anything is started: whether a testbed can run it, and what the emulation says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from devices.compute import training_s
from emulator.assembly import assemble, play, rare_collections
from emulator.contracts.learning import LocalRuleChoice, MeasurementChoice
from emulator.errors import InputError
from emulator.learning.distillation import DistillationParams
from emulator.learning.memo import RunMemory
from emulator.learning.recipes import Announced, Distilled, Handle, LocalTraining, Trained
from emulator.learning.timing import TimingLab
from emulator.learning.trainer import TrainJob
from emulator.ledger import Ledger
from emulator.machine import memory_bytes
from emulator.methods.session import Metrics, Session
from emulator.registry import choices
from emulator.scenario import Scenario
from emulator.testbed.plan import Plan, plan_of
from emulator.world.disturbances import disturbances
from emulator.world.played import played

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

NODE_BYTES = 80_000_000  # that a node's process takes, beside what it shares with all others
NODE_FILES, OTHER_FILES = 8, 100  # open files of the driver: for each node, and others
MOST_NODES = 1000
MOST_BYTES = 20e9
OPERATIONS = ("none", "secure-aggregation")
TESTBED = "; the testbed cannot do that"


class CheckingLab(TimingLab):
    """The lab of a run without training that refuses what no node of a testbed can do."""

    def train(self, training: LocalTraining) -> Trained:
        """See `TimingLab.train`."""
        if training.memory is not None:
            raise InputError("clients send the states of their rule beside their models" + TESTBED, "method.local")
        if training.extra:
            raise InputError("clients train on data that others sent to them" + TESTBED, "method.training")
        if not isinstance(training.client, int):
            raise InputError("a server trains on clients' data" + TESTBED, "method")
        return super().train(training)

    def distil(self, client: int, params: DistillationParams) -> Distilled:
        """Raises `InputError`."""
        raise InputError("clients distil their data" + TESTBED, "method.training")

    def announce(
        self, measurement: MeasurementChoice | str, models: Sequence[Handle], client: int | None = None
    ) -> Announced:
        """Raises `InputError`."""
        raise InputError("clients measure models" + TESTBED, "method")


@dataclass(frozen=True)
class Prediction:
    """What the emulation says: how long the run takes, what is sent, how often clients train, and how it gets on."""

    plan: Plan
    session: Session
    seconds: float
    bytes: int
    trainings: int
    metrics: tuple[Metrics, ...]


def check_size(scenario: Scenario) -> None:
    """Raises `InputError` where a fleet is larger than this host can hold. Nothing is made for that."""
    clients = scenario.topology.client_count
    there = memory_bytes()
    most = MOST_NODES if there is None else min(MOST_NODES, there // NODE_BYTES)
    if resource is not None:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = min(most, max(1, (soft - OTHER_FILES) // NODE_FILES)) if soft > 0 else most
    if clients > most:
        why = f"{clients:,} clients are {clients:,} processes, and this host can hold {most:,}"
        raise InputError(f"{why}; take fewer clients, or emulate it with 'hfl run'", "topology.clients")


def check(scenario: Scenario) -> None:
    """Raises `InputError` with the key of the first thing in a scenario that a testbed cannot do."""
    for key, why in _problems(scenario):
        raise InputError(why, key)


def _problems(scenario: Scenario) -> Iterator[tuple[str, str]]:
    method, topology = scenario.method, scenario.topology
    if scenario.compute.kind != "cpu" or scenario.compute.precision != "float32":
        yield "compute", "nodes of the testbed train on the CPU in float32; say 'compute.device=cpu'"
    if method.plugin.facts.central:
        yield "method", "the cloud trains on all data itself" + TESTBED
    if scenario.evaluate.personal is not None:
        yield "evaluate.personal", "clients train before a test" + TESTBED
    if scenario.attacks is not None and scenario.attacks.kind == "gan-recovery":
        yield "attacks", "a client attacks models while a round is under way" + TESTBED
    if scenario.stop.rounds is None and scenario.stop.time is None:
        yield "stop", "a run of the testbed needs a bound that is known beforehand: give 'rounds' or 'time'"
    if topology.movement is not None:
        yield "topology.movement", "clients move between servers" + TESTBED
    changing = played(topology, scenario.seed)
    if changing.speeds:
        yield "topology.speed", "devices change their speed over time" + TESTBED
    if changing.bandwidths or changing.latencies:
        yield "topology.links", "links follow a trace" + TESTBED
    if disturbances(scenario).sleepers:
        yield "topology.availability.work", "clients sleep and go on later; say 'lost', and their processes are killed"
    for number, fault in enumerate(scenario.faults):
        moves = getattr(fault.params, "clients", "") == "move"
        if fault.kind not in ("client-crash", "edge-outage") or moves:
            yield f"faults.{number}", f"a fault '{fault.kind}' is more than a process that is killed" + TESTBED
    operation = getattr(method.params, "group_operation", None)
    if operation is not None and operation.kind not in OPERATIONS:
        yield (
            "method.group_operation",
            f"'{operation.kind}' has no implementation here; say 'none' or 'secure-aggregation'",
        )
    elif operation is not None and operation.kind != "none":
        if method.kind != "grouped":
            why = "secure aggregation needs members' weights before they mask, which this method knows later"
            yield "method.group_operation", why + "; say 'none', or take a method of rounds"
        if getattr(method.params, "encodings", None):
            yield "method.encodings", "models that are masked are not encoded" + TESTBED
        if scenario.privacy is not None:
            yield "privacy", "noise on secure sums" + TESTBED
    for tier, each in (getattr(method.params, "tiers", None) or {}).items():
        servers = getattr(each, "group_operation", None)
        if servers is not None and servers.kind != "none":
            yield f"method.tiers.{tier}.group_operation", "servers carry out a group operation" + TESTBED


def predict(scenario: Scenario, memory: RunMemory) -> Prediction:
    """Plays a scenario without training. Raises `InputError` where a testbed cannot run it."""
    check_size(scenario)
    check(scenario)
    with rare_collections():
        lab = CheckingLab(scenario, memory)
        session = assemble(scenario, lab, Ledger())
        session.world.watch()
        _check_world(session)
        play(session)
    last = session.metrics[-1]
    plan = plan_of(scenario, session.world.fleet)
    _check_links(plan)
    if last["bytes_total"] > MOST_BYTES:
        why = f"the emulation sends {last['bytes_total']:,.0f} bytes, and a testbed sends {MOST_BYTES:,.0f} at most"
        raise InputError(f"{why}; take fewer rounds or a smaller model", "stop")
    seconds, sent = float(last["time_s"]), int(last["bytes_total"])
    return Prediction(plan, session, seconds, sent, lab.asked, tuple(session.metrics))


def _check_world(session: Session) -> None:
    world, fleet = session.world, session.world.fleet
    if world.workload.unsent_bytes:
        why = "float buffers of the model stay where they are, and a node needs them to train"
        raise InputError(f"{why}; say 'buffers: sent'", "topology.buffers")
    hot = sorted({d.name for d in fleet.client_devices if d.throttling is not None})
    if hot:
        raise InputError(f"device '{hot[0]}' slows down when it is hot" + TESTBED, "topology.devices")


def _check_links(plan: Plan) -> None:
    for route in plan.routes:
        for leg in route:
            if leg.jitter is not None:
                raise InputError(f"link {leg.link} has a jitter" + TESTBED, "topology.links")
            if leg.bandwidth_bps < 1000:
                raise InputError(f"link {leg.link} has less than 1 kbit/s" + TESTBED, "topology.links")


def rule_of(scenario: Scenario) -> LocalRuleChoice:
    """The local rule by which clients train."""
    rules = [rule for _, rule in choices(scenario.method) if isinstance(rule, LocalRuleChoice)]
    if not rules:
        raise InputError("no client trains" + TESTBED, "method")
    return rules[0]


def speeds(
    prediction: Prediction, scenario: Scenario, probe: Callable[[TrainJob], float], cores: float, in_turn: bool
) -> dict[str, float]:
    """By client, the share of a core of this host that is as fast as its device.

    ``probe`` measures how long a core takes for a training. Raises `InputError` where a device is faster than a core, or where
    all of them together take more than the ``cores`` that there are.
    """
    import torch

    session, rule = prediction.session, rule_of(scenario)
    held, world = session.lab.clients.samples, session.world
    client = int(np.argsort(held, kind="stable")[len(held) // 2])
    host_s = probe(TrainJob(torch.empty(0), client, rule, 1, 0))
    params, step_flops = rule.params, rule().step_flops
    work = world.workload.training(params.batch_size, step_flops)
    by_device: dict[int, float] = {}
    for device in world.fleet.client_devices:
        if id(device) not in by_device:
            said_s = training_s(device, work, int(held[client]), params.batch_size, params.epochs)
            by_device[id(device)] = share = host_s / said_s
            if share > 1:
                why = f"device '{device.name}' trains {held[client]} samples in {said_s:.3g} s, and a core of this host in"
                raise InputError(f"{why} {host_s:.3g} s; take a slower device", "topology.devices")
    found = {
        name: by_device[id(device)]
        for name, device in zip(world.fleet.client_names, world.fleet.client_devices, strict=True)
    }
    if not in_turn and (total := sum(found.values())) >= cores:
        why = f"the clients' devices together are as fast as {total:.3g} cores, and this host has {cores:g}"
        raise InputError(
            f"{why}; take fewer or slower ones, or let them compute in turn (--in-turn)", "topology.devices"
        )
    return found


def as_told(shares: Mapping[str, float]) -> dict[str, float]:
    """Shares of a core as a manifest has them."""
    return {name: float(f"{share:.4g}") for name, share in shares.items()}
