"""Devices that slow down when they get hot.

Heat is a number from 0 (cold) to 1 (hot). It rises in proportion to the time that a device is busy, from cold to hot within
``throttling.after``, and falls in proportion to the time that it is idle, from hot to cold within ``throttling.recovers``. A
device that is hot goes on at ``throttling.speed`` times its own speed. So the end of a computation is a closed form: the part
of it that is done until the device is hot, and the rest at the lower speed. A device counts as busy from the beginning of a
computation to its end, whatever its speed is meanwhile.
"""

from __future__ import annotations

import math

from devices.profile import Throttling
from emulator.world.overtime import OverTime, accumulated, time_to_accumulate


class Heat:
    """How hot one device is, by the work that it has done."""

    __slots__ = ("_at_s", "_level", "_throttling")

    def __init__(self, throttling: Throttling) -> None:
        self._throttling = throttling
        self._level = 0.0  # when its latest work ended, ...
        self._at_s = 0.0  # ... at this instant

    def level(self, now_s: float) -> float:
        """Its heat at an instant until which it was idle after its latest work."""
        return max(0.0, self._level - max(0.0, now_s - self._at_s) / self._throttling.recovers)

    def end_of_work(self, start_s: float, seconds: float, speed: OverTime | None = None) -> float:
        """When work that takes so many seconds cold is done, from an instant on; with a speed over time, that many at speed 1."""
        if start_s == math.inf:
            return math.inf
        hot_s = self._hot_s(start_s)
        cold_end_s = start_s + seconds if speed is None else time_to_accumulate(speed, start_s, seconds)
        if cold_end_s <= hot_s:
            return cold_end_s
        done = hot_s - start_s if speed is None else accumulated(speed, start_s, hot_s)
        rest = max(0.0, seconds - done) / self._throttling.speed
        return hot_s + rest if speed is None else time_to_accumulate(speed, hot_s, rest)

    def work_done(self, start_s: float, now_s: float, speed: OverTime | None = None) -> float:
        """How many seconds of work, as `end_of_work` takes them, have been done since it began with some at an instant."""
        hot_s = self._hot_s(start_s)
        cold_end_s = min(hot_s, now_s)
        cold = cold_end_s - start_s if speed is None else accumulated(speed, start_s, cold_end_s)
        hot = max(0.0, now_s - hot_s) if speed is None else accumulated(speed, hot_s, now_s)
        return cold + hot * self._throttling.speed

    def _hot_s(self, start_s: float) -> float:
        """When it is hot, busy from an instant on."""
        return start_s + (1.0 - self.level(start_s)) * self._throttling.after

    def worked(self, start_s: float, end_s: float) -> None:
        """It was busy from an instant to another; each time not before the end of the time before."""
        if start_s == math.inf:
            return
        self._level = min(1.0, self.level(start_s) + (end_s - start_s) / self._throttling.after)
        self._at_s = end_s
