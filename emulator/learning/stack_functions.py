"""Operations of a stack whose backward pass torch finds (see `emulator.learning.stack_operations`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode

from emulator.learning.stack_operations import ROWS, Batch, Gradients, Operation, Weights


class Evenly(TorchFunctionMode):
    """A block in which no function rounds a value by where in a tensor it stands.

    torch computes many values by one instruction, and the few that are left over one by one. For some functions the two round
    differently; these are computed on tensors that are filled up, so that nothing is left over.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls the function, of a tensor that is filled up with zeros where it must be."""
        x = args[0] if func in _UNEVEN and args else None
        if not isinstance(x, Tensor) or x.numel() % _AT_ONCE == 0:
            return func(*args, **kwargs or {})
        last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
        ordered = x.permute(0, 2, 3, 1) if last else x
        filled = F.pad(ordered.flatten(), (0, -x.numel() % _AT_ONCE))
        found = func(filled, *args[1:], **kwargs or {})[: x.numel()].view(ordered.shape)
        return found.permute(0, 3, 1, 2) if last else found


_AT_ONCE = 64  # values: more than any processor computes by one instruction, several times over
_UNEVEN = {
    torch.sigmoid, Tensor.sigmoid, F.sigmoid, F.gelu, F.silu, F.elu, F.selu, F.celu, F.softplus, F.mish, F.hardsigmoid,
    F.logsigmoid, torch.pow, Tensor.pow, Tensor.__pow__,
}  # fmt: skip


class Graph(Operation):
    """An operation whose backward pass torch finds, by a graph that lives from its forward to its backward pass."""

    by_hand = False

    def __init__(self, *parameters: Weights | None) -> None:
        super().__init__(*parameters)
        # `.data`: leaves of the graph that share memory with the flat vector, which steps change in place.
        self._leaves = [p.value.data.requires_grad_() for p in self.parameters]

    @abstractmethod
    def run(self, batch: Batch, *x: Tensor) -> Tensor:
        """The result for inputs and ``_leaves``."""

    def forward(self, batch: Batch, *x: Tensor) -> Tensor:
        """Runs it, and keeps the graph."""
        self._x = [v.detach().requires_grad_(v.is_floating_point()) for v in x]
        with torch.enable_grad(), Evenly():
            self._y = self.run(batch, *self._x)
        return self._y.detach()

    def backward(self, gradient: Tensor, wanted: Sequence[bool]) -> Gradients:
        """What torch finds."""
        inputs = [x for x, want in zip(self._x, wanted, strict=True) if want]
        found = iter(torch.autograd.grad(self._y, [*inputs, *self._leaves], gradient, allow_unused=True))
        result = [next(found) if want else None for want in wanted]
        for weights, each in zip(self.parameters, found, strict=True):
            weights.take(torch.zeros_like(weights.value) if each is None else each)
        del self._y, self._x
        return result


class Function(Graph):
    """A function of inputs and parameters [copies, ...] that is stacked by itself."""

    def __init__(
        self,
        function: Callable[..., Tensor],
        *parameters: Weights | None,
        takes: str | None = ROWS,
        gives: str | None = ROWS,
    ) -> None:
        super().__init__(*parameters)
        self.takes, self.gives = takes, gives
        self._function = function

    def run(self, batch: Batch, *x: Tensor) -> Tensor:
        """Calls it."""
        return self._function(*x, *self._leaves)
