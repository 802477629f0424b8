"""Handles, the recipes by which their values are computed (see `emulator.learning.lab`), and in which order."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import ref

if TYPE_CHECKING:
    from torch import Tensor

    from emulator.contracts.learning import LocalRule, MeasurementChoice
    from emulator.learning.distillation import DistillationParams
    from emulator.learning.probe import ProbeParams
    from emulator.learning.trainer import TrainJob


Swaps = tuple[tuple[int, int], ...]  # pairs of labels, each taken for the other
Trainee = int | tuple[int, ...]  # on whose samples a model is trained: one client's, or those of several in one place


class Handle:
    """A tensor that exists, or could be computed: a vector of the model's size, or distilled samples or labels.

    ``recipe`` says how, until ``value`` is there. Where a recipe gives several values, ``output`` says which of them this is.
    """

    __slots__ = ("__weakref__", "key", "output", "recipe", "value")

    def __init__(self, key: str, output: int = 0) -> None:
        self.key = key
        self.output = output
        self.recipe: Recipe | None = None
        self.value: Tensor | None = None


def value_of(handle: Handle) -> Tensor:
    """The value of a handle that has one."""
    assert handle.value is not None
    return handle.value


def lacking(handles: Iterable[Handle], kept: Container[str] = ()) -> Iterator[Handle]:
    """All handles without a value on which these depend, themselves among them; nothing that only ``kept`` keys need.

    Where whoever takes one gives it a value, it goes no further there either.
    """
    seen: set[Handle] = set()
    stack = list(handles)
    while stack:
        handle = stack.pop()
        if handle.recipe is None or handle in seen or handle.key in kept:
            continue
        seen.add(handle)
        yield handle
        if handle.recipe is not None:
            stack += handle.recipe.parents


class LocalTraining(NamedTuple):
    """A local training as a method asks for it.

    The order of the batches of an epoch depends on seed, client, round and the epoch's number in the round alone. ``turn`` counts
    the trainings of this client in this round: epochs are numbered on from one turn to the next, so two turns of E epochs in a
    row equal one of 2E, and two turns from the same model differ. Turn -1 is fine-tuning before a test. ``memory`` is what a rule
    with memory starts from: the shared state and the client's own. Several clients in place of one: their samples in
    one place. ``extra`` is distilled data of others, on which the client trains as on its own.
    """

    model: Handle
    client: Trainee
    rule: LocalRule
    round: int
    turn: int = 0
    memory: tuple[Handle, Handle] | None = None
    extra: tuple[Distilled, ...] = ()

    @property
    def first_epoch(self) -> int:
        """The number in the round of the training's first epoch."""
        epochs: int = self.rule.params.epochs
        return self.turn * epochs


class Trained(NamedTuple):
    """What a local training gives: the model, and the client's new state where the rule has memory."""

    model: Handle
    own: Handle | None


class Announced:
    """A measurement that is under way on the clock: of which models, and with whose samples (None: no client's)."""

    def __init__(self, measurement: MeasurementChoice | str, models: Sequence[Handle], client: int | None) -> None:
        self.measurement = measurement
        self.models = models
        self.client = client


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


class Pretrained(Recipe):
    """The untrained model, but for its last layer trained on another data set."""

    def __init__(self, probe: ProbeParams) -> None:
        super().__init__()
        self.probe = probe


class Zeros(Recipe):
    """A vector of zeros."""


class Combine(Recipe):
    """The weighted sum of its parents."""

    def __init__(self, parents: Sequence[Handle], weights: tuple[float, ...]) -> None:
        super().__init__(*parents)
        self.weights = weights


class VectorFunction(Protocol):
    """A function of vectors: models, updates, states. It is computed in the run's own process, on the CPU."""

    @property
    def outputs(self) -> int:
        """How many vectors it gives."""

    def identity(self) -> Any:
        """All that determines what it gives for the same vectors, as plain data: its name, its parameters, its streams.

        To be raised with every change to its arithmetic.
        """

    def __call__(self, *values: Tensor) -> Sequence[Tensor]:
        """What it gives, as float32 of any length; it leaves the given vectors as they are. Called once for a handle's value."""


