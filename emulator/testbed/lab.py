"""The lab of the testbed: handles as everywhere, whose values nodes compute.

It trains nothing. For each handle it knows the step by which a node makes its value of what it has, and it asks nodes for values
where models are evaluated.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch

from emulator.contracts.learning import MeasurementChoice
from emulator.errors import HflError
from emulator.learning.facts import Evaluation
from emulator.learning.lab import Lab, Subject
from emulator.learning.memo import RunMemory
from emulator.learning.recipes import Apply, Combine, Handle, Initial, Recipe, Zeros
from emulator.learning.recipes import Train as TrainRecipe
from emulator.learning.trainer import TrainJob
from emulator.scenario import Scenario
from emulator.testbed.orders import Draw, How, Run, Same, Step, Train, Weigh


class AtNodes(Recipe):
    """The recipe of a value that nodes have: nothing is needed for it any more."""


class MeasuredLab(Lab):
    """``fetch`` gets the bytes of a value from a node that has it, or can make it; ``forget`` is told that nobody needs one.

    ``paused`` lets the clock stand still: what the driver evaluates no node would wait for. ``sums`` has, by the keys of members'
    models, the key of what a server got of them by secure aggregation.
    """

    def __init__(self, scenario: Scenario, memory: RunMemory) -> None:
        super().__init__(scenario, memory, max_workers=1)
        self.steps: dict[str, Step] = {}
        self.sums: dict[frozenset[str], str] = {}
        self.fetch: Callable[[str], bytes] = _nobody
        self.forget: Callable[[str], None] = lambda _key: None
        self.paused: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        self._taken: list[str] | None = None

    @contextlib.contextmanager
    def taking(self) -> Iterator[list[str]]:
        """The keys of all that is asked for within the block."""
        before, self._taken = self._taken, []
        try:
            yield self._taken
        finally:
            self._taken = before

    def combine(self, vectors: Sequence[Handle], weights: Sequence[float]) -> Handle:
        """See `Lab.combine`. Of members' models that went into a secure sum the server has that sum alone."""
        handle = super().combine(vectors, weights)
        secure = self.sums.get(frozenset(vector.key for vector in vectors))
        if secure is not None:
            self.steps[handle.key] = Step((handle.key,), (secure,), Same())
        return handle

    def compute(self, handles: Sequence[Handle]) -> None:
        """Gets the values of handles from nodes."""
        for handle in handles:
            if handle.recipe is not None:
                data = np.frombuffer(self.fetch(handle.key), np.float32)
                handle.value, handle.recipe = torch.from_numpy(data.copy()), None

    def evaluate_all(self, models: Sequence[Handle]) -> list[Evaluation]:
        """See `Lab.evaluate_all`. The clock stands still meanwhile."""
        with self.paused():
            return super().evaluate_all(models)

    def evaluate_each(self, cases: Sequence[tuple[Handle, Sequence[int]]]) -> list[Evaluation]:
        """See `Lab.evaluate_each`. The clock stands still meanwhile."""
        with self.paused():
            return super().evaluate_each(cases)

    def measure_each(self, asked: Iterable[tuple[MeasurementChoice, Subject]]) -> list[np.ndarray]:
        """See `Lab.measure_each`. The clock stands still meanwhile."""
        with self.paused():
            return super().measure_each(asked)

    def made(self, keys: Sequence[str]) -> None:
        """Nodes have these values: what they were made of is not needed for their sake."""
        for key in keys:
            handle = self._live.get(key)
            if handle is not None and handle.recipe is not None:
                handle.recipe = AtNodes()

    def _handle(self, key: str, recipe: Recipe, output: int = 0) -> Handle:
        handle = super()._handle(key, recipe, output)
        if handle.recipe is recipe:
            self.steps[key] = _step(key, recipe, output)
            weakref.finalize(handle, self._dead, key)
        if self._taken is not None:
            self._taken.append(key)
        return handle

    def _dead(self, key: str) -> None:
        if key not in self._live:
            self.steps.pop(key, None)
            self.forget(key)


def _nobody(key: str) -> bytes:
    raise HflError(f"nobody could be asked for {key}")


def _step(key: str, recipe: Recipe, output: int) -> Step:
    needs = tuple(parent.key for parent in recipe.parents)
    if not isinstance(recipe, Apply):
        return Step((key,), needs, _how(recipe))
    base = key.removesuffix(f":{output}") if output else key
    gives = (base, *(f"{base}:{n}" for n in range(1, recipe.function.outputs)))
    return Step(gives, needs, _how(recipe))


def _how(recipe: Recipe) -> How:
    match recipe:
        case Initial(number=number):
            return Draw(number)
        case Zeros():
            return Draw(None)
        case Combine(weights=weights):
            return Weigh(tuple(weights))
        case Apply(function=function):
            return Run(function)
        case TrainRecipe(asked=asked, swaps=swaps):
            place = (asked.client, asked.rule, asked.round, asked.first_epoch)
            return Train(TrainJob(torch.empty(0), *place, swaps=swaps))
    raise HflError(f"a node of the testbed cannot compute what a {type(recipe).__name__} asks for")
