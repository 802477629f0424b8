"""Optimisers of local training: how the direction of a step becomes a movement of the weights (see `Optimiser`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from emulator.contracts.learning import Optimiser, optimisers
from emulator.registry import NoParams, Params

if TYPE_CHECKING:
    from torch import Tensor

Share = Annotated[float, Field(ge=0, lt=1)]


@optimisers.register("sgd")
def sgd(params: NoParams) -> Optimiser:
    """The direction as it is, or with the momentum of the local rule."""
    return Optimiser()


class AdamParams(Params):
    """Running averages of a gradient and of its square."""

    beta_1: Share = Field(0.9, description="share of the running average of the gradient that a step keeps (β₁)")
    beta_2: Share = Field(0.999, description="share of the running average of its square that a step keeps (β₂)")
    eps: Annotated[float, Field(gt=0)] = Field(1e-8, description="added to the root of the second average (ε)")


@optimisers.register("adam", AdamParams)
def adam(params: AdamParams) -> Optimiser:
    """Adam (Kingma and Ba 2015); weight decay is part of the gradient."""
    return _adam(params, decoupled=False)


@optimisers.register("adamw", AdamParams)
def adamw(params: AdamParams) -> Optimiser:
    """AdamW (Loshchilov and Hutter 2019): Adam with weight decay beside it, on the weights themselves."""
    return _adam(params, decoupled=True)


def _adam(params: AdamParams, decoupled: bool) -> Optimiser:
    first, second, eps = params.beta_1, params.beta_2, params.eps

    def numbers(step: int) -> tuple[float, float]:
        return 1 / (1 - first**step), 1 / math.sqrt(1 - second**step)

    def move(direction: Tensor, state: Sequence[Tensor], mean_scale: Tensor, root_scale: Tensor) -> Tensor:
        mean, square = state
        mean.mul_(first).add_(direction * (1 - first))
        square.mul_(second).add_(direction * direction * (1 - second))
        return (mean * mean_scale).div_(square.sqrt().mul_(root_scale).add_(eps))

    # For each parameter: 3 for the mean, 4 for the square, and root, scale, ε and quotient; the other scale goes with η.
    return Optimiser(move, numbers, vectors=2, step_flops=11, decoupled=decoupled)
