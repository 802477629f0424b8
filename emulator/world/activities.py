"""What is under way and may be cut off: because a node or link goes out, or because nobody waits for it any longer.

Only worlds in which work can be lost keep this list. An activity is under way at *places*: nodes, links, and the group that it
belongs to. Cutting a place cuts all that is under way there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import simpy

from emulator.world.disturbances import Disturbances

Place = Hashable


class Activity:
    """One thing under way. ``over`` happens with True when it is done, with False when it is cut off."""

    __slots__ = ("over", "places", "when_cut")

    def __init__(self, over: simpy.Event, places: Sequence[Place], when_cut: Callable[[], None]) -> None:
        self.over = over
        self.places = places
        self.when_cut = when_cut


class Activities:
    """All that is under way, by place. A place that goes out cuts what is there at that instant."""

    def __init__(self, env: simpy.Environment, disturbances: Disturbances) -> None:
        self._env = env
        self._disturbances = disturbances
        self._at: dict[Place, dict[Activity, None]] = {}
        self._alarms: set[Place] = set()

    def begin(
        self,
        ends: simpy.Event,
        places: Sequence[Place],
        when_done: Callable[[], None],
        when_cut: Callable[[], None],
    ) -> simpy.Event:
        """Follows what ends with ``ends``; returns the event that it is over (True) or cut off (False)."""
        activity = Activity(self._env.event(), places, when_cut)
        for place in places:
            self._at.setdefault(place, {})[activity] = None
            self._set_alarm(place)

        def done(_: simpy.Event) -> None:
            if not activity.over.triggered:
                self._remove(activity)
                when_done()
                activity.over.succeed(True)

        ends.callbacks.append(done)
        return activity.over

    def nodes(self) -> list[str]:
        """The nodes and links at which something is under way."""
        return [place for place in self._at if isinstance(place, str)]

    def cut(self, place: Place, *others: Place) -> None:
        """Cuts off all that is under way at a place, and at all others at the same time."""
        for activity in list(self._at.get(place, ())):
            if all(other in activity.places for other in others):
                self._remove(activity)
                activity.when_cut()
                activity.over.succeed(False)

    def _remove(self, activity: Activity) -> None:
        for place in activity.places:
            here = self._at[place]
            here.pop(activity, None)
            if not here:
                del self._at[place]

    def _set_alarm(self, place: Place) -> None:
        """Makes sure to be there when a place with something under way goes out."""
        if place in self._alarms or not isinstance(place, str):
            return
        now = self._env.now
        when = self._disturbances.next_loss(place, now)
        if when == math.inf:
            return
        self._alarms.add(place)

        def ring(_: simpy.Event) -> None:
            self._alarms.discard(place)
            if self._disturbances.next_loss(place, self._env.now) <= self._env.now:
                self.cut(place)
            elif place in self._at:  # rounding rang it too early
                self._set_alarm(place)

        self._env.timeout(max(0.0, when - now)).callbacks.append(ring)
