"""Local update rules: what a client does with a gradient, and what it remembers for the next time.

A rule is a value made of plain functions on flat vectors (see `Rule`). The functions are elementwise, so one rule serves a
single client and many clients side by side alike. State is explicit: ``shared`` is the server's vector, the same for
all clients of a round; ``own`` is the client's. A rule without memory has neither.

Every step is ``weights -= η · velocity`` with ``velocity = momentum · velocity + direction``; weight decay and clipping act
on the gradient before the rule sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from emulator.registry import Params, local_rules

if TYPE_CHECKING:
    from torch import Tensor

# The direction of a step, from (gradient, weights, anchor, shared, own). The anchor is the model the client received.
Direction = Callable[["Tensor", "Tensor", "Tensor", "Tensor", "Tensor"], "Tensor"]
# The client's new state, from (weights at the end, anchor, shared, own, sum of the step sizes).
Remember = Callable[["Tensor", "Tensor", "Tensor", "Tensor", float], "Tensor"]


@dataclass(frozen=True)
class Rule:
    """A local update rule. With ``remember`` the rule has state, and the server keeps the mean change of the clients' states:

    ``shared += (1/N) Σ (own after - own before)`` over the clients of a round, N counting all clients; then
    ``model = average + server_gain · shared``.
    """

    direction: Direction
    remember: Remember | None = None
    server_gain: float = 0.0
    vectors: int = 1  # vectors of the model's size that travel each way
    step_flops: int = (
        0  # floating-point operations of a step for each parameter, beside the gradient and the step itself
    )
    # Trains the last layer alone: all before it keeps its values and works as in a test (no dropout, settled statistics).
    classifier_only: bool = False


class LocalParams(Params):
    """What every local training needs."""

    epochs: Annotated[int, Field(ge=1, le=100_000)] = Field(1, description="passes over the client's samples (E)")
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        32, description="samples a step; the last batch of an epoch may be smaller"
    )
    learning_rate: Annotated[float, Field(gt=0)] = Field(0.05, description="step size (η)")
    learning_rate_decay: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="factor on the step size after every global round"
    )
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="momentum, begun anew in every local training"
    )
    weight_decay: Annotated[float, Field(ge=0)] = Field(0.0, description="L2 penalty, added to the gradient")
    clip: Annotated[float, Field(gt=0)] | None = Field(
        None, description="largest norm of a gradient; longer ones are scaled down"
    )

    def step_size(self, round: int) -> float:  # noqa: A002
        """η in this global round (the first is 1; before it, as in it)."""
        return self.learning_rate * self.learning_rate_decay ** max(0, round - 1)


@local_rules.register("sgd", LocalParams)
def sgd(params: LocalParams) -> Rule:
    """Plain stochastic gradient descent (FedAvg's local update, McMahan et al. 2017)."""
    return Rule(lambda gradient, weights, anchor, shared, own: gradient)


@local_rules.register("classifier-sgd", LocalParams)
def classifier_sgd(params: LocalParams) -> Rule:
    """SGD on the last layer alone, on top of a feature extractor that stays as it is."""
    return Rule(lambda gradient, weights, anchor, shared, own: gradient, classifier_only=True)


class FedProxParams(LocalParams):
    """SGD with a proximal term."""

    mu: Annotated[float, Field(ge=0)] = Field(0.01, description="weight of the proximal term (μ)")


@local_rules.register("fedprox", FedProxParams)
def fedprox(params: FedProxParams) -> Rule:
    """FedProx: adds μ/2 ‖w - w_received‖² to the loss (Li et al. 2020)."""
    return Rule(lambda gradient, weights, anchor, shared, own: gradient + params.mu * (weights - anchor), step_flops=3)


@local_rules.register("scaffold", LocalParams)
def scaffold(params: LocalParams) -> Rule:
    """SCAFFOLD: control variates against client drift, option II (Karimireddy et al. 2020); doubles the bytes."""
    return Rule(
        direction=lambda gradient, weights, anchor, shared, own: gradient - own + shared,
        remember=lambda end, anchor, shared, own, travelled: own - shared + (anchor - end) / travelled,
        vectors=2,
        step_flops=2,
    )


class FedDynParams(LocalParams):
    """SGD with a dynamic regulariser."""

    alpha: Annotated[float, Field(gt=0)] = Field(0.01, description="weight of the regulariser (α)")


@local_rules.register("feddyn", FedDynParams)
def feddyn(params: FedDynParams) -> Rule:
    """FedDyn: a regulariser that remembers each client's gradients (Acar et al. 2021)."""
    alpha = params.alpha
    return Rule(
        direction=lambda gradient, weights, anchor, shared, own: gradient - own + alpha * (weights - anchor),
        remember=lambda end, anchor, shared, own, travelled: own - alpha * (end - anchor),
        server_gain=-1.0 / alpha,
        step_flops=4,
    )
