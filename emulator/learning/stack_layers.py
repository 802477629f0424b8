"""Layers of a stack: normalisation, embeddings, recurrence, and modules that are taken as they are.

See `emulator.learning.stack_operations` for what an operation is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from emulator.learning.drawing import OwnDropout
from emulator.learning.stack_functions import Function, Graph
from emulator.learning.stack_operations import CHANNELS, Batch, Gradients, Operation, SingleValueError, Weights, total


class Normalisation(Operation):
    """Values less their mean and divided by their deviation, of channels; then scaled and shifted by parameters, if any.

    A subclass says over what. All sums run over rows of memory, in an order that no neighbour changes: torch's own kernels
    round by where in the stack a copy stands.
    """

    takes = gives = CHANNELS
    owns_result = True

    def __init__(self, weight: Weights | None, bias: Weights | None, eps: float) -> None:
        super().__init__(weight, bias)
        self._weight, self._bias, self._eps = weight, bias, eps

    def _sum(self, x: Tensor) -> Tensor:
        """Of [n, pixels, channels]: the sums by channel, [channels] or [n, channels], which `_mean` and parameters take."""
        raise NotImplementedError

    def _mean(self, sums: Tensor) -> Tensor:
        """The means over all values that are normalised together, to be spread over [n, pixels, channels]."""
        raise NotImplementedError

    def _normalise(self, x: Tensor) -> Tensor:
        """Of channels, as channels; keeps what the backward pass needs."""
        flat = _pixels(x)
        self._average = self._mean(self._sum(flat))
        centred = flat - self._average
        self._variance = self._mean(self._sum(centred.square()))
        self._inverse = (self._variance + self._eps).rsqrt()
        self._normal = centred.mul_(self._inverse)
        return _image(self._scaled(self._normal), x)

    def _scaled(self, normal: Tensor) -> Tensor:
        if self._weight is None:
            return normal.clone()
        bias = torch.zeros_like(self._weight.merged) if self._bias is None else self._bias.merged
        return torch.addcmul(bias, normal, self._weight.merged)

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """The gradient of values that are normalised by their own statistics."""
        flat = _pixels(gradient)
        sums, products = self._sum(flat), self._sum(flat * self._normal)
        weight = self._take(sums, products)
        if weight is not None:
            flat, sums, products = flat * weight, sums * weight, products * weight
        found = torch.addcmul(flat - self._mean(sums), self._normal, self._mean(products), value=-1)
        return [_image(found.mul_(self._inverse), gradient)]

    def _take(self, sums: Tensor, products: Tensor) -> Tensor | None:
        """Notes the gradients of the parameters; the values of the weights."""
        if self._bias is not None:
            self._bias.take(sums if sums.dim() == 1 else total(sums, 0))
        if self._weight is None:
            return None
        self._weight.take(products if products.dim() == 1 else total(products, 0))
        return self._weight.merged


class GroupNormalisation(Normalisation):
    """Over the pixels and channels of a group, for every sample."""

    def __init__(self, groups: int, weight: Weights | None, bias: Weights | None, eps: float) -> None:
        super().__init__(weight, bias, eps)
        self._groups = groups  # of all copies

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """The same in training and in tests."""
        self._count = x[0][0].numel() // self._groups
        return self._normalise(x[0])

    def _sum(self, x: Tensor) -> Tensor:
        return total(x, 1)

    def _mean(self, sums: Tensor) -> Tensor:
        apart = torch.unflatten(sums, 1, (self._groups, -1))
        return apart.sum(2, keepdim=True).div_(self._count).expand(apart.shape).flatten(1).unsqueeze(1)


class BatchNormalisation(Normalisation):
    """Over the samples of a copy's batch and their pixels; keeps running statistics of each copy.

    In tests, or where the layer is not trained, it goes by the running statistics.
    """

    def __init__(
        self, part: nn.BatchNorm1d | nn.BatchNorm2d, copies: int, weight: Weights | None, bias: Weights | None,
        running: tuple[Tensor, Tensor],
    ) -> None:  # fmt: skip
        super().__init__(weight, bias, part.eps)
        self._copies = copies
        self._running = [each.flatten() for each in running]
        self._share: float = part.momentum or 0.0

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """Leaves out rows that are no samples."""
        self._training = batch.training
        if not batch.training:
            mean, variance = self._running
            self._inverse = (variance + self._eps).rsqrt()
            self._normal = (_pixels(x[0]) - mean).mul_(self._inverse)
            return _image(self._scaled(self._normal), x[0])
        n, channels, rows, columns = x[0].shape
        counts = [n] * self._copies if batch.counts is None else batch.counts
        for copy, count in enumerate(counts):
            if count * rows * columns == 1:
                raise SingleValueError(copy)
        device, each = x[0].device, channels // self._copies
        real = torch.tensor(counts, device=device)
        self._present = None
        if any(count < n for count in counts):
            present = torch.arange(n, device=device).unsqueeze(1) < real
            self._present = present.float().repeat_interleave(each, 1).unsqueeze(1)  # [n, 1, channels]
        self._count = (real * (rows * columns)).clamp_min_(1).float().repeat_interleave(each)
        result = self._normalise(x[0])
        unbiased = self._variance * (self._count / (self._count - 1).clamp_min_(1))
        for running, now in zip(self._running, (self._average, unbiased), strict=True):
            seen = torch.lerp(running, now, self._share)
            running.copy_(torch.where(real.repeat_interleave(each) > 0, seen, running))
        return result

    def _sum(self, x: Tensor) -> Tensor:
        if self._training and self._present is not None:
            x = x * self._present
        return total(x.flatten(0, 1), 0)

    def _mean(self, sums: Tensor) -> Tensor:
        return sums / self._count

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """Rows that are no samples have no gradient."""
        if self._training:
            (found,) = super().backward(gradient, wanted)
            assert found is not None
            return [found if self._present is None else _image(_pixels(found) * self._present, gradient)]
        flat = _pixels(gradient)
        weight = self._take(self._sum(flat), self._sum(flat * self._normal))
        scale = self._inverse if weight is None else self._inverse * weight
        return [_image(flat * scale, gradient)]


def _pixels(x: Tensor) -> Tensor:
    """[n, channels, H, W] as [n, pixels, channels]."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)


