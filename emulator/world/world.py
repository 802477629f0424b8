"""The world of time: methods ask it for seconds, and it writes down what happened. It never sees a tensor.

Every request returns a SimPy event that happens when the activity is over; its ledger row is written at that moment,
so an activity that a run's end cuts off leaves no row.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import simpy

from devices.compute import training_s
from emulator.ledger import COMPUTE, GROUP_OPERATION, TRANSFER, Ledger, Tag
from emulator.registry import Chosen
from emulator.world.batch import Batch
from emulator.world.fleet import Fleet, Numbers
from emulator.world.network import Instants, Network
from emulator.world.operations import Meeting, OperationCost
from traces.step import StepFunction

Steps = Generator[simpy.Event, Any, Any]  # a SimPy process


@dataclass(frozen=True)
class Workload:
    """What the clock must know of the model: its size on the wire and the arithmetic of one sample."""

    model_bytes: int
    forward_flops: float
    parameters: int


class World:
    """A fleet on the emulated clock."""

    def __init__(
        self,
        env: simpy.Environment,
        fleet: Fleet,
        network: Network,
        workload: Workload,
        ledger: Ledger,
        speeds: Mapping[int, StepFunction] = MappingProxyType({}),
    ) -> None:
        """``speeds`` gives clients by number a speed over time, as a multiple of what their device's profile says."""
        self.env = env
        self.fleet = fleet
        self.workload = workload
        self.ledger = ledger
        self.network = network
        self.batch = Batch(self)
        self._speeds = speeds

    @property
    def now(self) -> float:
        """Emulated seconds since the start."""
        return float(self.env.now)

    def send(self, sender: str, receiver: str, size_bytes: int, tag: Tag) -> simpy.Event:
        """Sends bytes from one node to another over every link between them; a row for each hop."""
        start = self.now
        route = self.fleet.route(sender, receiver)

        def book() -> None:
            for leg in route:
                if leg.hop:
                    self.ledger.add(TRANSFER, leg.sender, start, self.now, tag, leg.receiver, size_bytes, hop=leg.hop)

        return _then(self.network.transfer(route, size_bytes), book)

    def train(self, client: int, samples: int, epochs: int, batch_size: int, tag: Tag) -> simpy.Event:
        """Local training on a client's device: so many epochs over so many samples of the workload's model."""
        device = self.fleet.client_devices[client]
        seconds = training_s(device, self.workload.forward_flops, samples, batch_size, epochs)
        speed = self._speeds.get(client)
        if speed is not None:
            seconds = speed.time_to_accumulate(self.now, seconds) - self.now
        return self._busy(COMPUTE, self.fleet.client_names[client], seconds, tag, samples * epochs)

    def ends_of_work(
        self, clients: Numbers, starts_s: Instants, seconds: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """When clients are done with so many seconds of work, each from an instant on."""
        ends_s = starts_s + seconds
        if self._speeds:
            begun_s = np.broadcast_to(starts_s, len(clients))
            for i, client in enumerate(clients.tolist()):
                speed = self._speeds.get(client)
                if speed is not None:
                    start_s = float(begun_s[i])
                    ends_s[i] = start_s + (speed.time_to_accumulate(start_s, float(seconds[i])) - start_s)
        return ends_s

    def group_operation(
        self, aggregator: str, members: Sequence[int], operation: Chosen, vectors: int, tag: Tag
    ) -> simpy.Event:
        """A group operation between these clients and their aggregator: all compute, then all send, then all receive.

        ``vectors`` says how many vectors of the model's size each member brings.
        """
        tag = tag.but(operation.kind)
        server, parameters = self.fleet.device(aggregator), self.workload.parameters
        devices = [self.fleet.client_devices[c] for c in members]
        costs: dict[int, OperationCost] = {}  # by device: equal devices pay the same
        for device in devices:
            if id(device) not in costs:
                costs[id(device)] = operation(Meeting(device, server, len(members), parameters, vectors))
        charged = [costs[id(device)] for device in devices]
        return self.env.process(self._operate(aggregator, members, charged, tag))

    def _operate(self, aggregator: str, members: Sequence[int], costs: Sequence[OperationCost], tag: Tag) -> Steps:
        names = [self.fleet.client_names[c] for c in members]
        pairs = list(zip(names, costs, strict=True))
        yield self._busy_together(GROUP_OPERATION, [(n, c.seconds) for n, c in pairs if c.seconds], tag)
        yield self.env.all_of([self.send(n, aggregator, c.up_bytes, tag) for n, c in pairs if c.up_bytes])
        yield self.env.all_of([self.send(aggregator, n, c.down_bytes, tag) for n, c in pairs if c.down_bytes])

    def _busy_together(self, kind: str, work: Sequence[tuple[str, float]], tag: Tag) -> simpy.Event:
        """Several nodes at work from now on, each for its seconds; happens when the last is done, and is booked then."""
        start = self.now

        def book() -> None:
            for who, seconds in work:
                self.ledger.add(kind, who, start, start + seconds, tag)

        return _then(self.env.timeout(max((seconds for _, seconds in work), default=0.0)), book)

    def _busy(self, kind: str, who: str, seconds: float, tag: Tag, samples: int) -> simpy.Event:
        start = self.now
        return _then(
            self.env.timeout(seconds), lambda: self.ledger.add(kind, who, start, self.now, tag, samples=samples)
        )


def _then(event: simpy.Event, action: Callable[[], None]) -> simpy.Event:
    """The event itself, with an action that runs when it happens, before whoever waits for it goes on."""
    event.callbacks.append(lambda _: action())
    return event
