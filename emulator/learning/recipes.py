"""Handles, and the recipes by which their values are computed (see `emulator.learning.lab`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

from emulator.contracts.learning import LocalRule

if TYPE_CHECKING:
    from torch import Tensor

    from emulator.learning.distillation import DistillationParams


Swaps = tuple[tuple[int, int], ...]  # pairs of labels, each taken for the other
Trainee = int | tuple[int, ...]  # on whose samples a model is trained: one client's, or those of several in one place


class Handle:
    """A tensor that exists, or could be computed: a vector of the model's size, or distilled samples or labels.

    ``recipe`` says how, until ``value`` is there.
    """

    __slots__ = ("__weakref__", "key", "recipe", "value")

    def __init__(self, key: str) -> None:
        self.key = key
        self.recipe: Recipe | None = None
        self.value: Tensor | None = None


class Recipe:
    """How to compute the values of one or more handles from those of its parents."""

    def __init__(self, *parents: Handle) -> None:
        self.parents = parents
        self.outputs: list[ref[Handle]] = []

    def needs(self) -> list[Recipe]:
        """The recipes that must be followed before this one."""
        return list(dict.fromkeys(p.recipe for p in self.parents if p.recipe is not None))


class Initial(Recipe):
    """The untrained model, or another draw of it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Zeros(Recipe):
    """A vector of zeros."""


class Combine(Recipe):
    """The weighted sum of its parents."""

    def __init__(self, parents: Sequence[Handle], weights: tuple[float, ...]) -> None:
        super().__init__(*parents)
        self.weights = weights


class Train(Recipe):
    """A local training.

    ``states`` are the model and, for rules with memory, the shared and the client's own state; ``extra`` are samples beside the
    client's own; ``swaps`` are labels that the client exchanges in its own.
    """

    def __init__(
        self,
        states: Sequence[Handle],
        client: Trainee,
        rule: LocalRule,
        round: int,  # noqa: A002
        first_epoch: int,
        extra: Sequence[Distilled] = (),
        swaps: Swaps = (),
    ) -> None:
        super().__init__(*states, *(handle for block in extra for handle in block))
        self.states = tuple(states)
        self.extra = tuple(extra)
        self.client = client
        self.rule = rule
        self.round = round
        self.first_epoch = first_epoch
        self.swaps = swaps


class Distilled(NamedTuple):
    """A client's distilled data: images [r, ...] and their labels, int64 [r] or soft targets [r, classes]."""

    images: Handle
    labels: Handle


class Distil(Recipe):
    """Distilling a client's data."""

    def __init__(self, client: int, params: DistillationParams) -> None:
        super().__init__()
        self.client = client
        self.params = params
