"""The clock of a run: SimPy's, but a run whose clock stands still for ever ends and says who asks for what.

Errors come out of it as they are, whoever raised them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, GeneratorType, TracebackType
from typing import Any, NamedTuple

import simpy
from simpy.core import EmptySchedule
from simpy.events import NORMAL, EventPriority

from emulator import plugins
from emulator.errors import HflError
from emulator.ledger import Tag
from emulator.world.simpy_internals import generator_of, queued, replace_error

# Events that may happen at one instant: so many in all, and so many more for each client. What all clients of a preset do at
# once makes about five events a client.
EVENTS = 50_000
EVENTS_A_CLIENT = 100

LATEST = 64  # requests that are remembered
SHOWN = 3  # of those, different ones that a message shows


class DeadEndError(Exception):
    """Nothing is left to happen, and what was waited for has not happened."""


class Request(NamedTuple):
    """What somebody asked the world for: a transfer or work, by whom, to whom, what for; why it was lost at once, if it was."""

    kind: str
    who: str
    peer: str
    tag: Tag
    lost: str = ""

    def __str__(self) -> str:
        to = f" to {self.peer}" if self.peer else ""
        lost = f" (lost at once: {self.lost})" if self.lost else ""
        return f"{self.kind} '{self.tag.what}' of {self.who}{to}{lost}"


class Clock(simpy.Environment):
    """SimPy's environment. ``asked`` are the latest requests to the world, ``where`` says in which part of the run it is.

    `step` raises `HflError` where far more events have passed at one instant than a fleet of so many clients makes.
    """

    def __init__(self, clients: int) -> None:
        super().__init__()
        self.asked: deque[Request] = deque(maxlen=LATEST)
        self.where: Callable[[], str] = str
        self._most = EVENTS + EVENTS_A_CLIENT * clients
        self._left = self._most
        self._seen_s = -1.0

    def step(self) -> None:
        """See `simpy.Environment.step`."""
        self._left -= 1
        if not self._left:
            self._look()
        super().step()

    def _look(self) -> None:
        """Looks, once in so many events, whether the clock has moved since the last time."""
        if self.now == self._seen_s:
            raise HflError(self._standstill())
        self._seen_s, self._left = self.now, self._most

    def _standstill(self) -> str:
        where = self.where()
        text = f"the clock stands still after {self.now:g} emulated seconds{where and f', {where}'}: "
        text += f"{self._most:,} events have passed at this instant"
        latest = list(dict.fromkeys(map(str, reversed(self.asked))))[:SHOWN]
        if latest:
            text += f"; asked for last: {'; '.join(latest)}"
        busy = list(dict.fromkeys(self._awake()))[:SHOWN]
        return f"{text}; at work: {', '.join(busy)}" if busy else text

    def _awake(self) -> Iterator[str]:
        """Where the processes are that go on at this very instant: function, file and line."""
        for instant_s, event in queued(self):
            if instant_s > self.now:
                return
            for callback in event.callbacks or ():
                process = getattr(callback, "__self__", None)
                if isinstance(process, simpy.Process):
                    yield _place(generator_of(process))


def _place(steps: object) -> str:
    """Where a generator stands, in the innermost one that it waits for."""
    while isinstance(steps, GeneratorType) and isinstance(steps.gi_yieldfrom, GeneratorType):
        steps = steps.gi_yieldfrom
    if not isinstance(steps, GeneratorType):
        return type(steps).__name__
    code, frame = steps.gi_code, steps.gi_frame
    line = code.co_firstlineno if frame is None else frame.f_lineno
    return f"{code.co_name} ({Path(code.co_filename).name}:{line})"


class BearingClock(Clock):
    """SimPy hands errors of processes on as copies, ``type(e)(*e.args)``, which not every error of a user's code bears.

    One that does not is replaced by one that does, and that says what it was.
    """

    def schedule(self, event: simpy.Event, priority: EventPriority = NORMAL, delay: float = 0) -> None:
        """See `simpy.Environment.schedule`."""
        if not event.ok:
            replace_error(event, _lasting(event.value))
        super().schedule(event, priority, delay)


def new_clock(clients: int) -> Clock:
    """A clock for a fleet of so many clients; one that bears any error where a user's code takes part."""
    return BearingClock(clients) if plugins.present() else Clock(clients)


def finish(env: simpy.Environment, process: simpy.Process) -> None:
    """Steps on until a process ends, and raises what it raised. Raises `DeadEndError` where nothing is left before that."""
    try:
        env.run(until=process)
    except Exception as error:
        if isinstance(error.__context__, EmptySchedule) and not process.triggered:
            raise DeadEndError from None
        halted = env.active_process
        if halted is None:
            raise
        # A step that did not end: the process waits for something that is no event. SimPy says for what in its last line.
        said = str(error).rpartition("\n")[2]
        if '"<generator object' in said:
            said += "; a longer piece of work is done with 'yield from'"
        raise RuntimeError(said).with_traceback(_trace_of(halted)) from None


def _lasting(error: Any) -> BaseException:
    """An error that can be copied as SimPy does it: this one, or else one that says the same."""
    try:
        if type(type(error)(*error.args)) is type(error):
            return error  # type: ignore[no-any-return]
    except Exception:  # noqa: BLE001 (whatever a constructor makes of arguments that it does not expect)
        pass
    lasting = plugins.blamed(error) or RuntimeError(f"{type(error).__name__}: {error}")
    lasting.__cause__ = error
    return lasting


def _trace_of(process: simpy.Process) -> TracebackType | None:
    """Where a process waits, as a traceback: down to the innermost of the generators that it is made of."""
    frames: list[FrameType] = []
    generator: Any = generator_of(process)
    while isinstance(generator, GeneratorType) and generator.gi_frame is not None:
        frames.append(generator.gi_frame)
        generator = generator.gi_yieldfrom
    trace = None
    for frame in reversed(frames):
        trace = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno)
    return trace
