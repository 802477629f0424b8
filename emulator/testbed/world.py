"""The world of the testbed: the same requests as everywhere, whose events happen when nodes have really done what was asked.

Who is there, who is down and when, and who serves whom, the scenario says as it does in an emulation. What takes time does so
here: a transfer is bytes on a socket, work is work of a process, and a client that crashes is a process that is killed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import simpy

from emulator.ledger import COMPUTE, Tag
from emulator.methods.session import Session
from emulator.methods.wire import ENCODING
from emulator.testbed.bench import Bench
from emulator.testbed.meetings import MeasuredMeetings
from emulator.testbed.orders import Expect, Order, Report, Send, Step, Work
from emulator.world.device_queues import Begun, Job
from emulator.world.fleet import Leg
from emulator.world.network import Transfer
from emulator.world.overtime import OverTime, next_not_zero, next_zero
from emulator.world.simpy_internals import happens_at
from emulator.world.world import Steps, World


class MeasuredJob(Job):
    """Work that a node does. ``ask`` asks it, once the device begins, and tells when that was."""

    __slots__ = ("_ask", "_number")

    def __init__(
        self,
        env: simpy.Environment,
        ask: Callable[[MeasuredJob], simpy.Event],
        begun: Begun | None,
        waits: bool,
    ) -> None:
        self._ask = ask
        self._number: Callable[[], None] = lambda: None
        super().__init__(env, lambda _start_s: math.nan, begun, waits)

    def stops_by(self, stop: Callable[[], None]) -> None:
        """What is to be done where nobody waits for it any longer."""
        self._number = stop

    def stop(self) -> None:
        """See `Job.stop`."""
        self._number()

    def begin(self) -> None:
        """Tells whoever asked for it that the device begins."""
        if self._begun is not None:
            self._begun()

    def _start(self) -> simpy.Event:
        self.start_s = float(self._env.now)
        return self._ask(self)


class MeasuredWorld(World):
    """A fleet of processes."""

    def __init__(self, bench: Bench, *parts: Any) -> None:
        super().__init__(*parts)
        self.bench = bench
        self.watch()
        self.meetings = self._measured = MeasuredMeetings(self, bench)
        self.orders: list[Callable[[int], Order]] | None = None  # that the work that begins now asks for itself
        for name, presence in self._disturbances.nodes.items():
            self.env.process(self._crashes(name, presence))

    # Transfers.

    def _start(self, route: Sequence[Leg], size_bytes: int, content: str) -> Transfer:
        bench, arrived = self.bench, self.env.event()
        sender, receiver = bench.plan.ends(route)
        number = bench.number()
        masked = self._measured.masked(sender, content)
        what = masked or bench.travelling(content)
        steps = bench.steps(sender, what) if what and size_bytes else ()
        numbers, length = (0, -1) if masked else bench.form(what, size_bytes)

        def done(report: Report) -> None:
            if report.failed:
                bench.broken(report, sender, receiver)
                return
            if what and size_bytes:
                bench.has(receiver, what)
            bench.settled(steps)
            arrived.succeed(True)

        bench.await_(number, done)
        bench.tell(receiver, Expect(number, what if size_bytes else "", numbers, length))
        bench.tell(sender, Send(number, bench.way(route), what if size_bytes else "", size_bytes, tuple(steps)))
        bench.follows(sender, steps)
        return Transfer(arrived, lambda: min(size_bytes, bench.stop(number, receiver, sender)))

    # Work.

    def _job(self, client: int, seconds: float, begun: Begun | None) -> Job:
        name = self.fleet.client_names[client]

        def ask(job: MeasuredJob) -> simpy.Event:
            orders: list[Callable[[int], Order]] = []
            self.orders = orders
            with self.bench.lab.taking() as keys:
                job.begin()
            self.orders = None
            steps: list[Step] = []
            for key in keys:
                more = self.bench.steps(name, key, train=True)
                self.bench.follows(name, more)
                steps += more
            if steps:
                orders.insert(0, lambda number: Work(number, tuple(steps)))
            ended = self.env.event()
            ended.callbacks.append(lambda _: self.bench.settled(steps))
            self._next(name, orders, job, ended)
            return ended

        return MeasuredJob(self.env, ask, begun, self.devices.busy(client))

    def _next(
        self,
        name: str,
        orders: Sequence[Callable[[int], Order]],
        job: MeasuredJob,
        ended: simpy.Event,
        began: Callable[[int], Order] | None = None,
    ) -> None:
        """Has a node follow orders one after another; ``ended`` happens with what the last one gave."""
        if not orders:
            ended.succeed(True)
            return
        bench, (first, *rest) = self.bench, orders
        number, began = bench.number(), began or first

        def done(report: Report) -> None:
            if report.failed:
                bench.broken(report, name)
                return
            if bench.in_turn and first is began:
                job.start_s = max(job.start_s, bench.instant_s(report.began_s))
            bench.answers[name] = report.value
            if rest:
                self._next(name, rest, job, ended, began)
            else:
                ended.succeed(True)

        job.stops_by(lambda: bench.abandon(number, name))
        bench.await_(number, done)
        bench.compute(name, first(number))

    def compute(
        self, client: int, flops: float, samples: int, tag: Tag, begun: Begun | None = None, content: str = ""
    ) -> simpy.Event:
        """See `World.compute`."""
        if content:
            name = self.fleet.client_names[client]
            begun = self._encodes(name, tag, content)
        return self.busy(COMPUTE, client, 0.0, tag, samples, begun)

    def occupied(self, server: str, seconds: float, tag: Tag, kind: str = COMPUTE) -> simpy.Event:
        """See `World.occupied`. What servers compute they compute when it is needed; it has no row of its own."""
        return self.env.timeout(0, True)

    def _encodes(self, name: str, tag: Tag, content: str) -> Begun:
        """Lets a node write or read a model as it travels."""

        def begin() -> None:
            assert self.orders is not None
            what = self.bench.travelling(content) if tag.what == ENCODING else content
            steps = self.bench.steps(name, what)
            if steps:
                self.orders.append(lambda number: Work(number, tuple(steps)))
                self.bench.follows(name, steps)

        return begin

    # Faults.

    def _crashes(self, name: str, presence: OverTime) -> Steps:
        """Kills a node's process whenever the scenario says that it is down, and starts another one when it is back."""
        while (down_s := next_zero(presence, self.now)) < math.inf:
            yield happens_at(self.env, max(down_s, self.now))
            self.bench.kill(name)
            back_s = next_not_zero(presence, self.now)
            if back_s == math.inf:
                return
            yield happens_at(self.env, back_s)
            self.bench.revive(name)


class MeasuredSession(Session):
    """A session whose models are evaluated when the run is over, unless somebody waits for what comes of it."""

    later = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.later = not self.scenario.stop.goals and self.scenario.attacks is None
        self._waiting: list[tuple[int, Any]] = []

    def tested(self, round: int, clusters: Any) -> dict[str, float]:  # noqa: A002
        """See `Session.tested`."""
        if self.later:
            self._waiting.append((round, clusters))
            return dict.fromkeys((*(measure.name for measure in self.measures), "loss"), math.nan)
        return super().tested(round, clusters)

    def evaluate_now(self) -> None:
        """Evaluates all models that wait for it."""
        rows = self.metrics
        for (round, clusters), row in zip(self._waiting, rows, strict=False):  # noqa: A001
            row.update(super().tested(round, clusters))
        self._waiting.clear()
