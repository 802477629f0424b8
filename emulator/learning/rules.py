"""Local update rules: what a client does with a gradient.

A rule turns the gradient of a mini-batch into the direction of the step, elementwise on flat vectors; the trainer does the
rest (``weights -= learning_rate · step``). Rules see tensors only through arithmetic, so one rule serves a single client
and many clients stacked in a leading dimension alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from emulator.registry import Params, local_rules

if TYPE_CHECKING:
    from torch import Tensor


class LocalParams(Params):
    """What every local training needs."""

    epochs: Annotated[int, Field(ge=1, le=100_000)] = Field(1, description="passes over the client's samples (E)")
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        32, description="samples a step; the last batch of an epoch may be smaller"
    )
    learning_rate: Annotated[float, Field(gt=0)] = Field(0.05, description="step size (η)")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="momentum, begun anew in every local training"
    )
    weight_decay: Annotated[float, Field(ge=0)] = Field(0.0, description="L2 penalty, added to the gradient")


@local_rules.register("sgd", LocalParams)
def sgd(gradient: Tensor, weights: Tensor, anchor: Tensor, params: LocalParams) -> Tensor:
    """Plain stochastic gradient descent (FedAvg's local update, McMahan et al. 2017)."""
    return gradient
