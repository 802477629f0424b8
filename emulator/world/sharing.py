"""Links that transfers share: max-min fairness in continuous time.

Every transfer is a flow over all links of its route at once. At every instant the rates are max-min fair: no link carries
more than its bandwidth, and every flow is held back by some link on its route that is full and on which nobody is faster. A
flow occupies its links until its last byte has left; its latency comes after that and occupies nothing.

How it stays cheap:

- Flows that cross the same links with others on them, and could go equally fast alone, always have the same rate. They form
  a *bundle* with one virtual clock, the bits that each member has been served since the bundle began; a flow ends when that
  clock reaches a value fixed at its start. A bundle of a thousand flows costs as much as one, but for a heap.
- Bundles that the same link holds back share a clock too: see `emulator.world.levels`.
- A link on which all flows could run at full speed holds nobody back, so a flow that comes or goes there changes no other
  rate.
- A flow over links that nobody else uses is only an instant to wait for, until somebody joins it.
- All flows that come and go at one instant are taken together.

A link's bandwidth may change over time (a trace). A flow that is stopped leaves at once; what it has sent is known.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import simpy
from simpy.events import EventPriority

from emulator.contracts.world import Transport
from emulator.world.carriage import Carriage
from emulator.world.cohorts import Cohorts
from emulator.world.due import Due
from emulator.world.fleet import ClientRoutes, Leg
from emulator.world.flows import NOTHING_BITS, Bundle, Flow, Link, LoneFlow
from emulator.world.levels import Levels
from emulator.world.links import Links
from emulator.world.network import Instants, Known, Transfer
from emulator.world.overtime import OverTime, next_not_zero
from emulator.world.simpy_internals import happen, succeed_after

_AFTER_ALL_ELSE = EventPriority(5)  # rates are worked out after everything else that happens at an instant


class SharedNetwork:
    """Carries flows over links. `transfer` is what the world uses; `send` and `stop` give more control.

    ``links`` are those that routes have crossed.
    """

    def __init__(
        self,
        env: simpy.Environment,
        rng: np.random.Generator,
        capacities: Mapping[str, OverTime] | None = None,
        latencies: Mapping[str, OverTime] | None = None,
        factors: Mapping[str, OverTime] | None = None,
        carriage: Carriage | None = None,
    ) -> None:
        """``rng`` draws jitter. Links by name may have a bandwidth over time, in place of what routes say, and a latency.

        ``factors`` multiply the bandwidth of links, whatever it is. ``carriage`` is the transport; without it, a fluid.
        """
        self.carriage = carriage or Carriage(Transport(), 0)
        self.links = Links(env, rng, capacities or {}, latencies or {}, factors or {})
        self._env = env
        self._bundles: dict[tuple[object, ...], Bundle] = {}
        self._numbers = itertools.count()
        self._new: list[Flow] = []
        self._dirty: dict[Link, None] = {}
        self._settling = False
        self._levels = Levels()
        self._due = Due(env, self._levels, self._finish_flows)
        self._cohorts = Cohorts(env, self)

    def transfer(self, route: Sequence[Leg], size_bytes: int) -> simpy.Event:
        """An event that happens when the last byte has arrived."""
        latency_s = self.links.latency_s(route)
        links = self.links.of(route)
        self._cohorts.make_way(links)
        if size_bytes and all(link.free for link in links):
            return self._alone(route, links, size_bytes, latency_s)
        return self._later(self.send(route, size_bytes), size_bytes, latency_s)

    def start(self, route: Sequence[Leg], size_bytes: int) -> Transfer:
        """See `Network.start`."""
        latency_s = self.links.latency_s(route)
        flow = self.send(route, size_bytes)
        share = 8.0 * size_bytes / flow.size_bits if size_bytes else 1.0  # of what is on the wire
        return Transfer(self._later(flow, size_bytes, latency_s), lambda: int(self.stop(flow) * share))

    def peak_bps(self, leg: Leg) -> float:
        """See `Network.peak_bps`."""
        return self.links.peak_bps(leg)

    def bandwidth_bps(self, leg: Leg) -> float:
        """See `Network.bandwidth_bps`."""
        return self.links.bandwidth_bps(leg)

    def _later(self, flow: Flow, size_bytes: int, latency_s: float) -> simpy.Event:
        """An event that happens when the last byte of a flow that starts now has arrived."""
        if latency_s == 0 and self.carriage.immediate:
            return flow.done
        arrived, start_s = self._env.event(), self._env.now
        after = self._after(size_bytes, flow.round_trip_s, latency_s)
        flow.done.callbacks.append(lambda _: succeed_after(arrived, after(self._env.now - start_s)))
        return arrived

    def _after(self, size_bytes: int, round_trip_s: float, latency_s: float) -> Callable[[float], float]:
        """How long after its last byte has left a transfer arrives, by how long it took to leave."""
        return lambda lasts_s: latency_s + self.carriage.start_up_s(size_bytes, round_trip_s, lasts_s)

    def transfer_all(self, routes: ClientRoutes, size_bytes: int, starts_s: Instants | None = None) -> simpy.Event:
        """See `Network.transfer_all`."""
        return self._cohorts.transfer_all(routes, size_bytes, starts_s)

    def transfer_each(self, routes: ClientRoutes, size_bytes: int, known: Known) -> None:
        """See `Network.transfer_each`."""
        self._cohorts.transfer_each(routes, size_bytes, known)

    def independent(self, routes: ClientRoutes) -> bool:
        """See `Network.independent`."""
        return self._cohorts.independent(routes)

    def send(self, route: Sequence[Leg], size_bytes: int) -> Flow:
        """Puts a flow on the links of a route, now."""
        links = self.links.of(route)
        self._cohorts.make_way(links)
        trip_s, factor = self.links.round_trip_s(route), self.carriage.factor(route, size_bytes)
        own_bps = self.carriage.most_bps(trip_s)
        bits = self.carriage.wire_bits(size_bytes)
        return self.put(links, bits, own_bps=own_bps, factor=factor, round_trip_s=trip_s)

    def put(
        self,
        links: tuple[Link, ...],
        size_bits: float,
        count: int = 1,
        own_bps: float = math.inf,
        ended: Callable[[], None] | None = None,
        factor: float = 1.0,
        round_trip_s: float = 0.0,
    ) -> Flow:
        """Puts a flow on links, now. It may stand for several transfers, each with a link of its own beside these."""
        flow = Flow(
            next(self._numbers), links, size_bits, self._env.event(), count, own_bps, ended, factor, round_trip_s
        )
        if size_bits == 0:
            flow.done.succeed(True)
            return flow
        for link in links:
            if link.lone is not None:
                self._join(link.lone)
            link.coming += 1
        self._new.append(flow)
        self._settle_soon()
        return flow

    def _alone(self, route: Sequence[Leg], links: tuple[Link, ...], size_bytes: int, latency_s: float) -> simpy.Event:
        """A flow that nobody else is in the way of: when it arrives is known at once."""
        now = self._env.now
        trip_s, factor = self.links.round_trip_s(route), self.carriage.factor(route, size_bytes)
        rate_bps = min(self.carriage.most_bps(trip_s), *(link.rate_bps for link in links))
        bits, after = self.carriage.wire_bits(size_bytes), self._after(size_bytes, trip_s, latency_s)
        lone = LoneFlow(links, bits, rate_bps, now, after, self._env.event(), factor, trip_s)
        for link in links:
            link.lone = lone
        due = self._env.timeout(bits / rate_bps + after(bits / rate_bps))
        due.callbacks.append(lambda _: self._arrive(lone))
        return lone.arrived

    def _arrive(self, lone: LoneFlow) -> None:
        """The instant that was foreseen for a flow that was alone when it started."""
        if not lone.joined:
            lone.leave()
            happen(lone.arrived)

    def _join(self, lone: LoneFlow) -> None:
        """Somebody comes to a link of a flow that was alone: from now on it is a flow like others, with what is left of it."""
        lone.leave()
        left_bits = lone.size_bits - lone.rate_bps * (self._env.now - lone.start_s)
        if left_bits <= NOTHING_BITS:  # its bytes have left, only its latency is not over yet
            return
        lone.joined = True  # its arrival was foreseen too early
        own_bps = self.carriage.most_bps(lone.round_trip_s)
        flow = self.put(lone.links, left_bits, own_bps=own_bps, factor=lone.factor, round_trip_s=lone.round_trip_s)
        flow.done.callbacks.append(lambda _: succeed_after(lone.arrived, lone.after(self._env.now - lone.start_s)))

    def stop(self, flow: Flow) -> float:
        """Takes a flow off its links; returns the bytes that it has sent. Its ``done`` never happens."""
        if flow in self._new:
            self._new.remove(flow)
            for link in flow.links:
                link.coming -= 1
            return 0.0
        bundle = flow.bundle
        if bundle is None:
            return flow.size_bits / 8
        bundle.advance(self._env.now)
        sent_bits = flow.size_bits - max(0.0, flow.ends_at - bundle.served_bits)
        self._take_off(flow)
        self._settle_soon()
        return sent_bits / 8

    def stuck(self) -> dict[str, int]:
        """See `Network.stuck`."""
        return self.links.stuck()

    def rate_bps(self, flow: Flow) -> float:
        """What a flow is sent a second, now."""
        return 0.0 if flow.bundle is None else flow.bundle.rate_bps

    def load_bps(self, name: str) -> float:
        """What a link carries, now."""
        link = self.links.find(name)
        return 0.0 if link is None else sum(self.rate_bps(f) * f.count for f in link.flows)

    def _settle_soon(self) -> None:
        if not self._settling:
            self._settling = True
            event = self._env.event()
            event.callbacks.append(lambda _: self._settle())
            succeed_after(event, 0.0, _AFTER_ALL_ELSE)

    def _settle(self) -> None:
        """Takes in all that came and went at this instant, and gives every flow that it touches its new rate."""
        self._settling = False
        now = self._env.now
        if self._new:
            self._take_in(now)
        dirty, self._dirty = self._dirty, {}
        for link in dirty:
            self._levels.watch(link, now)
        self._levels.settle(now)
        self._due.note()

    def _take_in(self, now: float) -> None:
        """Puts the flows of this instant into bundles, and those that they find alone on a link into others."""
        arrived, self._new = self._new, []
        regroup: dict[Flow, None] = {}
        for link in dict.fromkeys([link for flow in arrived for link in flow.links]):
            self._refresh(link)
            if link.crossing == 1:  # its flow is no longer alone on it: it belongs to another bundle now
                regroup |= link.flows
        for flow in arrived:
            for link in flow.links:
                link.coming -= 1
                link.crossing += flow.count
                link.flows[flow] = None
        regroup |= dict.fromkeys(arrived)
        for flow in regroup:
            self._bundle_anew(flow, now)

    def _refresh(self, link: Link) -> None:
        """Reads a link's bandwidth where it changes over time, and makes sure to be there when it changes next."""
        if isinstance(link.capacity, float | int):
            return
        now = self._env.now
        link.go_at(link.capacity.at(now))
        if not link.watched:
            change = link.capacity.next_change(now) if link.rate_bps else next_not_zero(link.capacity, now)
            link.dead = link.rate_bps == 0 and change == math.inf
            if change < math.inf:
                link.watched = True
                self._env.timeout(change - now).callbacks.append(lambda _: self._changed(link))

    def _changed(self, link: Link) -> None:
        """A link's bandwidth has changed: flows that had it for themselves have another bandwidth of their own now.

        Those that are stuck elsewhere do not care.
        """
        link.watched = False
        if not all(flow.stuck for flow in link.flows):
            self._refresh(link)
            for flow in list(link.flows):
                self._bundle_anew(flow, self._env.now)
            self._dirty[link] = None
            self._settle_soon()

    def _bundle_anew(self, flow: Flow, now: float) -> None:
        """Puts a flow into the bundle of its kind, with what is left of it."""
        left_bits = flow.size_bits
        old = flow.bundle
        if old is not None:
            old.advance(now)
            left_bits = flow.ends_at - old.served_bits
            if left_bits <= NOTHING_BITS:  # it ends at this very instant
                self._end(flow)
                return
            self._leave(flow)
        shared, cap_bps, narrowest_bps, weight = flow.links, flow.own_bps, math.inf, 1.0
        for link in flow.links:
            cap_bps = min(cap_bps, link.rate_bps)
            if link.crossing > 1:
                narrowest_bps = min(narrowest_bps, link.rate_bps)
            else:
                shared = tuple([each for each in flow.links if each.crossing > 1])
        if shared:
            weight = self.carriage.weight(flow.factor, flow.round_trip_s, narrowest_bps)
        key = (shared, cap_bps, weight)
        bundle = self._bundles.get(key)
        new = bundle is None
        if bundle is None:
            bundle = self._bundles[key] = Bundle(next(self._numbers), key, shared, cap_bps, weight, now)
            for link in shared:
                link.bundles[bundle] = None
        bundle.advance(now)
        flow.bundle = bundle
        flow.ends_at = bundle.served_bits + left_bits
        heapq.heappush(bundle.heap, (flow.ends_at, flow.number, flow))
        self._grow(bundle, flow.count, new)

    def _grow(self, bundle: Bundle, count: int, new: bool = False) -> None:
        """A bundle has so many members more, or less."""
        for link in bundle.links:
            link.demand += bundle.cap_units * count
            self._dirty[link] = None
        if new:
            self._levels.come(bundle, count, self._env.now)
        else:
            self._levels.grow(bundle, count)

    def _leave(self, flow: Flow) -> None:
        bundle = flow.bundle
        assert bundle is not None
        flow.bundle = None
        self._grow(bundle, -flow.count)
        if bundle.size == 0:
            bundle.version = 0
            del self._bundles[bundle.key]
            for link in bundle.links:
                del link.bundles[bundle]

    def _end(self, flow: Flow) -> None:
        self._take_off(flow)
        if flow.ended is None:
            flow.done.succeed(True)
        else:
            flow.ended()

    def _take_off(self, flow: Flow) -> None:
        self._leave(flow)
        for link in flow.links:
            del link.flows[flow]
            link.crossing -= flow.count

    def _finish_flows(self, due: list[Bundle]) -> None:
        """Ends the next flow of each of these bundles, and all that end with it."""
        now = self._env.now
        for bundle in due:
            bundle.advance(now)
            if bundle.size:
                bundle.served_bits = max(bundle.served_bits, bundle.next_end())
            while bundle.heap and bundle.heap[0][0] <= bundle.served_bits + NOTHING_BITS:
                ends_at, _, flow = heapq.heappop(bundle.heap)
                if flow.bundle is bundle and flow.ends_at == ends_at:
                    self._end(flow)
        if self._dirty and self._env.peek() == now:
            self._settle_soon()
        elif not self._settling:
            self._settle()  # nothing else happens at this instant
