"""Everything that touches what SimPy keeps to itself. SimPy 4 has it; `tests/world/test_simpy_internals.py` compares it with
the public way.

It is there for exact instants and for fewer events: SimPy schedules by delays alone, which are rounded when they are added to
the clock, and makes one more event of every event that is to happen because another one has.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Generator, Iterator
from typing import Any

import simpy
from simpy.events import NORMAL, EventPriority

_LAST = EventPriority(9)


def happens_at(env: simpy.Environment, instant_s: float, value: object = True) -> simpy.Event:
    """A new event that happens at an instant, exactly: a delay would be added to the clock, and be rounded once more.

    It never happens where the instant is infinitely far away. Raises `ValueError` where it is over.
    """
    event = simpy.Event(env)
    if instant_s == math.inf:
        return event
    if instant_s < env.now:
        raise ValueError(f"{instant_s} s is over: it is {env.now} s")
    event._ok, event._value = True, value
    heapq.heappush(env._queue, (instant_s, NORMAL, next(env._eid), event))
    return event


def succeed_after(event: simpy.Event, delay_s: float, priority: EventPriority = NORMAL) -> None:
    """Lets an event happen so many seconds from now, with the value True."""
    event._ok, event._value = True, True
    event.env.schedule(event, priority, delay_s)


def move_to(env: simpy.Environment, instant_s: float) -> None:
    """Moves the clock on to an instant before which nothing is to happen."""
    env._now = max(env._now, instant_s)


def last_of_instant(env: simpy.Environment) -> simpy.Event:
    """A new event that happens at this instant, after everything else that is to happen at it as things are now."""
    event = env.event()
    succeed_after(event, 0.0, _LAST)
    return event


def happen(event: simpy.Event, value: object = True) -> None:
    """Lets an event happen at once, in place of the one that is happening, rather than as another one of this instant."""
    event._ok, event._value = True, value
    callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
    for callback in callbacks:
        callback(event)


def replace_error(event: simpy.Event, error: BaseException) -> None:
    """Gives an event that failed another error."""
    event._value = error


def queued(env: simpy.Environment) -> Iterator[tuple[float, simpy.Event]]:
    """The events that are to happen, in their order, each with its instant in seconds."""
    for instant_s, _, _, event in sorted(env._queue, key=lambda entry: entry[:3]):
        yield instant_s, event


def generator_of(process: simpy.Process) -> Generator[simpy.Event, Any, Any]:
    """What a process steps through."""
    return process._generator
