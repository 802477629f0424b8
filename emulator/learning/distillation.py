"""Dataset distillation by kernel inducing points (KIP; Nguyen, Chen and Lee 2021), as S5 uses it.

A client's samples are replaced by a few made-up images from which kernel ridge regression predicts the labels of all of them:

    minimise  ½ ‖y_t - K_ts (K_ss + λ I)⁻¹ y_s‖²  over the images s (and, if wanted, their labels)

K is the neural tangent kernel of `emulator.learning.ntk`, y are one-hot labels less 1 / classes, and λ is ``ridge`` times the
mean of the diagonal of K_ss, so that the scale of the kernel does not matter. The images begin as samples of the client,
spread over its labels as evenly as can be, and follow Adam on batches of the client's samples. They live in the
normalised space of the data set and are not held to the range of its pixels.

A client that has no more samples than it should distil keeps them as they are: there is nothing to gain.
A client of one class distils without a notion of the others; its images are then worth no more than as many of its samples
(``benchmarks/distillation.py`` measures both).

Does not import torch at its top: what takes the parameters must stay quick to read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from emulator.errors import HflError, InputError
from emulator.registry import Params, Scale
from emulator.rng import stream

if TYPE_CHECKING:
    from torch import Tensor


KERNEL_OPERATIONS = 50  # on an entry of the kernel in a layer, there and back; a root or an arc cosine counts as one
IMAGE_OPERATIONS = 15  # on a number of an image: Adam, and putting its gradient together


class DistillationParams(Params):
    """How a client distils its data."""

    images: Annotated[int, Field(ge=1, le=10_000)] = Field(
        100, description="images that a client distils its data to (r)"
    )
    steps: Annotated[int, Field(ge=0, le=1_000_000)] = Field(200, description="steps of the optimiser (Adam)")
    learning_rate: Annotated[float, Field(gt=0, le=1000)] = Field(0.004, description="step size of the optimiser")
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        500, description="samples that a step predicts; at most all that the client has"
    )
    ridge: Annotated[float, Field(gt=0)] = Field(
        1e-6, description="regularisation of the regression, in shares of the kernel's mean diagonal (λ)"
    )
    depth: Annotated[int, Field(ge=0, le=100)] = Field(1, description="hidden layers of the network behind the kernel")
    weight_variance: Annotated[float, Field(gt=0)] = Field(2.0, description="variance of that network's weights")
    bias_variance: Annotated[float, Field(ge=0)] = Field(0.01, description="variance of that network's biases")
    learn_labels: bool = Field(False, description="distil labels too: training then has soft targets")

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """Samples that are no images, where that is known."""
        if scale.shape is not None and (why := _not_distillable(scale.shape)):
            yield "", why

    def count(self, samples: int) -> int:
        """How many images a client of so many samples ends up with."""
        return min(samples, self.images)


@dataclass(frozen=True)
class DistilJob:
    """One client's data to be distilled."""

    client: int
    classes: int
    params: DistillationParams


def check_distillable(shape: tuple[int, ...]) -> None:
    """Raises `InputError` where samples of this shape are no images: what is distilled moves by gradients, and tokens cannot."""
    if why := _not_distillable(shape):
        raise InputError(why, "method.training")


def _not_distillable(shape: tuple[int, ...]) -> str:
    if len(shape) == 3:
        return ""
    return f"only images can be distilled; the samples have the shape {shape}: take another data set or method"


def distil_client(
    x: Tensor, y: Tensor, parts: Sequence[np.ndarray] | Mapping[int, np.ndarray], job: DistilJob, seed: int
) -> tuple[Tensor, Tensor]:
    """A client's distilled images and their labels, on the CPU, from all samples and the indices of each client's own.

    It is distilled on the device of the samples. Learned labels are soft targets here, float32 [r, classes]. The result
    depends on the job, the client's samples and the scenario's seed alone. Raises `HflError` as `distil`.
    """
    import torch

    mine = torch.from_numpy(parts[job.client]).to(x.device)
    try:
        images, labels = distil(x[mine], y[mine], job.classes, job.params, stream(seed, "distillation", job.client))
    except HflError as error:
        raise HflError(f"client {job.client}: {error}") from None
    images, labels = images.cpu(), labels.cpu()
    return images, soft_targets(labels) if job.params.learn_labels else labels


