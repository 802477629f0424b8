"""The links of a fit: bandwidth up and down, latency, and what transfers vary, by how long they took."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
OUTLIER = 8.0  # robust standard deviations; of what is exponential, 2 in 1000 are beyond
SKEWED = 1.0  # between a normal distribution and an exponential one


@dataclass(frozen=True)
class LinkFit:
    """A link: bandwidths as losses leave them, and latency one way, what a transfer is held up in the mean included.

    ``deviation_s`` is what single transfers vary; ``exponential`` says of which kind that is, else it is normal. A link that was
    not fitted has no ``transfers``. ``standard_errors`` are relative ones of the bandwidths up and down, and seconds.
    """

    up_bps: float
    down_bps: float
    latency_s: float
    transfers: int = 0
    latency_fitted: bool = False
    deviation_s: float = 0.0
    exponential: bool = False
    deviation: float = 0.0
    standard_errors: tuple[float, float, float] = (math.nan, math.nan, math.nan)


def links_of(base: Base, rows: pd.DataFrame, by_client: bool, notes: list[str]) -> Iterator[tuple[str, LinkFit]]:
    """The links of all clients."""
    access, count = base.fleet.roster.access, len(base.clients)
    left = 1 - np.asarray(access.loss)
    figures = [
        np.broadcast_to(each, count)
        for each in (access.up_bps * left, access.down_bps * left, access.latency_s + access.overhead_s)
    ]
    known = {
        name: LinkFit(float(up_bps), float(down_bps), float(latency_s))
        for name, up_bps, down_bps, latency_s in zip(base.clients, *figures, strict=True)
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
        found = _link(base, own, known[members[0]], (UP, DOWN), notes, "clients")
        yield from ((name, found) for name in members)
    if unmeasured:
        notes.append(
            f"links: {unmeasured} of {count} clients sent and received less than {TRANSFERS} times; theirs stay as they are"
        )


def backhaul_of(base: Base, rows: pd.DataFrame, notes: list[str]) -> LinkFit | None:
    """The link between the edges and the cloud, one for all."""
    if len(rows) < TRANSFERS:
        return None
    kind = base.loaded.scenario.topology.links.backhaul
    left = 1 - kind.loss
    return _link(
        base,
        rows,
        LinkFit(kind.up * left, kind.down * left, kind.latency + kind.overhead),
        (BACKHAUL_UP, BACKHAUL_DOWN),
        notes,
        "edges",
    )


def _link(
    base: Base, rows: pd.DataFrame, before: LinkFit, phases: tuple[str, str], notes: list[str], whose: str
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
    fixed_s = min(before.latency_s, 0.9 * float(seconds.min()))
    known_up, known_down = bool(up.any()), bool((~up).any())

    def values_of(x: Floats) -> tuple[float, float, float]:
        return math.exp(x[0]), math.exp(x[1]), float(x[2]) if told else fixed_s

    def predict(x: Floats) -> Floats:
        up_bps, down_bps, latency_s = values_of(x)
        found = np.empty(len(seconds))
        found[up] = base.transfer_s(sizes[up], up_bps, latency_s)
        found[~up] = base.transfer_s(sizes[~up], down_bps, latency_s)
        return found

    guesses = [
        np.array([math.log(before.up_bps), math.log(before.down_bps), min(before.latency_s, float(seconds.min()))])
    ]
    largest = [max((8 * s / t for s, t in zip(sizes[m], seconds[m], strict=True)), default=1e6) for m in (up, ~up)]
    guesses.append(np.array([math.log(2 * largest[0]), math.log(2 * largest[1]), 0.5 * float(seconds.min())]))
    guesses.append(np.array([math.log(largest[0]), math.log(largest[1]), 0.0]))
    low = np.array([math.log(SLOWEST_BPS), math.log(SLOWEST_BPS), 0.0])
    high = np.array([math.log(FASTEST_BPS), math.log(FASTEST_BPS), max(float(seconds.max()), 1e-9)])
    free = np.array([known_up, known_down, told])
    start = guesses[0].copy()
    while True:
        whole = _filled(start, free.copy())
        found = robust.fit(_of(predict, whole), seconds, [guess[free] for guess in guesses], low[free], high[free])
        errors_at = np.full(3, np.nan)
        errors_at[free] = found.standard_errors
        # Of a bandwidth that nobody can tell within a factor or two, the scenario knows more.
        worst = int(np.argmax(np.where(free[:2], errors_at[:2], -1.0)))
        if not errors_at[worst] > VAGUE or free.sum() == 1:
            break
        notes.append(
            f"links of {whose}: where their transfers do not tell a bandwidth, it stays as the scenario has it"
        )
        free[worst] = False
    up_bps, down_bps, latency_s = values_of(whole(found.values))
    late_s = -found.errors * predict(whole(found.values))
    # What varies every day, without what went wrong once.
    usual_s = late_s[np.abs(late_s - np.median(late_s)) <= OUTLIER * robust.deviation_of(late_s)]
    deviation_s = float(np.std(usual_s)) if len(usual_s) >= TRANSFERS else 0.0
    noisy = deviation_s > NOISE * float(np.median(seconds))
    mean_s = latency_s + float(usual_s.mean()) if noisy else latency_s
    exponential = bool(noisy and _skewness(usual_s) > SKEWED and deviation_s < mean_s)
    return LinkFit(
        up_bps if known_up else before.up_bps, down_bps if known_down else before.down_bps,
        mean_s if exponential else latency_s, len(rows), told, deviation_s if noisy else 0.0, exponential, found.deviation,
        (float(errors_at[0]), float(errors_at[1]), float(errors_at[2])),
    )  # fmt: skip


def _skewness(values: Floats) -> float:
    """Of a sample: 0 for a normal distribution, 2 for an exponential one."""
    apart = values - values.mean()
    return float((apart**3).mean() / (apart**2).mean() ** 1.5)


def _filled(start: Floats, free: npt.NDArray[np.bool_]) -> Callable[[Floats], Floats]:
    """A function that puts the parameters which are fitted among those that are not."""

    def whole(part: Floats) -> Floats:
        full = start.copy()
        full[free] = part
        return full

    return whole


def _of(predict: Callable[[Floats], Floats], whole: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
    return lambda part: predict(whole(part))
