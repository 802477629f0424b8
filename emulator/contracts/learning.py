"""What clients learn and from what: data sets, partitions, models, local update rules, measurements."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, cast

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from emulator.conformance import Facts
from emulator.contracts.values import short
from emulator.registry import Choice, Chosen, Params, Registry, choices

if TYPE_CHECKING:
    from torch import Tensor, nn

    from emulator.learning.data.arrays import ArraySet, Outline
    from emulator.learning.measured_models import MeasuredModels

Parts = Sequence[np.ndarray]


@dataclass(frozen=True, kw_only=True)
class DataSetFacts(Facts):
    """What is true of a data set.

    - ``fingerprint``: a function of the parameters that names the content exactly and cheaply (it goes into the keys under which
      results are remembered) and raises `emulator.errors.InputError` where the data is not there;
    - ``classes``, ``train_samples`` and ``shape`` where they are known without reading anything;
    - ``owners`` where its samples belong to somebody: True, or in words when they do;
    - ``check``: a function of the parameters with which a set that the user keeps somewhere says what is wrong with it as far as
      that can be told quickly, without reading samples: it raises `emulator.errors.InputError`;
    - ``outline``: a function of the parameters that gives the `Outline` without reading samples;
    - ``prepared``: a number from 1, where reading the set takes long, or it may be larger than memory: its samples are then kept
      on the machine, under the fingerprint and this number, which is to be raised with every change to how they are read.
    """

    fingerprint: Callable[[Any], str]
    classes: int | None = None
    train_samples: int | None = None
    shape: tuple[int, ...] | None = None
    owners: bool | str = False
    check: Callable[[Any], object] | None = None
    outline: Callable[[Any], Outline] | None = None
    prepared: int | None = None


class DataSetReader(Protocol):
    """Reads a data set."""

    def __call__(self, params: Any, /) -> ArraySet: ...


class DataSetChoice(Chosen[Params, DataSetReader, DataSetFacts]):
    """A data set. What is known before it is read are its facts, or else parameters or properties of them of the same name."""

    slot = "data set"

    def __call__(self) -> ArraySet:
        """The samples; whoever reads a set checks them (`emulator.learning.data.read`)."""
        return self.plugin.function(self.params)

    @property
    def classes(self) -> int | None:
        """The number of labels; None where it is not known yet."""
        return cast("int | None", self._known("classes"))

    @property
    def train_samples(self) -> int | None:
        """The number of samples to train; None where it is not known yet."""
        return cast("int | None", self._known("train_samples"))

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a sample; None where it is not known yet."""
        return cast("tuple[int, ...] | None", self._known("shape"))

    @property
    def prepared(self) -> int:
        """The version of its samples as they are kept on the machine; 0 where they are not kept."""
        return cast("int | None", self._known("prepared")) or 0

    def _known(self, name: str) -> object:
        declared = getattr(self.plugin.facts, name)
        return getattr(self.params, name, None) if declared is None else declared


@dataclass(frozen=True, kw_only=True)
class PartitionFacts(Facts):
    """What is true of a partition.

    ``clusters``: its clients belong to clusters, and it gives `ClusteredParts`. ``owners``: it takes a further argument
    ``owners``, the number of every sample's owner (or None where the data set does not say).
    """

    clusters: bool = False
    owners: bool = False


class PartitionRule(Protocol):
    """Divides samples between clients: for each the indices of its samples in ``labels``."""

    def __call__(
        self, labels: np.ndarray, clients: int, classes: int, rng: np.random.Generator, params: Any, /
    ) -> Parts: ...


class _OwnersRule(Protocol):
    """A partition that asks whose the samples are."""

    def __call__(
        self,
        labels: np.ndarray,
        clients: int,
        classes: int,
        rng: np.random.Generator,
        params: Any,
        /,
        *,
        owners: np.ndarray | None,
    ) -> Parts: ...


class PartitionChoice(Chosen[Params, PartitionRule, PartitionFacts]):
    """A partition."""

    slot = "partition"

    @classmethod
    def check(cls, function: Callable[..., Any], facts: PartitionFacts) -> None:
        """One that asks whose the samples are takes ``owners``."""
        takes = inspect.signature(function).parameters.values()
        if facts.owners and not any(p.name == "owners" or p.kind is p.VAR_KEYWORD for p in takes):
            raise TypeError("with PartitionFacts(owners=True), it takes a further argument 'owners'")

    def __call__(
        self,
        labels: np.ndarray,
        clients: int,
        classes: int,
        rng: np.random.Generator,
        owners: np.ndarray | None = None,
    ) -> Parts:
        """The indices of the samples of every client, as the partition gives them; ``owners`` go to those that ask for them."""
        facts, function = self.plugin.facts, self.plugin.function
        if facts.owners:
            parts = cast(_OwnersRule, function)(labels, clients, classes, rng, self.params, owners=owners)
        else:
            parts = function(labels, clients, classes, rng, self.params)
        if not isinstance(parts, Sequence) or len(parts) != clients:
            raise self.broken(f"it must give a list of {clients} arrays, one for each client, and gives {short(parts)}")
        if hasattr(parts, "clusters") != facts.clusters:
            raise self.broken(
                "it must be registered with PartitionFacts(clusters=True) if it makes clusters, and only then"
            )
        for client, part in enumerate(parts):
            if not isinstance(part, np.ndarray) or part.ndim != 1 or part.dtype.kind not in "iu":
                raise self.broken(f"client {client} must have an array of whole numbers, and has {short(part)}")
        held = np.concatenate(parts)  # one look at all: there may be a million parts
        if len(held) and not 0 <= held.min() <= held.max() < len(labels):
            wrong = held[(held < 0) | (held >= len(labels))][0]
            raise self.broken(f"there is no sample {wrong} among {len(labels)} (they count from 0)")
        return parts


