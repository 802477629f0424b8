"""When a cluster of clients is split, and how: by the updates that its members send (HiCFL, S3 §IV; Sattler et al. 2021).

A *split time* is a function ``(watch, params) -> Reading``, a *bipartition* ``(watch, reading, insist, rng, params) -> Halves``.
Both read the updates of a cluster's members through a `Watch`, and say how much arithmetic the server does for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from emulator.contracts.learning import MeasurementChoice
from emulator.contracts.methods import Halves, Reading, bipartitions, split_times
from emulator.learning.interface import AnyLab
from emulator.learning.measurements import TrendsParams
from emulator.learning.recipes import Handle
from emulator.registry import NoParams, Params
from emulator.scenario.words import Count

_ROUNDING = 1e-9  # of cosines


@dataclass
class Record:
    """What the server keeps of a member: its latest three updates, two that select weights, and how stable it was of late."""

    latest: deque[Handle] = field(default_factory=lambda: deque(maxlen=3))
    selecting: list[Handle] = field(default_factory=list)  # two updates that select weights
    stabilities: list[np.ndarray] = field(default_factory=list)  # [layers] of the latest rounds, from its third on

    def add(self, update: Handle) -> None:
        """Takes an update."""
        self.latest.append(update)
        if len(self.selecting) < 2:
            self.selecting.append(update)

    def kept(self) -> Record:
        """The record as a new cluster takes it over: weights are selected anew, by the latest two updates."""
        return Record(self.latest.copy(), list(self.latest)[-2:], list(self.stabilities))


@dataclass(frozen=True)
class Sides:
    """How two sides of a cluster stand to each other.

    ``within`` is the mean product of the updates of two members of one side, None where each side has but one; ``across`` that
    of members of different sides. ``flops`` is the arithmetic for it.

    A member's update is what its cluster has in common, μ, and noise of its own, which averages out in products of two members,
    but not in the square of one. So ``within`` is ‖μ‖² and ``across`` is μ·μ', both without noise. Their quotient is 1 where both
    sides are one cluster, 0 where they are orthogonal, and below that where they are opposed.
    """

    within: float | None
    across: float
    flops: float

    @property
    def agree(self) -> bool:
        """Whether the sides are better left together: they are nearer to one cluster than to two orthogonal ones.

        Nor are there two clusters where members of a side have nothing in common, or where nobody knows.
        """
        return self.within is None or self.within <= 0 or self.across > self.within / 2


@dataclass
class Watch:
    """What a server sees of a cluster: a record for each member, since the cluster came to be or since before that.

    ``back`` are the members whose updates came back in the latest round, ``step_size`` is the learning rate of that round (η).
    ``largest`` is the greatest length of the mean update so far, of the clusters out of which this one came too.
    """

    lab: AnyLab
    records: dict[int, Record]
    back: tuple[int, ...] = ()
    step_size: float = 0.0
    largest: float = 0.0
    lengths: tuple[float, float] = (0.0, 0.0)  # of the mean update, and of the longest one, in the latest round

    def take(self, updates: dict[int, Handle], step_size: float) -> None:
        """Takes the updates of a round, and measures them: one length for each, and that of their mean."""
        for client, update in updates.items():
            self.records[client].add(update)
        self.back, self.step_size = tuple(updates), step_size
        samples = self.lab.clients.samples
        total = int(samples[list(updates)].sum())
        mean = self.lab.combine(list(updates.values()), [int(samples[c]) / total for c in updates])
        found = self.lab.measure_all("length", [([u], None) for u in (mean, *updates.values())])
        self.lengths = float(found[0][0]), max(float(f[0]) for f in found[1:])
        self.largest = max(self.largest, self.lengths[0])

    @property
    def agreement(self) -> float:
        """The length of the mean update over that of the longest: 1 where all members pull the same way."""
        return self.lengths[0] / self.lengths[1] if self.lengths[1] else 1.0

    @property
    def known(self) -> list[int]:
        """The members of whom an update is known. Those who were away in the latest round count with their last one."""
        return [c for c, record in self.records.items() if record.latest]

    def cosines(self, first: int, others: Sequence[int], layer: int | None) -> np.ndarray:
        """The cosines of a member's latest update with those of others, in a layer or (None) of all parameters."""
        if not others:
            return np.zeros(0)
        handles = [self.records[c].latest[-1] for c in (first, *others)]
        return np.asarray(self.lab.measure("cosines", handles)[:, 0 if layer is None else 1 + layer])

    def sides(self, halves: Halves) -> Sides:
        """What members of two sides have in common, by inner products of their latest updates. Linear in the members."""
        samples, sides = self.lab.clients.samples, [list(side) for side in (halves.like, halves.unlike)]
        shares = [samples[side] / samples[side].sum() for side in sides]
        updates = [[self.records[c].latest[-1] for c in side] for side in sides]
        means = [self.lab.combine(u, share.tolist()) for u, share in zip(updates, shares, strict=True)]
        subjects = [[means[0], means[1], *updates[0]], [means[1], *updates[1]]]
        lengths = [
            self.lab.measure_all("length", [([u], None) for u in (m, *own)])
            for m, own in zip(means, updates, strict=True)
        ]
        found = self.lab.measure_all("cosines", [(handles, None) for handles in subjects])
        across = float(found[0][0, 0] * lengths[0][0][0] * lengths[1][0][0])
        with_mates, pairs = 0.0, 0.0
        for cosines, own, share, side in zip((found[0][1:], found[1]), lengths, shares, sides, strict=True):
            each = np.array([float(length[0]) for length in own[1:]])
            # A member's product with its side's mean, without its own part of that mean
            mates = each * (cosines[:, 0] * float(own[0][0]) - share * each)
            weight = float(samples[side].sum()) ** 2
            with_mates += weight * float(share @ mates)
            pairs += weight * float(1 - share @ share)
        count = len(halves.like) + len(halves.unlike)
        flops = self.cosine_flops(None) * (count + 1) + 2.0 * count * self.lab.model_facts.parameters
        return Sides(with_mates / pairs if pairs > 0 else None, across, flops)

    def cosine_flops(self, layer: int | None) -> float:
        """The arithmetic of one cosine: a product and two lengths."""
        facts = self.lab.model_facts
        return 6.0 * (facts.parameters if layer is None else facts.layers[layer][1])


