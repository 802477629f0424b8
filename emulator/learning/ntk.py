"""The neural tangent kernel of an infinitely wide fully connected ReLU network, in closed form.

The network has ``depth`` hidden layers. A layer of n inputs computes ``sqrt(weight_variance / n) · W x + sqrt(bias_variance)
· b`` with all entries of W and b drawn from N(0, 1) and trained. That holds for the first layer too, so samples of d numbers
enter by ``x · z / d``: with samples normalised to unit variance the kernel is of order one, whatever d is.

The covariance of the layers follows the arc-cosine kernels of Cho and Saul (2009), the tangent kernel the recursion of
Jacot et al. (2018). With q, q' the variances of two samples in a layer, c their correlation:

    κ0(c) = 1 - arccos(c) / π                        twice the expected product of the ReLU's slopes
    κ1(c) = c · κ0(c) + sqrt(1 - c²) / π             twice the expected product of the ReLUs, for q = q' = 1
    covariance  <-  bias_variance + weight_variance / 2 · sqrt(q q') · κ1(c)
    kernel      <-  covariance + weight_variance / 2 · κ0(c) · kernel

Everything past the inner products is computed in double precision.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

_COINCIDE = 1e-7  # sine of an angle that counts as none
_TINY = 1e-30  # keeps samples of zeros from being divided by their norm


def ntk(
    x: Tensor,
    z: Tensor | None = None,
    *,
    depth: int,
    weight_variance: float = 2.0,
    bias_variance: float = 0.01,
) -> Tensor:
    """The kernel of every sample of ``x`` with every one of ``z`` (without ``z``: of ``x`` itself), float64 [len(x), len(z)].

    Samples may have any shape, the same in both. Inner products are taken in the precision of the samples.
    """
    a = x.flatten(1)
    b = a if z is None else z.flatten(1)
    products = (a @ b.T).double() / a.shape[1]
    left = products.diagonal() if z is None else mean_square(a)
    right = left if z is None else mean_square(b)
    return ntk_of_products(products, left, right, depth, weight_variance, bias_variance)


def mean_square(x: Tensor) -> Tensor:
    """``x · x / d`` of every row, float64."""
    # Part by part, so that there is never a second, larger copy of a whole data set.
    return torch.cat([part.double().square().mean(1) for part in x.split(1024)])  # type: ignore[no-untyped-call]


def ntk_of_products(
    products: Tensor, left: Tensor, right: Tensor, depth: int, weight_variance: float, bias_variance: float
) -> Tensor:
    """The kernel from the inner products ``x · z / d`` [n, m] of samples and those of each with itself, [n] and [m].

    The kernel has a kink where two samples coincide; there its gradient is taken to be 0, the middle of what it is around.
    """
    half = weight_variance / 2
    covariance = weight_variance * products + bias_variance
    kernel, a, b = covariance, weight_variance * left + bias_variance, weight_variance * right + bias_variance
    for _ in range(depth):
        scale = (a[:, None] * b).clamp_min(_TINY).sqrt()
        slopes, values = _arc_cosine(covariance / scale)
        covariance = half * scale * values + bias_variance
        kernel = covariance + half * slopes * kernel
        a, b = half * a + bias_variance, half * b + bias_variance
    return kernel


class _ArcCosine(torch.autograd.Function):
    """κ0 and κ1 of a correlation, with slopes that are finite where it is 1 or -1."""

    @staticmethod
    def forward(ctx: Any, correlation: Tensor) -> tuple[Tensor, Tensor]:
        """Both kernels; a correlation that rounding has put beyond ±1 counts as ±1."""
        c = correlation.clamp(-1.0, 1.0)
        sine = (1.0 - c.square()).sqrt()
        order0 = 1.0 - c.acos() / math.pi
        ctx.save_for_backward(sine, order0)
        return order0, c * order0 + sine / math.pi

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """κ0' = 1 / (π sqrt(1 - c²)), κ1' = κ0."""
        sine, order0 = ctx.saved_tensors
        slope = torch.where(sine > _COINCIDE, 1.0 / (math.pi * sine.clamp_min(_COINCIDE)), 0.0)
        gradient: Tensor = gradients[0] * slope + gradients[1] * order0
        return gradient


def _arc_cosine(correlation: Tensor) -> tuple[Tensor, Tensor]:
    result: tuple[Tensor, Tensor] = _ArcCosine.apply(correlation)  # type: ignore[no-untyped-call]
    return result
