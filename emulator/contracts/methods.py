"""Methods and what they are made of: estimators, in-group training, waiting, splitting of clusters; attacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import numpy as np
from pydantic import Field

from emulator.conformance import Facts
from emulator.contracts.values import numbers, process, short
from emulator.errors import HflError
from emulator.registry import Choice, Chosen, Params, Registry
from emulator.tables import Table

if TYPE_CHECKING:
    from emulator.learning.recipes import Handle
    from emulator.methods.attacks import Attack as AnyAttack
    from emulator.methods.estimators import Enquiry
    from emulator.methods.session import Session
    from emulator.methods.splitting import Watch
    from emulator.methods.training import Group, GroupRound, Waits
    from emulator.world.world import Steps


Privately = Literal["client", "server", "distributed"]  # who adds the noise of differential privacy


@dataclass(frozen=True, kw_only=True)
class EstimatorFacts(Facts):
    """What is true of an estimator. ``per_class``: it says one number for each class."""

    per_class: bool = False


class EstimatorRule(Protocol):
    """A process that lets servers learn of clients' data; it returns an estimate for each client [clients, d]."""

    def __call__(self, session: Session, enquiry: Enquiry, params: Any, /) -> Steps: ...


class EstimatorChoice(Chosen[Params, EstimatorRule, EstimatorFacts]):
    """An estimator."""

    slot = "estimator"

    def __call__(self, session: Session, enquiry: Enquiry) -> Steps:
        """Returns the estimates [clients, d]. Raises `HflError` where one is not finite, as after training that diverged."""
        given = yield from process(self, self.plugin.function(session, enquiry, self.params))
        found = numbers(self, given, (len(enquiry.servers), None))
        if not np.isfinite(found).all():
            client = int((~np.isfinite(found)).any(axis=1).argmax())
            raise HflError(f"estimator '{self.kind}': the estimate of client {client} is not finite (nan or infinite)")
        return found


@dataclass(frozen=True, kw_only=True)
class TrainingFacts(Facts):
    """What is true of a way to train inside a group.

    ``chain``: members work one after another. ``apart``: no member ever waits for another.
    ``headers``: one member trains for all (see `emulator.methods.headers`).
    ``privacy``: with whose noise it goes. ``client``: all that members send comes of `Session.train`. ``server``,
    ``distributed``: nobody but the server sees what single members send, and their average is `Privacy.average`.
    ``combines``: it puts the members' models together as ``GroupRound.combination`` says; without it, the method's `combination`
    may only be the mean. ``tables``: those that it writes into the run folder.
    """

    chain: bool = False
    apart: bool = False
    headers: bool = False
    privacy: tuple[Privately, ...] = ()
    combines: bool = False
    tables: tuple[Table, ...] = ()

    @property
    def together(self) -> bool:
        """Whether members do things at the same time, and wait for one another."""
        return not (self.chain or self.apart)


class TrainingRule(Protocol):
    """A process from a model to a `GroupResult`; None where the group had to give up."""

    def __call__(
        self, session: Session, group: Group, model: Handle, at: GroupRound, waits: Waits, params: Any, /
    ) -> Steps: ...


@dataclass(frozen=True)
class GroupResult:
    """What a group round gave: the group's model, the members whose work is in it, and on how many samples they trained."""

    model: Handle
    members: tuple[int, ...]
    samples: int


class TrainingChoice(Chosen[Params, TrainingRule, TrainingFacts]):
    """A way to train inside a group."""

    slot = "in-group training"

    def __call__(self, session: Session, group: Group, model: Handle, at: GroupRound, waits: Waits) -> Steps:
        """Returns a `GroupResult` of members of the group; None where the group gave up."""
        result = yield from process(self, self.plugin.function(session, group, model, at, waits, self.params))
        if result is None:
            return None
        if not isinstance(result, GroupResult):
            raise self.broken(f"it must return a GroupResult, or None; it returns {short(result)}")
        if result.members != group.members and (strangers := set(result.members) - set(group.members)):
            raise self.broken(f"its GroupResult has client {min(strangers)}, who is no member of the group")
        return result


