"""Made-up data of any size: Gaussian clouds around random prototypes."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.learning import DataSetFacts, data_sets
from emulator.learning.data.arrays import ArraySet, Outline
from emulator.learning.data.mapped import sample_array
from emulator.registry import Params
from emulator.rng import stream

Size = Annotated[int, Field(ge=1, le=4096)]
KEPT_FROM_BYTES = 256e6  # of samples; less is made up again in a moment
TOGETHER = 65_536  # samples that are in memory at a time


class SyntheticParams(Params):
    """What to make up."""

    classes: Annotated[int, Field(ge=2, le=10_000)] = Field(10, description="number of labels")
    shape: tuple[Size, Size, Size] = Field(
        (1, 8, 8), strict=False, description="channels, height and width of a sample"
    )
    train_samples: Annotated[int, Field(ge=1, le=10_000_000)] = Field(5000, description="samples to train")
    test_samples: Annotated[int, Field(ge=1, le=10_000_000)] = Field(1000, description="samples to test")
    modes: Annotated[int, Field(ge=1, le=100)] = Field(
        2, description="prototypes of a class; with more than one no linear model is best"
    )
    separation: Annotated[float, Field(ge=0, le=1000)] = Field(
        6.0, description="typical distance of two prototypes, in standard deviations of the noise"
    )
    seed: Annotated[int, Field(ge=0, lt=2**53)] = Field(
        0, description="determines the data, whatever the scenario's seed is"
    )

    @model_validator(mode="after")
    def _all_classes(self) -> SyntheticParams:
        if self.train_samples < self.classes:
            raise PydanticCustomError("samples", "needs at least one training sample for each of the classes")
        return self

    @property
    def prepared(self) -> int:
        """Large sets are kept on the machine."""
        numbers = (self.train_samples + self.test_samples) * math.prod(self.shape)
        return int(4 * numbers >= KEPT_FROM_BYTES)


def _fingerprint(params: SyntheticParams) -> str:
    # The number is to be raised whenever the same parameters would give other data.
    return f"synthetic-1:{params.model_dump_json()}"


def _labels(params: SyntheticParams, samples: int, rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(np.arange(samples, dtype=np.int64) % params.classes)


def _outline(params: SyntheticParams) -> Outline:
    rng = stream(params.seed, "data", "synthetic", "train")
    return Outline(_labels(params, params.train_samples, rng), params.classes, params.shape)


@data_sets.register("synthetic", SyntheticParams, DataSetFacts(fingerprint=_fingerprint, outline=_outline))
def synthetic(params: SyntheticParams) -> ArraySet:
    """Gaussian clouds around random prototypes, several for each class; of any size.

    Prototypes are drawn from N(0, s²/2d · I) for a sample of d numbers and a separation of s, so that the
    expected squared distance of two of them is s². A sample is a prototype of its class plus noise N(0, I),
    then all is scaled to unit variance. The best possible rule mistakes one of two prototypes for the other
    with probability Φ(-s/2). Classes are equally frequent (but for one sample), in train and test.
    """
    numbers = math.prod(params.shape)
    rng = stream(params.seed, "data", "synthetic", "prototypes")
    spread = params.separation / math.sqrt(2 * numbers)
    prototypes = rng.standard_normal((params.classes, params.modes, numbers)) * spread
    scale = 1 / math.sqrt(1 + spread**2)

    def draw(samples: int, part: str) -> tuple[np.ndarray, np.ndarray]:
        rng = stream(params.seed, "data", "synthetic", part)
        y = _labels(params, samples, rng)
        made = sample_array((samples, *params.shape))
        x = made.reshape(samples, numbers)
        rng.standard_normal(out=x, dtype=np.float32)
        modes = rng.integers(params.modes, size=samples)
        for start in range(0, samples, TOGETHER):
            some = slice(start, start + TOGETHER)
            x[some] += prototypes[y[some], modes[some]].astype(np.float32)
        x *= np.float32(scale)
        return made, y

    return ArraySet(*draw(params.train_samples, "train"), *draw(params.test_samples, "test"), classes=params.classes)
