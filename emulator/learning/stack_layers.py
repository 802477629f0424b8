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
from emulator.learning.stack_operations import CHANNELS, Batch, Gradients, Operation, SingleValueError, Weights, aten


class GroupNormalisation(Operation):
    """Group normalisation, of channels."""

    takes = gives = CHANNELS
    owns_result = True

    def __init__(self, part: nn.GroupNorm, copies: int, weight: Weights | None, bias: Weights | None) -> None:
        super().__init__(weight, bias)
        self._weight, self._bias = weight, bias
        self._groups, self._eps = part.num_groups * copies, part.eps
        # torch's kernel for channels-last rounds by where in a stack a copy stands, and is slow where a group has few channels.
        wide = part.num_channels // part.num_groups >= _WIDE
        self._order = torch.channels_last if copies == 1 and wide else torch.contiguous_format

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """The same in training and in tests."""
        n, channels, rows, columns = x[0].shape
        self._x = x[0].contiguous(memory_format=self._order)
        self._sizes = (n, channels, rows * columns, self._groups)
        y, *self._seen = aten.native_group_norm(
            self._x, _merged(self._weight), _merged(self._bias), *self._sizes, self._eps
        )
        return y.contiguous(memory_format=torch.channels_last)  # type: ignore[no-any-return]

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """All gradients by one call."""
        given = (
            gradient.contiguous(memory_format=self._order),
            self._x,
            *self._seen,
            _merged(self._weight),
            *self._sizes,
        )
        mask = [True, self._weight is not None, self._bias is not None]
        found, *own = aten.native_group_norm_backward(*given, mask)
        _take(own, self._weight, self._bias)
        return [found.contiguous(memory_format=torch.channels_last)]


class BatchNormalisation(Operation):
    """Batch normalisation, of channels; keeps running statistics of each copy.

    One call normalises all copies. A copy whose batch is short is then normalised by itself, without the rows that are no
    samples. So are all where channels would be left over that torch rounds differently. In tests, or where the layer is not
    trained, copies go by their running statistics.
    """

    takes = gives = CHANNELS

    def __init__(
        self, part: nn.BatchNorm1d | nn.BatchNorm2d, copies: int, weight: Weights | None, bias: Weights | None,
        running: tuple[Tensor, Tensor],
    ) -> None:  # fmt: skip
        super().__init__(weight, bias)
        self._copies = copies
        self._weight, self._bias = weight, bias
        self._running = running  # [copies, channels] each
        self._share, self._eps = part.momentum, part.eps
        self._together = copies == 1 or copies * part.num_features % _EVEN == 0

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """Leaves out rows that are no samples."""
        self._x, self._training, n = x[0], batch.training, len(x[0])
        counts = [n] * self._copies if batch.counts is None or not batch.training else batch.counts
        for copy, count in enumerate(counts):
            if self._training and count * x[0][0, 0].numel() == 1:
                raise SingleValueError(copy)
        self._apart = [(c, count) for c, count in enumerate(counts) if count < n or not self._together]
        kept = [[each[copy].clone() for each in self._running] for copy, _ in self._apart]
        y, self._seen = torch.zeros_like(x[0]), []
        if self._together:
            y, *self._seen = self._call(x[0], None)
        self._own = []
        for (copy, count), before in zip(self._apart, kept, strict=True):
            for each, value in zip(self._running, before, strict=True):
                each[copy] = value
            if count:
                result, *seen = self._call(self._part(x[0], copy, count), copy)
                self._place(y, copy, count).copy_(result)
                self._own.append(seen)
        return y

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """Rows that are no samples have no gradient."""
        found = torch.zeros_like(gradient)
        if self._together:
            found, *own = self._back(gradient, self._x, self._seen, None)
            _take(own, self._weight, self._bias)
        left = iter(self._own)
        for copy, count in self._apart:
            own = [gradient.new_zeros(())] * 2
            self._place(found, copy, len(found)).zero_()
            if count:
                given, x = self._part(gradient, copy, count), self._part(self._x, copy, count)
                result, *own = self._back(given, x, next(left), copy)
                self._place(found, copy, count).copy_(result)
            for weights, each in zip((self._weight, self._bias), own, strict=True):
                if weights is not None:
                    weights.gradient[copy] = each
        return [found]

    def _place(self, x: Tensor, copy: int, count: int) -> Tensor:
        """The first rows of a copy."""
        channels = x.shape[1] // self._copies
        return x[:count, copy * channels : (copy + 1) * channels]

    def _part(self, x: Tensor, copy: int, count: int) -> Tensor:
        """What stands there, as one piece of memory."""
        return self._place(x, copy, count).contiguous(memory_format=torch.channels_last)

    def _given(self, copy: int | None) -> list[Tensor | None]:
        """Weights, biases and running statistics of a copy, or of all."""
        held = [None if w is None else w.value for w in (self._weight, self._bias)] + list(self._running)
        return [None if h is None else h.view(-1) if copy is None else h[copy] for h in held]

    def _call(self, x: Tensor, copy: int | None) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = aten.native_batch_norm(
            x, *self._given(copy), self._training, self._share, self._eps
        )
        return found

    def _back(self, gradient: Tensor, x: Tensor, seen: Sequence[Tensor], copy: int | None) -> tuple[Tensor, ...]:
        weight, _, *running = self._given(copy)
        how = (self._training, self._eps, [True, self._weight is not None, self._bias is not None])
        found: tuple[Tensor, ...] = aten.native_batch_norm_backward(gradient, x, weight, *running, *seen, *how)
        return found


_EVEN = 16  # channels that torch takes at once, at most
_WIDE = 8  # channels of a group from which on torch's kernel for channels-last is the faster one


def _merged(weights: Weights | None) -> Tensor | None:
    return None if weights is None else weights.merged


def _take(gradients: Sequence[Tensor], *parameters: Weights | None) -> None:
    """Notes the gradients of those parameters that there are."""
    for weights, gradient in zip(parameters, gradients, strict=True):
        if weights is not None:
            weights.take(gradient)


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
        found: Tensor = aten.embedding_dense_backward(gradient, self._at, entries, -1, False)
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
