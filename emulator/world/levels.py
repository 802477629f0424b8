"""Max-min fair rates of flows that come and go, worked out for what changed alone.

Rates are max-min fair when every full link has a *level*, the rate that it leaves to a flow of weight 1, and every flow goes at
the lowest level on its way, or at its own limit where that is lower. The link of that level *holds* it. A link's level is what
flows that are held elsewhere leave of its bandwidth, over the weights of those that it holds.

- The flows that a link holds share its clock, the bits that it has served to a flow of weight 1. When its level changes, so
  does the rate of a thousand flows, and nothing is touched but the speed of the clock.
- A link takes flows from links of a higher level and those whose own limit is above its level, and gives back those whose own
  limit is below it. Its level depends on lower ones alone, so that whoever is told of a change comes to rest with all others.
- A link that is not full holds nobody. If it could be full, it is looked at when flows on it come, go or change hands, and when
  a level at which flows on it are held rises above a guard, up to which it cannot get full.

Loads and levels are added up as whole numbers, and a level is rounded once, when it is divided, so that levels depend on who is
there, not on the order in which they came. Among links that are full at the same level, a rounding may tell who holds a flow.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

from emulator.world.flows import LEVEL, Bundle, Link, in_parts


class Part:
    """Bundles on a link that another one holds, the sum of their weights, and the level at which they are counted."""

    __slots__ = ("bundles", "level", "weight")

    def __init__(self, level: int) -> None:
        self.bundles: dict[Bundle, None] = {}
        self.level = level
        self.weight = 0


class Share:
    """What is known of a link that has been too narrow for the flows on it.

    ``level`` is infinite while it holds nobody. ``load`` is what is held elsewhere, each part at the level at which it is
    counted: the true one where the link holds somebody, and a guard above it where it does not.
    """

    __slots__ = (
        "clock_bits",
        "ends",
        "followers",
        "guarded",
        "guards",
        "held",
        "high",
        "level",
        "link",
        "load",
        "low",
        "number",
        "others",
        "queued",
        "units",
        "updated_s",
        "version",
    )

    def __init__(self, link: Link, number: int, now: float) -> None:
        self.link = link
        self.number = number
        self.level = math.inf
        self.units = 0  # the level as a whole number; 0 where it is infinite
        self.held = 0  # the weights of those that it holds
        self.load = 0
        self.others: dict[Share, Part] = {}
        self.guarded = False
        self.low: list[tuple[float, int, Bundle | Share]] = []  # who is held elsewhere, highest level first
        self.high: list[tuple[float, int, Bundle]] = []  # whom it holds, lowest limit first
        self.followers: dict[Share, None] = {}  # those that are full, with bundles on them that this one holds
        self.guards: list[tuple[int, int, Share]] = []  # up to which level those cannot get full that are not
        self.clock_bits = 0.0
        self.updated_s = now
        self.ends: list[tuple[float, int, int, Bundle]] = []  # when bundles lose their next member, on the clock
        self.queued = False
        self.version = 0

    def advance(self, now: float) -> None:
        """Sets the clock to this instant."""
        if now != self.updated_s:
            if self.held:
                self.clock_bits += self.level * (now - self.updated_s)
            self.updated_s = now

    def note_end(self, bundle: Bundle) -> None:
        """Notes when a bundle that it holds loses its next member, as of now."""
        if len(self.ends) > self._many:  # most are out of date
            self.ends = [end for end in self.ends if end[2] == end[3].version]
            heapq.heapify(self.ends)
        ends_at = self.clock_bits + bundle.left_bits() / bundle.weight
        heapq.heappush(self.ends, (ends_at, bundle.number, bundle.version, bundle))

    def first(self) -> Bundle | None:
        """The bundle that it holds that loses a member next."""
        while self.ends and self.ends[0][2] != self.ends[0][3].version:
            heapq.heappop(self.ends)
        return self.ends[0][3] if self.ends else None

    def due(self, now: float) -> list[Bundle]:
        """The bundles that lose a member now, the next one among them."""
        self.advance(now)
        found: list[Bundle] = []
        while (first := self.first()) is not None:
            ends_at = self.ends[0][0]
            if not found:
                self.clock_bits = max(self.clock_bits, ends_at)
            elif ends_at - self.clock_bits > 4 * (self.level * math.ulp(now) + math.ulp(ends_at)):
                break  # not the same instant but for rounding
            found.append(first)
            first.version = 0
        return found

    def wanted(self, who: Bundle | Share | None = None) -> float:
        """The level at which those that it holds fill it; above or below all others where it holds nobody.

        With others, if it held these too: a bundle that nobody holds, or all bundles that another one does.
        """
        if not self.link.narrow:
            return math.inf
        left, held = self.link.room - self.load, self.held
        if isinstance(who, Bundle):
            left, held = left + who.size * who.cap_units, held + who.size * who.weight_units
        elif who is not None:
            part = self.others[who]
            left, held = left + part.weight * part.level, held + part.weight
        if held:
            return left / (held << LEVEL)
        return math.inf if left >= 0 else -math.inf

    def highest(self) -> tuple[float, Bundle | Share] | None:
        """Who of those that are held elsewhere has the highest level, and that level."""
        while self.low:
            level, _, who = self.low[0]
            if isinstance(who, Bundle):
                if who.holder is None and who.size:
                    return -level, who
            elif who in self.others and who.level == -level:
                return -level, who
            heapq.heappop(self.low)
        return None

    def add(self, bundle: Bundle, count: int) -> None:
        """Counts so many members more of a bundle, or less, where it is held."""
        holder = bundle.holder
        if holder is self:
            self.held += count * bundle.weight_units
        elif holder is None:
            self.load += count * bundle.cap_units
        else:
            part = self.others.get(holder)
            if part is None:
                part = self.others[holder] = Part(holder.units)
                self.attend(holder, part)
            weight = count * bundle.weight_units
            part.weight += weight
            self.load += weight * part.level

    def enter(self, bundle: Bundle) -> None:
        """A bundle has come to it, or is held by somebody else than before."""
        self.add(bundle, bundle.size)
        holder = bundle.holder
        if holder is self:
            if len(self.high) > self._many:  # most are out of date
                self.high = [(b.limit, b.number, b) for b in self.link.bundles if b.holder is self]
                heapq.heapify(self.high)
            else:
                heapq.heappush(self.high, (bundle.limit, bundle.number, bundle))
        elif holder is None:
            self.note_level(bundle.limit, bundle)
        else:
            self.others[holder].bundles[bundle] = None

    @property
    def _many(self) -> int:
        return 4 * len(self.link.bundles) + 64

    def note_level(self, level: float, who: Bundle | Share) -> None:
        """Notes at which level somebody is held elsewhere."""
        if len(self.low) > self._many:  # most are out of date
            self.low = [(-b.limit, b.number, b) for b in self.link.bundles if b.holder is None]
            self.low += [(-other.level, other.number, other) for other in self.others]
            heapq.heapify(self.low)
        else:
            heapq.heappush(self.low, (-level, who.number, who))

    def leave(self, bundle: Bundle) -> None:
        """A bundle is about to be held by somebody else."""
        self.add(bundle, -bundle.size)
        self.drop(bundle)

    def drop(self, bundle: Bundle) -> None:
        """A bundle has no members here any more."""
        holder = bundle.holder
        if holder is not None and holder is not self:
            bundles = self.others[holder].bundles
            del bundles[bundle]
            if not bundles:
                del self.others[holder]
                holder.followers.pop(self, None)

    def attend(self, other: Share, part: Part) -> None:
        """Makes sure to be told of the level of somebody who holds some of its bundles."""
        if self.level < math.inf:
            other.followers[self] = None
            self.note_level(other.level, other)
        else:
            if len(other.guards) > other._many:  # most are out of date
                other.guards = [g for g in set(other.guards) if g[2].guards_at(other, g[0])]
                heapq.heapify(other.guards)
            heapq.heappush(other.guards, (part.level, self.number, self))

    def guards_at(self, other: Share, level: int) -> bool:
        """Whether it is to be told once another level rises above this one."""
        part = self.others.get(other)
        return part is not None and part.level == level and self.level == math.inf

    def count_anew(self, other: Share) -> None:
        """Counts the bundles of another one at its level of now."""
        part = self.others[other]
        self.load += part.weight * (other.units - part.level)
        part.level = other.units

    def loosen(self, others: Iterable[Share]) -> None:
        """Shares what it has left out as guards: all of it to one, half to several, so that something is left for later."""
        parts = [(other, self.others[other]) for other in others]
        weight = sum(part.weight for _, part in parts)
        if weight:
            extra = max(0, self.link.room - self.load) // (weight if len(self.others) == 1 else 2 * weight)
            for other, part in parts:
                part.level += extra
                self.attend(other, part)
            self.load += extra * weight


class Levels:
    """The levels of all links that are too narrow.

    ``moved`` are bundles whose rate or next end has changed in another way than with the level of who holds them, ``turned``
    the links whose level or next end has, since somebody looked.
    """

    def __init__(self) -> None:
        self.moved: dict[Bundle, None] = {}
        self.turned: dict[Share, None] = {}
        self._queue: list[tuple[float, int, Share]] = []
        self._now = 0.0
        self._shares = 0

    def watch(self, link: Link, now: float) -> None:
        """Something has changed on a link: its bandwidth or its flows."""
        if link.share is None:
            if not link.narrow:
                return
            self._shares += 1
            share = link.share = Share(link, -self._shares, now)  # bundles have other numbers
            for bundle in link.bundles:
                bundle.shares.append(share)
                share.enter(bundle)
        self._look_at(link.share)

    def come(self, bundle: Bundle, count: int, now: float) -> None:
        """A new bundle is there, with its first members."""
        self._now, bundle.size = now, count
        bundle.shares = [link.share for link in bundle.links if link.share is not None]
        self._give(bundle, self._home(bundle))

    def grow(self, bundle: Bundle, count: int) -> None:
        """A bundle has so many members more, or less; without any it is gone."""
        bundle.size += count
        for share in bundle.shares:
            share.add(bundle, count)
            if not bundle.size:
                share.drop(bundle)
        self.moved[bundle] = None

    def settle(self, now: float) -> None:
        """Works out all levels that have changed."""
        self._now = now
        queue = self._queue
        while queue:
            share = heapq.heappop(queue)[2]
            self._work_out(share)
            share.queued = False

    def _look_at(self, share: Share) -> None:
        if not share.queued:
            share.queued = True
            heapq.heappush(self._queue, (share.level, share.number, share))

    def _work_out(self, share: Share) -> None:
        """The level of a link, as those of all others are now."""
        if share.level == math.inf:
            if not share.link.narrow:
                share.guarded = False
                return
            if (share.guarded and share.load <= share.link.room) or not self._fills(share):
                return
        level = share.wanted()
        while (highest := share.highest()) is not None and highest[0] > level:
            theirs, who = highest
            if share.wanted(who) >= theirs:  # they fill it and are full themselves, but for rounding: they may stay
                level = theirs if share.held else math.inf
                break
            for bundle in [who] if isinstance(who, Bundle) else list(share.others[who].bundles):
                self._move(bundle, share)
            level = share.wanted()
        while share.high and share.high[0][0] < level:
            bundle = heapq.heappop(share.high)[2]
            if bundle.holder is share and bundle.size:
                self._move(bundle, self._home(bundle, share))
                level = share.wanted()
        if level != share.level:
            self._set(share, level)
            if level == math.inf:
                for other in share.others:
                    other.followers.pop(share, None)
                share.guarded = False
                if share.link.narrow:
                    self._fills(share)

    def _fills(self, share: Share) -> bool:
        """Whether those on a link that holds nobody fill it. If not, it is guarded against that from now on."""
        for other in share.others:
            share.count_anew(other)
        if share.load > share.link.room:
            share.level = 0.0  # it holds somebody from now on; how much it leaves to them is worked out next
            for other, part in share.others.items():
                share.attend(other, part)
            return True
        share.guarded = True
        share.loosen(share.others)
        return False

    def _set(self, share: Share, level: float) -> None:
        share.advance(self._now)
        share.level = level
        share.units = in_parts(level, LEVEL) if level < math.inf else 0
        self.turned[share] = None
        for follower in share.followers:
            follower.count_anew(share)
            follower.note_level(level, share)
            self._look_at(follower)
        while share.guards and share.guards[0][0] < share.units:
            guard, _, other = heapq.heappop(share.guards)
            if other.guards_at(share, guard):
                other.count_anew(share)
                if other.load <= other.link.room:
                    other.loosen([share])
                else:
                    other.guarded = False
                    self._look_at(other)

    def _home(self, bundle: Bundle, but: Share | None = None) -> Share | None:
        """Who is to hold a bundle, as levels are now; None: nobody, it goes at its own limit."""
        home, lowest = None, bundle.limit
        for share in bundle.shares:
            if share.level < lowest and share is not but:
                home, lowest = share, share.level
        return home

    def _move(self, bundle: Bundle, holder: Share | None) -> None:
        bundle.advance(self._now)
        for share in bundle.shares:
            share.leave(bundle)
            self._look_at(share)
        self._give(bundle, holder)

    def _give(self, bundle: Bundle, holder: Share | None) -> None:
        if holder is not None:
            holder.advance(self._now)
            if not holder.held:
                holder.clock_bits = 0.0
            bundle.mark_bits = holder.clock_bits
        bundle.holder = holder
        for share in bundle.shares:
            share.enter(bundle)
        self.moved[bundle] = None
