"""Staleness functions: the factor s(τ) of an update whose sender started τ versions of the model ago.

Those of FedAsync (Xie, Koyejo and Gupta, *Asynchronous Federated Optimization*, arXiv:1903.03934, Section 5.2), with the values
of its experiments by default. FedBuff's 1/√(1 + τ) (Nguyen et al., AISTATS 2022) is the polynomial one with its default.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from emulator.contracts.staleness import stalenesses
from emulator.registry import NoParams, Params

Positive = Annotated[float, Field(gt=0)]


@stalenesses.register("constant")
def constant(staleness: int, params: NoParams) -> float:
    """Always 1: an old update counts like a new one."""
    return 1.0


class PolynomialParams(Params):
    """How fast it falls."""

    a: Positive = Field(0.5, description="exponent: the larger, the less an old update counts")


@stalenesses.register("polynomial", PolynomialParams)
def polynomial(staleness: int, params: PolynomialParams) -> float:
    """One over a power of staleness + 1."""
    return float((staleness + 1) ** -params.a)


class HingeParams(Params):
    """From where on it falls, and how fast."""

    a: Positive = Field(10.0, description="how fast it falls after that")
    b: Annotated[int, Field(ge=0)] = Field(4, description="up to this staleness an update counts in full")


@stalenesses.register("hinge", HingeParams)
def hinge(staleness: int, params: HingeParams) -> float:
    """1 up to some staleness; after it, one over a straight line that begins at 1."""
    return 1.0 if staleness <= params.b else 1 / (params.a * (staleness - params.b) + 1)