def _agreement(given: Any) -> Any:
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if given == "derived" or (number and 0 < given <= 1):
        return given
    raise PydanticCustomError("agreement", "expected 'derived', or a share above 0 and up to 1")


class StabilityParams(Params):
    """What counts as stable, in units of the learning rate."""

    window: Count = Field(3, description="rounds over which stability is averaged (W)")
    epsilon: Annotated[float, Field(ge=0)] = Field(
        0.5, description="a layer is stable below this, as a multiple of the learning rate (ε/η)"
    )
    selection: Annotated[float, Field(ge=0)] | None = Field(
        0.05,
        description="only weights count by whose first two updates differ by more, as a multiple of the learning rate (ξ/η)",
    )
    members: Literal["every", "mean"] = Field(
        "every", description="whether every member must be stable (S3 Eq. 15), or their mean (what S3 Fig. 4 shows)"
    )
    agreement: Annotated[Literal["derived"] | Annotated[float, Field(gt=0, le=1)], BeforeValidator(_agreement)] = Field(
        "derived",
        description="when members agree, and are not split: unless the halves, apart from noise, are nearer to orthogonal than "
        "to one; or from this length of their mean update on, as a share of the longest one",
    )


@split_times.register("stability", StabilityParams)
def stability(watch: Watch, params: StabilityParams) -> Reading:
    """Stability: splits as soon as some layer's updates have settled for every member (S3 Eqs. 12-15), unless all agree.

    A member's stability in a round is ``|(T_t + T_{t-1})/2 - T_{t-2~t}|``, of cosines of its last three updates. Its mean over
    the window must be below ε for every member that came back in this round (or for these on average). Of several such layers
    the most stable one that parts the members counts.
    """
    threshold = 0.0 if params.selection is None else params.selection * watch.step_size
    ready = [c for c in watch.back if len(watch.records[c].latest) == 3]
    measurement = MeasurementChoice("trends", TrendsParams(changed_by=threshold))
    subjects = [
        ([*watch.records[c].latest, *(() if params.selection is None else watch.records[c].selecting)], None)
        for c in ready
    ]
    found = watch.lab.measure_all(measurement, subjects)
    for client, rows in zip(ready, found, strict=True):
        windows = watch.records[client].stabilities
        windows.append(np.abs((rows[:, 0] + rows[:, 1]) / 2 - rows[:, 2]))
        del windows[: -params.window]
    if not ready:
        return Reading(False)
    kept = np.stack([rows[:, 3] for rows in found])
    flops = float(2 * 3 * kept.sum() + 2 * (len(watch.back) + 1) * watch.lab.model_facts.parameters)
    means = np.stack([np.mean(watch.records[c].stabilities, axis=0) for c in ready])
    full = len(ready) == len(watch.back) and all(len(watch.records[c].stabilities) == params.window for c in ready)
    judged = means.max(axis=0) if params.members == "every" else means.mean(axis=0)
    stable = full & (judged < params.epsilon * watch.step_size)
    ripe = bool(stable.any())
    order = [int(layer) for layer in np.argsort(means.mean(axis=0), kind="stable") if stable[layer] or not ripe]
    derived = params.agreement == "derived"
    agreed = not derived and watch.agreement >= float(params.agreement)
    judge = partial(_judged, watch) if derived else None
    by_layer = [{c: float(row[layer]) for c, row in zip(ready, means, strict=True)} for layer in order]
    first, *others = [
        Reading(ripe, agreed, layer, unstable, means, kept.mean(axis=0), flops, judge=judge)
        for layer, unstable in zip(order, by_layer, strict=True)
    ]
    return replace(first, others=tuple(others if ripe else ()))


