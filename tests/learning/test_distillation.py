"""The tangent kernel in closed form, distillation by it, and what it costs."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from emulator.contracts.learning import data_sets
from emulator.errors import HflError
from emulator.learning.distillation import (
    Adam,
    DistillationParams,
    balanced_choice,
    centred,
    distil,
    distillation_flops,
    loss_and_gradients,
    predict,
    product_flops,
    soft_targets,
)
from emulator.learning.ntk import mean_square, ntk
from emulator.rng import stream


def gaussian(*shape: int, purpose: str = "samples") -> Tensor:
    return torch.from_numpy(stream(5, "test", purpose).normal(size=shape))


def two(angle: float, numbers: int = 6, norm: float = 1.7) -> Tensor:
    """Two samples of the same norm at an angle."""
    x = torch.zeros(2, numbers, dtype=torch.float64)
    x[0, 0], x[1, 0], x[1, 1] = norm, norm * math.cos(angle), norm * math.sin(angle)
    return x


def entry(angle: float, depth: int, **variances: float) -> float:
    return float(ntk(two(angle), depth=depth, **variances)[0, 1])


# Without biases the variance stays at q = 2 x·x / d in every layer.
Q = 2 * 1.7**2 / 6


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
def test_identical_inputs(depth: int) -> None:
    assert entry(0.0, depth, bias_variance=0.0) == pytest.approx((depth + 1) * Q, rel=1e-12)
    # The variance grows by the biases' in each layer, and the kernel is the sum of the layers' variances.
    expected = sum(Q + (layer + 1) * 0.3 for layer in range(depth + 1))
    assert entry(0.0, depth, bias_variance=0.3) == pytest.approx(expected, rel=1e-12)


def test_depth_zero_is_the_linear_kernel() -> None:
    x, z = gaussian(4, 7), gaussian(3, 7, purpose="others")
    expected = 1.5 * (x @ z.T) / 7 + 0.2
    assert torch.allclose(ntk(x, z, depth=0, weight_variance=1.5, bias_variance=0.2), expected, rtol=1e-12)


@pytest.mark.parametrize("angle", [0.0, 0.4, math.pi / 2, 2.5, math.pi])
def test_depth_one(angle: float) -> None:
    """Cho and Saul 2009, Eqs. 3 and 6 (degrees 1 and 0)."""
    j1, j0 = math.sin(angle) + (math.pi - angle) * math.cos(angle), math.pi - angle
    expected = Q / math.pi * (j1 + j0 * math.cos(angle))
    assert entry(angle, 1, bias_variance=0.0) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_orthogonal_and_opposite_inputs() -> None:
    assert entry(math.pi / 2, 1, bias_variance=0.0) == pytest.approx(Q / math.pi, rel=1e-12)
    assert entry(math.pi, 1, bias_variance=0.0) == pytest.approx(0.0, abs=1e-12)
    # A second layer sees the correlation 1/π.
    c = 1 / math.pi
    slopes = 1 - math.acos(c) / math.pi
    second = Q * (c * slopes + math.sqrt(1 - c**2) / math.pi) + slopes * Q / math.pi
    assert entry(math.pi / 2, 2, bias_variance=0.0) == pytest.approx(second, rel=1e-12)


def test_samples_of_different_norms_scale_the_kernel_without_biases() -> None:
    x, z = gaussian(5, 9), gaussian(4, 9, purpose="others")
    one = ntk(x, z, depth=3, bias_variance=0.0)
    assert torch.allclose(ntk(2 * x, 0.5 * z, depth=3, bias_variance=0.0), one, rtol=1e-10)
    assert torch.allclose(ntk(3 * x, z, depth=3, bias_variance=0.0), 3 * one, rtol=1e-10)
    assert torch.equal(ntk(x.view(5, 1, 3, 3), z.view(4, 1, 3, 3), depth=3), ntk(x, z, depth=3))
    assert torch.allclose(ntk(x, depth=3), ntk(x, x.clone(), depth=3), rtol=1e-6)


def empirical_kernel(x: Tensor, depth: int, width: int, weight: float, bias: float, seed: int) -> Tensor:
    """The Gram matrix of the gradients of one finite network."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [x.shape[1], *[width] * depth, 1]
    shapes = [s for n, m in pairwise(sizes) for s in ((m, n), (m,))]
    parameters = [torch.randn(s, generator=generator).requires_grad_() for s in shapes]
    rows = []
    for sample in x.float():
        h = sample
        for layer in range(depth + 1):
            w, b = parameters[2 * layer : 2 * layer + 2]
            h = math.sqrt(weight / len(h)) * (w @ h) + math.sqrt(bias) * b
            h = h.relu() if layer < depth else h
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(h.sum(), parameters)]))
    jacobian = torch.stack(rows)
    return (jacobian @ jacobian.T).double()


