"""The driver's side of the testbed: it starts nodes, tells them what to do, and hears what they have done.

It knows who has which model, and by which steps a node makes one of those that it has. What nobody near has any more, because a
process was killed, it brings over the control channel, and counts that.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from emulator.errors import HflError
from emulator.learning.transmission import Transmission
from emulator.testbed.lab import MeasuredLab
from emulator.testbed.links import Links
from emulator.testbed.nursery import Nursery
from emulator.testbed.orders import (
    ENCODED,
    NUMBER_BYTES,
    Decode,
    Drop,
    Encode,
    Give,
    Order,
    Report,
    Run,
    Send,
    Step,
    Stop,
    Tell,
    Train,
    Way,
    Work,
)
from emulator.testbed.plan import Plan
from emulator.world.fleet import CLOUD, Leg

ANSWER_S = 20.0  # that a node may take to answer a question


class OutOfTimeError(HflError):
    """The run has lasted as long as it may."""


@dataclass
class Member:
    """A node as the driver knows it. Without a pipe it is down."""

    pipe: Connection | None = None
    pid: int = 0
    has: set[str] = field(default_factory=set)


class Bench:
    """All nodes of a run. ``at_most_s`` bounds its time, ``at_most_bytes`` what is sent."""

    def __init__(
        self,
        plan: Plan,
        lab: MeasuredLab,
        nursery: Nursery,
        links: Links,
        at_most_s: float,
        at_most_bytes: float,
        in_turn: bool = False,
        started: Callable[[int], None] = lambda _pid: None,
    ) -> None:
        self.plan, self.lab, self.in_turn = plan, lab, in_turn
        self.answers: dict[str, Any] = {}  # the latest answer of a node, for whoever asked for it
        self.given = 0  # models that had to be brought over the control channel
        self.sent_bytes = 0
        self._nursery, self._links, self._started = nursery, links, started
        self._at_most_s, self._at_most_bytes = at_most_s, at_most_bytes
        self._nodes = {name: Member() for name in plan.nodes}
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Callable[[Report], None]] = {}
        self._late: deque[tuple[str, Report]] = deque()  # reports that were read while something else was waited for
        self._pauses: list[tuple[float, float]] = []
        self._start_s = 0.0
        self._turns: deque[tuple[str, Order]] = deque()
        self._computing: tuple[str, int] | None = None
        self._routes: dict[tuple[Leg, ...], Way] = {}
        self._dead: set[str] = set()  # keys that nobody needs any more
        lab.fetch, lab.forget, lab.paused = self.fetch, self._dead.add, self.paused

    # Nodes.

    def start(self) -> None:
        """Starts all nodes; from now on the clock runs."""
        for name in self._nodes:
            self.revive(name)
        self._start_s = time.monotonic()

    def revive(self, name: str) -> None:
        """Starts the process of a node."""
        node = self._nodes[name]
        child = self._nursery.fork(self._links.site(name))
        self._started(child.pid)
        if not wait([child.pipe], ANSWER_S):
            raise HflError(f"the process of {name} does not answer")
        try:
            hello = child.pipe.recv()
        except (EOFError, ConnectionError):
            raise HflError(f"the process of {name} ended as soon as it began") from None
        self._links.joined(name, child.pid, hello.value)
        node.pipe, node.pid, node.has = child.pipe, child.pid, set()
        self._routes.clear()

    def kill(self, name: str) -> None:
        """Kills the process of a node, and all that it has is gone."""
        node = self._nodes[name]
        if node.pipe is None:
            return
        os.kill(node.pid, signal.SIGKILL)
        node.pipe.close()
        node.pipe, node.has = None, set()
        if self._computing is not None and self._computing[0] == name:
            self._next_turn()
        self._turns = deque(turn for turn in self._turns if turn[0] != name)

    def close(self) -> None:
        """Ends all nodes."""
        for node in self._nodes.values():
            if node.pipe is not None:
                node.pipe.close()
                node.pipe = None

    # The clock.

    def now_s(self) -> float:
        """Seconds since the start, without those in which the clock stood still."""
        return self.instant_s(time.monotonic())

    def instant_s(self, monotonic_s: float) -> float:
        """An instant of the host's clock on that of the run."""
        paused_s = sum(max(0.0, min(end, monotonic_s) - begin) for begin, end in self._pauses)
        return monotonic_s - self._start_s - paused_s

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The clock stands still within the block: what the driver computes in it no node would."""
        began_s = time.monotonic()
        try:
            yield
        finally:
            within = (pause for pause in self._pauses if pause[0] < began_s)  # one that holds others takes their place
            self._pauses = [*within, (began_s, time.monotonic())]

    def next_report(self, until_s: float) -> Report | None:
        """The next report; None where it is later than an instant before there is one, or nothing is waited for.

        Raises `HflError` where a process ended that nobody has killed, and where the run lasts longer than it may.
        """
        self._drop()
        if self._late:
            return self._late.popleft()[1]
        if not self._waiting and until_s == float("inf"):
            return None
        while True:
            left_s = min(until_s, self._at_most_s) - self.now_s()
            found = self._read(max(0.0, left_s))
            if found is not None:
                return found[1]
            if self.now_s() >= self._at_most_s:
                raise OutOfTimeError(
                    f"the run has lasted {self._at_most_s:g} s, which is the most that it may (--at-most)"
                )
            if self.now_s() >= until_s:
                return None

    def _read(self, within_s: float) -> tuple[str, Report] | None:
        pipes = {node.pipe: name for name, node in self._nodes.items() if node.pipe is not None}
        for pipe in wait(list(pipes), within_s):
            assert isinstance(pipe, Connection)
            name = pipes[pipe]
            try:
                report = pipe.recv()
            except (EOFError, ConnectionError):
                raise HflError(f"the process of {name} ended; was it killed, or is there too little memory?") from None
            return name, report
        return None

    def deliver(self, report: Report) -> None:
        """Tells whoever waits for a report."""
        if self._computing is not None and self._computing[1] == report.number:
            self._next_turn()
        found = self._waiting.pop(report.number, None)
        if found is not None:
            found(report)

    # Orders.

    def number(self) -> int:
        """A number for the next order."""
        return next(self._numbers)

    def await_(self, number: int, done: Callable[[Report], None]) -> None:
        """``done`` is told of the report on an order."""
        self._waiting[number] = done

    def tell(self, name: str, order: Order) -> None:
        """Gives a node an order. One that is down does not hear it."""
        if isinstance(order, Send):
            self.sent_bytes += order.size_bytes
            if self.sent_bytes > self._at_most_bytes:
                raise HflError(
                    f"more than {self._at_most_bytes:,.0f} bytes were to be sent, twice what the emulation sends"
                )
        pipe = self._nodes[name].pipe
        if pipe is not None:
            try:
                pipe.send(order)
            except (BrokenPipeError, ConnectionError):
                raise HflError(f"the process of {name} ended; was it killed, or is there too little memory?") from None

    def compute(self, name: str, order: Order) -> None:
        """Gives a client's device work; when its turn comes, where they compute in turn."""
        if not self.in_turn:
            self.tell(name, order)
            return
        self._turns.append((name, order))
        if self._computing is None:
            self._next_turn()

    def _next_turn(self) -> None:
        self._computing = None
        if self._turns:
            name, order = self._turns.popleft()
            self._computing = (name, order.number)
            self.tell(name, order)

    def broken(self, report: Report, *nodes: str) -> None:
        """An order has failed. That of somebody who was killed is lost anyway. Raises `HflError`."""
        if any(self._nodes[name].pipe is None for name in nodes) and report.lost:
            return
        raise HflError(f"{' to '.join(nodes)}: {report.failed}")

    def abandon(self, number: int, name: str) -> None:
        """Nobody waits for an order any longer."""
        self._waiting.pop(number, None)
        self._turns = deque(turn for turn in self._turns if turn[1].number != number)
        self.tell(name, Stop(self.number(), number))
        if self._computing == (name, number):
            self._next_turn()

    def stop(self, number: int, receiver: str, sender: str) -> int:
        """Nobody waits for a transfer any longer; returns how many bytes had come."""
        self._waiting.pop(number, None)
        came = 0
        for name in (receiver, sender):
            if self._nodes[name].pipe is not None:
                answer = self._question(name, Stop(self.number(), number))
                came = answer if name == receiver else came
        return came

    def _question(self, name: str, order: Order) -> Any:
        """Asks a node and waits for the answer; other reports wait meanwhile."""
        self.tell(name, order)
        until_s = time.monotonic() + ANSWER_S
        while (left_s := until_s - time.monotonic()) > 0:
            found = self._read(left_s)
            if found is None:
                break
            if found[1].number == order.number:
                if found[1].failed:
                    raise HflError(f"{name}: {found[1].failed}")
                return found[1].value
            self._late.append(found)
        raise HflError(f"the process of {name} does not answer")

    # Ways.

    def way(self, route: Sequence[Leg]) -> Way:
        """How a transfer over a route goes now."""
        key = tuple(route)
        if key not in self._routes:
            self._routes[key] = self._links.way(key)
        return self._routes[key]

    # Models.

    def has(self, name: str, *keys: str) -> None:
        """A node has these from now on."""
        self._nodes[name].has.update(keys)

    def follows(self, name: str, steps: Sequence[Step]) -> None:
        """A node has been told to follow steps: whoever asks it for what they give hears of it when it is there."""
        for step in steps:
            self.has(name, *step.gives)

    def settled(self, steps: Sequence[Step]) -> None:
        """Steps have been followed: what they needed is not needed for their sake."""
        for step in steps:
            self.lab.made(step.gives)

    def travelling(self, content: str) -> str:
        """The key of what travels of a model: that of its bytes where it is encoded, else its own."""
        return content if self._transmission(content) is None else ENCODED + content

    def _transmission(self, content: str) -> Transmission | None:
        step = self.lab.steps.get(content)
        if step is None or not isinstance(step.how, Run) or not isinstance(step.how.function, Transmission):
            return None
        return step.how.function if content == step.gives[0] else None

    def form(self, what: str, size_bytes: int) -> tuple[int, int]:
        """What a transfer of something brings: so many numbers of a state; or bytes, so many where that is known."""
        if what.startswith(ENCODED):
            found = self._transmission(what.removeprefix(ENCODED))
            fixed = found is not None and found.pipeline.fixed
            return 0, found.pipeline.length(found.layout) if found is not None and fixed else -1
        if what in self.lab.steps:
            return min(self.lab.model_facts.state_size, size_bytes // NUMBER_BYTES), -1
        return 0, -1

    def steps(self, name: str, key: str, train: bool = False) -> list[Step]:
        """The steps by which a node gets to something; none where it has it. Trainings only where it is the one to train.

        What it lacks and cannot make is brought to it over the control channel.
        """
        found: list[Step] = []
        self._plan_steps(name, key, found, set(), train)
        return found

    def _plan_steps(self, name: str, key: str, found: list[Step], planned: set[str], train: bool) -> None:
        if key in self._nodes[name].has or key in planned:
            return
        step = self._step_to(name, key)
        if step is None or (isinstance(step.how, Train) and not train):
            self._bring(name, key)
            return
        for need in step.needs:
            self._plan_steps(name, need, found, planned, train=False)
        found.append(step)
        planned.update(step.gives)

    def _step_to(self, name: str, key: str) -> Step | None:
        """The step that gives something at a node: of a model that came encoded, the decoding of its bytes."""
        if key.startswith(ENCODED):
            sent = self.lab.steps[key.removeprefix(ENCODED)]
            assert isinstance(sent.how, Run)
            assert isinstance(sent.how.function, Transmission)
            return Step((key,), sent.needs, Encode(sent.how.function))
        transmission = self._transmission(key)
        if transmission is not None and ENCODED + key in self._nodes[name].has:
            known = self.lab.steps[key].needs
            if known[0] not in self._nodes[name].has:  # whoever has the model itself is its sender
                base = known[1:2] if transmission.pipeline.difference else ()
                return Step((key,), (ENCODED + key, *base), Decode(transmission))
        return self.lab.steps.get(key)

    def _bring(self, name: str, key: str) -> None:
        data = self._from_anybody(key)
        self.given += 1
        self.tell(name, Give(self.number(), key, data, True))
        self.has(name, key)

    def _from_anybody(self, key: str) -> bytes:
        holders = [name for name, node in self._nodes.items() if key in node.has and node.pipe is not None]
        if not holders:
            raise HflError(f"nobody has the model {key} any more: the processes that had it were killed")
        data: bytes = self._question(holders[0], Tell(self.number(), key))
        return data

    def fetch(self, key: str) -> bytes:
        """A model's bytes, from whoever has it, or from the cloud, which makes it."""
        if not any(key in node.has and node.pipe is not None for node in self._nodes.values()):
            steps = self.steps(CLOUD, key)
            self._question(CLOUD, Work(self.number(), tuple(steps)))
            self.follows(CLOUD, steps)
        return self._from_anybody(key)

    def _drop(self) -> None:
        """Tells nodes what nobody needs any more."""
        if not self._dead:
            return
        dead, self._dead = self._dead, set()
        by_node: Mapping[str, list[str]] = defaultdict(list)
        for name, node in self._nodes.items():
            for key in dead:
                for each in (key, ENCODED + key):
                    if each in node.has:
                        node.has.discard(each)
                        by_node[name].append(each)
        for name, keys in by_node.items():
            self.tell(name, Drop(0, keys))
        self.lab.forget = self._dead.add