class ModelBuilder(Protocol):
    """Makes an untrained model for samples of a shape."""

    def __call__(self, shape: tuple[int, ...], classes: int, params: Any, /) -> nn.Module: ...


class ModelChoice(Chosen[Params, ModelBuilder, Facts]):
    """A model."""

    slot = "model"

    def __call__(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """The untrained model; whoever trains it checks it (`emulator.learning.engine.untrained`)."""
        return self.plugin.function(shape, classes, self.params)


# The direction of a step, from (gradient, weights, anchor, shared, own). The anchor is the model the client received.
Direction = Callable[["Tensor", "Tensor", "Tensor", "Tensor", "Tensor"], "Tensor"]
# The client's new state, from (weights at the end, anchor, shared, own, sum of the step sizes).
Remember = Callable[["Tensor", "Tensor", "Tensor", "Tensor", float], "Tensor"]


# The movement of a step, from (direction, state, *numbers of the step); it changes the state in place.
Move = Callable[..., "Tensor"]


@dataclass(frozen=True)
class Optimiser:
    """How the direction of a step becomes a movement: ``weights -= η · move(direction, state, *numbers(step))``.

    ``state`` are so many ``vectors`` of the model's size, zero at the beginning of every local training. ``numbers`` of a step,
    which counts from 1 in every training, are what does not depend on vectors; they reach ``move`` as tensors that
    broadcast, because clients side by side are at different steps. ``move`` works element by element and gives 0 where all
    directions were 0. Without it, the direction is the movement.
    ``decoupled``: weight decay acts on the weights (``weights -= η · decay · weights``) and not on the gradient.
    """

    move: Move | None = None
    numbers: Callable[[int], Sequence[float]] = lambda step: ()
    vectors: int = 0
    step_flops: int = 0  # floating-point operations of a step for each parameter
    decoupled: bool = False


class OptimiserMaker(Protocol):
    """Makes an optimiser from its parameters."""

    def __call__(self, params: Any, /) -> Optimiser: ...


class OptimiserChoice(Chosen[Params, OptimiserMaker, Facts]):
    """An optimiser of local training."""

    slot = "optimiser"

    def __call__(self) -> Optimiser:
        """The optimiser."""
        optimiser = self.plugin.function(self.params)
        if not isinstance(optimiser, Optimiser):
            raise self.broken(f"it must give an Optimiser, and gives {short(optimiser)}")
        return optimiser


class RateScheduleRule(Protocol):
    """By what the step size is multiplied in a global round; rounds count from 1."""

    def __call__(self, round: int, params: Any, /) -> float: ...  # noqa: A002


class RateScheduleChoice(Chosen[Params, RateScheduleRule, Facts]):
    """A learning-rate schedule."""

    slot = "learning-rate schedule"

    def __call__(self, round: int) -> float:  # noqa: A002
        """By what the step size is multiplied in this round, which counts from 1."""
        factor = self.plugin.function(round, self.params)
        if isinstance(factor, bool) or not isinstance(factor, float | int) or not 0 < factor < math.inf:
            raise self.broken(f"it must give a number above 0, and gives {short(factor)} in round {round}")
        return float(factor)


optimisers: Registry[OptimiserMaker, Facts] = Registry(OptimiserChoice, "emulator.learning.optimisers")
rate_schedules: Registry[RateScheduleRule, Facts] = Registry(RateScheduleChoice, "emulator.learning.rates")
LocalOptimiser = Annotated[OptimiserChoice, Choice("optimiser")]
RateSchedule = Annotated[RateScheduleChoice, Choice("learning-rate schedule")]


@dataclass(frozen=True)
class Rule:
    """A local update rule. With ``remember`` the rule has state, and the server keeps the mean change of the clients' states:

    ``shared += (1/N) Σ (own after - own before)`` over the clients of a round, N counting all clients; then
    ``model = average + server_gain · shared``.
    """

    direction: Direction
    remember: Remember | None = None
    server_gain: float = 0.0
    vectors: int = 1  # vectors of the model's size that travel each way
    step_flops: int = (
        0  # floating-point operations of a step for each parameter, beside the gradient and the step itself
    )
    # Trains the last layer alone: all before it keeps its values and works as in a test (no dropout, settled statistics).
    classifier_only: bool = False
    optimiser: Optimiser = (
        Optimiser()
    )  # the one that the parameters choose, whose operations `step_flops` then counts too


class LocalParams(Params):
    """What every local training needs."""

    epochs: Annotated[int, Field(ge=1, le=100_000)] = Field(1, description="passes over the client's samples (E)")
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        32, description="samples a step; the last batch of an epoch may be smaller"
    )
    learning_rate: Annotated[float, Field(gt=0)] = Field(0.05, description="step size (η)")
    learning_rate_decay: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="factor on the step size after every global round"
    )
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="momentum, begun anew in every local training"
    )
    weight_decay: Annotated[float, Field(ge=0)] = Field(0.0, description="L2 penalty, added to the gradient")
    clip: Annotated[float, Field(gt=0)] | None = Field(
        None, description="largest norm of a gradient; longer ones are scaled down"
    )
    optimiser: LocalOptimiser = Field(
        {"kind": "sgd"},
        validate_default=True,
        description="how the direction of a step becomes a movement of the weights",
    )
    schedule: RateSchedule = Field(
        {"kind": "constant"}, validate_default=True, description="by what the step size is multiplied in a global round"
    )
    smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="label smoothing: share of every label that is spread evenly over all labels"
    )

    @model_serializer(mode="wrap")
    def _as_it_was(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Keys of trainings that were there before these fields stay as they are.
        said: dict[str, Any] = dump(self)
        plain = {"optimiser": {"kind": "sgd"}, "schedule": {"kind": "constant"}, "smoothing": 0.0}
        return {key: value for key, value in said.items() if key not in plain or value != plain[key]}

    def step_size(self, round: int) -> float:  # noqa: A002
        """η in this global round (the first is 1; before it, as in it)."""
        since = max(0, round - 1)
        return self.learning_rate * self.learning_rate_decay**since * self.schedule(since + 1)


class LocalUpdate(Protocol):
    """Makes a local update rule from its parameters."""

    def __call__(self, params: Any, /) -> Rule: ...


class LocalRuleChoice(Chosen[LocalParams, LocalUpdate, Facts]):
    """A local update rule."""

    slot = "local update"

    def __call__(self) -> Rule:
        """The rule, with its optimiser."""
        rule = self.plugin.function(self.params)
        if not isinstance(rule, Rule):
            raise self.broken(f"it must give a Rule, and gives {short(rule)}")
        optimiser = self.params.optimiser()
        if optimiser.move is None:
            return rule
        return replace(rule, optimiser=optimiser, step_flops=rule.step_flops + optimiser.step_flops)

    def identity(self) -> dict[str, Any]:
        """See `Chosen.identity`; with the code of choices within, where that is not part of the emulator."""
        code = [each.plugin.code(each.params) for _, each in choices(self.params)]
        return {**super().identity(), **({"codes": code} if any(code) else {})}

    def problems(self) -> Iterator[tuple[str, str]]:
        """What does not go together in the rule and its parameters: pairs of a key and a message."""
        how = self.params.optimiser
        if how.kind == "sgd":
            return
        if self.params.momentum:
            yield "momentum", f"is that of 'sgd'; '{how.kind}' has parameters of its own"
        if self().remember is not None:
            what = f"'{self.kind}' remembers what plain steps add up to, and those of '{how.kind}' are no such steps"
            yield "optimiser", f"{what}; take 'sgd'"


Subjects = Literal["nothing", "test", "public", "client", "everybody"]


@dataclass(frozen=True, kw_only=True)
class MeasurementFacts(Facts):
    """What is true of a measurement.

    ``on`` are the samples that it reads: none, test samples, public ones, a client's own, or a client's own with those of all
    others beside. ``version`` changes with every change to what it computes: results are remembered by it.
    """

    on: Subjects
    version: int


class MeasurementRule(Protocol):
    """Reads a small array off models."""

    def __call__(self, measured: MeasuredModels, params: Any, /) -> np.ndarray: ...


class MeasurementChoice(Chosen[Params, MeasurementRule, MeasurementFacts]):
    """A measurement."""

    slot = "measurement"

    def __call__(self, measured: MeasuredModels) -> np.ndarray:
        """What it reads off the models."""
        found = self.plugin.function(measured, self.params)
        if not isinstance(found, np.ndarray) or found.dtype.kind not in "biuf":
            raise self.broken(f"it must give an array of numbers, and gives {short(found)}")
        return found


data_sets: Registry[DataSetReader, DataSetFacts] = Registry(DataSetChoice, "emulator.learning.data", listed="data")
partitions: Registry[PartitionRule, PartitionFacts] = Registry(PartitionChoice, "emulator.learning.partitions")
models: Registry[ModelBuilder, Facts] = Registry(ModelChoice, "emulator.learning.models")
local_rules: Registry[LocalUpdate, Facts] = Registry(LocalRuleChoice, "emulator.learning.rules", listed="local")
measurements: Registry[MeasurementRule, MeasurementFacts] = Registry(
    MeasurementChoice, "emulator.learning.measurements"
)

DataSet = Annotated[DataSetChoice, Choice("data set")]
Partition = Annotated[PartitionChoice, Choice("partition")]
Model = Annotated[ModelChoice, Choice("model")]
LocalRule = Annotated[LocalRuleChoice, Choice("local update")]
