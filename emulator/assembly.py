"""A run put together: world, session and method of a scenario, and its method played on the clock."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import simpy

from emulator.accounting import Meter
from emulator.contracts.learning import LocalRuleChoice
from emulator.contracts.methods import TrainingChoice
from emulator.errors import HflError
from emulator.learning.interface import AnyLab
from emulator.ledger import Ledger
from emulator.methods.session import Session
from emulator.registry import choices
from emulator.rng import stream
from emulator.scenario import Scenario
from emulator.scenario.schema import Placed
from emulator.world.carriage import Carriage
from emulator.world.clock import Clock, DeadEndError, finish, new_clock
from emulator.world.disturbances import Disturbances, disturbances
from emulator.world.endings import watch
from emulator.world.fleet import CLOUD, Fleet
from emulator.world.memory import check_measured, check_memory, fits
from emulator.world.movements import movements
from emulator.world.network import DedicatedNetwork, Network
from emulator.world.played import Played, played
from emulator.world.sharing import SharedNetwork
from emulator.world.workload import Workload
from emulator.world.world import World

BYTES_PER_PARAMETER = 4  # models travel as float32


class Stage:
    """What the parts of a run are made by that know what time is: here on the emulated clock."""

    def clock(self, clients: int) -> Clock:
        """The clock of a fleet of so many clients."""
        return new_clock(clients)

    def world(self, *parts: Any) -> World:
        """The world, of all that `World` takes."""
        return World(*parts)

    def session(self, scenario: Scenario, world: World, lab: AnyLab, meter: Meter) -> Session:
        """The session, of all that `Session` takes."""
        return Session(scenario, world, lab, meter)


EMULATED = Stage()


def assemble(scenario: Scenario, lab: AnyLab, ledger: Ledger | None = None, stage: Stage = EMULATED) -> Session:
    """World and session of a scenario, ready to run its method."""
    ledger = ledger or Ledger()
    fleet = Fleet(scenario.topology, scenario.seed)
    workload = workload_of(scenario, lab)
    trainees = [fleet.device(CLOUD)] if scenario.method.plugin.facts.central else fleet.client_devices
    check_measured(trainees, workload)
    sizes = list(batch_sizes(scenario))
    if not fits(trainees, workload, sizes):
        # Only then does it matter what clients hold, which a replay may not know.
        held = lab.clients.samples
        most = int(held.sum() if scenario.method.plugin.facts.central else held.max())
        workload = replace(workload, most_samples=most)
        check_memory(trainees, workload, sizes)
    world = world_of(scenario, fleet, workload, ledger, stage)
    powers = {name: device.power for name, device in zip(fleet.client_names, fleet.client_devices, strict=True)}
    servers = {tier: len(names) for tier, names in fleet.roster.tiers.items()}
    session = stage.session(scenario, world, lab, Meter(ledger, powers, fleet.hops, scenario.prices, servers))
    apart = any(isinstance(each, TrainingChoice) and each.plugin.facts.apart for _, each in choices(scenario.method))
    if session.wire.used or apart:
        world.watch()  # encoding takes each client's device its own time, and so does what members do apart
    if isinstance(world.env, Clock):
        world.env.where = lambda: f"in round {session.rounds + 1}"
    if scenario.attacks is not None:
        session.attack = scenario.attacks(session)
    return session


def world_of(scenario: Placed, fleet: Fleet, workload: Workload, ledger: Ledger, stage: Stage = EMULATED) -> World:
    """The world of a scenario, on a clock of its own."""
    env = stage.clock(scenario.topology.client_count)
    traces = played(scenario.topology, scenario.seed)
    disturbed = disturbances(scenario)
    watch(env, scenario.topology)
    network = network_of(scenario, env, traces, disturbed)
    moving = movements(scenario.topology, scenario.seed)
    return stage.world(env, fleet, network, workload, ledger, traces.speeds, disturbed, moving)


def workload_of(scenario: Scenario, lab: AnyLab) -> Workload:
    """What the clock must know of a scenario's model and its training."""
    facts = lab.model_facts
    rules = [rule for _, rule in choices(scenario.method) if isinstance(rule, LocalRuleChoice)]
    sent = facts.state_size if scenario.topology.buffers == "sent" else facts.parameters
    return Workload(
        sent * BYTES_PER_PARAMETER,
        facts.forward_flops,
        facts.parameters,
        facts.by_kind,
        scenario.model.kind,
        facts.activation_bytes,
        max(map(state_vectors, rules), default=0),
        unsent_bytes=(facts.state_size - sent) * BYTES_PER_PARAMETER,
    )


def batch_sizes(scenario: Scenario) -> Iterator[tuple[str, int]]:
    """The sizes of the batches in which a scenario's method trains, each with its key: of local rules and of estimators."""
    for path, chosen in choices(scenario.method, ("method",)):
        size = getattr(chosen.params, "batch_size", None)
        if isinstance(size, int):
            yield ".".join(map(str, (*path, "batch_size"))), size


def state_vectors(local: LocalRuleChoice) -> int:
    """How many vectors of the model's size a device keeps for a local rule beside weights and gradients.

    One for momentum, or those of the optimiser; the received weights, where a step looks at more than the gradient; the two
    states of a rule with memory.
    """
    rule = local()
    optimiser, beside = rule.optimiser, rule.step_flops > rule.optimiser.step_flops
    return (local.params.momentum > 0) + optimiser.vectors + beside + 2 * (rule.remember is not None)


def network_of(scenario: Placed, env: simpy.Environment, traces: Played, disturbed: Disturbances) -> Network:
    """The network that a scenario asks for."""
    jitter = stream(scenario.seed, "jitter")
    carriage = Carriage(scenario.topology.transport(), scenario.seed)
    if scenario.topology.sharing == "dedicated":
        return DedicatedNetwork(env, jitter, carriage)
    return SharedNetwork(env, jitter, traces.bandwidths, traces.latencies, disturbed.links, carriage)


def play(session: Session) -> None:
    """Plays a session's method to its end. Raises `HflError` where it waits for something that nobody does, or just returns."""
    method = session.scenario.method
    try:
        finish(session.env, session.env.process(method(session)))
    except DeadEndError as error:
        when = f"after {session.world.now:g} emulated seconds, in round {session.rounds + 1}"
        why = session.world.waited_for() or "the method waits for something that nobody does"
        raise HflError(f"nothing happens any more {when}: {why}") from error
    if not session.stopped_by:
        how = "go on until 'end_round' or 'wait' gives True, or call 'end_early'"
        raise method.broken(f"it returned before the run was to stop; {how}")


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Looks for unused objects in cycles less often: a large world has millions of objects, and hardly a cycle among them."""
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
