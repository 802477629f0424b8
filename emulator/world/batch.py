"""What many clients do together under one server, worked out together: all download, all train, all upload.

In a world in which nothing is cut off, phases in which clients do not meet need no event for each of them. Times and rows are
those of `World.send` and `World.train` for one client after another (on links that follow a trace, up to rounding); rows of a
phase are booked together when its last is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import simpy

from devices.compute import PASSES, flops_s, inference_s
from devices.profile import DeviceProfile
from emulator.contracts.world import GroupOperation, Meeting, OperationCost
from emulator.ledger import COMPUTE, GROUP_OPERATION, TRANSFER, Tag
from emulator.world.fleet import ClientRoutes, Numbers
from emulator.world.network import EVERYONE, Instants, Places, at, last
from emulator.world.simpy_internals import happen, happens_at

if TYPE_CHECKING:
    from emulator.world.world import Steps, World


KEPT_CREWS = 1000


@dataclass(frozen=True)
class Work:
    """Local training: the samples of each client, and how each goes over its own."""

    samples: Numbers
    epochs: int
    batch_size: int
    step_flops: int = 0  # of the local rule, for each parameter in each step
    beside_flops: float = 0.0  # of each client, once, beside the training


class Batch:
    """Makes crews for a world, and remembers what they have in common."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._unit_s: dict[tuple[int, int], npt.NDArray[np.float64]] = {}
        self._costs: dict[tuple[int, int, int, int, int], tuple[GroupOperation, dict[int, OperationCost]]] = {}
        self._crews: dict[tuple[str, tuple[int, ...]], Crew] = {}

    def crew(self, server: str, clients: Sequence[int]) -> Crew:
        """These clients, to work together under a server (an edge, or the cloud). Groups meet again, so the latest are kept."""
        key = (server, tuple(clients))
        known = self._crews.get(key)
        if known is None:
            if len(self._crews) >= KEPT_CREWS:
                self._crews.clear()
            known = self._crews[key] = Crew(self, server, np.array(clients))
        return known

    @cached_property
    def names(self) -> npt.NDArray[np.int32]:
        """The clients' names as numbers of the ledger."""
        return self.world.ledger.numbers(self.world.fleet.client_names)

    @cached_property
    def kinds(self) -> list[DeviceProfile]:
        """The kinds of devices that clients have."""
        return list({id(device): device for device in self.world.fleet.client_devices}.values())

    @cached_property
    def kind_of(self) -> Numbers:
        """The place in `kinds` of every client's device."""
        places = {id(device): i for i, device in enumerate(self.kinds)}
        return np.array([places[id(device)] for device in self.world.fleet.client_devices])

    def unit_s(self, batch_size: int, step_flops: int = 0) -> npt.NDArray[np.float64]:
        """Seconds of one pass of one sample on each kind of device."""
        known = self._unit_s.get((batch_size, step_flops))
        if known is None:
            work = self.world.workload.training(batch_size, step_flops)
            known = np.array([inference_s(kind, work, 1, batch_size) for kind in self.kinds])
            self._unit_s[batch_size, step_flops] = known
        return known

    def costs(
        self,
        operation: GroupOperation,
        server: DeviceProfile,
        kinds: Sequence[int],
        vectors: int,
        size: int,
        dropped: int = 0,
    ) -> list[OperationCost]:
        """What members with these kinds of devices pay for an operation: in groups of one size, equal devices pay the same.

        ``size`` says of how many members it was planned, ``dropped`` how many of them are gone.
        """
        _, known = self._costs.setdefault((id(operation), id(server), vectors, size, dropped), (operation, {}))
        for kind in [k for k in dict.fromkeys(kinds) if k not in known]:
            known[kind] = operation(
                Meeting(self.kinds[kind], server, size, self.world.workload.parameters, vectors, dropped)
            )
        return [known[kind] for kind in kinds]


class _Paid(NamedTuple):
    """What members pay for an operation, each in turn."""

    operation: GroupOperation  # whose identity tells it from others as long as it is there
    seconds: npt.NDArray[np.float64]
    up_bytes: Sequence[int]
    down_bytes: Sequence[int]


