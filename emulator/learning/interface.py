"""What methods and runs ask of a lab, whether it trains or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from emulator.contracts.learning import MeasurementChoice
from emulator.learning.facts import ClientFacts, Evaluation, ModelFacts
from emulator.learning.lab import Subject
from emulator.learning.memo import RunMemory
from emulator.learning.recipes import Announced, Distilled, Handle, LocalTraining, Swaps, Trained, VectorFunction

if TYPE_CHECKING:
    from torch import Tensor

    from emulator.learning.distillation import DistillationParams
    from emulator.learning.probe import ProbeParams


class AnyLab(Protocol):
    """What methods and runs ask of a lab: `Lab`, or `TimingLab`, which learns nothing."""

    memory: RunMemory
    asked: int
    trained: int

    @property
    def clients(self) -> ClientFacts:
        """See `Lab.clients`."""

    @property
    def model_facts(self) -> ModelFacts:
        """See `Lab.model_facts`."""

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        """See `Lab.state_shapes`."""

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """See `Lab.sample_shape`."""

    def initial(self, number: int = 0) -> Handle:
        """See `Lab.initial`."""

    def pretrained(self, probe: ProbeParams) -> Handle:
        """See `Lab.pretrained`."""

    def zeros(self) -> Handle:
        """See `Lab.zeros`."""

    def poison(self, swaps: Mapping[int, Swaps]) -> None:
        """See `Lab.poison`."""

    def train(self, training: LocalTraining) -> Trained:
        """See `Lab.train`."""

    def train_all(self, training: LocalTraining, clients: Sequence[int]) -> dict[int, Trained]:
        """See `Lab.train_all`."""

    def distil(self, client: int, params: DistillationParams) -> Distilled:
        """See `Lab.distil`."""

    def combine(self, vectors: Sequence[Handle], weights: Sequence[float]) -> Handle:
        """See `Lab.combine`."""

    def apply(self, function: VectorFunction, vectors: Sequence[Handle]) -> tuple[Handle, ...]:
        """See `Lab.apply`."""

    def evaluate(self, model: Handle) -> Evaluation:
        """See `Lab.evaluate`."""

    def evaluate_all(self, models: Sequence[Handle]) -> list[Evaluation]:
        """See `Lab.evaluate_all`."""

    def evaluate_each(self, cases: Sequence[tuple[Handle, Sequence[int]]]) -> list[Evaluation]:
        """See `Lab.evaluate_each`."""

    def measure(
        self, measurement: MeasurementChoice | str, models: Sequence[Handle], client: int | None = None
    ) -> np.ndarray:
        """See `Lab.measure`."""

    def announce(
        self, measurement: MeasurementChoice | str, models: Sequence[Handle], client: int | None = None
    ) -> Announced:
        """See `Lab.announce`."""

    def measure_all(self, measurement: MeasurementChoice | str, subjects: Iterable[Subject]) -> list[np.ndarray]:
        """See `Lab.measure_all`."""

    def value(self, handle: Handle) -> Tensor:
        """See `Lab.value`."""

    def values(self) -> dict[str, Tensor]:
        """See `Lab.values`."""

    def close(self) -> None:
        """See `Lab.close`."""
