"""The links of a fit: bandwidth up and down, latency, and what transfers vary, by how long they took."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from devices import robust
from emulator.fitting.base import Base, Floats
from emulator.fitting.timings import BACKHAUL_DOWN, BACKHAUL_UP, DOWN, UP

if TYPE_CHECKING:
    import pandas as pd

APART = 1.2  # by which factor sizes of transfers must differ to tell latency from bandwidth
FASTEST_BPS, SLOWEST_BPS = 1e13, 1.0
TRANSFERS = 4  # that tell a link
VAGUE = 0.5  # the standard error of a bandwidth's logarithm beyond which it is not told
NOISE = 1e-3  # a share of what a transfer takes; a deviation below is none
EXPLAINS = 6.6  # what another figure must gain to be taken: 1 in 100 by chance, were the errors normal
OUTLIER = 8.0  # robust standard deviations; of what is exponential, 2 in 1000 are beyond
SKEWED = 1.0  # between a normal distribution and an exponential one


@dataclass(frozen=True)
class LinkFit:
    """A link: bandwidths as losses leave them, latency one way, and what a transfer takes beside, once.

    ``deviation_s`` is what single transfers vary; ``exponential`` says of which kind that is, else it is normal. The mean of such
    a jitter is part of ``overhead_s``. A link that was not fitted has no ``transfers``. ``standard_errors`` are those of the
    bandwidths up and down (relative), latency and overhead (in seconds).
    """

    up_bps: float
    down_bps: float
    latency_s: float
    overhead_s: float = 0.0
    transfers: int = 0
    latency_fitted: bool = False
    deviation_s: float = 0.0
    exponential: bool = False
    deviation: float = 0.0
    standard_errors: tuple[float, ...] = (math.nan,) * 4


def sent_s(base: Base, rows: pd.DataFrame, link: LinkFit, up: bool, above: LinkFit | None = None) -> Floats:
    """Seconds of transfers over a link, of those ``through`` an edge also over the link ``above`` it."""
    sizes = rows["bytes"].to_numpy(dtype=np.int64)
    through = rows["through"].to_numpy(dtype=bool)
    rate = link.up_bps if up else link.down_bps
    found = np.empty(len(sizes))
    found[~through] = base.transfer_s(sizes[~through], rate, link.latency_s) + link.overhead_s
    if above is not None and through.any():
        narrowest = min(rate, above.up_bps if up else above.down_bps)
        found[through] = base.transfer_s(sizes[through], narrowest, link.latency_s + above.latency_s)
        found[through] += link.overhead_s + above.overhead_s
    return found


def known_backhaul(base: Base) -> LinkFit:
    """The link between the edges and the cloud as the scenario has it."""
    kind = base.loaded.scenario.topology.links.backhaul
    return LinkFit(kind.up * (1 - kind.loss), kind.down * (1 - kind.loss), kind.latency, kind.overhead)


def links_of(
    base: Base, rows: pd.DataFrame, above: LinkFit, by_client: bool, notes: list[str]
) -> Iterator[tuple[str, LinkFit]]:
    """The links of all clients."""
    access, count = base.fleet.roster.access, len(base.clients)
    left = 1 - np.asarray(access.loss)
    figures = [
        np.broadcast_to(each, count)
        for each in (access.up_bps * left, access.down_bps * left, access.latency_s, access.overhead_s)
    ]
    known = {
        name: LinkFit(float(up_bps), float(down_bps), float(latency_s), float(overhead_s))
        for name, up_bps, down_bps, latency_s, overhead_s in zip(base.clients, *figures, strict=True)
    }
    groups = {name: [name] for name in base.clients} if by_client else {}
    for name in [] if by_client else base.clients:
        groups.setdefault(base.kind_of[name], []).append(name)
    unmeasured = 0
    for members in groups.values():
        own = rows[rows["client"].isin(members)]
        if len(own) < TRANSFERS:
            unmeasured += len(members)
            yield from ((name, known[name]) for name in members)
            continue
        found = _link(base, own, known[members[0]], (UP, DOWN), notes, "clients", above)
        yield from ((name, found) for name in members)
    if unmeasured:
        notes.append(
            f"links: {unmeasured} of {count} clients sent and received less than {TRANSFERS} times; theirs stay as they are"
        )


def backhaul_of(base: Base, rows: pd.DataFrame, notes: list[str]) -> LinkFit | None:
    """The link between the edges and the cloud, one for all."""
    if len(rows) < TRANSFERS:
        return None
    return _link(base, rows, known_backhaul(base), (BACKHAUL_UP, BACKHAUL_DOWN), notes, "edges")


def _link(
    base: Base,
    rows: pd.DataFrame,
    before: LinkFit,
    phases: tuple[str, str],
    notes: list[str],
    whose: str,
    above: LinkFit | None = None,
) -> LinkFit:
    """One link by its transfers up and down."""
    seconds = rows["seconds"].to_numpy(dtype=float)
    sizes = rows["bytes"].to_numpy(dtype=np.int64)
    up = (rows["phase"] == phases[0]).to_numpy()
    told = any(len(each) and each.max() > APART * max(1, each.min()) for each in (sizes[up], sizes[~up]))
    if not told:
        notes.append(
            f"links of {whose}: transfers of one size do not tell latency from bandwidth; latency stays as the scenario has it"
        )
    shortest_s, longest_s = float(seconds.min()), float(seconds.max())

    ways = [(way, rows[way], is_up) for way, is_up in ((up, True), (~up, False))]

    def predict(x: Floats) -> Floats:
        found = np.empty(len(seconds))
        link = LinkFit(math.exp(x[0]), math.exp(x[1]), float(x[2]), float(x[3]))
        for way, own, is_up in ways:
            found[way] = sent_s(base, own, link, is_up, above)
        return found

    most_bps = [max((8 * s / t for s, t in zip(sizes[m], seconds[m], strict=True)), default=1e6) for m in (up, ~up)]
    known = np.array([math.log(before.up_bps), math.log(before.down_bps), before.latency_s, before.overhead_s])
    beside_s = above.latency_s + above.overhead_s if above is not None and rows["through"].any() else 0.0
    if known[2] + known[3] + beside_s >= shortest_s:
        known[2:] *= max(0.0, 0.9 * shortest_s - beside_s) / max(known[2] + known[3], 1e-300)
    guesses = [
        known,
        np.array([*(math.log(2 * bps) for bps in most_bps), 0.2 * shortest_s, 0.2 * shortest_s]),
        np.array([*map(math.log, most_bps), 0.0, 0.0]),
    ]
    low = np.array([math.log(SLOWEST_BPS), math.log(SLOWEST_BPS), 0.0, 0.0])
    high = np.array([math.log(FASTEST_BPS), math.log(FASTEST_BPS), longest_s, longest_s])
    free = np.array([up.any(), (~up).any(), told, False])
    start = known.copy()
    if told:
        start[3] = 0.0
    found = _fitted(predict, seconds, guesses, (low, high), free, start)
    if told and found.deviation > NOISE:
        # What a transfer takes once, beside a latency that slow start takes again and again: only where that explains more.
        more = np.array([*free[:3], True])
        other = _fitted(predict, seconds, guesses, (low, high), more, start)
        if np.isfinite(other.standard_errors[2:]).all() and _gain(found.errors, other.errors) > EXPLAINS:
            found, free = other, more
    while True:
        # Of a bandwidth that nobody can tell within a factor or two, the scenario knows more.
        worst = int(np.argmax(np.where(free[:2], found.standard_errors[:2], -1.0)))
        if not found.standard_errors[worst] > VAGUE or free.sum() == 1:
            break
        notes.append(
            f"links of {whose}: where their transfers do not tell a bandwidth, it stays as the scenario has it"
        )
        free[worst] = False
        found = _fitted(predict, seconds, guesses, (low, high), free, start)
    x = found.values
    late_s = -found.errors * predict(x)
    # What varies every day, without what went wrong once.
    usual_s = late_s[np.abs(late_s - np.median(late_s)) <= OUTLIER * robust.deviation_of(late_s)]
    deviation_s = float(np.std(usual_s)) if len(usual_s) >= TRANSFERS else 0.0
    noisy = deviation_s > NOISE * float(np.median(seconds))
    latency_s, overhead_s = float(x[2]), float(x[3])
    exponential = bool(noisy and _skewness(usual_s) > SKEWED)
    if exponential:
        # Its mean is part of the overhead. What is lacking there the latency has taken over, which counts on every way there is.
        lacking_s = max(0.0, deviation_s - overhead_s - float(usual_s.mean()))
        less_s = lacking_s / (1 + 2 * base.carriage.transport.set_up)
        exponential = less_s <= latency_s
        if exponential:
            latency_s, overhead_s = latency_s - less_s, overhead_s + float(usual_s.mean()) + lacking_s
            rates = free & np.array([True, True, False, False])
            if (
                less_s and rates.any()
            ):  # long transfers, whose latency counts more often, must meet what was measured again
                start = np.array([x[0], x[1], latency_s, overhead_s])
                x = _fitted(predict, seconds, [start], (low, high), rates, start).values
    return LinkFit(
        math.exp(x[0]), math.exp(x[1]), latency_s, overhead_s, len(rows), told, deviation_s if noisy else 0.0,
        exponential, found.deviation, tuple(found.standard_errors.tolist()),
    )  # fmt: skip


def _fitted(
    predict: Callable[[Floats], Floats],
    seconds: Floats,
    guesses: Sequence[Floats],
    bounds: tuple[Floats, Floats],
    free: npt.NDArray[np.bool_],
    start: Floats,
) -> robust.Robust:
    """The fit of the figures that are ``free``; the others are as in ``start``, and their standard errors are nan."""

    def whole(part: Floats) -> Floats:
        full = start.copy()
        full[free] = part
        return full

    found = robust.fit(
        lambda part: predict(whole(part)), seconds, [guess[free] for guess in guesses], bounds[0][free], bounds[1][free]
    )
    errors = np.full(len(start), np.nan)
    errors[free] = found.standard_errors
    return replace(found, values=whole(found.values), standard_errors=errors)


def _gain(before: Floats, after: Floats) -> float:
    """By how much one more figure lowers the deviance of a fit, outliers cut."""
    most = OUTLIER * max(robust.deviation_of(before), 1e-12)
    squares = [float((np.clip(errors, -most, most) ** 2).sum()) for errors in (before, after)]
    return len(before) * math.log(squares[0] / max(squares[1], 1e-300)) if squares[0] else 0.0


def _skewness(values: Floats) -> float:
    """Of a sample: 0 for a normal distribution, 2 for an exponential one."""
    apart = values - values.mean()
    return float((apart**3).mean() / (apart**2).mean() ** 1.5)
