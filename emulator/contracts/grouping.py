"""Groups of clients: distances, formation, sampling, aggregation, schedules."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np

from emulator.conformance import Facts
from emulator.contracts.values import Floats, numbers, short, whole
from emulator.registry import Choice, Chosen, Params, Registry

if TYPE_CHECKING:
    from emulator.grouping.aggregation import SampledGroups
    from emulator.grouping.view import ClientView, GroupView


class DistanceRule(Protocol):
    """How far clients are apart, from what is known of them: [n, k], of estimates a [n, d] and b [k, d]."""

    def __call__(self, a: Floats, b: Floats, params: Any, /) -> Floats: ...


class DistanceChoice(Chosen[Params, DistanceRule, Facts]):
    """A distance."""

    slot = "distance"

    def __call__(self, a: Floats, b: Floats) -> Floats:
        """The distances [n, k]; they are finite, and not negative but for rounding."""
        found = numbers(self, self.plugin.function(a, b, self.params), (len(a), len(b)))
        if not np.isfinite(found).all() or (found < -_ROUNDING).any():
            raise self.broken("it gives distances that are not finite, or negative")
        return found


ESTIMATES = "estimates"  # what a rule needs that works on whatever the chosen estimator says
COUNTS = ("label-counts", "label-mix")  # estimators that tell numbers of labels, and no more
_ROUNDING = 1e-6  # below 0, of a distance


@dataclass(frozen=True, kw_only=True)
class FormationFacts(Facts):
    """What is true of a formation rule.

    - ``smallest``: a function of the parameters that gives the least number of clients that the rule needs to do
      as asked. With fewer it forms the groups that it can, and with too few for one, a single group of all of them;
    - ``needs``: what the server must have learnt of the clients: the names of estimators, such as ``"label-counts"``, or
      ``"estimates"`` for whatever the estimator that the user chose says of them (`ClientView.estimates`). An estimator that is
      named, and tells more than label counts, gives the estimates; it has its default parameters unless the user chose it;
    - ``most``: a function of the parameters and a number of clients that gives the most groups that these can become;
      without it, as many as ``smallest`` goes into the number;
    - ``largest``: a function of the parameters and a number of clients that gives the most clients that a group of these can
      have; without it, all of them;
    - ``per_class``: True where estimates must have one number for each class;
    - ``flops``: a function ``(clients, numbers, groups, params)`` that counts the floating-point operations of forming so many
      groups, as the rule is written, where the server knows so many numbers of each client: its label counts, or its estimate.
      The aggregator is charged for them. A rule without this fact costs nothing.
    """

    smallest: Callable[[Any], int]
    needs: tuple[str, ...] = ()
    most: Callable[[Any, int], int] | None = None
    largest: Callable[[Any, int], int] | None = None
    per_class: bool = False
    flops: Callable[[int, int, int, Any], float] | None = None


class FormationRule(Protocol):
    """Groups of row numbers, from what a server knows of its clients: no client twice, none that is not there."""

    def __call__(self, clients: ClientView, rng: np.random.Generator, params: Any, /) -> Sequence[Sequence[int]]: ...


class FormationChoice(Chosen[Params, FormationRule, FormationFacts]):
    """A formation rule."""

    slot = "formation"

    def __call__(self, clients: ClientView, rng: np.random.Generator) -> Sequence[Sequence[int]]:
        """The groups, as the rule gives them: row numbers of clients, no client twice, no group empty."""
        groups = self.plugin.function(clients, rng, self.params)
        try:
            sizes = [len(members) for members in groups]
            rows = np.array(list(itertools.chain.from_iterable(groups)))
        except (TypeError, ValueError):
            raise self.broken(f"it must give lists of row numbers, and gives {short(groups)}") from None
        count = len(clients.samples)
        if not sizes and count:
            raise self.broken(f"it forms no group of {count} clients")
        if 0 in sizes:
            raise self.broken(f"group {sizes.index(0)} is empty")
        if len(rows) and (rows.ndim != 1 or rows.dtype.kind not in "iu"):
            raise self.broken(f"the members of groups must be whole numbers, and are {short(groups[0])}")
        if len(rows) and not 0 <= rows.min() <= rows.max() < count:
            wrong = rows[(rows < 0) | (rows >= count)][0]
            raise self.broken(f"there is no client {wrong} in a view of {count} clients (rows count from 0)")
        times = np.bincount(rows.astype(np.int64), minlength=1)
        if times.max() > 1:
            raise self.broken(f"client {int(times.argmax())} is in {times.max()} groups, or twice in one")
        return groups

    @property
    def smallest(self) -> int:
        """The least number of clients that the rule needs to do as asked."""
        return whole(self, "'smallest'", self.plugin.facts.smallest(self.params), 1)

    def largest(self, clients: int) -> int:
        """The most clients that a group of so many can have."""
        largest = self.plugin.facts.largest
        return clients if largest is None else whole(self, "'largest'", largest(self.params, clients), 0)

    def most(self, clients: int) -> int | None:
        """The most groups that so many clients can become; None: as many as the smallest goes into the number."""
        most = self.plugin.facts.most
        return None if most is None else whole(self, "'most'", most(self.params, clients), 0)


@dataclass(frozen=True, kw_only=True)
class SamplingFacts(Facts):
    """What is true of a sampling rule.

    ``needs`` is what the server must have learnt of the clients, as in `FormationFacts`; ``everyone``: all groups train in
    every round, whatever their weights.
    """

    needs: tuple[str, ...] = ()
    everyone: bool = False


class DrawingParams(Params):
    """The parameters of a sampling rule: at least they say how many groups to draw."""

    def count(self, total: int) -> int:
        """How many of ``total`` groups train in a round."""
        return total


class SamplingRule(Protocol):
    """The logarithms of the groups' weights [G]; minus infinity: never before others."""

    def __call__(self, groups: GroupView, params: Any, /) -> Floats: ...


