"""Local update rules: what a client does with a gradient, and what it remembers for the next time.

A rule is a value made of plain functions on flat vectors (see `Rule`). The functions are elementwise, so one rule serves a
single client and many clients side by side alike. State is explicit: ``shared`` is the server's vector, the same for
all clients of a round; ``own`` is the client's. A rule without memory has neither.

Every step is ``weights -= η · velocity`` with ``velocity = momentum · velocity + direction``; weight decay and clipping act
on the gradient before the rule sees it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from emulator.contracts.learning import LocalParams, Rule, local_rules


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
