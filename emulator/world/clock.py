"""The clock: SimPy's, with errors that come out of it as they are."""

from __future__ import annotations

from types import FrameType, GeneratorType, TracebackType
from typing import Any

import simpy
from simpy.core import EmptySchedule
from simpy.events import NORMAL, EventPriority

from emulator import plugins


class DeadEndError(Exception):
    """Nothing is left to happen, and what was waited for has not happened."""


class Clock(simpy.Environment):
    """SimPy hands errors of processes on as copies, ``type(e)(*e.args)``, which not every error of a user's code bears.

    One that does not is replaced by one that does, and that says what it was.
    """

    def schedule(self, event: simpy.Event, priority: EventPriority = NORMAL, delay: float = 0) -> None:
        """See `simpy.Environment.schedule`."""
        if not event._ok:
            event._value = _lasting(event._value)
        super().schedule(event, priority, delay)


def new_clock() -> simpy.Environment:
    """A clock: a `Clock` where a user's code takes part, else SimPy's own, which is a little faster."""
    return Clock() if plugins.present() else simpy.Environment()


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
        raise RuntimeError(str(error).rpartition("\n")[2]).with_traceback(_place_of(halted)) from None


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


def _place_of(process: simpy.Process) -> TracebackType | None:
    """Where a process waits, as a traceback: down to the innermost of the generators that it is made of."""
    frames: list[FrameType] = []
    generator: Any = process._generator
    while isinstance(generator, GeneratorType) and generator.gi_frame is not None:
        frames.append(generator.gi_frame)
        generator = generator.gi_yieldfrom
    trace = None
    for frame in reversed(frames):
        trace = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno)
    return trace
