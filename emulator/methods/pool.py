"""Units (clients, or groups) that work on versions of one server's model, each at its own pace.

A unit gets the version of the instant at which it is handed one, and its result goes into a later one. A unit whose result waits
to be taken gets nothing before the next version is there: it would train twice from the same one. Results that arrive at the
same instant are taken in the order of the units' numbers, before any version is handed out. At every instant only what has
arrived is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from emulator.contracts.methods import GroupResult
from emulator.learning.recipes import Handle
from emulator.methods.session import Session
from emulator.methods.versions import Arrival, Versions, VersionSlots
from emulator.world.fleet import Numbers
from emulator.world.simpy_internals import happens_at, last_of_instant
from emulator.world.world import Steps, StepsTo

if TYPE_CHECKING:
    from emulator.methods.training import Group

MOST_LOST = 100  # units in a row from which nothing comes back: a version is made then of what is there

# A unit's way from a version (a model, and its number) to its result; None where it is lost.
Work = Callable[["Group", Handle, int], StepsTo[GroupResult | None]]
# Of the units that nobody has asked, by number, those that are handed a version, as they are now: at most so many that are there.
Choose = Callable[[Numbers, int], StepsTo[Sequence["Group"]]]
# What units do together that have trained, before the server gets their results; returns what arrives.
Meet = Callable[[Sequence[Arrival]], StepsTo[Sequence[Arrival]]]

# Writes down a result: the columns that all tables of results have.
Note = Callable[[Arrival, dict[str, Any]], None]


class Pool:
    """The units of one server, and the versions of its model. ``note`` is told what became of every result."""

    def __init__(
        self,
        session: Session,
        how: VersionSlots,
        model: Handle,
        work: Work,
        choose: Choose,
        note: Note,
        meet: Meet | None = None,
    ) -> None:
        self.versions = Versions(session.lab, how, model)
        self.came_back = False  # whether any result was taken so far
        self.busy: dict[int, Group] = {}
        self._session = session
        self._how = how
        self._work = work
        self._choose = choose
        self._meet = meet
        self._note = note
        self.units: dict[int, Group] = {}
        self._idle = np.zeros(0, bool)  # by number: units that nobody has asked, and of which no result waits
        self._arrived: list[Arrival] = []
        self._meeting = 0  # how many meetings are under way
        self._met: list[Sequence[Arrival]] = []
        self._lost = 0  # results in a row that did not come
        self._begun_s = session.world.now
        self._beat = 0  # the last one at which results were taken
        self._news = session.env.event()

    def serve(self, units: Iterable[Group]) -> None:
        """These are the units from now on. To be called where none is at work."""
        self.units = {unit.number: unit for unit in units}
        self._idle = np.zeros(max(self.units, default=-1) + 1, bool)
        self._idle[list(self.units)] = True
        self.versions.forget()

    def next_version(self) -> StepsTo[bool]:
        """Hands out versions until there is a new one. False: nobody is at work, and nobody is there who could be."""
        while True:
            yield last_of_instant(self._session.env)
            taken = self._taken()
            if taken is not None:
                self._make(taken)
                return True
            yield from self._hand_out()
            beat = self._next_beat()
            ways = [self._news, *beat, *self._returns()]
            if not self.busy and not self._meeting and not beat:
                if not self._arrived:
                    return False
                self._lost = MOST_LOST  # the buffer goes on with what there is: nobody can add to it
                continue
            yield ways[0] if len(ways) == 1 else self._session.env.any_of(ways)
            if self._news.triggered:
                self._news = self._session.env.event()

    def _taken(self) -> Sequence[Arrival] | None:
        """The results that make a version now; None where it is not time yet. Throws away what is too stale."""
        for each in [arrival for arrival in self._arrived if self.versions.too_stale(arrival)]:
            self._arrived.remove(each)
            self._idle[each.unit] = True
            self._tell_of(each, 0.0, used=False)
        if self._met:
            return self._met.pop(0)
        self._arrived.sort(key=lambda each: (each.time_s, each.unit))
        if self._lost >= MOST_LOST:
            count = len(self._arrived)
        elif self._how.every is not None:
            beat = self._beat_now()
            due = beat > self._beat and self._beat_s(beat) == self._session.world.now
            self._beat = beat if due else self._beat
            count = len(self._arrived) if due else 0
        else:
            count = self._how.enough if len(self._arrived) >= self._how.enough else 0
        if not count and self._lost < MOST_LOST:
            return None
        taken, self._arrived, self._lost = self._arrived[:count], self._arrived[count:], 0
        if self._meet is None or not taken:
            return taken
        self._meeting += 1
        told = [replace(each, told=self.versions.staleness(each)) for each in taken]
        self._session.env.process(self._follow_meeting(self._meet, told))
        return None

    def _make(self, taken: Sequence[Arrival]) -> None:
        """The next version, of these results."""
        taken = sorted(taken, key=lambda each: each.unit)
        if taken:
            self.came_back = True
            model, weights = self.versions.made_of(taken, len(self.units))
            for each, weight in zip(taken, weights, strict=True):
                self._tell_of(each, weight, used=True)
                self._idle[each.unit] = True
            self.versions.model = model
        self.versions.number += 1

    def _hand_out(self) -> Steps:
        places = len(self.units) if self._how.at_work is None else self._how.at_work - len(self.busy)
        if places <= 0 or not self._idle.any():
            return
        for unit in (yield from self._choose(np.flatnonzero(self._idle), places)):
            self._idle[unit.number] = False
            self.busy[unit.number] = unit
            self._session.env.process(self._follow(unit))

    def _follow(self, unit: Group) -> Steps:
        """One unit, from a version to its result."""
        version, model = self.versions.number, self.versions.model
        result = yield from self._work(unit, model, version)
        del self.busy[unit.number]
        if result is None:
            self._lost += 1
            self._idle[unit.number] = True
        else:
            self._lost = 0
            home = self.units[unit.number].members
            client = home[0] if len(home) == 1 else None
            self._arrived.append(Arrival(unit.number, client, version, model, result, self._session.world.now))
        self._tell()

    def _follow_meeting(self, meet: Meet, arrivals: Sequence[Arrival]) -> Steps:
        """Those of a full buffer, from their meeting to what the server gets of them."""
        came = yield from meet(arrivals)
        self._meeting -= 1
        here = {each.unit for each in came}
        self._idle[[each.unit for each in arrivals if each.unit not in here]] = True
        if came:
            self._met.append([replace(each, time_s=self._session.world.now) for each in came])
        else:
            self._lost += len(arrivals)
        self._tell()

    def _tell(self) -> None:
        if not self._news.triggered:
            self._news.succeed()

    def _beat_s(self, beat: int) -> float:
        return self._begun_s + beat * (self._how.every or 0.0)

    def _beat_now(self) -> int:
        """The number of the latest beat, the first of which is after `every` seconds."""
        now = self._session.world.now
        beat = int((now - self._begun_s) / (self._how.every or 1.0))
        return beat + 1 if self._beat_s(beat + 1) <= now else beat - 1 if self._beat_s(beat) > now else beat

    def _next_beat(self) -> list[simpy.Event]:
        """The next beat, where something waits for it."""
        if self._how.every is None or not self._arrived:
            return []
        return [happens_at(self._session.env, self._beat_s(self._beat_now() + 1))]

    def _returns(self) -> list[simpy.Event]:
        """When the next of those comes back who could be at work."""
        world = self._session.world
        if world.all_present or not self._idle.any():
            return []
        if self._how.at_work is not None and len(self.busy) >= self._how.at_work:
            return []
        back = world.until_return()
        return [] if back is None else [back]

    def _tell_of(self, arrival: Arrival, weight: float, *, used: bool) -> None:
        """Notes what became of a result."""
        values = {"staleness": self.versions.staleness(arrival), "weight": weight, "used": int(used)}
        self._note(
            arrival, {"time_s": arrival.time_s, "client": "" if arrival.client is None else arrival.client, **values}
        )
