"""Many copies of a small model as one tensor program.

Training a tiny model is bound by the cost of starting operations, not by arithmetic. A `StackedModel` holds several copies of a
module (one a client) and runs them in one program: convolutions become one grouped convolution over the copies' channels,
linear layers one batched matrix product. Each copy's result is the one it would have alone, to float32 rounding, and does not
depend in a single bit on what the other copies are: the number of copies and the batch size are always the same (short
batches and empty places are padded), and no operation mixes copies.

Activations of the copies stand side by side in one of two forms: *channels*, [n, copies · C, H, W], between convolutions, and
*features*, [copies, n, F], between linear layers. The input has the form [copies, n, ...].
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx, nn

from emulator.learning.flat import device_of, flat_gradient, shaped

INPUT, CHANNELS, FEATURES = "input", "channels", "features"


class CannotStackError(Exception):
    """The module has a part that has no stacked form; the message names it."""


@dataclass
class _Step:
    """One operation of the program: reads ``inputs`` and writes ``output``, places in the table of values."""

    run: Callable[..., Tensor]
    inputs: tuple[int, ...]
    output: int


class StackedModel:
    """``copies`` copies of a module, with their weights and gradients in flat vectors.

    A flat vector of the stack holds one block for each parameter, in the order of the module, and in a block one copy after
    another, each laid out as in the flat vector of a single model (see `emulator.learning.flat`).
    Raises `CannotStackError` where the module cannot be stacked.
    """

    def __init__(self, module: nn.Module, copies: int) -> None:
        self.copies = copies
        if any(b.is_floating_point() for b in module.buffers()):
            raise CannotStackError("buffers that training changes, such as the statistics of BatchNorm")
        self._shapes = [tuple(p.shape) for p in module.parameters()]
        self.size = sum(p.numel() for p in module.parameters())  # of a single copy
        self.weights = torch.zeros(copies * self.size, device=device_of(module))
        self._gradient = torch.zeros_like(self.weights)
        # `.data`: leaves of the graph that share memory with the flat vector but are not its views to autograd, which would
        # otherwise lose their gradients when a step moves the flat vector in place.
        self._blocks = [view.data.requires_grad_() for view in self._native_blocks(self.weights)]
        self.drop: Callable[[tuple[int, ...], float], Tensor] = _no_mask
        self._compile(module)

    def _native_blocks(self, flat: Tensor) -> list[Tensor]:
        """Views of a stack's flat vector, one for each parameter, in the shape that the operations want."""
        views = []
        for piece, shape in zip(self.by_copy(flat), self._shapes, strict=True):
            if len(shape) == 4:
                views.append(shaped(piece.view(-1), (self.copies * shape[0], *shape[1:])))
            else:
                views.append(piece.view(self.copies, *shape))
        return views

    def by_copy(self, flat: Tensor) -> list[Tensor]:
        """Views of a stack's flat vector, one for each parameter, of the form [copies, values]."""
        counts = [self.copies * math.prod(shape) for shape in self._shapes]
        return [piece.view(self.copies, -1) for piece in flat.split(counts)]  # type: ignore[no-untyped-call]

    def put(self, flat: Tensor, copy: int, single: Tensor) -> None:
        """Writes a single model's vector into one copy's places of a stack's flat vector."""
        at = 0
        for block in self.by_copy(flat):
            row = block[copy]
            row.copy_(single[at : at + len(row)])
            at += len(row)

    def get(self, flat: Tensor, copy: int) -> Tensor:
        """One copy's values as a single model's vector."""
        return torch.cat([block[copy] for block in self.by_copy(flat)])

    def gradient_of(self, loss: Tensor, only: Sequence[int] | None = None) -> Tensor:
        """The gradient of a loss with respect to ``weights``, in a vector that the next call overwrites.

        With ``only``, it is that of the parameters with these numbers, and 0 elsewhere.
        """
        return flat_gradient(loss, self._blocks, self._gradient, only)

    def forward(self, x: Tensor) -> Tensor:
        """Scores [copies, n, classes] for inputs [copies, n, ...]."""
        values: list[Any] = [None] * self._places
        values[self._input] = x
        for step in self._program:
            values[step.output] = step.run(*(values[i] for i in step.inputs))
        result: Tensor = values[self._result]
        return result

    def _compile(self, module: nn.Module) -> None:
        """Turns the module's graph into a list of stacked operations."""
        try:
            graph = fx.symbolic_trace(module).graph
        except Exception as error:  # noqa: BLE001 (whatever keeps torch from tracing a foreign module)
            raise CannotStackError(f"it cannot be traced ({type(error).__name__})") from None
        modules = dict(module.named_modules())
        own = {id(p): block for p, block in zip(module.parameters(), self._blocks, strict=True)}
        forms: dict[fx.Node, str] = {}
        place = {node: i for i, node in enumerate(graph.nodes)}
        self._places, self._program = len(place), []
        later_relus: set[fx.Node] = set()  # ReLUs that wait until after the max-pooling that follows them
        for node in graph.nodes:
            if node.op == "placeholder":
                forms[node], self._input = INPUT, place[node]
                continue
            if node.op == "output":
                (result,) = node.all_input_nodes
                if forms[result] != FEATURES:
                    raise CannotStackError("its output is not a vector of scores")
                self._result = place[result]
                continue
            sources = node.all_input_nodes
            part = modules.get(str(node.target)) if node.op == "call_module" else None
            if part is None:
                run, forms[node] = self._function(node, [forms[s] for s in sources])
            else:
                run, forms[node] = self._module(part, forms[sources[0]], own)
            # max(relu(x)) is relu(max(x)), in every bit and in its gradient, at a quarter of the work.
            if isinstance(part, nn.ReLU) and _feeds_only_pooling(node, modules):
                later_relus.add(node)
                run = _same
            if sources[0] in later_relus and isinstance(part, nn.MaxPool2d):
                run = _then_relu(run)
            self._program.append(_Step(run, tuple(place[s] for s in sources), place[node]))

    def _module(self, part: nn.Module, form: str, own: dict[int, Tensor]) -> tuple[Callable[..., Tensor], str]:
        weights = [
            own.get(id(p)) for p in (getattr(part, "weight", None), getattr(part, "bias", None)) if p is not None
        ]
        weight, bias = (*weights, None, None)[:2]
        if isinstance(part, nn.Conv2d):
            return self._convolution(part, form, weight, bias), CHANNELS
        if isinstance(part, nn.Linear) and form in (FEATURES, INPUT):
            return self._linear(weight, bias), FEATURES
        if isinstance(part, nn.GroupNorm) and form == CHANNELS:
            groups, eps = part.num_groups * self.copies, part.eps
            # Not channels-last: there the kernel's rounding depends on where in the stack a copy stands.
            return lambda x: F.group_norm(x.contiguous(), groups, _row(weight), _row(bias), eps), form
        if isinstance(part, nn.Flatten) and (part.start_dim, part.end_dim) == (1, -1):
            return self._flatten(form), FEATURES
        if isinstance(part, nn.Dropout | nn.Identity | _ELEMENTWISE):
            if isinstance(part, nn.Dropout) and part.p > 0:
                return self._dropout(part.p, form), form
            return (_same if isinstance(part, nn.Dropout | nn.Identity) else part), form
        if isinstance(part, nn.MaxPool2d | nn.AvgPool2d | nn.AdaptiveAvgPool2d | nn.AdaptiveMaxPool2d):
            return (part if form == CHANNELS else lambda x: part(self._to_channels(x))), CHANNELS
        raise CannotStackError(f"{type(part).__name__} has no stacked form")

    def _function(self, node: fx.Node, forms: Sequence[str]) -> tuple[Callable[..., Tensor], str]:
        plain = not node.kwargs and all(isinstance(a, fx.Node) for a in node.args)
        if node.target in (operator.add, torch.add) and len(forms) == 2 and forms[0] == forms[1] and plain:
            return operator.add, forms[0]
        if node.target in (F.relu, torch.relu) and plain:
            return F.relu, forms[0]
        if node.target is torch.flatten and node.args[1:] in ((1,), (1, -1)) and not node.kwargs:
            return self._flatten(forms[0]), FEATURES
        raise CannotStackError(f"{getattr(node.target, '__name__', node.target)} has no stacked form")

    def _to_channels(self, x: Tensor) -> Tensor:
        """[copies, n, C, H, W] to [n, copies · C, H, W], channels-last."""
        copies, n, channels, rows, columns = x.shape
        apart = x.permute(1, 3, 4, 0, 2).reshape(n, rows, columns, copies * channels)
        return apart.permute(0, 3, 1, 2)

    def _convolution(self, part: nn.Conv2d, form: str, weight: Any, bias: Any) -> Callable[[Tensor], Tensor]:
        if part.padding_mode != "zeros" or form == FEATURES:
            raise CannotStackError(
                f"a convolution with padding mode '{part.padding_mode}' or on features has no stacked form"
            )
        groups = part.groups * self.copies

        def run(x: Tensor) -> Tensor:
            if form == INPUT:
                x = self._to_channels(x)
            return F.conv2d(x, weight, _row(bias), part.stride, part.padding, part.dilation, groups)

        return run

    def _linear(self, weight: Any, bias: Any) -> Callable[[Tensor], Tensor]:
        if bias is None:
            return lambda x: torch.bmm(x, weight.transpose(1, 2))
        return lambda x: torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))

    def _flatten(self, form: str) -> Callable[[Tensor], Tensor]:
        if form == CHANNELS:
            return lambda x: x.reshape(len(x), self.copies, -1).transpose(0, 1)
        return lambda x: x.flatten(2)

    def _dropout(self, p: float, form: str) -> Callable[[Tensor], Tensor]:
        def run(x: Tensor) -> Tensor:
            if form != CHANNELS:
                return x * self.drop(tuple(x.shape[2:]), p)
            _, channels, rows, columns = x.shape
            return x * self._to_channels(self.drop((channels // self.copies, rows, columns), p))

        return run


_ELEMENTWISE = nn.ReLU | nn.ReLU6 | nn.LeakyReLU | nn.ELU | nn.GELU | nn.SiLU | nn.Tanh | nn.Sigmoid | nn.Softplus


def _row(values: Tensor | None) -> Tensor | None:
    return None if values is None else values.view(-1)


def _same(x: Tensor) -> Tensor:
    return x


def _then_relu(pool: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: F.relu(pool(x))


def _no_mask(shape: tuple[int, ...], p: float) -> Tensor:
    raise RuntimeError("a stacked model with dropout needs a source of masks")


def _feeds_only_pooling(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    return all(u.op == "call_module" and isinstance(modules.get(str(u.target)), nn.MaxPool2d) for u in node.users)