@pytest.mark.parametrize(("depth", "width", "networks"), [(1, 4096, 24), (3, 512, 64)])
def test_it_is_the_limit_of_wide_networks(depth: int, width: int, networks: int) -> None:
    x = gaussian(4, 12)
    drawn = torch.stack([empirical_kernel(x, depth, width, 2.0, 0.1, seed) for seed in range(networks)])
    exact = ntk(x, depth=depth, bias_variance=0.1)
    off = (drawn.mean(0) - exact).abs()
    assert float((off / (drawn.std(0) / math.sqrt(networks))).max()) < 3  # standard errors
    assert float(off.max() / exact.diagonal().max()) < 0.02
    assert float((ntk(x, depth=depth + 1, bias_variance=0.1) - exact).abs().min()) > 0.1  # another depth is far off


def test_gradients_are_right_and_finite_where_samples_coincide() -> None:
    x, z = gaussian(3, 5).requires_grad_(), gaussian(4, 5, purpose="others")
    assert torch.autograd.gradcheck(lambda a: ntk(a, z, depth=2), (x,))
    assert torch.autograd.gradcheck(lambda a: ntk(a, depth=2), (x,))
    for same in (x.detach(), -x.detach(), 1e-9 * gaussian(3, 5, purpose="tiny") + x.detach()):
        for dtype in (torch.float32, torch.float64):
            leaf = x.detach().to(dtype).requires_grad_()
            ntk(leaf, same.to(dtype), depth=3).sum().backward()
            assert leaf.grad is not None
            assert torch.isfinite(leaf.grad).all()
            assert float(leaf.grad.abs().max()) < 100


def test_samples_of_zeros_without_biases() -> None:
    x = torch.cat([torch.zeros(1, 4), torch.ones(1, 4)]).requires_grad_()
    kernel = ntk(x, depth=2, bias_variance=0.0)
    assert float(kernel[0].detach().abs().max()) < 1e-12
    assert torch.isfinite(torch.autograd.grad(kernel.sum(), x)[0]).all()


@pytest.mark.parametrize("learn_labels", [False, True])
def test_the_gradient_of_the_loss_is_that_of_its_formula(learn_labels: bool) -> None:
    params = DistillationParams(depth=2, ridge=1e-3, learn_labels=learn_labels)
    images, samples = gaussian(6, 8, purpose="images").requires_grad_(), gaussian(20, 8)
    labels = centred(torch.arange(6) % 3, 3).requires_grad_()
    goals = centred(torch.arange(20) % 3, 3)
    k_ss, k_ts = ntk(images, depth=2), ntk(samples, images, depth=2)
    ridge = 1e-3 * k_ss.trace() / 6 * torch.eye(6, dtype=torch.float64)
    loss = 0.5 * (goals - k_ts @ torch.linalg.inv(k_ss + ridge) @ labels).square().sum() / 20
    expected = torch.autograd.grad(loss, [images, labels])
    found = loss_and_gradients(images.detach(), labels.detach(), samples, mean_square(samples), goals, params)
    assert found[0] == pytest.approx(float(loss.detach()), rel=1e-9)
    assert torch.allclose(found[1], expected[0], rtol=1e-7, atol=1e-10)
    if learn_labels:
        assert found[2] is not None
        assert torch.allclose(found[2], expected[1], rtol=1e-7, atol=1e-10)
    else:
        assert found[2] is None