class Apply(Recipe):
    """A function of its parents."""

    def __init__(self, function: VectorFunction, parents: Sequence[Handle]) -> None:
        super().__init__(*parents)
        self.function = function


class Train(Recipe):
    """A local training; ``swaps`` are labels that the client exchanges in its own data."""

    def __init__(self, asked: LocalTraining, swaps: Swaps = ()) -> None:
        self.states = (asked.model, *(asked.memory or ()))
        super().__init__(*self.states, *(handle for block in asked.extra for handle in block))
        self.asked = asked
        self.swaps = swaps

    def job(self) -> TrainJob:
        """The training with the values of its parents, which must be there."""
        from emulator.learning.trainer import TrainJob

        asked = self.asked
        shared, own = (None, None) if asked.memory is None else map(value_of, asked.memory)
        extra = tuple((value_of(block.images), value_of(block.labels)) for block in asked.extra)
        place = (asked.client, asked.rule, asked.round, asked.first_epoch)
        return TrainJob(value_of(asked.model), *place, shared, own, extra, self.swaps)


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


SIMPLE = (Initial, Zeros, Combine, Apply)  # what takes no work of anybody's on samples


def is_simple(recipe: Recipe, known: dict[Recipe, bool]) -> bool:
    """Whether a recipe and all that must be followed before it are simple. ``known`` are answers, to which it adds."""
    stack = [recipe]
    while stack:
        top = stack[-1]
        needed = [] if top in known or not isinstance(top, SIMPLE) else top.needs()
        if open_ := [each for each in needed if each not in known]:
            stack += open_
            continue
        known.setdefault(top, isinstance(top, SIMPLE) and all(known[each] for each in needed))
        stack.pop()
    return known[recipe]


def all_before(recipe: Recipe, left_out: Container[Recipe]) -> set[Recipe]:
    """The recipes that must be followed before this one, without those that are left out and what only they need."""
    found: set[Recipe] = set()
    stack = recipe.needs()
    while stack:
        each = stack.pop()
        if each not in found and each not in left_out:
            found.add(each)
            stack += each.needs()
    return found


class Pending:
    """The recipes that handles' values still need, by what they wait for.

    A handle gives up its recipe as soon as its value is there; from then on only those who use the value keep it alive.
    """

    def __init__(self, targets: Sequence[Handle]) -> None:
        self._missing: dict[Recipe, int] = {}
        self._children: dict[Recipe, list[Recipe]] = {}
        self._simple: list[Recipe] = []
        self._trainings: list[Recipe] = []
        self.add(target.recipe for target in targets if target.recipe is not None)

    def __bool__(self) -> bool:
        return bool(self._missing)

    def add(self, recipes: Iterable[Recipe]) -> None:
        """Takes up further recipes, and all that must be followed before them."""
        stack = list(recipes)
        while stack:
            recipe = stack.pop()
            if recipe in self._missing:
                continue
            needed = recipe.needs()
            self._missing[recipe] = len(needed)
            for parent in needed:
                self._children.setdefault(parent, []).append(recipe)
            stack.extend(needed)
            if not needed:
                self._enqueue(recipe)

    def pop_ready(self, trainings: bool) -> list[Recipe]:
        """The trainings (or everything else) whose parents are all there."""
        ready = self._trainings if trainings else self._simple
        result = list(ready)
        ready.clear()
        return result

    def done(self, recipe: Recipe, *values: Tensor | None) -> None:
        """Notes that a recipe's values are there."""
        for output in recipe.outputs:
            handle = output()
            if handle is not None:
                handle.value = values[handle.output]
                handle.recipe = None
        del self._missing[recipe]
        for child in self._children.pop(recipe, ()):
            self._missing[child] -= 1
            if not self._missing[child]:
                self._enqueue(child)

    def _enqueue(self, recipe: Recipe) -> None:
        (self._trainings if isinstance(recipe, Train | Distil) else self._simple).append(recipe)
