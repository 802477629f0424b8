"""Selections that draw clients by fixed probabilities: all alike, or by how many samples they have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from emulator.contracts.selection import Call, SelectionFacts, selections
from emulator.grouping.sampling import draw
from emulator.methods.selection import Selector
from emulator.methods.session import Session
from emulator.registry import NoParams
from emulator.world.world import StepsTo

COUNTS = "label-counts"  # the estimator by which servers learn how many samples clients have


def by_data_size(
    samples: np.ndarray, candidates: Sequence[int] | npt.NDArray[np.int64], count: int, rng: np.random.Generator
) -> list[int]:
    """So many clients, drawn without replacement with probabilities proportional to their ``samples`` [clients]."""
    those = np.asarray(candidates, np.int64)
    with np.errstate(divide="ignore"):
        log_weights = np.log(samples[those].astype(np.float64))
    chosen: list[int] = those[draw(log_weights, count, rng)].tolist()
    return chosen


@selections.register("uniform", facts=SelectionFacts(by_chance=True, privacy=True))
class Uniform(Selector):
    """Uniform: all candidates are equally likely."""

    def __init__(self, session: Session, params: NoParams) -> None:
        pass

    def choose(self, call: Call) -> StepsTo[Sequence[int]]:
        """So many candidates at random."""
        yield from ()
        chosen: Sequence[int] = call.rng.choice(call.candidates, call.count, replace=False).tolist()
        return chosen


@selections.register("by-data-size", facts=SelectionFacts(needs=(COUNTS,), privacy=True))
class ByDataSize(Selector):
    """By data size: candidates with more samples are more likely, in proportion."""

    def __init__(self, session: Session, params: NoParams) -> None:
        self._samples = session.lab.clients.samples  # which label counts tell the server

    def choose(self, call: Call) -> StepsTo[Sequence[int]]:
        """So many candidates by their samples."""
        yield from ()
        return by_data_size(self._samples, call.candidates, call.count, call.rng)