def _image(flat: Tensor, like: Tensor) -> Tensor:
    """[n, pixels, channels] in the shape of an image."""
    return torch.unflatten(flat, 1, like.shape[2:]).permute(0, 3, 1, 2)


class Embedding(Operation):
    """Vectors of tokens [copies, n, ...], from a table for each copy."""

    def __init__(self, weight: Weights, padding: int | None) -> None:
        super().__init__(weight)
        self._weight, self._padding = weight, padding

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """[copies, n, ..., width]."""
        copies, entries = self._weight.value.shape[:2]
        first = torch.arange(copies, device=x[0].device) * entries
        self._at = x[0] + first.view(-1, *[1] * (x[0].dim() - 1))
        return F.embedding(self._at, self._weight.merged)

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """The sum of the gradients of every entry."""
        entries = len(self._weight.merged)
        found: Tensor = torch.ops.aten.embedding_dense_backward(gradient, self._at, entries, -1, False)
        found = found.view_as(self._weight.value)
        if self._padding is not None:
            found[:, self._padding] = 0
        self._weight.take(found)
        return [None]


def layer_norm(part: nn.LayerNorm, weight: Weights | None, bias: Weights | None) -> Operation:
    """Layer normalisation of [copies, n, ...]."""
    axes = len(part.normalized_shape)

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        y = F.layer_norm(x, part.normalized_shape, None, None, part.eps)
        scale, *shift = (
            p.view(len(p), *[1] * (x.dim() - 1 - axes), *p.shape[1:]) for p in parameters or (y.new_ones(len(x)),)
        )
        return y * scale + shift[0] if shift else y * scale

    return Function(run, weight, bias)


def recurrence(part: nn.LSTM | nn.GRU, parameters: Sequence[Weights]) -> Operation:
    """What a recurrent layer says after every step, [copies, n, steps, hidden].

    torch has LSTMs as one fast kernel, which runs copy after copy. It has none for GRUs: their copies take each step together.
    """
    each = len(parameters) // part.num_layers

    def lstm(x: Tensor, *weights: Tensor) -> Tensor:
        state = x.new_zeros(part.num_layers, x.shape[1], part.hidden_size)
        way = (part.bias, part.num_layers, 0.0, part.training, False, True)
        copies = zip(x.unbind(), *(w.unbind() for w in weights), strict=True)
        return torch.stack([torch.lstm(own, [state, state], list(w), *way)[0] for own, *w in copies])

    def gru(x: Tensor, *weights: Tensor) -> Tensor:
        for layer in range(part.num_layers):
            x = _gated(x, *weights[layer * each : (layer + 1) * each])
        return x

    return Function(lstm if isinstance(part, nn.LSTM) else gru, *parameters)


