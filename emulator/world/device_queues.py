"""The clients' devices: each does one computation at a time, first come, first served.

Where nothing is ever cut off, the end of a computation is known when it is asked for, and it is enough to remember when each
device is free. Where work may be cut off, what waits for a device stands in a queue.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import simpy

from emulator.world.fleet import Numbers
from emulator.world.network import Instants
from emulator.world.simpy_internals import happen, happens_at

Begun = Callable[[], None]  # called when a device begins with a computation


class Job:
    """A computation that may be cut off. ``ends`` happens when it is done; its instants are nan until the device begins with it.

    ``end_of`` says at which instant it ends if it starts at another.
    """

    __slots__ = ("_begun", "_end_of", "_env", "end_s", "ends", "start_s")

    def __init__(
        self, env: simpy.Environment, end_of: Callable[[float], float], begun: Begun | None, waits: bool
    ) -> None:
        self._env = env
        self._end_of = end_of
        self._begun = begun
        self.start_s = self.end_s = math.nan
        self.ends = env.event() if waits else self._start()

    @property
    def started(self) -> bool:
        """Whether the device has begun with it."""
        return not math.isnan(self.start_s)

    def start(self) -> None:
        """Begins with a computation that had to wait."""
        self._start().callbacks.append(lambda _: happen(self.ends))

    def stop(self) -> None:
        """Nobody waits for it any longer. There is nothing to do about that where the clock alone says that it goes on."""

    def _start(self) -> simpy.Event:
        self.start_s = float(self._env.now)
        self.end_s = self._end_of(self.start_s)
        if self._begun is not None:
            self._begun()
        return happens_at(self._env, self.end_s)


class DeviceQueues:
    """What the devices of a fleet are doing, and what they will do next."""

    def __init__(self, clients: int) -> None:
        self.free_at_s = np.zeros(clients)  # where nothing is cut off: when each has done all that it was asked for
        self._queues: dict[int, deque[Job]] = {}  # otherwise: the computation under way, and those that wait

    def start_s(self, client: int, now: float) -> float:
        """When a device can begin with something that it is asked for now, where nothing is cut off."""
        return max(now, float(self.free_at_s[client]))

    def starts_s(self, clients: Numbers, from_s: Instants) -> Instants:
        """When devices can begin with something, each not before an instant, where nothing is cut off."""
        free_s: npt.NDArray[np.float64] = self.free_at_s[clients]
        return np.maximum(from_s, free_s) if np.logical_or.reduce(free_s > from_s) else from_s

    def busy(self, client: int) -> bool:
        """Whether a device has something to do, where work may be cut off."""
        return bool(self._queues.get(client))

    @property
    def idle(self) -> bool:
        """Whether no device has anything to do, where work may be cut off."""
        return not self._queues

    def put(self, client: int, job: Job) -> None:
        """Puts a computation at the end of a device's queue."""
        self._queues.setdefault(client, deque()).append(job)

    def remove(self, client: int, job: Job, goes_on: bool) -> None:
        """Takes a computation that is over out of the queue; the next one begins, unless the device is down and loses it too."""
        queue = self._queues[client]
        queue.remove(job)
        if not queue:
            del self._queues[client]
        elif job.started and goes_on:
            queue[0].start()
