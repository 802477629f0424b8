"""The operations of a stack: a layer of many copies of a model at once, forward and backward.

Values of the copies stand side by side in one of two forms: *rows*, [copies, n, ...], and *channels*, [n, copies · C, H, W] with
the channels last in memory, between convolutions. An operation says which it takes and gives. Its ``forward`` keeps what its
``backward`` needs; ``backward`` writes the gradients of its parameters where they belong and returns those of its inputs. No
operation mixes copies, and none rounds a copy's values differently for what stands beside them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

aten = torch.ops.aten

ROWS, CHANNELS = "rows", "channels"
Masks = Callable[[tuple[int, ...], float], Tensor]
Gradients = Sequence[Tensor | None]


class SingleValueError(Exception):
    """A copy has one value for each channel, of which there are no statistics. ``copy`` is its number."""

    def __init__(self, copy: int) -> None:
        super().__init__("batch normalisation needs more than one value for each channel")
        self.copy = copy


@dataclass
class Batch:
    """What a forward pass is about, beside its samples.

    ``counts`` are the samples of each copy, of which short batches have fewer than rows; None: all rows are samples. ``masks``
    draws dropout masks; None: nothing is dropped.
    """

    training: bool = True
    counts: Sequence[int] | None = None
    masks: Masks | None = None


class Weights:
    """One parameter of all copies, ``value`` [copies, *shape], and its gradient: views of the flat vectors of a stack.

    ``merged`` is [copies · shape[0], ...]: the copies' channels one after another; those of convolutions channels-last.
    """

    def __init__(self, number: int, value: Tensor, gradient: Tensor) -> None:
        self.number = number
        self.value, self.gradient = value, gradient
        self.merged, self._merged_gradient = _merged(value), _merged(gradient)
        self.shared = False  # by several operations, whose gradients are added

    def take(self, gradient: Tensor) -> None:
        """Notes a gradient, of the form of ``value`` or ``merged``."""
        into = self.gradient if gradient.dim() == self.gradient.dim() else self._merged_gradient
        if self.shared:
            into.add_(gradient)
        else:
            into.copy_(gradient)


def _merged(x: Tensor) -> Tensor:
    if x.dim() == 1:
        return x
    return x.permute(0, 1, 3, 4, 2).flatten(0, 1).permute(0, 3, 1, 2) if x.dim() == 5 else x.flatten(0, 1)


class Operation(ABC):
    """One step of the program. ``takes`` and ``gives`` are forms; None: any, and the same as it takes.

    ``owns_result``: what it returns is a new tensor that it does not need itself, so the next may overwrite it.
    ``by_hand``: its backward pass is written out here, and leaves no graph.
    """

    takes: str | None = ROWS
    gives: str | None = ROWS
    owns_result = False
    by_hand = True

    def __init__(self, *parameters: Weights | None) -> None:
        self.parameters = [p for p in parameters if p is not None]

    @abstractmethod
    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """The result for inputs."""

    @abstractmethod
    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """The gradients of the inputs that are wanted, given that of the result."""


@dataclass(frozen=True)
class Step:
    """One operation of a program: reads ``inputs`` and writes ``output``, numbers of places."""

    operation: Operation
    inputs: tuple[int, ...]
    output: int


class ToChannels(Operation):
    """[copies, n, C, H, W] to channels."""

    gives = CHANNELS

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """One copy of the data."""
        self._copies = len(x[0])
        return to_channels(x[0])

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """A view."""
        return [to_rows(gradient, self._copies)]


class ToRows(Operation):
    """Channels to [copies, n, C, H, W]."""

    takes = CHANNELS

    def __init__(self, copies: int) -> None:
        super().__init__()
        self._copies = copies

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """A view."""
        return to_rows(x[0], self._copies)

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """One copy of the data."""
        return [to_channels(gradient)]


class AsImages(Operation):
    """An operation of channels, of vectors and sequences [copies, n, C, ...]: they are images of one row."""

    def __init__(self, operation: Operation) -> None:
        super().__init__(*operation.parameters)
        self._operation = operation

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """Of the same shape."""
        self._shape = x[0].shape
        return self._back(self._operation.forward(batch, self._there(x[0])))

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """The same way back."""
        (found,) = self._operation.backward(self._there(gradient), wanted)
        return [None if found is None else self._back(found)]

    def _there(self, x: Tensor) -> Tensor:
        return to_channels(x.reshape(*x.shape[:3], 1, -1))

    def _back(self, x: Tensor) -> Tensor:
        return to_rows(x, self._shape[0]).reshape(self._shape)


def to_channels(x: Tensor) -> Tensor:
    """[copies, n, C, H, W] as [n, copies · C, H, W], channels-last."""
    copies, n, channels, rows, columns = x.shape
    ordered = x.permute(1, 3, 4, 0, 2).reshape(n, rows, columns, copies * channels)
    return ordered.contiguous().permute(0, 3, 1, 2)


def to_rows(x: Tensor, copies: int) -> Tensor:
    """[n, copies · C, H, W] as [copies, n, C, H, W]."""
    return torch.unflatten(x, 1, (copies, -1)).transpose(0, 1)


def total(x: Tensor, axis: int) -> Tensor:
    """The sum over an axis, by adding halves: torch's own rounds by where in the stack a column stands."""
    while (rows := x.shape[axis]) > 1:
        first, second, rest = x.split([rows // 2, rows // 2, rows % 2], axis)  # type: ignore[no-untyped-call]
        x = first + second
        if rows % 2:
            x.narrow(axis, 0, 1).add_(rest)
    return x.squeeze(axis)


class Flatten(Operation):
    """[copies, n, ...] to [copies, n, F]."""

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """Copies what is not contiguous."""
        self._shape = x[0].shape
        return x[0].flatten(2)

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """A view."""
        return [gradient.reshape(self._shape)]


class Convolution(Operation):
    """One convolution whose groups are the copies'."""

    takes = gives = CHANNELS
    owns_result = True

    def __init__(self, part: nn.Conv2d, copies: int, weight: Weights, bias: Weights | None) -> None:
        super().__init__(weight, bias)
        padding = padding_of(part)
        assert padding is not None
        self._weight, self._bias = weight, bias
        self._how = (part.stride, padding, part.dilation)
        self._groups = part.groups * copies

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """Channels-last, as its input."""
        self._x = x[0]
        bias = None if self._bias is None else self._bias.merged
        return F.conv2d(x[0], self._weight.merged, bias, *self._how, self._groups)

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """All gradients by one call."""
        weight, sizes = self._weight.merged, None if self._bias is None else [len(self._bias.merged)]
        mask = [wanted[0], True, self._bias is not None]
        given = (*self._how, False, [0, 0], self._groups, mask)
        found = aten.convolution_backward(gradient, self._x, weight, sizes, *given)
        self._weight.take(found[1])
        if self._bias is not None:
            self._bias.take(found[2])
        return [found[0] if wanted[0] else None]


def padding_of(part: nn.Conv2d) -> tuple[int, ...] | None:
    """Zeros on each side of the image; None where the two sides differ, or where it is not padded with zeros."""
    if part.padding_mode != "zeros":
        return None
    if not isinstance(part.padding, str):
        return tuple(part.padding)
    spans = [d * (k - 1) for d, k in zip(part.dilation, part.kernel_size, strict=True)]
    if part.padding == "valid":
        return (0, 0)
    return None if any(span % 2 for span in spans) else tuple(span // 2 for span in spans)


class Linear(Operation):
    """One batched matrix product, of [copies, n, ..., F]."""

    owns_result = True

    def __init__(self, weight: Weights, bias: Weights | None) -> None:
        super().__init__(weight, bias)
        self._weight, self._bias = weight, bias

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """[copies, n, ..., outputs]."""
        self._shape = x[0].shape
        self._x = x[0] if x[0].dim() == 3 else x[0].flatten(1, -2)
        weight = self._weight.value.transpose(1, 2)
        if self._bias is None:
            result = torch.bmm(self._x, weight)
        else:
            result = torch.baddbmm(self._bias.value.unsqueeze(1), self._x, weight)
        return result if x[0].dim() == 3 else torch.unflatten(result, 1, self._shape[1:-1])

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """Writes the gradient of the weights where it belongs, without another copy."""
        flat = gradient if gradient.dim() == 3 else gradient.flatten(1, -2)
        if self._weight.shared:
            self._weight.take(torch.bmm(flat.transpose(1, 2), self._x))
        else:
            torch.bmm(flat.transpose(1, 2), self._x, out=self._weight.gradient)
        if self._bias is not None:
            self._bias.take(total(flat, 1))
        return [torch.bmm(flat, self._weight.value).view(self._shape) if wanted[0] else None]


class Relu(Operation):
    """max(x, 0), of any form; ``in_place`` where nobody else needs its input."""

    takes = gives = None

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self._in_place = in_place

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """Keeps its result."""
        self._y = x[0].relu_() if self._in_place else x[0].relu()
        return self._y

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """0 where the result is."""
        found: Tensor = aten.threshold_backward(gradient, self._y, 0)
        return [found]


class MaxPool(Operation):
    """Max-pooling, and the ReLU that stands before it: max(relu(x)) is relu(max(x)), at a quarter of the work."""

    takes = gives = CHANNELS

    def __init__(self, how: Sequence[Any], relu: bool) -> None:
        """``how``: kernel, stride, padding, dilation (numbers or pairs), and whether sizes are rounded up."""
        super().__init__()
        *pairs, rounded_up = how
        self._how = (*([p, p] if isinstance(p, int) else list(p) for p in pairs), rounded_up)
        self._relu = relu

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """Keeps where the maxima were."""
        self._x = x[0]
        self._y, self._at = aten.max_pool2d_with_indices(x[0], *self._how)
        return self._y.relu_() if self._relu else self._y  # type: ignore[no-any-return]

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """The gradients, where the maxima were."""
        if self._relu:
            gradient = aten.threshold_backward(gradient, self._y, 0)
        found: Tensor = aten.max_pool2d_with_indices_backward(gradient, self._x, *self._how, self._at)
        return [found]


class Mean(Operation):
    """The mean over the image, as an image of one pixel."""

    takes = gives = CHANNELS

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """[n, channels, 1, 1]."""
        self._shape = x[0].shape
        n, channels, rows, columns = self._shape
        pixels = x[0].permute(0, 2, 3, 1).reshape(n, rows * columns, channels)
        return (total(pixels, 1) / (rows * columns)).view(n, channels, 1, 1)

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """An equal share for every pixel."""
        n, channels, rows, columns = self._shape
        share = (gradient / (rows * columns)).view(n, 1, 1, channels)
        return [share.expand(n, rows, columns, channels).contiguous().permute(0, 3, 1, 2)]


class Add(Operation):
    """The sum of two values of one form."""

    takes = gives = None
    owns_result = True

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """A new tensor."""
        return x[0] + x[1]

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """The same for both."""
        return [gradient, gradient]


class Same(Operation):
    """What it is given."""

    takes = gives = None

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """Its input."""
        return x[0]

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """Its gradient."""
        return [gradient]


class Dropout(Operation):
    """Zeroes values by masks that each copy draws as it would alone."""

    takes = gives = None

    def __init__(self, p: float, copies: int, form: str) -> None:
        super().__init__()
        self._p, self._copies, self._form = p, copies, form

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """The input itself where nothing is dropped."""
        self._mask = None
        if not batch.training or batch.masks is None:
            return x[0]
        if self._form == CHANNELS:
            _, channels, rows, columns = x[0].shape
            self._mask = to_channels(batch.masks((channels // self._copies, rows, columns), self._p))
        else:
            self._mask = batch.masks(tuple(x[0].shape[2:]), self._p)
        return x[0] * self._mask

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """The same masks."""
        return [gradient if self._mask is None else gradient * self._mask]
