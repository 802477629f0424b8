"""The lab of a replay: the same questions as of a run that trains, answered from memory alone.

`ReplayLab` never computes a model. What is not remembered is noted, so that a replay can say how many trainings it would take.
Many replays of one run ask for the same models, so they share a `Book` of handles and do not work out their keys again.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from emulator.contracts.learning import MeasurementChoice
from emulator.errors import HflError
from emulator.learning.facts import Evaluation
from emulator.learning.keys import content_key
from emulator.learning.lab import Lab
from emulator.learning.memo import RunMemory
from emulator.learning.recipes import Announced, Handle, LocalTraining, Recipe, Train, Trained, lacking
from emulator.learning.timing import NOT_MEASURED
from emulator.scenario.schema import Scenario

if TYPE_CHECKING:
    from emulator.learning.clients import ClientData
    from emulator.learning.engine import Engine

MOST_ENTRIES = 500_000  # of a book, before a replay begins; a few hundred bytes each


class NotKnownError(HflError):
    """What happens next depends on something that only training can tell."""


class PartedError(HflError):
    """A run asks for something for which the run that it is compared with has never asked."""


class Book:
    """Handles by what they are made of, shared by the replays of one run."""

    def __init__(self) -> None:
        self.made: dict[Any, Any] = {}
        self.live: WeakValueDictionary[str, Handle] = WeakValueDictionary()

    def open(self) -> None:
        """Begins a replay: a book that has become large is begun anew."""
        if len(self.made) > MOST_ENTRIES:
            self.made.clear()


class ReplayLab(Lab):
    """A lab that only remembers. Its keys, and so its answers, are those of `Lab`.

    An evaluation that is not known is nan, unless the run stops at an accuracy or another measure; anything else that is not
    known raises `NotKnownError`, as do questions about data that the run did not have.
    """

    def __init__(self, scenario: Scenario, memory: RunMemory, book: Book, kept: Container[str] = ()) -> None:
        super().__init__(scenario, memory)
        self._at_hand = kept
        self._unknown: list[Handle] = []
        self._tested = ("evaluation", scenario.evaluate.samples, content_key("task", scenario.objective.identity()))
        self._made = book.made
        self._live = book.live
        book.open()

    @property
    def missing(self) -> int:
        """How many local trainings would have to be computed, from ``kept`` models on, for what was asked and is not known."""
        return len({h.recipe for h in lacking(self._unknown, self._at_hand) if isinstance(h.recipe, Train)})

    def train(self, training: LocalTraining) -> Trained:
        """See `Lab.train`."""
        model, client, rule, *place = training
        known: Trained | None = self._made.get(
            made := (self._data_key, self._swaps_of(client), self._rule_key(rule), model, client, *place)
        )
        if known is None:
            known = self._made[made] = super().train(training)
        else:
            self.asked += 1
        return known

    def train_all(self, training: LocalTraining, clients: Sequence[int]) -> dict[int, Trained]:
        """See `Lab.train_all`."""
        model, _, rule, *place = training
        if self._swaps or training.memory is not None:
            return super().train_all(training, clients)
        made = (self._data_key, self._rule_key(rule), model, tuple(clients), *place)
        known: dict[int, Trained] | None = self._made.get(made)
        if known is None:
            known = self._made[made] = super().train_all(training, clients)
        else:
            self.asked += len(clients)
        return dict(known)

    def combine(self, vectors: Sequence[Handle], weights: Sequence[float]) -> Handle:
        """See `Lab.combine`."""
        place = (tuple(vectors), tuple(weights))
        known: Handle | None = self._made.get(place)
        if known is None:
            known = self._made[place] = super().combine(vectors, weights)
        return known

    def evaluate_all(self, models: Sequence[Handle]) -> list[Evaluation]:
        """See `Lab.evaluate_all`; nan where that is not known."""
        return [self._evaluation(model) for model in models]

    def _evaluation(self, model: Handle) -> Evaluation:
        place = (*self._tested, model)
        try:
            if place not in self._made:
                self._made[place] = super().evaluate_all([model])[0]
            known: Evaluation = self._made[place]
            return known
        except NotKnownError:
            if self._scenario.stop.goals:
                raise
            return NOT_MEASURED

    def evaluate_each(self, cases: Sequence[tuple[Handle, Sequence[int]]]) -> list[Evaluation]:
        """See `Lab.evaluate_each`; nan where any of it is not known."""
        try:
            return super().evaluate_each(cases)
        except NotKnownError:
            return [NOT_MEASURED] * len(cases)

    def announce(
        self, measurement: MeasurementChoice | str, models: Sequence[Handle], client: int | None = None
    ) -> Announced:
        """Changes nothing: what is not known is of no use before it is needed."""
        return Announced(measurement, models, client)

    def compute(self, handles: Sequence[Handle]) -> None:
        """Raises `NotKnownError`, unless there is nothing to compute."""
        if handles:
            self._unknown += handles
            raise NotKnownError("what comes next depends on models that are not known")

    @property
    def _data(self) -> ClientData:
        raise NotKnownError("the clients hold other data than in the run")

    @property
    def _engine(self) -> Engine:
        raise NotKnownError("this was not computed in the run")


class CourseLab(ReplayLab):
    """A lab that notes the keys of all models that a run asks for: its course.

    Where it ``follows`` the course of another run, it raises `PartedError` at the first model that is not on that.
    """

    def __init__(self, scenario: Scenario, memory: RunMemory, follows: Container[str] | None = None) -> None:
        super().__init__(scenario, memory, Book())
        self.course: set[str] = set()
        self._follows = follows

    def _handle(self, key: str, recipe: Recipe, output: int = 0) -> Handle:
        if self._follows is None:
            self.course.add(key)
        elif key not in self._follows:
            raise PartedError("what is learned differs from here on")
        return super()._handle(key, recipe, output)
