"""Combinations: one model out of those that a server received. What attackers send may be anything; these bear some of it.

Sums go in the order of the senders' numbers, in double precision. All but the mean, the geometric median and norm bounding count
every model alike, as their papers do: a weight by samples is what a client says of itself.
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from pydantic import Field

from emulator.contracts.combining import CombinationFacts, Received, combinations
from emulator.registry import NoParams, Params
from emulator.scenario.words import Count

Attackers = Annotated[int, Field(ge=0)]


def _sorting(models: int, parameters: int, params: object) -> float:
    return models * parameters * max(1.0, math.log2(models))


@combinations.register("mean", facts=CombinationFacts(flops=lambda models, parameters, params: 0.0))
def mean(received: Received, params: NoParams) -> np.ndarray:
    """The weighted mean, by samples or as the aggregation rule says (FedAvg); one model can move it anywhere."""
    return _weighted(received, received.weights)


@combinations.register("median", facts=CombinationFacts(flops=_sorting))
def median(received: Received, params: NoParams) -> np.ndarray:
    """The median of every coordinate (Yin et al. 2018); of an even number, the mean of the two in the middle."""
    n = len(received.models)
    return _by_rank(received, (n - 1) // 2, n // 2 + 1)


class TrimmedMeanParams(Params):
    """How much is cut off."""

    share: Annotated[float, Field(ge=0, lt=0.5)] = Field(
        0.2, description="share of the models that is left out at either end of every coordinate (β); below one half"
    )


@combinations.register("trimmed-mean", TrimmedMeanParams, CombinationFacts(flops=_sorting))
def trimmed_mean(received: Received, params: TrimmedMeanParams) -> np.ndarray:
    """The mean of every coordinate without its smallest and its largest ⌊β n⌋ values (Yin et al. 2018)."""
    n = len(received.models)
    cut = int(params.share * n + 1e-9)
    return _by_rank(received, cut, n - cut)


class GeometricMedianParams(Params):
    """How it is found."""

    iterations: Count = Field(30, description="steps of Weiszfeld's algorithm, all of which the clock charges")
    smoothing: Annotated[float, Field(gt=0)] = Field(
        1e-6, description="least distance that a step divides by (ν); a model at the median would divide by 0"
    )


def _weiszfeld(models: int, parameters: int, params: GeometricMedianParams) -> float:
    return _sorting(models, parameters, params) + 5.0 * models * parameters * params.iterations


@combinations.register("geometric-median", GeometricMedianParams, CombinationFacts(flops=_weiszfeld))
def geometric_median(received: Received, params: GeometricMedianParams) -> np.ndarray:
    """The point with the least sum of weighted distances to all models (RFA, Pillutla et al. 2022), by smoothed Weiszfeld steps.

    It begins at the median of every coordinate: from the mean, one model that is far enough away is still felt after any
    number of steps. It ends early only where a step changes nothing any more.
    """
    n = len(received.models)
    middle = _by_rank(received, (n - 1) // 2, n // 2 + 1)
    for _ in range(params.iterations):
        gaps = np.array([_distance(model, middle) for model in received.models])
        pull = received.weights / np.maximum(gaps, params.smoothing)
        found = _weighted(received, pull / pull.sum())
        if np.array_equal(found, middle):
            break
        middle = found
    return middle


class KrumParams(Params):
    """Against how many."""

    attackers: Attackers = Field(description="how many of the models may be anybody's (f); it takes 2 f + 3 models")


class MultiKrumParams(KrumParams):
    """Against how many, and how many are averaged."""

    selected: Count | None = Field(
        None, description="how many of the models with the best scores are averaged (m); without it, n - f"
    )


def _least(params: KrumParams) -> int:
    return 2 * params.attackers + 3


def _pairs(models: int, parameters: int, params: KrumParams) -> float:
    return 1.5 * models * (models - 1) * parameters


def _pairs_and_mean(models: int, parameters: int, params: MultiKrumParams) -> float:
    return _pairs(models, parameters, params) + (params.selected or models) * parameters


@combinations.register("krum", KrumParams, CombinationFacts(flops=_pairs, least=_least))
def krum(received: Received, params: KrumParams) -> np.ndarray:
    """The one model that is nearest to its n - f - 2 nearest ones (Blanchard et al. 2017); of equals, the first."""
    return received.models[int(_scores(received, params.attackers).argmin())]


@combinations.register("multi-krum", MultiKrumParams, CombinationFacts(flops=_pairs_and_mean, least=_least))
def multi_krum(received: Received, params: MultiKrumParams) -> np.ndarray:
    """The mean of the m models with Krum's best scores (Blanchard et al. 2017)."""
    n = len(received.models)
    attackers = _bearable(received, params.attackers)
    best = np.argsort(_scores(received, params.attackers), kind="stable")
    chosen = sorted(best[: min(n, params.selected or n - attackers)].tolist())
    weights = np.zeros(n)
    weights[chosen] = 1 / len(chosen)
    return _weighted(received, weights)


class NormBoundParams(Params):
    """How far an update may go."""

    norm: Annotated[float, Field(gt=0)] = Field(
        description="largest Euclidean length of an update (M); longer ones are scaled down to it"
    )


@combinations.register(
    "norm-bound", NormBoundParams, CombinationFacts(flops=lambda models, parameters, params: 5.0 * models * parameters)
)
def norm_bound(received: Received, params: NormBoundParams) -> np.ndarray:
    """The weighted mean of updates that are scaled down to a length (Sun et al. 2019), added to the model before."""
    lengths = np.array([_distance(model, received.before) for model in received.models])
    kept = received.weights * (params.norm / np.maximum(lengths, params.norm))
    found = _weighted(received, kept)
    found += (1.0 - kept.sum()) * received.before.astype(np.float64)
    return found


def _weighted(received: Received, weights: np.ndarray) -> np.ndarray:
    """The weighted sum of the models, float64 [d]."""
    total = np.zeros(len(received.before))
    for model, weight in zip(received.models, weights.tolist(), strict=True):
        if weight:
            total += weight * model.astype(np.float64)
    return total


def _distance(model: np.ndarray, other: np.ndarray) -> float:
    """The Euclidean distance of two vectors."""
    return math.sqrt(np.square(model.astype(np.float64) - other).sum())


def _by_rank(received: Received, first: int, beyond: int) -> np.ndarray:
    """The mean of every coordinate's values from one rank up to another, not included."""
    found = np.empty(len(received.before))
    for piece, models in received.blocks():
        models.sort(axis=0)
        found[piece] = models[first:beyond].mean(axis=0)
    return found


def _bearable(received: Received, attackers: int) -> int:
    """f, of the models that are there: those left out count among the f, and fewer than 2 f + 3 models bear fewer."""
    return max(0, min(attackers - received.left_out, (len(received.models) - 3) // 2))


def _scores(received: Received, attackers: int) -> np.ndarray:
    """For each model the sum of its squared distances to its n - f - 2 nearest ones, at least to one [n]."""
    n = len(received.models)
    squares = np.zeros((n, n))
    for _, models in received.blocks():
        for i in range(n - 1):
            squares[i, i + 1 :] += np.square(models[i + 1 :] - models[i]).sum(axis=1)
    squares += squares.T
    near = max(1, n - _bearable(received, attackers) - 2)
    squares[np.diag_indices(n)] = np.inf
    scores: np.ndarray = np.sort(squares, axis=1)[:, : min(near, n - 1)].sum(axis=1)
    return scores
