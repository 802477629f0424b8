"""Cohorts: transfers that start together between one server and many clients, as one flow instead of many.

Such transfers differ only in the clients' own links. Where nobody else is on those, transfers of equal own bandwidth and round
trip have equal rates at every instant, whatever happens on the links that they have in common; so one flow stands for all of
them, and a group costs as much as a client. Without links in common each is alone, and its arrival is known at once, also where
the own links follow a trace of bandwidth.

Should anybody come to one of the own links meanwhile, its cohort is dissolved into the flows that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import simpy

from emulator.world.fleet import ClientRoutes, Leg
from emulator.world.flows import NOTHING_BITS, Flow, Link
from emulator.world.links import Alone
from emulator.world.network import EVERYONE, Instants, Known, Places, at, last
from emulator.world.overtime import OverTime, accumulated, time_to_accumulate
from emulator.world.simpy_internals import happen, happens_at

if TYPE_CHECKING:
    from emulator.world.sharing import SharedNetwork


NOTHING = np.zeros(0)


class Arrivals:
    """The arrivals of all transfers of one request, which start at ``starts_s``.

    A transfer arrives ``latency_s`` after its last byte has left, and later by what its connection took to get going:
    ``start_up_s`` gives that by ``round_trip_s`` and by how long its bytes took to leave. They are reported to ``report_to``: an
    event that happens when all have arrived, or a function that is called for those whose last bytes have left. ``waiting``
    counts the flows that are still on their way.
    """

    __slots__ = (
        "at_s",
        "factors",
        "latency_s",
        "report_to",
        "round_trip_s",
        "routes",
        "start_up_s",
        "starts_s",
        "waiting",
    )

    def __init__(
        self,
        routes: ClientRoutes,
        report_to: simpy.Event | Known,
        latency_s: Instants = 0.0,
        round_trip_s: Instants = 0.0,
        starts_s: Instants = 0.0,
        start_up_s: Callable[[Instants, Instants], Instants] | None = None,
        factors: Sequence[float] | None = None,
    ) -> None:
        self.routes = routes
        self.factors = factors  # by chance, of the weight of each; None where all are 1
        self.latency_s = latency_s
        self.round_trip_s = round_trip_s
        self.starts_s = starts_s
        self.start_up_s = start_up_s
        self.report_to = report_to
        self.at_s: Instants = 0.0
        self.waiting = 0

    def after_s(self, places: Places, lasts_s: Instants) -> Instants:
        """How long after their last bytes have left some transfers arrive, by how long these took to leave."""
        latency_s = at(self.latency_s, places)
        if self.start_up_s is None:
            return latency_s
        return latency_s + self.start_up_s(at(self.round_trip_s, places), lasts_s)

    def note(self, env: simpy.Environment, places: Places, arrivals_s: Instants | None = None) -> None:
        """The last bytes of some transfers, or of all, have left now; they arrive at these instants."""
        if arrivals_s is None:
            arrivals_s = env.now + self.after_s(places, env.now - at(self.starts_s, places))
        self.waiting -= 1
        if not isinstance(self.report_to, simpy.Event):
            self.report_to(places, arrivals_s)
            return
        if places is EVERYONE:
            self.at_s = arrivals_s
        else:
            if not isinstance(self.at_s, np.ndarray):
                self.at_s = np.full(len(self.routes.clients), self.at_s)
            self.at_s[places] = arrivals_s
        if not self.waiting:
            due_s = last(self.at_s)
            if due_s == env.now:
                self.arrive()
            else:
                happens_at(env, due_s).callbacks.append(self.arrive)

    def arrive(self, event: object = None) -> None:
        """All have arrived."""
        assert isinstance(self.report_to, simpy.Event)
        happen(self.report_to, self.at_s)


class Cohort:
    """Some transfers of a request, or all, of ``size_bits`` each.

    ``flow`` stands for them. Where they have no links in common it is None, each may start at an instant of its own, and their
    own links may differ (``own_bps``), or change over time: ``played`` are their bandwidths then, and ``left_s`` says when their
    last bytes leave.
    """

    __slots__ = (
        "arrivals",
        "flow",
        "left_s",
        "names",
        "over",
        "own_bps",
        "places",
        "played",
        "size_bits",
        "starts_s",
    )

    def __init__(
        self,
        arrivals: Arrivals,
        places: Places,
        names: Sequence[str],
        own_bps: Instants,
        size_bits: float,
        starts_s: Instants,
        played: Sequence[OverTime] = (),
    ) -> None:
        self.arrivals = arrivals
        self.places = places
        self.names = names
        self.own_bps = own_bps
        self.size_bits = size_bits
        self.starts_s = starts_s
        self.flow: Flow | None = None
        self.over = False  # all bytes have left, or it was dissolved
        self.played = played
        self.left_s = NOTHING
        if played:
            ends = [time_to_accumulate(own, at, size_bits) for own, at in zip(played, self._begun(), strict=True)]
            self.left_s = np.array(ends)

    def arrivals_s(self, some: Places = EVERYONE) -> Instants:
        """When its transfers, or some of them, arrive, where each is alone on its way."""
        starts_s, places = at(self.starts_s, some), self.places
        if some is not EVERYONE:
            places = np.arange(len(self.arrivals.routes.clients))[places][some]
        if self.played:
            left_s = self.left_s[some]
            return left_s + self.arrivals.after_s(places, left_s - starts_s)
        lasts_s = self.size_bits / at(self.own_bps, some)
        return starts_s + (lasts_s + self.arrivals.after_s(places, lasts_s))

    def sent_bits(self, now: float) -> Instants:
        """What each has sent until now, where each is alone on its way."""
        if not self.played:
            return self.own_bps * np.maximum(0.0, now - self.starts_s)
        return np.array([accumulated(own, at, now) for own, at in zip(self.played, self._begun(), strict=True)])

    def _begun(self) -> list[float]:
        """When each starts, where their links change over time."""
        starts_s = self.starts_s
        return starts_s.tolist() if isinstance(starts_s, np.ndarray) else [starts_s] * len(self.played)


class Cohorts:
    """The cohorts of a network that are on their way."""

    def __init__(self, env: simpy.Environment, network: SharedNetwork) -> None:
        self._env = env
        self._network = network
        self._links = network.links
        self._carriage = network.carriage
        self._on: dict[str, Cohort] = {}  # by the name of each own link

    def transfer_all(self, routes: ClientRoutes, size_bytes: int, starts_s: Instants | None = None) -> simpy.Event:
        """See `Network.transfer_all`."""
        arrived = self._env.event()
        alone = routes.alone.get(size_bytes)
        if not (self._may_go(routes, size_bytes) if alone is None else self._apart(routes)):
            self._one_by_one(Arrivals(routes, arrived), size_bytes)
            return arrived
        alone = alone or self._alone(routes, size_bytes)
        if alone is not None:
            self._go_alone(routes, size_bytes, alone, arrived, self._env.now if starts_s is None else starts_s)
            return arrived
        arrivals = self._arrivals(routes, size_bytes, arrived, self._env.now if starts_s is None else starts_s)
        if size_bytes == 0:
            arrivals_s = arrivals.starts_s + arrivals.after_s(EVERYONE, 0.0)
            return happens_at(self._env, last(arrivals_s), arrivals_s)
        self._go(arrivals, size_bytes)
        return arrived

    def _alone(self, routes: ClientRoutes, size_bytes: int) -> Alone | None:
        """What transfers take on steady links of their own, without jitter; None where something else bears on them."""
        if not size_bytes or routes.pattern.common or routes.latency_s is None or not self._links.steady(routes.names):
            return None
        bits, own_bps = self._carriage.wire_bits(size_bytes), routes.own_bps
        latency_s, trip_s = self._links.latencies_s(routes), self._links.round_trips_s(routes)
        if self._carriage.transport.window_bytes < np.inf:
            own_bps = np.minimum(own_bps, self._carriage.most_bps(trip_s))
        arrivals = Arrivals(routes, self._env.event(), latency_s, trip_s, 0.0, self._start_up_s(size_bytes))
        lasts_s = bits / own_bps
        takes_s = lasts_s + arrivals.after_s(EVERYONE, lasts_s)
        found = routes.alone[size_bytes] = Alone(bits, own_bps, latency_s, trip_s, takes_s)
        return found

    def _go_alone(
        self, routes: ClientRoutes, size_bytes: int, alone: Alone, arrived: simpy.Event, starts_s: Instants
    ) -> None:
        """Sends transfers on their way whose arrivals are known at once, unless anybody comes to their links."""
        factors, start_up_s = self._carriage.factors(routes, size_bytes), self._start_up_s(size_bytes)
        arrivals = Arrivals(routes, arrived, alone.latency_s, alone.round_trip_s, starts_s, start_up_s, factors)
        arrivals.waiting = 1
        cohort = Cohort(arrivals, EVERYONE, routes.names, alone.own_bps, alone.wire_bits, starts_s)
        self._on.update(dict.fromkeys(routes.names, cohort))
        arrivals_s = starts_s + alone.takes_s

        def due(_: simpy.Event) -> None:
            if not cohort.over:
                self._forget(cohort)
                happen(arrived, arrivals_s)

        happens_at(self._env, last(arrivals_s)).callbacks.append(due)

    def _start_up_s(self, size_bytes: int) -> Callable[[Instants, Instants], Instants] | None:
        return None if self._carriage.immediate else partial(self._carriage.start_up_s, size_bytes)

    def _arrivals(
        self, routes: ClientRoutes, size_bytes: int, report_to: simpy.Event | Known, starts_s: Instants
    ) -> Arrivals:
        """Arrivals of transfers that nobody was in the way of when they started."""
        start_up_s = self._start_up_s(size_bytes)
        latency_s, trip_s = self._links.latencies_s(routes), self._links.round_trips_s(routes)
        factors = self._carriage.factors(routes, size_bytes)
        return Arrivals(routes, report_to, latency_s, trip_s, starts_s, start_up_s, factors)

    def transfer_each(self, routes: ClientRoutes, size_bytes: int, known: Known) -> None:
        """See `Network.transfer_each`. On links that change over time, last bytes do not leave together: each goes alone."""
        if not self._links.steady(routes.names) or not self._may_go(routes, size_bytes):
            self._one_by_one(Arrivals(routes, known), size_bytes)
            return
        arrivals = self._arrivals(routes, size_bytes, known, self._env.now)
        if size_bytes == 0:
            known(EVERYONE, self._env.now + arrivals.after_s(EVERYONE, 0.0))
        else:
            self._go(arrivals, size_bytes)

    def independent(self, routes: ClientRoutes) -> bool:
        """See `Network.independent`."""
        return not routes.pattern.common and routes.latency_s is not None and self._may_go(routes, 1)

    def _may_go(self, routes: ClientRoutes, size_bytes: int) -> bool:
        """Whether transfers may go as a cohort: there are several, and nobody is on the clients' own links.

        These are steady; or there are no links in common, and they follow a trace of bandwidth that fits the window.
        """
        if not self._links.steady(routes.names):
            played = () if routes.pattern.common else self._links.played(routes.names)
            most_bps = self._carriage.most_bps(routes.round_trip_s)
            if not played or np.any(most_bps < np.array([own.peak for own in played])):
                return False
        return self._apart(routes) or size_bytes == 0

    def _apart(self, routes: ClientRoutes) -> bool:
        """Whether there are several transfers, and nobody is on the clients' own links."""
        return len(routes.names) > 1 and self._on.keys().isdisjoint(routes.names) and self._links.free(routes.names)

    def _one_by_one(self, arrivals: Arrivals, size_bytes: int) -> None:
        """Transfers each on its own; what is noted of them is their arrival."""
        each = arrivals.routes.each()
        arrivals.waiting = len(each)
        for place, route in enumerate(each):
            arrived = self._network.transfer(route, size_bytes)
            arrived.callbacks.append(lambda _, place=place: arrivals.note(self._env, np.array([place])))  # type: ignore[misc]

    def _go(self, arrivals: Arrivals, size_bytes: int) -> None:
        """Sends the transfers of a request on their way. Only without links in common may they start later than now."""
        routes, starts_s = arrivals.routes, arrivals.starts_s
        common, bits = self._links.of(routes.pattern.common), self._carriage.wire_bits(size_bytes)
        played = () if common else self._links.played(routes.names)
        if played:
            self._start(Cohort(arrivals, EVERYONE, routes.names, 0.0, bits, starts_s, played), common)
            return
        own_bps, how = routes.own_bps, self._carriage.transport
        if how.window_bytes < np.inf:
            own_bps = np.minimum(own_bps, self._carriage.most_bps(arrivals.round_trip_s))
        # What does not change the shares that they have, such as anything of those who are alone, sets nobody apart.
        factors = (arrivals.factors if common else None) or [1.0]
        trip_s = arrivals.round_trip_s if common and how.round_trip_power else 0.0
        alike = factors.count(factors[0]) == len(factors) and not isinstance(trip_s, np.ndarray)
        apart = isinstance(own_bps, np.ndarray) and (common or not isinstance(arrivals.report_to, simpy.Event))
        if alike and not apart:
            self._start(Cohort(arrivals, EVERYONE, routes.names, own_bps, bits, starts_s), common, factors[0], trip_s)
            return
        kinds: dict[tuple[float, float, float], list[int]] = {}
        own, trips = (
            some.tolist() if isinstance(some, np.ndarray) else [some] * len(routes.names) for some in (own_bps, trip_s)
        )
        factors = factors if len(factors) > 1 else [*factors] * len(routes.names)
        for place, kind in enumerate(zip(own, factors, trips, strict=True)):
            kinds.setdefault(kind, []).append(place)
        for (their_bps, factor, their_s), theirs in sorted(kinds.items()):
            places, names = np.array(theirs), [routes.names[i] for i in theirs]
            cohort = Cohort(arrivals, places, names, their_bps, bits, at(starts_s, places))
            self._start(cohort, common, factor, their_s)

    def _start(
        self, cohort: Cohort, common: tuple[Link, ...], factor: float = 1.0, round_trip_s: Instants = 0.0
    ) -> None:
        names, arrivals = cohort.names, cohort.arrivals
        arrivals.waiting += 1
        self._on.update(dict.fromkeys(names, cohort))
        if common:
            ended = partial(self._left, cohort)
            own_bps = cohort.own_bps
            assert not isinstance(own_bps, np.ndarray)
            assert not isinstance(round_trip_s, np.ndarray)
            cohort.flow = self._network.put(common, cohort.size_bits, len(names), own_bps, ended, factor, round_trip_s)
            return
        # Nobody is in the way of anybody: when they leave and arrive is known at once.
        arrives = isinstance(arrivals.report_to, simpy.Event)
        due_s = last(cohort.arrivals_s() if arrives else cohort.starts_s + cohort.size_bits / cohort.own_bps)
        happens_at(self._env, due_s).callbacks.append(lambda _: self._due(cohort))

    def _due(self, cohort: Cohort) -> None:
        if not cohort.over:
            self._forget(cohort)
            cohort.arrivals.note(self._env, cohort.places, cohort.arrivals_s())

    def _left(self, cohort: Cohort) -> None:
        """The last bytes of a cohort have left."""
        self._forget(cohort)
        cohort.arrivals.note(self._env, cohort.places)

    def make_way(self, links: Iterable[Link]) -> None:
        """Dissolves the cohorts that are alone on any of these links."""
        if self._on:
            for link in links:
                cohort = self._on.get(link.name)
                if cohort is not None:
                    self._dissolve(cohort)

    def _forget(self, cohort: Cohort) -> None:
        cohort.over = True
        cohort.flow = None  # which refers to the cohort
        self._free(cohort)

    def _free(self, cohort: Cohort) -> None:
        for name in cohort.names:
            self._on.pop(name, None)

    def _dissolve(self, cohort: Cohort) -> None:
        """Makes each transfer of a cohort a flow of its own, with what is left of it."""
        arrivals = cohort.arrivals
        everyone = np.arange(len(arrivals.routes.clients))[cohort.places]
        if cohort.flow is not None:
            left_bits = np.full(len(everyone), cohort.size_bits - 8 * self._network.stop(cohort.flow))
        else:
            left_bits = np.broadcast_to(cohort.size_bits - cohort.sent_bits(self._env.now), len(everyone))
        going = left_bits > NOTHING_BITS
        if not going.any():
            self._free(cohort)
            if cohort.flow is not None:
                self._left(cohort)
            return  # otherwise only latencies are not over yet
        self._forget(cohort)
        if not going.all():
            arrivals.waiting += 1
            arrivals.note(self._env, everyone[~going], cohort.arrivals_s(np.flatnonzero(~going)))
        arrivals.waiting += int(going.sum()) - 1
        starts_s, each = np.broadcast_to(cohort.starts_s, len(everyone)), arrivals.routes.each()
        for i in np.flatnonzero(going).tolist():
            put = partial(self._put, arrivals, int(everyone[i]), each[everyone[i]], float(left_bits[i]))
            if starts_s[i] > self._env.now:
                happens_at(self._env, float(starts_s[i])).callbacks.append(put)
            else:
                put()

    def _put(
        self, arrivals: Arrivals, place: int, route: Sequence[Leg], left_bits: float, event: object = None
    ) -> None:
        links, places = self._links.of(route), np.array([place])
        self.make_way(links)
        trip_s = float(at(arrivals.round_trip_s, places))
        ended, own_bps = partial(arrivals.note, self._env, places), self._carriage.most_bps(trip_s)
        factor = 1.0 if arrivals.factors is None else arrivals.factors[place]
        self._network.put(links, left_bits, 1, own_bps, ended, factor, trip_s)