class Crew:
    """Clients that work together under one server. Events have the instants at which each client is done as their value."""

    def __init__(self, batch: Batch, server: str, clients: Numbers) -> None:
        self.clients = clients
        self._batch = batch
        self._world = batch.world
        self._server = server
        self._names = batch.names[clients]
        self._parts = batch.world.fleet.parts(server, clients)
        self._seconds: dict[tuple[object, ...], npt.NDArray[np.float64]] = {}
        self._paid: dict[tuple[int, int], _Paid] = {}

    @cached_property
    def _up(self) -> list[ClientRoutes]:
        return self._routes(up=True)

    @cached_property
    def _down(self) -> list[ClientRoutes]:
        return self._routes(up=False)

    def _routes(self, up: bool) -> list[ClientRoutes]:
        fleet = self._world.fleet
        if len(self._parts) == 1:
            return [fleet.client_routes(self._server, self.clients, up)]
        return [fleet.client_routes(self._server, self.clients[places], up) for places in self._parts]

    def receive(self, size_bytes: int, tag: Tag) -> simpy.Event:
        """The server sends as many bytes to each client, now."""
        return self._transfer(self._down, size_bytes, tag)

    def send(self, size_bytes: int, tag: Tag) -> simpy.Event:
        """Each client sends as many bytes to the server, now."""
        return self._transfer(self._up, size_bytes, tag)

    def exchange(self, work: Work, down_bytes: int, up_bytes: int, tag: Tag) -> simpy.Event:
        """Each client receives a model, trains it, sends it back, and waits for nobody; with the instants of the arrivals."""
        start_s, arrived = self._world.now, self._world.env.event()
        arrivals_s, waiting = np.zeros(len(self.clients)), [len(self.clients)]

        def note(places: Numbers, instants_s: Instants) -> None:
            arrivals_s[places] = instants_s
            waiting[0] -= len(places)
            if not waiting[0]:
                happen(arrived, arrivals_s)

        def received(part: Numbers, places: Places, received_s: Instants) -> None:
            mine = part[places]
            some = self if len(mine) == len(self.clients) else Crew(self._batch, self._server, self.clients[mine])
            theirs = replace(work, samples=work.samples[mine])
            began_s, trained_s = some._train(theirs, received_s)

            def booked(sent: Numbers, instants_s: Instants) -> None:
                # With each upload what led to it, and no more: a run may end while others are still at work.
                some._book(some._down[0], start_s, received_s, down_bytes, tag, sent)
                some._book_training(theirs, tag, began_s, trained_s, sent)
                note(mine[sent], instants_s)

            some._send_each(trained_s, up_bytes, tag, booked)

        for part, routes in zip(self._parts, self._down, strict=True):
            self._world.network.transfer_each(routes, down_bytes, partial(received, part))
        return arrived

    def _send_each(
        self, starts_s: npt.NDArray[np.float64], size_bytes: int, tag: Tag, sent: Callable[[Numbers, Instants], None]
    ) -> None:
        """Sends from each client, all of one part, at an instant of its own; ``sent`` is called when some have arrived."""
        env, network, everyone = self._world.env, self._world.network, np.arange(len(self.clients))
        if network.independent(self._up[0]):
            arrived = network.transfer_all(self._up[0], size_bytes, starts_s)
            arrived.callbacks.append(lambda event: self._book(self._up[0], starts_s, event.value, size_bytes, tag))
            arrived.callbacks.append(lambda event: sent(everyone, event.value))
            return

        def send(places: Numbers) -> None:
            some = Crew(self._batch, self._server, self.clients[places])
            some.send(size_bytes, tag).callbacks.append(lambda event: sent(places, event.value))

        order = np.argsort(starts_s, kind="stable")
        in_order_s = starts_s[order]
        for together in np.split(order, np.flatnonzero(in_order_s[1:] != in_order_s[:-1]) + 1):
            start = happens_at(env, float(starts_s[together[0]]))
            start.callbacks.append(lambda _, places=together: send(places))  # type: ignore[misc]

    def train_and_operate(
        self, work: Work, operation: GroupOperation, vectors: int, tag: Tag, starts_s: Instants
    ) -> Steps:
        """Each client trains, from an instant of its own; then a group operation: all compute, then all send, then all receive.

        ``vectors`` says how many vectors of the model's size each member brings.
        """
        world = self._world
        starts_s, trained_s = self._train(work, starts_s)
        paid = self._pays(operation, vectors)
        began_s = last(trained_s)  # it needs everybody
        _, ends_s = world.occupy(self.clients, began_s, paid.seconds)
        yield happens_at(world.env, last(ends_s))
        self._book_training(work, tag, trained_s=trained_s, starts_s=starts_s)
        tag, busy = tag.with_purpose(operation.kind), ends_s > began_s
        if np.logical_and.reduce(busy):
            world.ledger.add_all(len(ends_s), GROUP_OPERATION, self._names, began_s, ends_s, tag)
        else:
            names, their_s = self._names[busy], ends_s[busy]
            world.ledger.add_all(len(names), GROUP_OPERATION, names, began_s, their_s, tag)
        for up, sizes in ((True, paid.up_bytes), (False, paid.down_bytes)):
            sent = [self._exchange(up, size, sizes, tag) for size in dict.fromkeys(sizes) if size]
            if sent:
                yield sent[0] if len(sent) == 1 else world.env.all_of(sent)

    def _pays(self, operation: GroupOperation, vectors: int) -> _Paid:
        """What each of them pays for an operation with all of them."""
        known = self._paid.get((id(operation), vectors))
        if known is None:
            server, kinds = self._world.fleet.device(self._server), self._batch.kind_of[self.clients].tolist()
            costs = self._batch.costs(operation, server, kinds, vectors, len(kinds))
            seconds, up, down = zip(*((c.seconds, c.up_bytes, c.down_bytes) for c in costs), strict=True)
            known = self._paid[id(operation), vectors] = _Paid(operation, np.array(seconds), up, down)
        return known

    def _exchange(self, up: bool, size_bytes: int, sizes: Sequence[int], tag: Tag) -> simpy.Event:
        """Transfers of those clients whose size it is."""
        some = self
        if sizes.count(size_bytes) < len(sizes):
            some = Crew(self._batch, self._server, self.clients[np.array(sizes) == size_bytes])
        return some.send(size_bytes, tag) if up else some.receive(size_bytes, tag)

    def _transfer(self, parts: Sequence[ClientRoutes], size_bytes: int, tag: Tag) -> simpy.Event:
        world, start_s = self._world, self._world.now
        sent = [world.network.transfer_all(routes, size_bytes) for routes in parts]
        for routes, event in zip(parts, sent, strict=True):
            event.callbacks.append(lambda e, routes=routes: self._book(routes, start_s, e.value, size_bytes, tag))  # type: ignore[misc]
        if len(sent) == 1:
            return sent[0]
        arrived = world.env.event()

        def all_arrived(_: simpy.Event) -> None:
            arrivals_s = np.zeros(len(self.clients))
            for places, event in zip(self._parts, sent, strict=True):
                arrivals_s[places] = event.value
            happen(arrived, arrivals_s)

        world.env.all_of(sent).callbacks.append(all_arrived)
        return arrived

    def _book(
        self,
        routes: ClientRoutes,
        start_s: Instants,
        ends_s: Instants,
        size_bytes: int,
        tag: Tag,
        places: Places = EVERYONE,
    ) -> None:
        """Rows of transfers that have arrived, those at some places or all: one for each and each hop."""
        names = (self._names if len(self._parts) == 1 else self._batch.names[routes.clients])[places]
        start_s, ends_s = at(start_s, places), at(ends_s, places)
        route, own = routes.pattern.route, routes.pattern.own
        for leg in route:
            if leg.hop:
                mine = leg is route[own]
                who = names if mine and own == 0 else leg.sender
                peer = names if mine and own == -1 else leg.receiver
                self._world.ledger.add_all(
                    len(names), TRANSFER, who, start_s, ends_s, tag, peer, size_bytes, hop=leg.hop
                )

    def _train(self, work: Work, starts_s: Instants) -> tuple[Instants, npt.NDArray[np.float64]]:
        """From when to when each client trains; see `devices.compute.training_s`."""
        key = (work.samples.tobytes(), work.epochs, work.batch_size, work.step_flops, work.beside_flops)
        seconds = self._seconds.get(key)
        if seconds is None:
            unit_s = self._batch.unit_s(work.batch_size, work.step_flops)[self._batch.kind_of[self.clients]]
            seconds = work.epochs * PASSES * (work.samples * unit_s)
            if work.beside_flops:
                once_s = np.array([flops_s(kind, work.beside_flops) for kind in self._batch.kinds])
                seconds = seconds + once_s[self._batch.kind_of[self.clients]]
            self._seconds = {key: seconds}  # the latest: clients mostly do the same again
        return self._world.occupy(self.clients, starts_s, seconds)

    def _book_training(
        self, work: Work, tag: Tag, starts_s: Instants, trained_s: Instants, places: Places = EVERYONE
    ) -> None:
        samples = (work.samples if work.epochs == 1 else work.samples * work.epochs)[places]
        names, starts_s, trained_s = self._names[places], at(starts_s, places), at(trained_s, places)
        tag = tag.with_purpose("training")
        self._world.ledger.add_all(len(samples), COMPUTE, names, starts_s, trained_s, tag, samples=samples)