class SamplingChoice(Chosen[DrawingParams, SamplingRule, SamplingFacts]):
    """A sampling rule."""

    slot = "sampling"

    def __call__(self, groups: GroupView) -> Floats:
        """The logarithms of the weights, one for each group; any may be infinite."""
        found = numbers(self, self.plugin.function(groups, self.params), (len(groups.samples),))
        if np.isnan(found).any():
            raise self.broken(f"the log-weight of group {int(np.isnan(found).argmax())} is not a number (nan)")
        return found

    def count(self, total: int) -> int:
        """How many of ``total`` groups train in a round."""
        if self.plugin.facts.everyone:
            return total
        return min(whole(self, "the number of groups to draw", self.params.count(total), 0), total)

    @property
    def asked(self) -> int | None:
        """How many groups the user wants in every round: a parameter ``groups``, where the rule has one that is given."""
        count: int | None = getattr(self.params, "groups", None)
        return count


class AggregationRule(Protocol):
    """How much the model of each group that came back counts [S]."""

    def __call__(self, groups: SampledGroups, params: Any, /) -> Floats: ...


class AggregationChoice(Chosen[Params, AggregationRule, Facts]):
    """An aggregation rule."""

    slot = "aggregation"

    def __call__(self, groups: SampledGroups) -> Floats:
        """The weights, one for each group that came back, all finite."""
        found = numbers(self, self.plugin.function(groups, self.params), (len(groups.samples),))
        if not np.isfinite(found).all():
            raise self.broken(f"weight {int((~np.isfinite(found)).argmax())} is not finite: {short(found.tolist())}")
        return found


@dataclass(frozen=True, kw_only=True)
class ScheduleFacts(Facts):
    """What is true of a schedule.

    ``count``: a function ``(round_index, clients, params)`` that says how many groups there are to be; such a schedule goes
    with formations that take a number of ``groups``.
    """

    count: Callable[[int, int, Any], int] | None = None


class ScheduleRule(Protocol):
    """Whether groups are formed anew before a round; rounds count from 0."""

    def __call__(self, round_index: int, clients: int, params: Any, /) -> bool: ...


class ScheduleChoice(Chosen[Params, ScheduleRule, ScheduleFacts]):
    """A schedule."""

    slot = "schedule"

    def __call__(self, round_index: int, clients: int) -> bool:
        """Whether groups are formed anew before this round, which counts from 0."""
        found = self.plugin.function(round_index, clients, self.params)
        if not isinstance(found, bool | np.bool_):
            raise self.broken(f"it must give True or False, and gives {short(found)}")
        return bool(found)

    def groups(self, round_index: int, clients: int) -> int | None:
        """How many groups there are to be in a round; None where the schedule leaves that to the formation."""
        count = self.plugin.facts.count
        if count is None:
            return None
        return whole(self, "'count'", count(round_index, clients, self.params), 1, clients)


distances: Registry[DistanceRule, Facts] = Registry(DistanceChoice, "emulator.grouping.distances")
formations: Registry[FormationRule, FormationFacts] = Registry(FormationChoice, "emulator.grouping.formation")
samplings: Registry[SamplingRule, SamplingFacts] = Registry(SamplingChoice, "emulator.grouping.sampling")
aggregations: Registry[AggregationRule, Facts] = Registry(AggregationChoice, "emulator.grouping.aggregation")
schedules: Registry[ScheduleRule, ScheduleFacts] = Registry(ScheduleChoice, "emulator.grouping.schedule")

Distance = Annotated[DistanceChoice, Choice("distance")]
Formation = Annotated[FormationChoice, Choice("formation")]
Sampling = Annotated[SamplingChoice, Choice("sampling")]
Aggregation = Annotated[AggregationChoice, Choice("aggregation")]
Schedule = Annotated[ScheduleChoice, Choice("schedule")]
