"""The app's threads and the clock take turns: one of them runs at any moment, and which one is determined.

A thread of the app runs until it waits for something on the clock, or ends. Only then does the clock go on. Whoever lets a thread
go on (the clock, or another thread of the app that has started it) waits until the thread waits again.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import simpy

from emulator.errors import HflError

T = TypeVar("T")
Steps = Generator[simpy.Event, Any, T]

_seats = threading.local()
_host_s = time.perf_counter  # ours, whatever the app's clock says
_GRACE_S = 2.0  # for a thread that is told to end


class Stopped(BaseException):
    """Raised in the app's threads where the run is over."""


class Seat:
    """A thread of the app: where it waits for its turn. ``host_s`` are seconds that it has computed since it was charged."""

    def __init__(self, turns: Turns, name: str, server: str, meter: Callable[[], Any] | None) -> None:
        self.turns = turns
        self.name = name
        self.server = server  # the node of the world for which it computes
        self.host_s = 0.0
        self.ended = False
        self.error: BaseException | None = None
        self.thread: threading.Thread | None = None
        self.meter = meter
        self.counted: Any = None
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)

    def go_on(self, patience_s: float) -> None:
        """Lets the thread run until it waits or ends. Raises `HflError` where it does neither for so many real seconds."""
        started = _host_s()
        self._go.release()
        if not self._back.acquire(timeout=patience_s):
            self.turns.stuck.append(self)
            raise HflError(
                f"the app's {self.name} has computed for {patience_s:g} real seconds without asking for anything; "
                "give it longer with --patience, or look for a loop without an end"
            )
        self.host_s += _host_s() - started

    @contextmanager
    def for_us(self) -> Iterator[None]:
        """In the thread itself: a block of our own work, which is none of the app's."""
        started = _host_s()
        try:
            yield
        finally:
            self.host_s -= _host_s() - started

    def pause(self) -> None:
        """In the thread itself: gives the turn back and waits for the next one. Raises `Stopped` where there is none."""
        self._back.release()
        self._go.acquire()
        if self.turns.over:
            raise Stopped

    def leave(self) -> None:
        """In the thread itself: gives the turn back for good."""
        self.ended = True
        self._back.release()

    def begin(self) -> None:
        """In the thread itself: waits for the first turn."""
        self._go.acquire()

    def end(self) -> None:
        """Ends the thread, from outside: it is told at its next turn, or where it computes."""
        thread = self.thread
        if thread is None or not thread.is_alive():
            return
        self._go.release()
        thread.join(_GRACE_S if self not in self.turns.stuck else 0.05)
        if thread.is_alive() and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped))
            thread.join(_GRACE_S)


class Turns:
    """All threads of one app, and the clock that they alternate with. ``charge`` says what time their computing takes."""

    def __init__(self, env: simpy.Environment, patience_s: float) -> None:
        self.env = env
        self.patience_s = patience_s
        self.over = False
        self.seats: list[Seat] = []
        self.stuck: list[Seat] = []
        self.failed: HflError | None = None  # what ends the run, whatever the app makes of it
        self.ends = env.event()  # happens where the run is to end
        self.charge: Callable[[Seat], Steps[None]] | None = (
            None  # what time the computing of a seat takes, since it was asked last
        )
        self.under_way: Callable[[], int] = lambda: 0  # how many messages
        self.most_idle = 1000  # waits in a row with nothing under way, before the run fails
        self.idle = 0
        self.seen = (0, 0)  # how many nodes the app was told of last, and how many there are

    def start(self, work: Callable[[], object], name: str, server: str, meter: Callable[[], Any] | None = None) -> Seat:
        """Starts a thread and lets it run until it waits or ends. What it raises stands in the seat's ``error``."""
        seat = Seat(self, name, server, meter)

        def body() -> None:
            _seats.here = seat
            seat.begin()
            try:
                if not self.over:
                    if meter is None:
                        work()
                    else:
                        with meter() as seat.counted:
                            work()
            except BaseException as error:  # noqa: BLE001 (whatever an app raises; the run says what)
                seat.error = error
            seat.leave()

        seat.thread = threading.Thread(target=body, name=f"app: {name}", daemon=True)
        self.seats.append(seat)
        seat.thread.start()
        seat.go_on(self.patience_s)
        return seat

    def wait(self, steps: Steps[T]) -> T:
        """In a thread of the app: waits for a process on the clock and returns what it gives.

        An `HflError` of the process ends the run; the app is not asked.
        """
        seat = here()
        if seat is None or seat.turns is not self:
            raise RuntimeError(
                "a thread that the app has started by itself uses the grid or the clock; on the emulated clock, threads come "
                "from concurrent.futures.ThreadPoolExecutor"
            )
        if self.over:
            raise Stopped
        process = self.env.process(self._guarded(seat, steps))
        process.callbacks.append(lambda _: None if self.over else seat.go_on(self.patience_s))
        seat.pause()
        return cast(T, process.value)

    def pausing(self, seconds: float) -> Steps[None]:
        """The app sleeps. Raises `HflError` where it sleeps on and on although nothing is under way."""
        self.idle = 0 if self.under_way() else self.idle + 1
        if self.idle > self.most_idle:
            there, members = self.seen
            raise HflError(
                f"the app's server never returns: after {float(self.env.now):g} emulated seconds it has slept "
                f"{self.most_idle} times with no message under way; {there} of {members} nodes are there, and it may want more"
            )
        yield self.env.timeout(max(0.0, seconds))

    def _guarded(self, seat: Seat, steps: Steps[T]) -> Steps[T | None]:
        try:
            if self.charge is not None:
                yield from self.charge(seat)
            return (yield from steps)
        except HflError as error:
            self.fail(error)
            yield self.env.event()  # the run ends
            return None

    def fail(self, error: HflError) -> None:
        """Ends the run with an error, at this instant."""
        if self.failed is None:
            self.failed = error
        self.finish()

    def finish(self) -> None:
        """Ends the run at this instant."""
        if not self.ends.triggered:
            self.ends.succeed()

    def close(self) -> None:
        """Ends all threads that are still there."""
        self.over = True
        for seat in reversed(self.seats):
            seat.end()


def here() -> Seat | None:
    """The seat of the thread that runs; None where it is no thread of an app."""
    return getattr(_seats, "here", None)