@dataclass(frozen=True)
class Patience:
    """Waits for the first ``wanted``, but no longer than ``seconds``."""

    wanted: int
    seconds: float = math.inf


class WaitingRule(Protocol):
    """How long to wait for ``asked`` clients, of whom ``wanted`` were wanted before over-selection."""

    def __call__(self, asked: int, wanted: int, params: Any, /) -> Patience: ...


class WaitingChoice(Chosen[Params, WaitingRule, Facts]):
    """A way to wait."""

    slot = "waiting"

    def __call__(self, asked: int, wanted: int) -> Patience:
        """For how many of those asked to wait, at least one, and how long."""
        patience = self.plugin.function(asked, wanted, self.params)
        if not isinstance(patience, Patience):
            raise self.broken(f"it must give a Patience, and gives {short(patience)}")
        if patience.wanted < min(1, asked) or not patience.seconds > 0:
            raise self.broken(f"it must wait for at least one, and longer than 0 seconds; it gives {short(patience)}")
        return patience

    @property
    def count(self) -> int | None:
        """How many are enough: a parameter ``count``, where the plug-in has one that is given."""
        count: int | None = getattr(self.params, "count", None)
        return count

    @property
    def after_s(self) -> float | None:
        """When the wait ends: a parameter ``after``, where the plug-in has one that is given."""
        after_s: float | None = getattr(self.params, "after", None)
        return after_s


@dataclass(frozen=True)
class Reading:
    """Whether it is time to split a cluster; by which layer (None: all parameters), and how unstable each member is in it.

    ``agreed``: the members agree so well that they are better left together; ``judge`` says so of halves that were found, and
    how much arithmetic it took to know. ``stability`` [members of this round, layers] and the weights that were ``kept`` for it
    [layers] are for the run folder; None where they are not known. ``flops`` is what the server computed. ``others`` are readings
    of further layers that are stable enough, in the order in which they are tried where this one gives no halves.
    """

    ripe: bool
    agreed: bool = False
    layer: int | None = None
    unstable: dict[int, float] = field(default_factory=dict)
    stability: np.ndarray | None = None
    kept: np.ndarray | None = None
    flops: float = 0.0
    others: tuple[Reading, ...] = ()
    judge: Callable[[Halves], tuple[bool, float]] | None = None


class SplitTimeRule(Protocol):
    """Whether it is time to split a cluster."""

    def __call__(self, watch: Watch, params: Any, /) -> Reading: ...


class SplitTimeChoice(Chosen[Params, SplitTimeRule, Facts]):
    """A time to split a cluster."""

    slot = "split time"

    def __call__(self, watch: Watch) -> Reading:
        """Whether it is time, and what the server computed to know."""
        reading = self.plugin.function(watch, self.params)
        if not isinstance(reading, Reading) or not 0 <= reading.flops < math.inf:
            raise self.broken(f"it must give a Reading with finite flops, and gives {short(reading)}")
        return reading


@dataclass(frozen=True)
class Halves:
    """A cluster in two: those like the reference (or the first half), and the others. ``cosines`` counts the evaluations."""

    like: Sequence[int]
    unlike: Sequence[int]
    reference: int | None
    cosines: int
    flops: float


class BipartitionRule(Protocol):
    """The halves of a cluster; ``insist``: also where all members are alike."""

    def __call__(
        self, watch: Watch, reading: Reading, insist: bool, rng: np.random.Generator, params: Any, /
    ) -> Halves: ...


