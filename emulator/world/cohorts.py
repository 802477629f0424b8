"""Cohorts: transfers that start together between one server and many clients, as one flow instead of many.

Such transfers differ only in the clients' own links. Where nobody else is on those, transfers of equal own bandwidth have equal
rates at every instant, whatever happens on the links that they have in common; so one flow stands for all of them, and a group
costs as much as a client. Without links in common each is alone, and its arrival is known at once, also where the own links
follow a trace of bandwidth.

Should anybody come to one of the own links meanwhile, its cohort is dissolved into the flows that it stands for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import simpy

from emulator.world.fleet import ClientRoutes, Leg
from emulator.world.flows import NOTHING_BITS, Flow, Link
from emulator.world.network import EVERYONE, Instants, Known, Places, last
from emulator.world.overtime import OverTime, accumulated, time_to_accumulate
from emulator.world.simpy_internals import happen, happens_at

if TYPE_CHECKING:
    from emulator.world.sharing import SharedNetwork


class Arrivals:
    """The arrivals of all transfers of one request: ``after_s`` is how long each takes after its last byte has left.

    They are reported to ``report_to``: an event that happens when all have arrived, or a function that is called for those
    whose last bytes have left. ``waiting`` counts the flows that are still on their way.
    """

    __slots__ = ("after_s", "at_s", "report_to", "routes", "waiting")

    def __init__(self, routes: ClientRoutes, after_s: Instants, report_to: simpy.Event | Known) -> None:
        self.routes = routes
        self.after_s = after_s
        self.report_to = report_to
        self.at_s: Instants = 0.0
        self.waiting = 0

    def note(self, env: simpy.Environment, places: Places, arrivals_s: Instants | None = None) -> None:
        """The last bytes of some transfers, or of all, have left now; they arrive at these instants."""
        if arrivals_s is None:
            arrivals_s = env.now + (self.after_s[places] if isinstance(self.after_s, np.ndarray) else self.after_s)
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

    __slots__ = ("arrivals", "flow", "left_s", "names", "over", "own_bps", "places", "played", "size_bits", "starts_s")

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
        self.left_s = np.zeros(0)
        if played:
            ends = [time_to_accumulate(own, at, size_bits) for own, at in zip(played, self._begun(), strict=True)]
            self.left_s = np.array(ends)

    def arrivals_s(self, some: npt.NDArray[np.bool_] | slice = EVERYONE) -> Instants:
        """When its transfers, or some of them, arrive, where each is alone on its way."""
        after_s, starts_s = self.arrivals.after_s, self.starts_s
        if isinstance(after_s, np.ndarray):
            after_s = after_s[self.places][some]
        if self.played:
            return self.left_s[some] + after_s
        if isinstance(starts_s, np.ndarray):
            starts_s = starts_s[some]
        own_bps = self.own_bps[some] if isinstance(self.own_bps, np.ndarray) else self.own_bps
        return starts_s + (self.size_bits / own_bps + after_s)

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
        self._on: dict[str, Cohort] = {}  # by the name of each own link

    def transfer_all(self, routes: ClientRoutes, size_bytes: int, starts_s: Instants | None = None) -> simpy.Event:
        """See `Network.transfer_all`."""
        arrived = self._env.event()
        if not self._may_go(routes, size_bytes):
            self._one_by_one(Arrivals(routes, 0.0, arrived), size_bytes)
            return arrived
        after_s = self._links.latencies_s(routes)
        starts_s = self._env.now if starts_s is None else starts_s
        if size_bytes == 0:
            return happens_at(self._env, last(starts_s + after_s), starts_s + after_s)
        self._go(Arrivals(routes, after_s, arrived), 8.0 * size_bytes, starts_s)
        return arrived

    def transfer_each(self, routes: ClientRoutes, size_bytes: int, known: Known) -> None:
        """See `Network.transfer_each`. On links that change over time, last bytes do not leave together: each goes alone."""
        if not self._links.steady(routes.names) or not self._may_go(routes, size_bytes):
            self._one_by_one(Arrivals(routes, 0.0, known), size_bytes)
            return
        after_s = self._links.latencies_s(routes)
        if size_bytes == 0:
            known(EVERYONE, self._env.now + after_s)
        else:
            self._go(Arrivals(routes, after_s, known), 8.0 * size_bytes, self._env.now)

    def independent(self, routes: ClientRoutes) -> bool:
        """See `Network.independent`."""
        return not routes.pattern.common and routes.pattern.latency_s is not None and self._may_go(routes, 1)

    def _may_go(self, routes: ClientRoutes, size_bytes: int) -> bool:
        """Whether transfers may go as a cohort: there are several, and nobody is on the clients' own links.

        These are steady; or there are no links in common, and they follow a trace of bandwidth.
        """
        if not self._links.steady(routes.names) and (routes.pattern.common or not self._links.played(routes.names)):
            return False
        alone = len(routes.names) > 1 and self._on.keys().isdisjoint(routes.names) and self._links.free(routes.names)
        return alone or size_bytes == 0

    def _one_by_one(self, arrivals: Arrivals, size_bytes: int) -> None:
        """Transfers each on its own; what is noted of them is their arrival."""
        each = arrivals.routes.each()
        arrivals.waiting = len(each)
        for place, route in enumerate(each):
            arrived = self._network.transfer(route, size_bytes)
            arrived.callbacks.append(lambda _, place=place: arrivals.note(self._env, np.array([place])))  # type: ignore[misc]

    def _go(self, arrivals: Arrivals, size_bits: float, starts_s: Instants) -> None:
        """Sends the transfers of a request on their way. Only without links in common may they start later than now."""
        routes = arrivals.routes
        common = self._links.of(routes.pattern.common)
        played = () if common else self._links.played(routes.names)
        if played:
            self._start(Cohort(arrivals, EVERYONE, routes.names, 0.0, size_bits, starts_s, played), common)
        elif isinstance(routes.own_bps, np.ndarray) and (common or not isinstance(arrivals.report_to, simpy.Event)):
            for own_bps in np.unique(routes.own_bps).tolist():
                places = np.flatnonzero(routes.own_bps == own_bps)
                names = [routes.names[i] for i in places.tolist()]
                their_s = starts_s[places] if isinstance(starts_s, np.ndarray) else starts_s
                self._start(Cohort(arrivals, places, names, own_bps, size_bits, their_s), common)
        else:
            self._start(Cohort(arrivals, EVERYONE, routes.names, routes.own_bps, size_bits, starts_s), common)

    def _start(self, cohort: Cohort, common: tuple[Link, ...]) -> None:
        names, arrivals = cohort.names, cohort.arrivals
        arrivals.waiting += 1
        self._on.update(dict.fromkeys(names, cohort))
        if common:
            ended = partial(self._left, cohort)
            assert not isinstance(cohort.own_bps, np.ndarray)
            cohort.flow = self._network.put(common, cohort.size_bits, len(names), cohort.own_bps, ended)
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
            arrivals.note(self._env, everyone[~going], cohort.arrivals_s(~going))
        arrivals.waiting += int(going.sum()) - 1
        starts_s, each = np.broadcast_to(cohort.starts_s, len(everyone)), arrivals.routes.each()
        for i in np.flatnonzero(going).tolist():
            put = partial(self._put, arrivals, everyone[i : i + 1], each[everyone[i]], float(left_bits[i]))
            if starts_s[i] > self._env.now:
                happens_at(self._env, float(starts_s[i])).callbacks.append(put)
            else:
                put()

    def _put(
        self, arrivals: Arrivals, place: Places, route: Sequence[Leg], left_bits: float, event: object = None
    ) -> None:
        links = self._links.of(route)
        self.make_way(links)
        self._network.put(links, left_bits, ended=lambda: arrivals.note(self._env, place))
