"""Arithmetic of transports: bits on the wire, the time that a connection takes to get going, and unequal shares.

A transfer goes over its links as a flow of `wire_bits`; what its connection takes beside that (`start_up_s`) is added to its
latency when its last byte has left, and occupies nothing. Slow start is worked out from the rate that the flow had in the
mean, so that it costs less where others leave it less to win.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from emulator.contracts.world import Transport
from emulator.rng import derive
from emulator.world.fleet import ClientRoutes, Leg, ends_of

Floats = npt.NDArray[np.float64]

# Chance gives a flow one of these standard deviations: few, so that many flows have equal rates and are worked out together; an
# even number, so that two flows are seldom alike.
STEP, STEPS = 0.8, 6
DEVIATIONS = STEP * (np.arange(STEPS) - (STEPS - 1) / 2)
# The limits between two of them, of a uniform number.
_LIMITS = [NormalDist().cdf(each + STEP / 2) for each in DEVIATIONS[:-1].tolist()]
_COMPETING_BYTES = 14_480  # a transfer of no more is over before its share matters: ten segments

_CUT, _CUBIC = 0.7, 0.4  # RFC 9438: what a loss leaves of the window, and its growth in frames a cubic second

_SHORTEST_S, _LONGEST_S = 1e-3, 1e3  # round trips beyond these weigh as these do

_MASK = 2**64 - 1
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Carriage:
    """A transport at work in one run. ``seed`` is that of the stream of its chance."""

    def __init__(self, transport: Transport, seed: int) -> None:
        self.transport = transport
        self._key = derive(seed, "transport")
        self._factors: list[float] = np.exp(transport.spread * DEVIATIONS).tolist()
        # Whether transfers go at full speed from the start.
        self.immediate = transport.set_up == 0 and transport.initial_segments == 0
        self._weights: dict[tuple[float, float, float], float] = {}
        self._sent: dict[str, int] = {}  # transfers so far that compete, by the ends of their route

    def wire_bits(self, size_bytes: int) -> float:
        """What so many bytes are on the wire, in bits."""
        how = self.transport
        frames = -(-size_bytes // how.payload_bytes)
        return 8.0 * (size_bytes + frames * (how.frame_bytes - how.payload_bytes))

    @overload
    def most_bps(self, round_trip_s: float) -> float: ...
    @overload
    def most_bps(self, round_trip_s: Floats | float) -> Floats | float: ...
    def most_bps(self, round_trip_s: Floats | float) -> Floats | float:
        """The rate on the wire that the window allows."""
        how = self.transport
        if how.window_bytes == math.inf:
            return math.inf
        bits = 8 * how.window_bytes * how.frame_bytes / how.payload_bytes
        if isinstance(round_trip_s, np.ndarray):
            with np.errstate(divide="ignore", over="ignore"):
                return bits / round_trip_s
        return bits / round_trip_s if round_trip_s > 0 else math.inf

    @overload
    def start_up_s(self, size_bytes: int, round_trip_s: float, lasts_s: float) -> float: ...
    @overload
    def start_up_s(self, size_bytes: int, round_trip_s: Floats | float, lasts_s: Floats | float) -> Floats | float: ...
    def start_up_s(self, size_bytes: int, round_trip_s: Floats | float, lasts_s: Floats | float) -> Floats | float:
        """Seconds that a transfer takes beside its latency and the ``lasts_s`` for which its bits keep the links busy.

        Set-up, and what slow start leaves idle. As long as a window is sent in less than a round trip at the transfer's mean
        rate, the rest of the round trip goes by idly; the next window is twice as large, until nothing is left. A window that
        doubles arrives at twice the rate at which it leaves: once it holds as much as the queue does, the queue overflows. What
        is lost is seen a round trip later and sent again, and what is left is sent with CUBIC's window (RFC 9438).

        Of many transfers each takes what it would take alone, bit for bit.
        """
        how = self.transport
        set_up_s = how.set_up * round_trip_s
        segments = -(-size_bytes // how.payload_bytes)
        many = isinstance(round_trip_s, np.ndarray) or isinstance(lasts_s, np.ndarray)
        if not how.initial_segments or segments <= how.initial_segments or (not many and round_trip_s <= 0):
            return set_up_s
        do = _MANY if many else _ONE
        # Also where rounding leaves no time.
        frame_s = do.most(how.frame_bytes * 8 * lasts_s / self.wire_bits(size_bytes), 1e-12)
        trip_s = round_trip_s + frame_s  # an acknowledgement follows a whole frame
        pipe = trip_s / frame_s  # frames on their way when the link is busy all the time
        first, queue = how.initial_segments, how.queue_frames
        overflow = _doublings(queue / first)  # the window that does, counted from 0
        doubled = first * 2.0**overflow
        # Windows that are followed by another one, and windows that a round trip outlasts.
        followed = _doublings(segments / first + 1) - 1
        idle_s = _idle_s(do.least(followed, do.doublings(pipe / first)), first, trip_s, frame_s, do)
        if queue and segments > 2 * (doubled + queue) - first:
            # The window after the loss, which had doubled once more when that was seen.
            slow = _CUT * 2 * (doubled + queue)
            left = segments - (4 * doubled - first)
            slowed_s = idle_s
            if left > 0:
                slowed_s = _idle_s(overflow + 2, first, trip_s, frame_s, do) + _cubic_s(left, slow, pipe, frame_s, do)
            # The queue fills, is waited for, and then what it lost comes again: nothing ends before that.
            repaired_s = (overflow + 2) * trip_s + (2 * queue + max(0.0, doubled - queue)) * frame_s
            lossy_s = do.most(do.choose(slow < pipe, slowed_s, idle_s), repaired_s - lasts_s)
            idle_s = do.choose(doubled < pipe, lossy_s, idle_s)
        start_up_s: Floats | float = do.choose(round_trip_s > 0, set_up_s + idle_s, set_up_s)
        return start_up_s

    def _competes(self, size_bytes: int) -> bool:
        """Whether a transfer is long enough for its share to differ from that of others."""
        return size_bytes > _COMPETING_BYTES and self.transport.spread > 0

    def weight(self, factor: float, round_trip_s: float, narrowest_bps: float) -> float:
        """The weight of a flow on links with others: its factor by chance, and its round trip with a full queue there.

        A multiple of 2^-30, so that sums of weights are exact in whatever order they are added.
        """
        key, how = (factor, round_trip_s, narrowest_bps), self.transport
        known = self._weights.get(key)
        if known is None:
            if how.round_trip_power and narrowest_bps:
                trip_s = round_trip_s + how.queue_frames * how.frame_bytes * 8 / narrowest_bps
                factor *= min(max(trip_s, _SHORTEST_S), _LONGEST_S) ** -how.round_trip_power
            known = self._weights[key] = max(1, round(factor * 2**30)) / 2**30
        return known

    def factor(self, route: Sequence[Leg], size_bytes: int) -> float:
        """The factor by chance of the next transfer on a route: from the seed, the route and the number of the transfer alone."""
        return self._draw(ends_of(route)) if self._competes(size_bytes) else 1.0

    def factors(self, routes: ClientRoutes, size_bytes: int) -> list[float] | None:
        """The factors of the next transfers on several routes, each as `factor` gives it; None where all are 1."""
        return [self._draw(ends) for ends in routes.ends] if self._competes(size_bytes) else None

    def _draw(self, ends: str) -> float:
        """A factor for the next transfer between two ends: a hash (splitmix64) of the seed, the ends and its number."""
        number = self._sent[ends] = self._sent.get(ends, 0) + 1
        mixed = (self._key ^ (zlib.crc32(ends.encode()) << 32)) + number * _GOLDEN & _MASK
        mixed = (mixed ^ mixed >> 30) * _FIRST & _MASK
        mixed = (mixed ^ mixed >> 27) * _SECOND & _MASK
        return self._factors[bisect_left(_LIMITS, ((mixed ^ mixed >> 31) >> 11) * 2.0**-53)]


def _doublings(ratio: float) -> int:
    """How often a window doubles until it is so many times as large."""
    part, power = math.frexp(ratio)
    return power - (part == 0.5) if ratio > 1 else 0


def _many_doublings(ratios: Floats) -> npt.NDArray[np.int64]:
    """The same for many."""
    part, power = np.frexp(ratios)
    return np.where(ratios > 1, power - (part == 0.5), 0)


class _Arithmetic(NamedTuple):
    """What is written in another way for many numbers than for one, and gives the same."""

    most: Callable[[Any, Any], Any]
    least: Callable[[Any, Any], Any]
    choose: Callable[[Any, Any, Any], Any]
    doublings: Callable[[Any], Any]
    power: Callable[[float, Any], Any]  # times 2 to the power of a whole number
    root: Callable[[Any], Any]
    square: Callable[[Any], Any]


_ONE = _Arithmetic(
    max, min, lambda so, this, that: this if so else that, _doublings, math.ldexp, math.sqrt, lambda x: x**2
)
_MANY = _Arithmetic(
    np.maximum,
    np.minimum,
    np.where,
    _many_doublings,
    np.ldexp,
    np.sqrt,
    lambda x: np.array([each**2 for each in x.tolist()]),  # numpy multiplies, which is not always rounded as a power is
)


def _idle_s(windows: Any, first: int, trip_s: Any, frame_s: Any, do: _Arithmetic) -> Any:
    """What so many windows of slow start, of ``first`` frames and more, leave of their round trips."""
    return windows * trip_s - (do.power(1.0, windows) - 1) * first * frame_s


def _cubic_s(left: float, window: float, pipe: Any, frame_s: Any, do: _Arithmetic) -> Any:
    """Seconds that a window takes for the frames that are left, beyond those in which a link that is busy sends them.

    CUBIC's window grows from ``window`` towards what it was before the loss. That is seconds away, so it is taken to go on
    growing as it begins to. Once it fills the pipe, the link is busy.
    """
    growth = 3 * _CUBIC * float((window / _CUT * (1 - _CUT) / _CUBIC) ** (2 / 3))  # frames a second
    trip_s = pipe * frame_s
    full_s = (pipe - window) / growth
    sent = (window * full_s + growth * do.square(full_s) / 2) / trip_s
    lasts_s = (do.root(window**2 + 2 * growth * trip_s * left) - window) / growth
    return do.choose(left > sent, full_s - sent * frame_s, lasts_s - left * frame_s)