def _gated(x: Tensor, inner: Tensor, own: Tensor, *biases: Tensor) -> Tensor:
    """A layer of gated recurrent units, as torch has them (https://docs.pytorch.org/docs/stable/generated/torch.nn.GRU.html)."""
    copies, n, steps, _ = x.shape
    hidden = own.shape[2]
    first, second = (b.unsqueeze(1) for b in biases or (x.new_zeros(copies, 3 * hidden),) * 2)
    given = torch.baddbmm(first, x.transpose(1, 2).flatten(1, 2), inner.transpose(1, 2))
    turned = own.transpose(1, 2)
    state, said = x.new_zeros(copies, n, hidden), []
    for now in torch.unflatten(given, 1, (steps, n)).transpose(0, 1).contiguous().unbind():
        recalled = torch.baddbmm(second, state, turned)
        reset, keep = torch.sigmoid(now[..., : 2 * hidden] + recalled[..., : 2 * hidden]).chunk(2, 2)
        fresh = torch.tanh(torch.addcmul(now[..., 2 * hidden :], reset, recalled[..., 2 * hidden :]))
        state = torch.lerp(fresh, state, keep)
        said.append(state)
    return torch.stack(said, 2)


class Mapped(Graph):
    """A module of any kind, mapped over the copies by `torch.func`.

    ``buffers`` are the stacked values of its float buffers. ``call`` calls it with values of one copy, in the way of the forward
    pass; of several results the first counts. Its dropouts take masks that are drawn beforehand.
    """

    def __init__(
        self, part: nn.Module, parameters: dict[str, Weights], buffers: dict[str, Tensor],
        call: Callable[..., Any],
    ) -> None:  # fmt: skip
        super().__init__(*parameters.values())
        self._part, self._buffers, self._called = part, buffers, call
        self._names = list(parameters)
        self._dropouts = [m for m in part.modules() if isinstance(m, OwnDropout)]
        self._asked: list[tuple[tuple[int, ...], float]] | None = None  # shapes of its dropout masks, in their order

    def run(self, batch: Batch, *x: Tensor) -> Tensor:
        """One call for all copies."""
        drops = bool(self._dropouts) and batch.training and batch.masks is not None
        if drops and self._asked is None:
            self._asked = self._ask(*(v[0, :1] for v in x))
        masks = [batch.masks(*each) for each in self._asked or ()] if drops and batch.masks is not None else []
        self._part.train(batch.training)
        values = dict(zip(self._names, self._leaves, strict=True)) | self._buffers
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # the fused kernels cannot be mapped
            mapped: Tensor = torch.func.vmap(self._one)(values, masks, *x)
        return mapped

    def _one(self, values: dict[str, Tensor], masks: Sequence[Tensor], *x: Tensor) -> Tensor:
        """A single copy."""
        left = iter(masks)
        for dropout in self._dropouts:
            dropout.source = (lambda shape, p: next(left)) if masks else None
        try:
            said = self._called(lambda *a, **k: torch.func.functional_call(self._part, values, a, k), *x)
        finally:
            for dropout in self._dropouts:
                dropout.source = None
        return said[0] if isinstance(said, tuple) else said  # type: ignore[no-any-return]

    def _ask(self, *x: Tensor) -> list[tuple[tuple[int, ...], float]]:
        """Which masks the module draws for a sample, each by its shape and the share that it drops."""
        asked: list[tuple[tuple[int, ...], float]] = []

        def note(shape: tuple[int, ...], p: float) -> Tensor:
            asked.append((shape[1:], p))
            return torch.ones(shape)

        for dropout in self._dropouts:
            dropout.source = note
        self._part.train()
        try:
            with torch.no_grad():
                self._called(self._part, *x)
        finally:
            for dropout in self._dropouts:
                dropout.source = None
        return asked