def digits(train: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    known = data_sets["digits"]
    arrays = known.function(known.params())
    parts = arrays.x_train[:train], arrays.y_train[:train], arrays.x_test, arrays.y_test
    x, y, x_test, y_test = (torch.from_numpy(part) for part in parts)
    return x, y, x_test, y_test


def settings(**changes: Any) -> DistillationParams:
    return DistillationParams(**{"images": 20, "steps": 60, "learning_rate": 0.02, "batch_size": 200, **changes})


def accuracy(images: Tensor, labels: Tensor, x: Tensor, y: Tensor, params: DistillationParams) -> float:
    y_s = labels if labels.dim() == 2 else centred(labels, 10)
    return float((predict(images, y_s, x, params).argmax(1) == y).double().mean())


@pytest.mark.parametrize("learn_labels", [False, True])
def test_distilled_images_beat_as_many_real_ones(learn_labels: bool) -> None:
    x, y, x_test, y_test = digits(600)
    params = settings(learn_labels=learn_labels)
    real = distil(x, y, 10, settings(steps=0), stream(1, "distil"))
    made = distil(x, y, 10, params, stream(1, "distil"))
    assert all(bool((x == image).flatten(1).all(1).any()) for image in real[0])  # the beginning are real samples
    assert made[0].shape == (20, 1, 8, 8)
    assert made[0].dtype == torch.float32
    assert torch.bincount(real[1]).tolist() == [2] * 10
    if learn_labels:
        assert made[1].shape == (20, 10)
        assert made[1].argmax(1).tolist() == real[1].tolist()
    else:
        assert torch.equal(made[1], real[1])
    before, after = (accuracy(*pair, x_test, y_test, params) for pair in (real, made))
    assert before < 0.85
    assert after > before + 0.1


def test_the_result_depends_on_seed_and_parameters_alone() -> None:
    x, y, _, _ = digits(300)

    def images(seed: int, threads: int, **changes: Any) -> Tensor:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return distil(x, y, 10, settings(steps=5, batch_size=150, **changes), stream(seed, "distil"))[0]
        finally:
            assert torch.get_num_threads() == threads
            torch.set_num_threads(before)

    first = images(1, 1)
    torch.manual_seed(99)
    assert torch.equal(first, images(1, 2))
    for other in (images(2, 1), images(1, 1, depth=2), images(1, 1, ridge=1e-2), images(1, 1, bias_variance=1.0)):
        assert not torch.equal(first, other)


def test_few_samples_stay_as_they_are() -> None:
    x, y, _, _ = digits(20)
    for samples in (1, 19, 20):
        images, labels = distil(x[:samples], y[:samples], 10, settings(), stream(1, "distil"))
        assert torch.equal(images, x[:samples])
        assert torch.equal(labels, y[:samples])
        assert settings().count(samples) == samples
        assert distillation_flops(samples, settings(), 64, 10) == 0
    _, soft = distil(x, y, 10, settings(learn_labels=True), stream(1, "distil"))
    assert torch.equal(soft, centred(y, 10).float())
    assert settings().count(21) == 20


def test_one_class_alone_and_many_copies_of_one_sample() -> None:
    x, y, _, _ = digits(600)
    images, labels = distil(x[y == 3], y[y == 3], 10, settings(), stream(1, "distil"))
    assert labels.tolist() == [3] * 20
    assert torch.isfinite(images).all()
    # The images predict their class for samples that they were not made of.
    assert accuracy(images, labels, x[y == 3], y[y == 3], settings()) == 1.0
    copies = x[:1].expand(30, -1, -1, -1)
    images, _ = distil(copies, y[:1].expand(30), 10, settings(steps=5), stream(1, "distil"))
    assert torch.isfinite(images).all()


def test_labels_are_shared_out_as_evenly_as_they_go() -> None:
    labels = np.repeat([0, 1, 2, 5], [50, 3, 20, 1])
    counts = np.bincount(labels[balanced_choice(labels, 24, stream(1, "choice"))], minlength=6)
    assert counts[[1, 5]].tolist() == [3, 1]
    assert counts[[0, 2]].tolist() == [10, 10]
    odd = [np.bincount(labels[balanced_choice(labels, 25, stream(s, "choice"))])[0] for s in range(20)]
    assert set(odd) == {10, 11}
    everything = balanced_choice(labels, 74, stream(1, "choice"))
    assert everything.tolist() == list(range(74))
    assert len(set(balanced_choice(labels, 24, stream(1, "choice")))) == 24


def test_soft_targets_are_the_closest_distributions() -> None:
    learned = torch.tensor([[0.9, -0.1, -0.1], [0.3, 0.2, 0.1], [5.0, -3.0, 4.5], [0.0, 0.0, 0.0]])
    soft = soft_targets(learned)
    assert torch.allclose(soft.sum(1), torch.ones(4))
    assert torch.allclose(soft[0], torch.tensor([1.0, 0.0, 0.0]))
    assert torch.allclose(soft[1], torch.tensor([1.3, 1.0, 0.7]) / 3)
    assert torch.allclose(soft[2], torch.tensor([0.75, 0.0, 0.25]))
    hard = centred(torch.tensor([2, 0]), 3)
    assert torch.allclose(soft_targets(hard), hard + 1 / 3)
    # No distribution on a fine grid is closer.
    steps = torch.arange(0, 1.001, 0.02)
    grid = torch.stack([g.flatten() for g in torch.meshgrid(steps, steps, indexing="ij")], 1)
    grid = torch.cat([grid, 1 - grid.sum(1, keepdim=True)], 1)[grid.sum(1) <= 1]
    assert ((learned[:, None] - grid).norm(dim=2).min(1).values >= (learned - soft).norm(dim=1) - 1e-6).all()


@pytest.mark.parametrize(("batch_size", "depth"), [(120, 1), (500, 3)])
def test_operations_are_those_that_torch_counts(batch_size: int, depth: int) -> None:
    params = DistillationParams(images=40, steps=2, batch_size=batch_size, depth=depth)
    x = gaussian(200, 3, 32, 32).float()
    y = torch.arange(200) % 10
    with FlopCounterMode(display=False) as counter:
        distil(x, y, 10, params, stream(1, "distil"))
    counted = counter.get_total_flops()  # of matrix products alone
    assert counted == 2 * product_flops(min(batch_size, 200), 40, 3072, 10)
    # What is no matrix product is small beside them: less than a twentieth, for images of this size.
    assert counted < distillation_flops(200, params, 3072, 10) < 1.05 * counted


def test_a_regression_without_a_solution_is_reported() -> None:
    x, y, _, _ = digits(100)
    alike = x[:1].expand(30, -1, -1, -1)
    with pytest.raises(HflError, match=r"too much alike.* a larger ridge \(now 1e-30\)"):
        distil(alike, y[:1].expand(30), 10, settings(ridge=1e-30), stream(1, "distil"))
    broken = x.clone()
    broken[7] = torch.nan
    with pytest.raises(HflError, match="no longer finite"):
        distil(broken, y, 10, settings(), stream(1, "distil"))


def test_the_optimiser_is_adam() -> None:
    ours = gaussian(4, 3)
    theirs = ours.clone().requires_grad_()
    one, other = Adam(ours, 0.01), torch.optim.Adam([theirs], 0.01)
    for step in range(20):
        gradient = gaussian(4, 3, purpose=f"step {step}")
        one.step(gradient)
        theirs.grad = gradient
        other.step()
    assert torch.allclose(ours, theirs.detach(), rtol=1e-12)