def distil(
    x: Tensor, y: Tensor, classes: int, params: DistillationParams, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """The images [r, ...] and labels that stand for samples ``x`` with labels ``y`` (int64).

    The labels are int64 [r]; learned ones are float32 [r, classes], centred as the regression has them (`soft_targets`
    makes distributions of them). With no more samples than ``params.images`` the result is the samples themselves. Computes
    with one thread, so that the result depends on the arguments alone. Raises `HflError` where the regression has no solution.
    """
    import torch

    if len(y) <= params.images:
        return x.clone(), centred(y, classes).float() if params.learn_labels else y.clone()
    with _one_thread():
        chosen = torch.from_numpy(balanced_choice(y.cpu().numpy(), params.images, rng)).to(y.device)
        images, labels = _optimised(x.flatten(1), centred(y, classes), chosen, params, rng)
    if not bool(torch.isfinite(images).all() and torch.isfinite(labels).all()):
        raise _no_solution(params)
    return images.view(-1, *x.shape[1:]), labels.float() if params.learn_labels else y[chosen]


def _optimised(
    samples: Tensor, goals: Tensor, chosen: Tensor, params: DistillationParams, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Images and centred labels after all steps."""
    from emulator.learning.ntk import mean_square

    squares = mean_square(samples)
    images, labels = samples[chosen].clone(), goals[chosen].clone()
    of_images, of_labels = Adam(images, params.learning_rate), Adam(labels, params.learning_rate)
    for batch in _batches(len(goals), params, rng):
        if not isinstance(batch, slice):
            batch = batch.to(samples.device)
        targets = (samples[batch], squares[batch], goals[batch])
        _, gradient, gradient_of_labels = loss_and_gradients(images, labels, *targets, params)
        of_images.step(gradient)
        if gradient_of_labels is not None:
            of_labels.step(gradient_of_labels)
    return images, labels


class Adam:
    """The optimiser of Kingma and Ba (2015) with its usual constants, on one tensor, which it changes in place.

    torch's own gives the same but takes seconds to be imported.
    """

    def __init__(self, values: Tensor, learning_rate: float) -> None:
        self._values = values
        self._rate = learning_rate
        self._mean, self._square = values.new_zeros(values.shape), values.new_zeros(values.shape)
        self._steps = 0

    def step(self, gradient: Tensor) -> None:
        """Moves the values against a gradient."""
        self._steps += 1
        self._mean.mul_(0.9).add_(gradient, alpha=0.1)
        self._square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        root = self._square.div(1 - 0.999**self._steps).sqrt_().add_(1e-8)
        self._values.addcdiv_(self._mean, root, value=-self._rate / (1 - 0.9**self._steps))


def loss_and_gradients(
    images: Tensor, labels: Tensor, samples: Tensor, squares: Tensor, goals: Tensor, params: DistillationParams
) -> tuple[float, Tensor, Tensor | None]:
    """The loss of predicting ``goals`` [b, classes] of ``samples`` [b, d], a mean over them, and its gradients.

    Those are of images and (where they are learned) labels. ``squares`` are the samples' mean squares. The loss depends on
    the images through their inner products alone. Those with the samples, the bulk of the arithmetic, are taken in
    single precision; what is inverted, in double. Raises `HflError` where it cannot be inverted.
    """
    import torch

    from emulator.learning.ntk import ntk_of_products

    kernel = (params.depth, params.weight_variance, params.bias_variance)
    numbers = images.shape[1]
    double = images.double()
    ss = (double @ double.T / numbers).requires_grad_()
    ts = ((samples @ images.T).double() / numbers).requires_grad_()
    y_s = labels.detach().requires_grad_(params.learn_labels)
    k_ss = ntk_of_products(ss, ss.diagonal(), ss.diagonal(), *kernel)
    k_ts = ntk_of_products(ts, squares, ss.diagonal(), *kernel)
    missed = goals - k_ts @ _coefficients(k_ss, y_s, params)
    loss = missed.square().sum() / (2 * len(goals))
    of_ss, of_ts, *of_labels = torch.autograd.grad(loss, [ss, ts, y_s] if params.learn_labels else [ss, ts])
    gradient = (of_ss + of_ss.T).to(images.dtype) @ images + of_ts.T.to(images.dtype) @ samples
    return float(loss.detach()), gradient / numbers, of_labels[0] if of_labels else None


def predict(x_s: Tensor, y_s: Tensor, x: Tensor, params: DistillationParams) -> Tensor:
    """What kernel ridge regression on images ``x_s`` with centred labels ``y_s`` says of ``x``, float64 [len(x), classes]."""
    from emulator.learning.ntk import ntk

    kernel = partial(
        ntk, depth=params.depth, weight_variance=params.weight_variance, bias_variance=params.bias_variance
    )
    with _one_thread():
        return kernel(x, x_s) @ _coefficients(kernel(x_s.double()), y_s.double(), params)


def _coefficients(k_ss: Tensor, y_s: Tensor, params: DistillationParams) -> Tensor:
    """(K_ss + λ I)⁻¹ y_s by a Cholesky decomposition; raises `HflError` where there is none."""
    import torch

    diagonal = k_ss.diagonal()
    ridge = torch.diag((params.ridge * diagonal.mean()).expand_as(diagonal))
    factor, failed = torch.linalg.cholesky_ex(k_ss + ridge)
    if failed:
        raise _no_solution(params)
    return torch.cholesky_solve(y_s, factor)


def distillation_flops(samples: int, params: DistillationParams, features: int, classes: int) -> float:
    """Operations of distilling so many samples of ``features`` numbers, a multiplication with its addition counted as two.

    0 where nothing is distilled. Beside matrix products they are those of the decomposition, of the triangular solves, and of
    what goes entry by entry (which counts for little unless samples are very small).
    """
    if samples <= params.images:
        return 0.0
    r, b = params.images, min(params.batch_size, samples)
    solves = r**3 / 3 + 2 * r**3 + 4 * classes * r**2  # the decomposition, its gradient; the solution, its gradient
    entries = KERNEL_OPERATIONS * params.depth * (b * r + r * r) + IMAGE_OPERATIONS * r * features
    return params.steps * (product_flops(b, r, features, classes) + solves + entries)


def product_flops(batch: int, images: int, features: int, classes: int) -> float:
    """The part of a step's operations that are matrix products."""
    r, b = images, batch
    inner = 4.0 * (b * r + r * r) * features  # once for the inner products, once for their gradients
    predictions = 6.0 * b * r * classes  # K_ts times the coefficients, and the gradients of both
    return inner + predictions + 4.0 * r**3 + 2.0 * r * r * classes  # and the gradient of the decomposition


def centred(y: Tensor, classes: int) -> Tensor:
    """One-hot labels less 1 / classes, float64 [len(y), classes]."""
    import torch

    return torch.nn.functional.one_hot(y, classes).double() - 1.0 / classes


def soft_targets(labels: Tensor) -> Tensor:
    """The distributions that are closest to learned labels [r, classes]: their projections onto the simplex.

    Sort, find how many entries stay positive, shift them so that they sum to one (Duchi et al. 2008, Fig. 1). Centring
    the labels changes nothing.
    """
    import torch

    falling = labels.double().sort(dim=1, descending=True).values
    shift = (falling.cumsum(1) - 1.0) / torch.arange(1, labels.shape[1] + 1)
    stay = (falling > shift).sum(1, keepdim=True)
    return (labels.double() - shift.gather(1, stay - 1)).clamp_min(0.0).to(labels.dtype)


def balanced_choice(labels: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Sorted indices of ``count`` samples, as evenly over the labels as there are samples of each."""
    order = rng.permutation(len(labels))
    turn = np.empty(len(labels), np.int64)  # which of its label a sample is, in a random order
    for label in np.unique(labels):
        mine = order[labels[order] == label]
        turn[mine] = np.arange(len(mine))
    # All first ones, then all second ones, ...; the last turn goes to some labels at random.
    return np.sort(np.lexsort((rng.permutation(len(labels)), turn))[:count])


def _batches(samples: int, params: DistillationParams, rng: np.random.Generator) -> Iterator[Tensor | slice]:
    """What each step predicts: whole batches of passes over the samples in random order, or all of them."""
    import torch

    size = params.batch_size
    order, at = np.arange(0), 0
    for _ in range(params.steps):
        if size >= samples:
            yield slice(None)
            continue
        if at + size > len(order):
            order, at = rng.permutation(samples), 0
        yield torch.from_numpy(order[at : at + size])
        at += size


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _no_solution(params: DistillationParams) -> HflError:
    return HflError(
        "the images that a client distils are too much alike, or no longer finite: the regression on them has no solution; "
        f"a larger ridge (now {params.ridge:g}) or a smaller learning rate (now {params.learning_rate:g}) may help"
    )