class BipartitionChoice(Chosen[Params, BipartitionRule, Facts]):
    """A way to split a cluster."""

    slot = "bipartition"

    def __call__(self, watch: Watch, reading: Reading, insist: bool, rng: np.random.Generator) -> Halves:
        """The halves: every member of whom an update is known, once."""
        halves = self.plugin.function(watch, reading, insist, rng, self.params)
        if not isinstance(halves, Halves) or not 0 <= halves.flops < math.inf:
            raise self.broken(f"it must give Halves with finite flops, and gives {short(halves)}")
        if sorted([*halves.like, *halves.unlike]) != sorted(watch.known):
            raise self.broken("its halves must have every member of whom an update is known, once")
        return halves


class MethodParams(Params):
    """What every method has: the name of the preset that it came from, if any, for legends."""

    preset: str = Field("", description="the published method that this one starts from")


@dataclass(frozen=True, kw_only=True)
class MethodFacts(Facts):
    """What is true of a method. ``clusters``: it makes clusters of clients, each with a model of its own.

    ``tables``: those that it writes into the run folder. ``columns``: those that it adds to ``metrics.csv``. ``central``: the
    cloud trains, not the clients. ``privacy``: with whose noise it goes, as in `TrainingFacts`.
    """

    clusters: bool = False
    central: bool = False
    tables: tuple[Table, ...] = ()
    columns: tuple[str, ...] = ()
    privacy: tuple[Privately, ...] = ()


class MethodRule(Protocol):
    """A process that plays a run."""

    def __call__(self, session: Session, params: Any, /) -> Steps: ...


class MethodChoice(Chosen[MethodParams, MethodRule, MethodFacts]):
    """A method."""

    slot = "method"

    def __call__(self, session: Session) -> Steps:
        """The process."""
        return process(self, self.plugin.function(session, self.params))


@dataclass(frozen=True, kw_only=True)
class AttackFacts(Facts):
    """What is true of an attack. ``groups``: it is told of groups, so it goes with methods that form some.

    ``models``: attackers send other models than they trained, so it goes with methods in which clients train. ``tables``: those
    that it writes into the run folder.
    """

    groups: bool = False
    models: bool = False
    tables: tuple[Table, ...] = ()


class AttackMaker(Protocol):
    """Makes an attack for a run; a class that derives from `emulator.methods.attacks.Attack` will do."""

    def __call__(self, session: Session, params: Any, /) -> AnyAttack: ...


class AttackChoice(Chosen[Params, AttackMaker, AttackFacts]):
    """An attack."""

    slot = "attack"

    def __call__(self, session: Session) -> AnyAttack:
        """The attack of a run."""
        attack = self.plugin.function(session, self.params)
        if not all(
            callable(getattr(attack, name, None)) for name in ("formed", "trained", "handed_on", "evaluated", "facts")
        ):
            raise self.broken(f"it must give an Attack, and gives {short(attack)}")
        return attack


estimators: Registry[EstimatorRule, EstimatorFacts] = Registry(EstimatorChoice, "emulator.methods.estimators")
trainings: Registry[TrainingRule, TrainingFacts] = Registry(
    TrainingChoice, "emulator.methods.training", listed="trainings"
)
waitings: Registry[WaitingRule, Facts] = Registry(WaitingChoice, "emulator.methods.waiting", listed="waiting")
split_times: Registry[SplitTimeRule, Facts] = Registry(SplitTimeChoice, "emulator.methods.splitting")
bipartitions: Registry[BipartitionRule, Facts] = Registry(BipartitionChoice, "emulator.methods.splitting")
methods: Registry[MethodRule, MethodFacts] = Registry(MethodChoice, "emulator.methods")
attacks: Registry[AttackMaker, AttackFacts] = Registry(AttackChoice, "emulator.methods.attacks")

Estimator = Annotated[EstimatorChoice, Choice("estimator")]
Training = Annotated[TrainingChoice, Choice("in-group training")]
Waiting = Annotated[WaitingChoice, Choice("waiting")]
SplitTime = Annotated[SplitTimeChoice, Choice("split time")]
Bipartition = Annotated[BipartitionChoice, Choice("bipartition")]
Method = Annotated[MethodChoice, Choice("method")]
Attack = Annotated[AttackChoice, Choice("attack")]
