"""The world of time: methods ask it for seconds, and it writes down what happened. It never sees a tensor.

Every request returns a SimPy event that happens when the activity is over, with True where it is done and False where it was
lost on the way: somebody went offline or crashed, a link went out, or nobody waits for it any longer (`World.give_up`). Its
ledger row is written at that moment, so an activity that a run's end cuts off leaves no row.

A client's device does one computation at a time, in the order in which they were asked for (`emulator.world.device_queues`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import simpy

from devices.compute import Arithmetic, flops_s, inference_s, training_s
from emulator.ledger import BROKEN, COMPUTE, DONE, TRANSFER, Ledger, Tag
from emulator.world.activities import Activities, Place
from emulator.world.batch import Batch
from emulator.world.clock import SHOWN, Clock, Request
from emulator.world.device_queues import Begun, DeviceQueues, Job
from emulator.world.disturbances import Disturbances
from emulator.world.fleet import CLOUD, Fleet, Leg, Numbers
from emulator.world.handovers import Part
from emulator.world.heat import Heat
from emulator.world.meetings import Meetings
from emulator.world.movements import Movements
from emulator.world.network import Instants, Network, Transfer
from emulator.world.overtime import OverTime, Product, accumulated, next_not_zero, time_to_accumulate
from emulator.world.presence import Presence
from emulator.world.simpy_internals import happens_at
from emulator.world.workload import Workload as Workload

T = TypeVar("T")
Steps = Generator[simpy.Event, Any, Any]  # a SimPy process
StepsTo = Generator[simpy.Event, Any, T]  # one that returns a T

_GIVEN_UP = "nobody waits for the group any longer"


class World(Presence):
    """A fleet on the emulated clock."""

    def __init__(
        self,
        env: simpy.Environment,
        fleet: Fleet,
        network: Network,
        workload: Workload,
        ledger: Ledger,
        speeds: Mapping[int, OverTime] = MappingProxyType({}),
        disturbances: Disturbances | None = None,
        movements: Movements | None = None,
    ) -> None:
        """``speeds`` gives clients by number a speed over time, as a multiple of what their device's profile says."""
        super().__init__(env, fleet, disturbances or Disturbances(), movements or Movements())
        self.workload = workload
        self.ledger = ledger
        self.network = network
        self.batch = Batch(self)
        self.meetings = Meetings(self)
        slowed = self._disturbances.speeds
        self._speeds = {**speeds, **{c: Product([f[c] for f in (speeds, slowed) if c in f]) for c in slowed}}
        throttled = ((c, device.throttling) for c, device in enumerate(fleet.client_devices))
        self._heats = {c: Heat(throttling) for c, throttling in throttled if throttling is not None}
        self._activities: Activities | None = None
        self.devices = DeviceQueues(len(fleet.client_names))
        self._given_up: set[tuple[int, int]] = set()  # round and group
        self.requests = 0  # how many there have been
        self.asked: deque[Request] = env.asked if isinstance(env, Clock) else deque(maxlen=1)
        if not self.all_present:
            self.watch()
        if self.movements.paths:
            env.process(self.handovers.follow(self))

    # What is under way.

    @property
    def calm(self) -> bool:
        """Whether nothing is ever cut off, so that what many clients do can be worked out together (`batch`)."""
        return self._activities is None

    def watch(self) -> None:
        """Follows everything from now on so that it can be cut off. To be called before anything is under way."""
        if self._activities is None:
            self._activities = Activities(self.env, self._disturbances)

    def give_up(self, round: int, group: int, client: int) -> None:  # noqa: A002
        """Cuts off what a client has under way for a group in a round: nobody waits for it any longer."""
        self.cut(self.fleet.client_names[client], (round, group))

    def give_up_group(self, round: int, group: int) -> None:  # noqa: A002
        """Cuts off what a group has under way in a round; whatever it begins afterwards in this round is lost at once."""
        self._given_up.add((round, group))
        self.cut((round, group))

    def cut(self, *places: Place) -> None:
        """Cuts off what is under way at all of these places: nodes, links, or rounds and groups."""
        if self._activities is None:
            raise RuntimeError("nothing can be cut off in a world that is not watched")
        self._activities.cut(*places)

    def hold(self, event: simpy.Event, places: Sequence[Place]) -> simpy.Event:
        """Waits for an event in the name of these places; happens with False where they are cut off before it."""
        assert self._activities is not None
        return self._activities.begin(event, places, lambda: None, lambda: None)

    def waited_for(self) -> str:
        """What is waited for in vain, in words: links and clients that are out for ever; "" where there is no such thing."""
        links = [f"link {name} is out for ever, and {n} waiting for it" for name, n in self.network.stuck().items()]
        busy = () if self._activities is None else self._activities.nodes()
        speeds = {self.fleet.client_names[c]: speed for c, speed in self._speeds.items()}
        dead = [n for n in busy if n in speeds and next_not_zero(speeds[n], self.now) == math.inf]
        return "; ".join([*links, *(f"{n} is out for ever in the midst of its work" for n in dead)][:SHOWN])

    # Requests.

    def send(
        self, sender: str, receiver: str, size_bytes: int, tag: Tag, via: str = CLOUD, content: str = ""
    ) -> simpy.Event:
        """Sends bytes from one node to another over every link between them; a row for each hop.

        ``via`` names the edge that serves two clients who send to each other, where it is not each one's own. Where one of
        the nodes on the way is down it is lost at once, without a row. Where a link is out it waits. ``content`` is the key
        of the model that travels, for worlds in which it really does; here only its size counts.
        """
        start = self.now
        self.requests += 1
        self.asked.append(Request(TRANSFER, sender, receiver, tag))
        if self._activities is None:
            route = self.fleet.route(sender, receiver, *self._common_edge(sender, receiver, via))
            return _then(
                self.network.transfer(route, size_bytes), lambda: self._book_transfer(route, start, size_bytes, tag)
            )
        if self.movements.paths:
            return self.env.process(self.handovers.send(self, sender, receiver, size_bytes, tag, via))
        return self.carry(sender, receiver, size_bytes, tag, via, content=content)

    def carry(
        self,
        sender: str,
        receiver: str,
        size_bytes: int,
        tag: Tag,
        via: str,
        resumed: Callable[[Part], None] | None = None,
        *places: Place,
        content: str = "",
    ) -> simpy.Event:
        """`send` in a world in which transfers may be cut off, as servers and clients are now.

        Where a handover cuts a transfer off that goes on elsewhere, ``resumed`` gets the part that it has gone. ``places``:
        where it is under way beside its nodes and links.
        """
        start = self.now
        servers = self._common_edge(sender, receiver, via) or self._servers_between(sender, receiver)
        if servers is None:
            return self.lost("a server on the way is down")
        route = self.fleet.route(sender, receiver, *servers)
        nodes = dict.fromkeys((sender, *servers, *self.fleet.on_the_way(route), receiver))
        if (tag.round, tag.group) in self._given_up:
            return self.lost(_GIVEN_UP)
        for node in nodes:
            if not self._disturbances.up(node, start):
                return self.lost(f"{node} is down")
        transfer = self._start(route, size_bytes, content)

        def cut_off() -> None:
            sent, end = transfer.stop(), self.now
            if resumed is not None and self.handovers.resuming:
                resumed(
                    Part(size_bytes - sent, lambda status: self._book_transfer(route, start, sent, tag, status, end))
                )
            else:
                self._book_transfer(route, start, sent, tag, BROKEN)

        assert self._activities is not None
        return self._activities.begin(
            transfer.arrived,
            (*nodes, *(leg.link for leg in route), (tag.round, tag.group), *places),
            lambda: self._book_transfer(route, start, size_bytes, tag),
            cut_off,
        )

    def _start(self, route: Sequence[Leg], size_bytes: int, content: str) -> Transfer:
        """A transfer that may be cut off, on its way from now on."""
        return self.network.start(route, size_bytes)

    def _common_edge(self, sender: str, receiver: str, via: str) -> tuple[str, ...]:
        if via == CLOUD or self.fleet.number(sender) is None or self.fleet.number(receiver) is None:
            return ()
        return via, via

    def _servers_between(self, sender: str, receiver: str) -> tuple[str, ...] | None:
        """The servers through which a client reaches one that is not its aggregator; None where there is none now."""
        ends = [self.fleet.number(node) for node in (sender, receiver)]
        clients = [c for c in ends if c is not None]
        if len(clients) == 1 and clients[0] not in self.movements.paths:
            server = receiver if ends[1] is None else sender
            if not self.fleet.between(server, clients[0]) and server != CLOUD:
                return ()
        homes = [self.home(c) for c in clients]
        return None if None in homes else tuple(h for h in homes if h is not None)

    def _book_transfer(
        self,
        route: Sequence[Leg],
        start_s: float,
        size_bytes: int,
        tag: Tag,
        status: str = DONE,
        end_s: float | None = None,
    ) -> None:
        end_s = self.now if end_s is None else end_s
        for leg in route:
            if leg.hop:
                self.ledger.add(
                    TRANSFER, leg.sender, start_s, end_s, tag, leg.receiver, size_bytes, hop=leg.hop, status=status
                )

    def train(
        self,
        client: int,
        samples: int,
        epochs: int,
        batch_size: int,
        tag: Tag,
        step_flops: int = 0,
        begun: Begun | None = None,
        beside_flops: float = 0.0,
    ) -> simpy.Event:
        """Local training on a client's device: so many epochs over so many samples of the workload's model.

        ``step_flops`` is what the local rule computes for each parameter in each step, beside the gradient. ``begun`` is called
        when the device begins with it. ``beside_flops`` are computed once, beside the training.
        """
        device = self.fleet.client_devices[client]
        seconds = training_s(device, self.workload.training(batch_size, step_flops), samples, batch_size, epochs)
        if beside_flops:
            seconds += flops_s(device, beside_flops)
        return self.busy(COMPUTE, client, seconds, tag, samples * epochs, begun)

    def fastest_s(
        self, client: int, server: str, down_bytes: int, up_bytes: int, samples: int, epochs: int, batch_size: int
    ) -> float:
        """The least time in which a client can get a model from a server, train it and send it back, at the best of times.

        Infinity where it is never there.
        """
        device, name = self.fleet.client_devices[client], self.fleet.client_names[client]
        work_s = training_s(device, self.workload.training(batch_size), samples, batch_size, epochs)
        speed = self._speeds.get(client)
        if speed is not None and speed.peak == 0:
            return math.inf
        down = self.fastest_send_s(server, name, down_bytes)
        up = self.fastest_send_s(name, server, up_bytes)
        return down + (work_s if speed is None else work_s / speed.peak) + up

    def fastest_send_s(self, sender: str, receiver: str, size_bytes: int) -> float:
        """The least time that a transfer can take, at the best of times."""
        route = self.fleet.route(sender, receiver)
        fixed_s = sum(leg.latency_s for leg in route if leg.jitter is None)
        return fixed_s + 8 * size_bytes / min(self.network.peak_bps(leg) for leg in route)

    def train_now_s(self, client: int, samples: int, epochs: int, batch_size: int, step_flops: int = 0) -> float:
        """Seconds that a training would take at the speed that a client's device has now; infinity where it stands still."""
        device, speed = self.fleet.client_devices[client], self._speeds.get(client)
        seconds = training_s(device, self.workload.training(batch_size, step_flops), samples, batch_size, epochs)
        now = 1.0 if speed is None else speed.at(self.now)
        return seconds / now if now else math.inf

    def send_now_s(self, sender: str, receiver: str, size_bytes: int) -> float:
        """Seconds that a transfer would take alone on links as they are now, by latency and bandwidth; infinity if one is out."""
        servers = self._servers_between(sender, receiver)
        if servers is None:
            return math.inf
        route = self.fleet.route(sender, receiver, *servers)
        narrowest_bps = min(self.network.bandwidth_bps(leg) for leg in route)
        return sum(leg.latency_s for leg in route) + 8 * size_bytes / narrowest_bps if narrowest_bps else math.inf

    def predict(
        self,
        client: int,
        forward: Arithmetic | float,
        samples: int,
        batch_size: int,
        tag: Tag,
        begun: Begun | None = None,
    ) -> simpy.Event:
        """Other work on a client's device than training: one pass of each sample (a prediction), or so many dense FLOPs."""
        seconds = inference_s(self.fleet.client_devices[client], forward, samples, batch_size)
        return self.busy(COMPUTE, client, seconds, tag, samples, begun)

    def compute(
        self, client: int, flops: float, samples: int, tag: Tag, begun: Begun | None = None, content: str = ""
    ) -> simpy.Event:
        """Other work on a client's device, by its floating-point operations in all; over so many samples, for the ledger.

        ``content`` is the key of the model that comes of it (see `send`).
        """
        return self.busy(COMPUTE, client, flops_s(self.fleet.client_devices[client], flops), tag, samples, begun)

    def serve(self, server: str, flops: float, tag: Tag, content: str = "") -> simpy.Event:
        """Computation on a server's device: so many floating-point operations at its effective speed (see `compute`)."""
        return self.occupied(server, flops_s(self.fleet.device(server), flops), tag)

    def occupied(self, server: str, seconds: float, tag: Tag, kind: str = COMPUTE) -> simpy.Event:
        """A server at work for so many seconds; servers do any number of things side by side."""
        start = self.now
        self.requests += 1
        self.asked.append(Request(kind, server, "", tag))
        return _then(self._timeout(seconds), lambda: self.ledger.add(kind, server, start, self.now, tag))

    def busy(
        self, kind: str, client: int, seconds: float, tag: Tag, samples: int = 0, begun: Begun | None = None
    ) -> simpy.Event:
        """A client at work for so many seconds, more where its device is slower than its profile says; one thing at a time.

        ``kind`` is that of the ledger's row; ``begun`` is called when the device begins.
        """
        who = self.fleet.client_names[client]
        self.requests += 1
        self.asked.append(Request(kind, who, "", tag))
        if self._activities is None:
            start = self.devices.start_s(client, self.now)
            end = self._end_of_work(client, seconds, start)
            self.devices.free_at_s[client] = end
            self._worked(client, start, end)
            if begun is not None:
                if start == self.now:
                    begun()
                else:
                    _then(happens_at(self.env, start), begun)
            return _then(
                happens_at(self.env, end), lambda: self.ledger.add(kind, who, start, self.now, tag, samples=samples)
            )
        if (tag.round, tag.group) in self._given_up:
            return self.lost(_GIVEN_UP)
        if not self._disturbances.up(who, self.now):
            return self.lost(f"{who} is down")
        job = self._job(client, seconds, begun)
        self.devices.put(client, job)

        def book(status: str, share: float) -> None:
            if job.started:
                self._worked(client, job.start_s, self.now)
                done = int(samples * share)
                self.ledger.add(kind, who, job.start_s, self.now, tag, samples=done, status=status)
            self.devices.remove(client, job, self._disturbances.up(who, self.now))

        def cut_off() -> None:
            share = self._work_done(client, job.start_s, self.now) / seconds if job.started and seconds > 0 else 1.0
            book(BROKEN, min(1.0, share))
            job.stop()

        return self._activities.begin(job.ends, (who, (tag.round, tag.group)), lambda: book(DONE, 1.0), cut_off)

    def _job(self, client: int, seconds: float, begun: Begun | None) -> Job:
        """Work of so many seconds that may be cut off; its device begins with it as soon as it has nothing else to do."""
        return Job(self.env, partial(self._end_of_work, client, seconds), begun, self.devices.busy(client))

    def occupy(
        self, clients: Numbers, starts_s: Instants, seconds: npt.NDArray[np.float64]
    ) -> tuple[Instants, npt.NDArray[np.float64]]:
        """Has clients do so many seconds of work, each from an instant on or as soon as its device is free; from when to when."""
        starts_s = self.devices.starts_s(clients, starts_s)
        ends_s = self.ends_of_work(clients, starts_s, seconds)
        self.devices.free_at_s[clients] = ends_s
        if self._heats:
            begun_s = np.broadcast_to(starts_s, len(clients)).tolist()
            for client, start_s, end_s in zip(clients.tolist(), begun_s, ends_s.tolist(), strict=True):
                self._worked(client, start_s, end_s)
        return starts_s, ends_s

    def ends_of_work(
        self, clients: Numbers, starts_s: Instants, seconds: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """When clients are done with so many seconds of work, each from an instant on."""
        ends_s = starts_s + seconds
        if self._speeds or self._heats:
            begun_s = np.broadcast_to(starts_s, len(clients))
            for i, client in enumerate(clients.tolist()):
                if client in self._speeds or client in self._heats:
                    ends_s[i] = self._end_of_work(client, float(seconds[i]), float(begun_s[i]))
        return ends_s

    def _end_of_work(self, client: int, seconds: float, start_s: float) -> float:
        speed, heat = self._speeds.get(client), self._heats.get(client)
        if heat is not None:
            return heat.end_of_work(start_s, seconds, speed)
        return start_s + seconds if speed is None else time_to_accumulate(speed, start_s, seconds)

    def _work_done(self, client: int, start_s: float, now_s: float) -> float:
        """How many seconds of work, as `_end_of_work` counts them, a device has done that began at an instant."""
        speed, heat = self._speeds.get(client), self._heats.get(client)
        if heat is not None:
            return heat.work_done(start_s, now_s, speed)
        return now_s - start_s if speed is None else accumulated(speed, start_s, now_s)

    def _worked(self, client: int, start_s: float, end_s: float) -> None:
        if client in self._heats:
            self._heats[client].worked(start_s, end_s)

    def lost(self, why: str) -> simpy.Event:
        """An event that happens at once, with False: what was asked for last is lost."""
        if self.asked:
            self.asked[-1] = self.asked[-1]._replace(lost=why)
        return self.env.timeout(0, False)

    def _timeout(self, seconds: float) -> simpy.Event:
        """Happens, with True, after so many seconds; never, where they are infinitely many."""
        return self.env.event() if seconds == math.inf else self.env.timeout(seconds, True)


def _then(event: simpy.Event, action: Callable[[], None]) -> simpy.Event:
    """The event itself, with an action that runs when it happens, before whoever waits for it goes on."""
    event.callbacks.append(lambda _: action())
    return event
