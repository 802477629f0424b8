"""The lab of a run without training: the same questions, no models.

How long everything takes depends on how many samples of which labels the clients hold and on the size of the model, not on what
is learned. So `TimingLab` knows these facts, the very ones of a run that trains, and hands out one and the same handle for every
model. No sample is read, only labels.

Its fleet may be larger than its data set. Then the set is divided between a part of the clients, and all others repeat what
these hold, in turn.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from emulator.contracts.learning import MeasurementChoice
from emulator.errors import InputError
from emulator.learning.clients import DividedData, divide_data, outline_of
from emulator.learning.data.arrays import Outline, is_text
from emulator.learning.facts import FACTS_VERSION, ClientFacts, Evaluation, ModelFacts
from emulator.learning.keys import content_key, from_npy, to_npy
from emulator.learning.lab import Subject, keys_of
from emulator.learning.memo import RunMemory
from emulator.learning.recipes import Announced, Distilled, Handle, LocalTraining, Swaps, Trained, VectorFunction
from emulator.scenario.schema import Scenario

if TYPE_CHECKING:
    from torch import Tensor, nn

    from emulator.learning.distillation import DistillationParams
    from emulator.learning.probe import ProbeParams

log = logging.getLogger(__name__)

NOT_MEASURED = Evaluation({})
UNKNOWABLE = "what this method does depends on what is learned, so it cannot be run without training"

# Between how many clients a set is divided that is too small for the fleet: as many as get so many samples each, on average (the
# smallest clients of S2 §6.2), and no more than are needed for a lively mix.
SAMPLES_EACH = 20
MOST_SERVED = 4000


class TimingLab:
    """What is known of a scenario without training anything. See `emulator.learning.interface.AnyLab` for what it is asked."""

    def __init__(self, scenario: Scenario, memory: RunMemory) -> None:
        self.memory = memory
        self.asked = 0  # local trainings that methods asked for
        self.trained = 0
        self._scenario = scenario
        self._keys = keys_of(scenario)
        self._model = Handle("nothing learned")
        self._trained = Trained(self._model, None)

    @cached_property
    def clients(self) -> ClientFacts:
        """What the clients hold: as in a run with training, wherever the data set has enough for all of them."""
        wanted = self._scenario.topology.client_count
        served = int(self.memory.recall(content_key("served", self._keys.data(wanted)), self._count_served))
        key, rows = self._keys.data(served), np.arange(wanted) % served
        if served < wanted:
            message = "the data set is divided between %d clients; the other %d of %d repeat what these hold, in turn"
            log.warning(message, served, wanted - served, wanted)
        raw = self.memory.recall(content_key("clients", key), lambda: to_npy(self._divide(served).label_counts))
        if not self._scenario.data.partition.plugin.facts.clusters:
            return ClientFacts(from_npy(raw)[rows])
        truth = self.memory.recall(content_key("clusters", key), lambda: to_npy(self._divide(served).truth))
        return ClientFacts(from_npy(raw)[rows], *from_npy(truth)[:, rows])

    @cached_property
    def model_facts(self) -> ModelFacts:
        """Size and arithmetic of the model."""

        def compute() -> bytes:
            from emulator.learning.facts import model_facts

            with self._untrained() as module:
                return model_facts(module, shape := self._outline.shape, is_text(shape)).to_json()

        return ModelFacts.from_json(self.memory.recall(content_key("facts", FACTS_VERSION, self._keys.model), compute))

    @cached_property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the tensors of the model's state, in its order."""

        def compute() -> bytes:
            from emulator.learning.facts import state_shapes

            with self._untrained() as module:
                return json.dumps(state_shapes(module)).encode()

        return tuple(map(tuple, json.loads(self.memory.recall(content_key("state-shapes", self._keys.model), compute))))

    @contextlib.contextmanager
    def _untrained(self) -> Iterator[nn.Module]:
        """The model as it is made, where it fits into memory."""
        from emulator.learning.engine import untrained
        from emulator.learning.sizes import fitting

        shape, classes = self._outline.shape, self._outline.classes
        with fitting(self._scenario, shape, classes, copies=1):
            yield untrained(self._scenario, shape, classes)

    @cached_property
    def sample_shape(self) -> tuple[int, ...]:
        """Channels, height and width of a sample."""

        def compute() -> bytes:
            return json.dumps(self._outline.shape).encode()

        return tuple(json.loads(self.memory.recall(content_key("shape", self._keys.set), compute)))

    def initial(self, number: int = 0) -> Handle:
        """The handle that stands for every model."""
        return self._model

    def pretrained(self, probe: ProbeParams) -> Handle:
        """The same handle."""
        return self._model

    def zeros(self) -> Handle:
        """The same handle."""
        return self._model

    def poison(self, swaps: Mapping[int, Swaps]) -> None:
        """Changes nothing: there are no labels to train on."""

    def train(self, training: LocalTraining) -> Trained:
        """The same handle, twice for rules with memory."""
        self.asked += 1
        return self._trained if training.memory is None else Trained(self._model, self._model)

    def train_all(self, training: LocalTraining, clients: Sequence[int]) -> dict[int, Trained]:
        """See `Lab.train_all`."""
        self.asked += len(clients) - 1
        return dict.fromkeys(clients, self.train(training))

    def distil(self, client: int, params: DistillationParams) -> Distilled:
        """The same handle, twice."""
        return Distilled(self._model, self._model)

    def combine(self, vectors: Sequence[Handle], weights: Sequence[float]) -> Handle:
        """The same handle."""
        return self._model

    def apply(self, function: VectorFunction, vectors: Sequence[Handle]) -> tuple[Handle, ...]:
        """The same handle, as often as the function gives vectors."""
        return (self._model,) * function.outputs

    def evaluate(self, model: Handle) -> Evaluation:
        """Nothing is measured."""
        return NOT_MEASURED

    def evaluate_all(self, models: Sequence[Handle]) -> list[Evaluation]:
        """Nothing is measured."""
        return [NOT_MEASURED] * len(models)

    def evaluate_each(self, cases: Sequence[tuple[Handle, Sequence[int]]]) -> list[Evaluation]:
        """Nothing is measured."""
        return [NOT_MEASURED] * len(cases)

    def measure(
        self, measurement: MeasurementChoice | str, models: Sequence[Handle], client: int | None = None
    ) -> np.ndarray:
        """Raises `InputError`: there are no models to look at."""
        raise InputError(UNKNOWABLE, "method")

    def announce(
        self, measurement: MeasurementChoice | str, models: Sequence[Handle], client: int | None = None
    ) -> Announced:
        """Changes nothing."""
        return Announced(measurement, models, client)

    def measure_all(self, measurement: MeasurementChoice | str, subjects: Iterable[Subject]) -> list[np.ndarray]:
        """Raises `InputError`."""
        raise InputError(UNKNOWABLE, "method")

    def value(self, handle: Handle) -> Tensor:
        """Raises `InputError`."""
        raise InputError(UNKNOWABLE, "method")

    def values(self) -> dict[str, Tensor]:
        """No values."""
        return {}

    def close(self) -> None:
        """There is nothing to end."""

    @cached_property
    def _outline(self) -> Outline:
        return outline_of(self._scenario)

    def _count_served(self) -> bytes:
        """Between how many clients the set is divided: all, or else as many as the scenario's own partition finds enough for."""
        wanted, samples = self._scenario.topology.client_count, len(self._outline.y_train)
        most = min(wanted - 1, MOST_SERVED, samples // SAMPLES_EACH)
        known = next((n for n in (wanted, most) if n > 1 and self._serves(n)), None)
        if known is not None:
            return str(known).encode()
        self._divide(1)  # raises what is wrong, where that has nothing to do with how many they are
        low, high = 1, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._serves(middle) else (low, middle)
        return str(low).encode()

    def _serves(self, clients: int) -> bool:
        try:
            self._divide(clients)
        except InputError:
            return False
        return True

    def _divide(self, clients: int) -> DividedData:
        """The set divided between so many clients; raises `InputError` where it cannot serve them."""
        return divide_data(self._scenario, self._outline, clients)
