"""What is to be learned: tasks, with their loss and the measures of how well it was learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import numpy as np
from pydantic import Field

from emulator.conformance import Facts
from emulator.contracts.values import short
from emulator.errors import InputError
from emulator.measures import Measure
from emulator.registry import Choice, Chosen, Params, Registry

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TaskRule:
    """What a task computes from a model's outputs [n, outputs] and the labels of these samples.

    ``loss(outputs, labels, reduction)`` is differentiable: of each sample [n] where the reduction is ``"none"``, else their
    ``"mean"`` or ``"sum"``. ``counts(outputs, labels)`` are sums over samples, float64 [k], from which ``measures(counts, loss,
    samples)`` makes the value of each measure, given the mean loss and the number of samples: a test is made in batches.
    ``gradient(outputs, labels, weight)`` is that of the sum of the losses, each times its weight, by the outputs: of several
    models side by side, so these are [models, n, outputs], and weights [models, n]. It must compute every model's rows alike
    wherever they stand. Without it, clients are trained one after another.
    """

    loss: Callable[[Tensor, Tensor, str], Tensor]
    counts: Callable[[Tensor, Tensor], np.ndarray]
    measures: Callable[[np.ndarray, float, int], Mapping[str, float]]
    gradient: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None


@dataclass(frozen=True, kw_only=True)
class TaskFacts(Facts):
    """What is true of a task.

    ``measures`` are all that it knows; unless a scenario says otherwise, they are columns of ``metrics.csv``, and the first is
    what targets mean. ``labels``: every sample has one label from 0 (``class``), or a row of float32 (``numbers``). A task of
    numbers divides samples into kinds, of which partitions and label counts are then made: ``kinds`` is a function of
    (parameters, outputs or None) that says how many there are, or None, and ``kind_of`` one of (labels [n, outputs], parameters)
    that gives int64 [n].
    """

    measures: tuple[Measure, ...]
    labels: Literal["class", "numbers"] = "class"
    kinds: Callable[[Any, int | None], int | None] | None = None
    kind_of: Callable[[np.ndarray, Any], np.ndarray] | None = None


class TaskParams(Params):
    """What every task may be told."""

    measures: tuple[str, ...] = Field(
        (),
        description="measures that are columns of metrics.csv; the first is what targets mean, and what is drawn. Without it, "
        "all that the task has",
    )


class Learned(Protocol):
    """Makes the rule of a task from its parameters."""

    def __call__(self, params: Any, /) -> TaskRule: ...


class TaskChoice(Chosen[TaskParams, Learned, TaskFacts]):
    """A task: what models are to learn, and how it is measured how good they are."""

    slot = "task"

    @classmethod
    def check(cls, function: Callable[..., Any], facts: TaskFacts) -> None:
        """There is a measure, and a task of numbers has kinds."""
        if not facts.measures:
            raise TypeError("it must have at least one measure: TaskFacts(measures=(Measure(...),))")
        if facts.labels == "numbers" and (facts.kinds is None or facts.kind_of is None):
            raise TypeError(
                "with TaskFacts(labels='numbers'), it must say what kinds of samples there are: kinds, kind_of"
            )

    def __call__(self) -> TaskRule:
        """The rule."""
        rule = self.plugin.function(self.params)
        if not isinstance(rule, TaskRule):
            raise self.broken(f"it must give a TaskRule, and gives {short(rule)}")
        return rule

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What is measured, the primary measure first. Raises `KeyError` where the task has none of a name."""
        known = {measure.name: measure for measure in self.plugin.facts.measures}
        return tuple(known[name] for name in self.params.measures or known)

    @property
    def by_class(self) -> bool:
        """Whether every sample has one label, which names its class."""
        return self.plugin.facts.labels == "class"

    @property
    def ordinary(self) -> bool:
        """Whether it trains and measures as is usual, which needs no mention in keys and results."""
        return self.kind == "classification" and [m.name for m in self.measures] == ["accuracy"]

    def kinds(self, outputs: int | None) -> int | None:
        """How many kinds of samples there are, with so many outputs (classes); None where that is not known yet."""
        kinds = self.plugin.facts.kinds
        return outputs if kinds is None else kinds(self.params, outputs)

    def kinds_of(self, labels: np.ndarray, outputs: int) -> tuple[np.ndarray, int]:
        """The kind of every sample, int64 [n], and how many there are. Raises `InputError` where they are of another task."""
        if (labels.ndim == 1) != self.by_class:
            has, other = ("numbers", "'regression'") if self.by_class else ("one class each", "'classification'")
            raise InputError(
                f"'{self.kind}' cannot be learned from these samples, which have {has}; take {other}", "task"
            )
        facts, count = self.plugin.facts, self.kinds(outputs)
        if facts.kind_of is None or count is None:
            return labels, outputs
        found = facts.kind_of(labels, self.params)
        if not isinstance(found, np.ndarray) or found.shape != labels.shape[:1] or found.dtype != np.int64:
            raise self.broken(f"kind_of must give an int64 for each sample, and gives {short(found)}")
        if len(found) and not 0 <= found.min() <= found.max() < count:
            raise self.broken(f"there are {count} kinds, and kind_of gives some from {found.min()} to {found.max()}")
        return found, count


tasks: Registry[Learned, TaskFacts] = Registry(TaskChoice, "emulator.learning.tasks")

Task = Annotated[TaskChoice, Choice("task")]


def task_named(kind: str) -> TaskChoice:
    """A task with its defaults."""
    return TaskChoice(kind, tasks[kind].params())  # type: ignore[arg-type]  # the registry checks whose class it derives from