def _judged(watch: Watch, halves: Halves) -> tuple[bool, float]:
    sides = watch.sides(halves)
    return sides.agree, sides.flops


class ConvergenceParams(Params):
    """Which updates count as small, and which as large."""

    mean_below: Annotated[float, Field(gt=0)] = Field(
        0.1, description="the mean update is small below this share of the longest one that the cluster had so far (ε1)"
    )
    max_above: Annotated[float, Field(gt=0)] = Field(
        1.0, description="a member's update is large above this multiple of what is small (ε2/ε1)"
    )


@split_times.register("convergence", ConvergenceParams)
def convergence(watch: Watch, params: ConvergenceParams) -> Reading:
    """Convergence: splits when the cluster's model stands still while some member's still moves (Sattler et al. 2021).

    That is ‖mean Δ‖ < ε1 and max ‖Δ_i‖ > ε2. Both are relative here, since lengths depend on the model and the learning rate: by
    default ε1 is a tenth of the greatest ‖mean Δ‖ so far, as its authors advise.
    """
    small = params.mean_below * watch.largest
    ripe = watch.lengths[0] < small and watch.lengths[1] > params.max_above * small
    return Reading(ripe, flops=2.0 * (len(watch.back) + 1) * watch.lab.model_facts.parameters)


class ReferenceParams(Params):
    """Who is the reference."""

    choice: Literal["least", "random"] = Field(
        "least", description="the member that is the most stable, or any (S3 Fig. 10)"
    )


@bipartitions.register("reference", ReferenceParams)
def reference(
    watch: Watch, reading: Reading, insist: bool, rng: np.random.Generator, params: ReferenceParams
) -> Halves:
    """Reference: members whose update points the way of one member's, and the others (S3 Eqs. 17 and 18). Linear in the members.

    Where all point the same way there is nothing to split; who insists gets those above the mean cosine, and the others.
    """
    members = watch.known
    least = min(watch.back, key=lambda c: (reading.unstable.get(c, 0.0), c))
    chosen = int(rng.choice(watch.back)) if params.choice == "random" else least
    others = [c for c in members if c != chosen]
    cosines = watch.cosines(chosen, others, reading.layer)
    like = cosines > 0
    if insist and like.all():
        like = cosines >= (cosines.sum() + 1) / len(members) - _ROUNDING
    halves = [chosen, *_where(others, like)], _where(others, ~like)
    return Halves(*halves, chosen, len(others), watch.cosine_flops(reading.layer) * len(others))


@bipartitions.register("matrix")
def matrix(watch: Watch, reading: Reading, insist: bool, rng: np.random.Generator, params: NoParams) -> Halves:
    """Matrix: the halves whose most similar members, one of each, are the least similar (Sattler et al. 2021). Quadratic.

    It compares whole updates, whichever layer has settled. The halves are those of single linkage, which minimises this exactly.
    """
    from sklearn.cluster import AgglomerativeClustering

    members = watch.known
    distances = np.zeros((len(members), len(members)))
    for i, member in enumerate(members[:-1]):
        distances[i, i + 1 :] = distances[i + 1 :, i] = 1 - watch.cosines(member, members[i + 1 :], None)
    half = AgglomerativeClustering(2, metric="precomputed", linkage="single").fit(distances).labels_ == 1
    count = len(members) * (len(members) - 1) // 2
    flops = watch.cosine_flops(None) * count
    if distances.max() < _ROUNDING:  # all alike
        return Halves(members, [], None, count, flops)
    return Halves(_where(members, ~half), _where(members, half), None, count, flops)


def _where(members: Sequence[int], chosen: np.ndarray) -> list[int]:
    return [c for c, is_one in zip(members, chosen.tolist(), strict=True) if is_one]
