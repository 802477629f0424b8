"""When flows end: the next end of every bundle that nobody holds back, and of every link that holds some, in one queue."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from operator import attrgetter

import simpy

from emulator.world.flows import Bundle
from emulator.world.levels import Levels, Share

_number = attrgetter("number")


class Due:
    """Calls ``ended`` when bundles lose their next member, until which their rates are those of ``levels``."""

    def __init__(self, env: simpy.Environment, levels: Levels, ended: Callable[[list[Bundle]], None]) -> None:
        self._env = env
        self._levels = levels
        self._ended = ended
        # Instants, numbers of bundles, and versions: those of an earlier version are skipped.
        self._ends: list[tuple[float, int, int, Bundle | Share]] = []
        self._versions = itertools.count(1)
        self._wakes_at = math.inf
        self._wake: simpy.Event | None = None  # the event of that instant

    def note(self) -> None:
        """Notes when bundles lose their next members, where that is at another instant than was noted."""
        now, levels = self._env.now, self._levels
        moved, levels.moved = levels.moved, {}
        for bundle in moved:
            bundle.version = 0
            if bundle.size:
                bundle.version = next(self._versions)
                bundle.advance(now)
                if bundle.holder is None:
                    self._add(bundle, bundle, bundle.cap_bps, now)
                else:
                    bundle.holder.note_end(bundle)
                    levels.turned[bundle.holder] = None
        turned, levels.turned = levels.turned, {}
        for share in turned:
            share.version = next(self._versions)
            first = share.first()
            if first is not None:
                first.advance(now)
                self._add(share, first, first.rate_bps, now)
        self._wake_up()

    def _add(self, owner: Bundle | Share, bundle: Bundle, rate_bps: float, now: float) -> None:
        if rate_bps > 0:
            # Of several that end together the oldest comes first.
            heapq.heappush(self._ends, (now + bundle.left_bits() / rate_bps, bundle.number, owner.version, owner))

    def _wake_up(self) -> None:
        """Makes sure to be there when the next flow ends."""
        while self._ends and self._ends[0][2] != self._ends[0][3].version:
            heapq.heappop(self._ends)
        if self._ends and self._ends[0][0] < self._wakes_at:
            self._wakes_at = self._ends[0][0]
            self._wake = self._env.timeout(max(0.0, self._wakes_at - self._env.now))
            self._wake.callbacks.append(self._woken)

    def _woken(self, wake: simpy.Event) -> None:
        if wake is not self._wake:
            return  # something else was due earlier, and what this one was for has another one since
        now = self._env.now
        self._wakes_at = math.inf
        horizon = now + 4 * math.ulp(now)  # the clock may have been set a rounding short of what was due
        due: list[Bundle] = []
        while self._ends and (self._ends[0][0] <= horizon or self._ends[0][2] != self._ends[0][3].version):
            _, number, version, owner = heapq.heappop(self._ends)
            if version != owner.version:
                continue
            if isinstance(owner, Bundle):
                due.append(owner)
                continue
            first = owner.first()
            if first is not None and first.number == number:  # else whose end was noted has gone elsewhere since
                due += owner.due(now)
            self._levels.turned[owner] = None
        due.sort(key=_number)
        self._levels.moved |= dict.fromkeys(due)
        self._ended(due)
