"""Server optimisers: what a server makes of the average of its clients' models (Reddi et al. 2021, Algorithm 2).

The average less the model before is taken for a gradient, Δ. States are begun as that paper says and not corrected for their
beginning. Buffers of a model (running statistics) are no parameters: they are the average's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from emulator.contracts.combining import ServerOptimiserFacts, server_optimisers
from emulator.registry import NoParams, Params

Step = tuple[np.ndarray, Sequence[np.ndarray]]
Decay = Annotated[float, Field(ge=0, lt=1)]


@server_optimisers.register("none", facts=ServerOptimiserFacts(flops=0))
def none(before: np.ndarray, average: np.ndarray, states: Sequence[np.ndarray], params: NoParams) -> Step:
    """The average is the new model (FedAvg)."""
    return average, ()


class MomentumParams(Params):
    """Step size and memory."""

    learning_rate: Annotated[float, Field(gt=0)] = Field(1.0, description="the server's step size (η)")
    momentum: Decay = Field(0.9, description="share of its last step that a step keeps (β)")


@server_optimisers.register("momentum", MomentumParams, ServerOptimiserFacts(flops=5, states=lambda params: (0.0,)))
def momentum(before: np.ndarray, average: np.ndarray, states: Sequence[np.ndarray], params: MomentumParams) -> Step:
    """FedAvgM (Hsu et al. 2019): m = β m + Δ, x = x + η m."""
    m = params.momentum * states[0] + (average - before)
    return before + params.learning_rate * m, (m,)


class AdaptiveParams(Params):
    """Step size, memory, and how much steps adapt."""

    learning_rate: Annotated[float, Field(gt=0)] = Field(0.1, description="the server's step size (η)")
    beta1: Decay = Field(0.9, description="share of the last direction that a direction keeps (β1)")
    beta2: Decay = Field(0.99, description="share of the last second moment that a second moment keeps (β2)")
    tau: Annotated[float, Field(ge=1e-12)] = Field(
        1e-3, description="adaptivity (τ): the smaller, the more steps adapt; second moments begin at τ²"
    )


class AdagradParams(Params):
    """Step size, memory, and how much steps adapt."""

    learning_rate: Annotated[float, Field(gt=0)] = Field(0.1, description="the server's step size (η)")
    beta1: Decay = Field(0.0, description="share of the last direction that a direction keeps (β1)")
    tau: Annotated[float, Field(ge=1e-12)] = Field(
        1e-3, description="adaptivity (τ): the smaller, the more steps adapt; second moments begin at τ²"
    )


def _begun(params: AdaptiveParams | AdagradParams) -> tuple[float, ...]:
    return (0.0, params.tau**2)


def _step(before: np.ndarray, m: np.ndarray, v: np.ndarray, params: AdaptiveParams | AdagradParams) -> Step:
    return before + params.learning_rate * m / (np.sqrt(v) + params.tau), (m, v)


def _direction(average: np.ndarray, before: np.ndarray, m: np.ndarray, beta1: float) -> tuple[np.ndarray, np.ndarray]:
    """Δ, and the new first moment."""
    change = average - before
    return change, beta1 * m + (1 - beta1) * change


@server_optimisers.register("adam", AdaptiveParams, ServerOptimiserFacts(flops=13, states=_begun))
def adam(before: np.ndarray, average: np.ndarray, states: Sequence[np.ndarray], params: AdaptiveParams) -> Step:
    """FedAdam: m = β1 m + (1 - β1) Δ, v = β2 v + (1 - β2) Δ², x = x + η m / (√v + τ)."""
    change, m = _direction(average, before, states[0], params.beta1)
    return _step(before, m, params.beta2 * states[1] + (1 - params.beta2) * change**2, params)


@server_optimisers.register("yogi", AdaptiveParams, ServerOptimiserFacts(flops=14, states=_begun))
def yogi(before: np.ndarray, average: np.ndarray, states: Sequence[np.ndarray], params: AdaptiveParams) -> Step:
    """FedYogi: as FedAdam, with v = v - (1 - β2) Δ² sign(v - Δ²)."""
    change, m = _direction(average, before, states[0], params.beta1)
    v, square = states[1], change**2
    return _step(before, m, v - (1 - params.beta2) * square * np.sign(v - square), params)


@server_optimisers.register("adagrad", AdagradParams, ServerOptimiserFacts(flops=11, states=_begun))
def adagrad(before: np.ndarray, average: np.ndarray, states: Sequence[np.ndarray], params: AdagradParams) -> Step:
    """FedAdagrad: as FedAdam, with v = v + Δ²."""
    change, m = _direction(average, before, states[0], params.beta1)
    return _step(before, m, states[1] + change**2, params)
