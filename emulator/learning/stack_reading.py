"""Reads a module into the operations of a stack.

`torch.fx` gives the graph of the module's forward pass. Layers and functions that have a stacked form become that; whatever else
can be told apart is mapped over the copies by `torch.func`, function by function or as a whole module. A module whose forward
pass cannot be read (it decides by values, or has parameters that no layer owns) is mapped whole too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx, nn

from emulator.learning import stack_layers as layers
from emulator.learning import stack_operations as ops
from emulator.learning.blocks import Attention, LastStep, PlacedEmbedding
from emulator.learning.drawing import OwnDropout
from emulator.learning.stack_functions import Function
from emulator.learning.stack_operations import CHANNELS, ROWS, Operation, Step, Weights

_WHOLE = (OwnDropout, LastStep, PlacedEmbedding, Attention)  # not taken apart further
_ELEMENTWISE = (nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus)
_POOLS = (nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
_SIZES = ("size", "dim", "numel", "ndimension")


class CannotStackError(Exception):
    """Copies of the module cannot be computed side by side; the message says why, in words that follow "because"."""


class Vectors(Protocol):
    """Where the values of a stack are."""

    copies: int

    def weights_of(self, parameter: Tensor) -> Weights:
        """A parameter of all copies."""
        ...

    def buffer_of(self, buffer: Tensor) -> Tensor:
        """A float buffer of all copies, [copies, *shape]."""
        ...


class _Reader(fx.Tracer):
    """Follows the forward pass into modules that can be read."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, bool] = {}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is one operation."""
        if isinstance(m, _WHOLE) or super().is_leaf_module(m, module_qualified_name):
            return True
        return not self._readable(m)

    def _readable(self, module: nn.Module) -> bool:
        if id(module) not in self._known:
            try:
                graph = _Reader().trace(module)
            except Exception:  # noqa: BLE001 (whatever keeps torch from reading a foreign module)
                self._known[id(module)] = False
            else:
                self._known[id(module)] = all(node.op != "get_attr" for node in graph.nodes)
        return self._known[id(module)]


def read(module: nn.Module, whole: bool, vectors: Vectors) -> tuple[list[Step], int]:
    """The steps of the program of a module's copies, and the place of its result; its input has place 0.

    With ``whole``, the module is mapped over the copies as it is. Raises `CannotStackError` where there is no such program.
    """
    root, graph = nn.Sequential(module), fx.Graph()
    if whole:
        graph.output(graph.call_module("0", (graph.placeholder("x"),)))
    else:
        graph = _Reader().trace(root)
    return _Writer(root, vectors).write(graph)


class _Writer:
    """Writes the program of a graph."""

    def __init__(self, root: nn.Module, vectors: Vectors) -> None:
        self._modules = dict(root.named_modules())
        self._vectors = vectors
        self._copies = vectors.copies
        self._steps: list[Step] = []
        self._place: dict[fx.Node, int] = {}
        self._form: dict[int, str] = {}
        self._places = 0
        self._states: dict[fx.Node, fx.Node] = {}  # of recurrent layers
        self._later_relus: set[fx.Node] = set()  # ReLUs that wait until after the max-pooling that follows them

    def write(self, graph: fx.Graph) -> tuple[list[Step], int]:
        """All steps, and the place of the result."""
        needed: set[fx.Node] = set()
        for node in reversed(graph.nodes):
            if node.op in ("output", "placeholder") or any(user in needed for user in node.users):
                needed.add(node)
        for node in graph.nodes:
            if node not in needed:
                continue
            if node.op == "placeholder":
                if node.users:
                    self._place[node] = self._new(ROWS)
            elif node.op == "output":
                (result,) = node.all_input_nodes
                return self._steps, self._given(result, ROWS)
            elif not _is_size(node) and not self._is_state(node):
                self._write(node)
        raise CannotStackError("its forward pass has no result")

    def _new(self, form: str) -> int:
        place, self._places = self._places, self._places + 1
        self._form[place] = form
        return place

    def _write(self, node: fx.Node) -> None:
        part = self._modules.get(str(node.target)) if node.op == "call_module" else None
        operation = self._function(node) if part is None else self._layer(node, part)
        sources = _tensors(node)
        inputs = [self._given(source, operation.takes) for source in sources]
        if operation.takes is None and len({self._form[i] for i in inputs}) > 1:
            inputs = [self._given(source, ROWS) for source in sources]
        self._place[node] = self._add(operation, inputs)

    def _add(self, operation: Operation, inputs: Sequence[int]) -> int:
        place = self._new(operation.gives or self._form[inputs[0]])
        self._steps.append(Step(operation, tuple(inputs), place))
        return place

    def _given(self, source: fx.Node, form: str | None) -> int:
        """The place of a value in a form, which it is brought into where it has another."""
        if source not in self._place:
            raise CannotStackError(f"a part of its forward pass ({source.name}) is not a tensor")
        place = self._place[source]
        if form is None or self._form[place] == form:
            return place
        return self._add(ops.ToChannels() if form == CHANNELS else ops.ToRows(self._copies), [place])

    def _weights(self, part: nn.Module) -> tuple[Weights | None, Weights | None]:
        given = (getattr(part, "weight", None), getattr(part, "bias", None))
        weight, bias = (None if p is None else self._vectors.weights_of(p) for p in given)
        return weight, bias

    def _layer(self, node: fx.Node, part: nn.Module) -> Operation:
        kind = type(part)  # itself: a subclass may do something else
        if part._forward_hooks or part._forward_pre_hooks:
            return self._mapped(node, part)
        if kind is nn.ReLU:
            return self._relu(node)
        if isinstance(part, nn.Conv2d) and kind is nn.Conv2d and ops.padding_of(part) is not None:
            weight, bias = self._weights(part)
            assert weight is not None
            return ops.Convolution(part, self._copies, weight, bias)
        if kind is nn.Linear:
            weight, bias = self._weights(part)
            assert weight is not None
            return ops.Linear(weight, bias)
        if isinstance(part, nn.MaxPool2d) and kind is nn.MaxPool2d and not part.return_indices:
            return ops.MaxPool(
                (part.kernel_size, part.stride, part.padding, part.dilation, part.ceil_mode), self._waits(node)
            )
        if isinstance(part, nn.AdaptiveAvgPool2d) and part.output_size in (1, (1, 1)):
            return ops.Mean()
        if kind in _POOLS:
            return Function(part, takes=CHANNELS, gives=CHANNELS)
        if isinstance(part, nn.Flatten) and (part.start_dim, part.end_dim) == (1, -1):
            return ops.Flatten()
        if isinstance(part, OwnDropout):
            return ops.Dropout(part.p, self._copies, self._form[self._place[_tensors(node)[0]]])
        if kind is nn.Identity or (isinstance(part, nn.Dropout) and part.p == 0):
            return ops.Same()
        if kind in _ELEMENTWISE:
            return Function(part, takes=None, gives=None)
        return self._normalisation(node, part) or self._sequence(part) or self._mapped(node, part)

    def _normalisation(self, node: fx.Node, part: nn.Module) -> Operation | None:
        if isinstance(part, nn.GroupNorm) and self._form[self._place[_tensors(node)[0]]] == CHANNELS:
            return layers.GroupNormalisation(part, self._copies, *self._weights(part))
        if isinstance(part, nn.LayerNorm):
            return layers.layer_norm(part, *self._weights(part))
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d) and type(part) in _BATCH_NORMS:
            if part.momentum is None or part.running_mean is None or part.running_var is None:
                raise CannotStackError(
                    "its batch normalisation has no running statistics, or takes their mean over all batches"
                )
            running = (self._vectors.buffer_of(part.running_mean), self._vectors.buffer_of(part.running_var))
            made = layers.BatchNormalisation(part, self._copies, *self._weights(part), running)
            return made if isinstance(part, nn.BatchNorm2d) else ops.AsImages(made)
        return None

    def _sequence(self, part: nn.Module) -> Operation | None:
        if isinstance(part, nn.Embedding) and not (part.max_norm or part.scale_grad_by_freq or part.sparse):
            return layers.Embedding(self._vectors.weights_of(part.weight), part.padding_idx)
        if isinstance(part, nn.LSTM | nn.GRU) and _plain(part):
            return layers.recurrence(part, [self._vectors.weights_of(p) for p in part.parameters()])
        if isinstance(part, LastStep):
            return Function(lambda x: x[:, :, -1])
        return None

    def _mapped(self, node: fx.Node, part: nn.Module) -> Operation:
        named = [("batch normalisation", nn.modules.batchnorm._BatchNorm), ("a recurrent layer", nn.RNNBase)]
        if isinstance(part, nn.RNNBase):
            raise CannotStackError(
                "its recurrent layer is not an LSTM or GRU of one direction with batch_first and without dropout"
            )
        for name, kind in named:
            if any(isinstance(m, kind) for m in part.modules()):
                raise CannotStackError(f"{name} is used in a way that torch.fx cannot follow, in {type(part).__name__}")
        parameters = {name: self._vectors.weights_of(p) for name, p in part.named_parameters()}
        floats = {name: b for name, b in part.named_buffers() if b.is_floating_point()}
        buffers = {name: self._vectors.buffer_of(b) for name, b in floats.items()}
        return layers.Mapped(part, parameters, buffers, lambda module, *x: _call(node, module, x))

    def _function(self, node: fx.Node) -> Operation:
        target, sources = node.target, _tensors(node)
        plain = not node.kwargs and all(isinstance(a, fx.Node) for a in node.args)
        if target in (operator.add, operator.iadd, torch.add, "add") and len(sources) == 2 and plain:
            return ops.Add()
        if target in (F.relu, torch.relu, "relu") and len(node.args) == 1:
            return self._relu(node)
        if target in (F.max_pool2d, torch.max_pool2d):
            how = _pooling(*node.args[1:], **node.kwargs)
            return ops.MaxPool(how, self._waits(node)) if how is not None else self._by_function(node)
        if _flattens(node):
            return ops.Flatten()
        if any(source in self._states for source in sources):
            return self._last_state(node)
        if target is operator.getitem and self._pair(node.args[0]) and node.args[1] == 0:
            return ops.Same()
        return self._by_function(node)

    def _by_function(self, node: fx.Node) -> Operation:
        """Maps one function of the forward pass over the copies."""
        sources = _tensors(node)

        def one(*x: Tensor) -> Tensor:
            found: Tensor = _value(node, dict(zip(sources, x, strict=True)))
            return found

        return Function(lambda *x: torch.func.vmap(one)(*(v.contiguous() for v in x)))

    def _pair(self, source: Any) -> nn.Module | None:
        """The module that gives more than one value, of which the first was taken, where a value is that."""
        part = self._modules.get(str(source.target)) if source.op == "call_module" else None
        return part if isinstance(part, nn.LSTM | nn.GRU | nn.MultiheadAttention) else None

    def _is_state(self, node: fx.Node) -> bool:
        """Whether a value is a state of a recurrent layer, or a pair of them; it gets the place of what the layer says."""
        if node.target is not operator.getitem:
            return False
        source, at = node.args
        assert isinstance(source, fx.Node)
        first = at == 1 and isinstance(self._pair(source), nn.LSTM | nn.GRU)
        if not first and not (
            at == 0 and source in self._states and isinstance(self._pair(self._states[source]), nn.LSTM)
        ):
            return False
        self._states[node] = source if first else self._states[source]
        self._place[node] = self._place[source]
        return True

    def _last_state(self, node: fx.Node) -> Operation:
        """What a recurrent layer says last, which is the state of the last of its layers."""
        source, at = node.args
        assert isinstance(source, fx.Node)
        recurrent = self._states[source]
        pair_of_two = isinstance(self._pair(recurrent), nn.LSTM) and source.args[0] is recurrent
        if node.target is not operator.getitem or at != -1 or pair_of_two:
            message = "of a recurrent layer it uses more than what it says after each step and the last layer's state"
            raise CannotStackError(message)
        return Function(lambda x: x[:, :, -1])

    def _relu(self, node: fx.Node) -> Operation:
        if node.users and all(self._pools(user) for user in node.users):
            self._later_relus.add(node)
            return ops.Same()
        source = _tensors(node)[0]
        made = next((s.operation for s in self._steps if s.output == self._place[source]), None)
        return ops.Relu(in_place=made is not None and made.owns_result and len(source.users) == 1)

    def _pools(self, node: fx.Node) -> bool:
        if node.target in (F.max_pool2d, torch.max_pool2d):
            return _pooling(*node.args[1:], **node.kwargs) is not None
        part = self._modules.get(str(node.target)) if node.op == "call_module" else None
        return isinstance(part, nn.MaxPool2d) and not part.return_indices

    def _waits(self, node: fx.Node) -> bool:
        return _tensors(node)[0] in self._later_relus


def _plain(part: nn.RNNBase) -> bool:
    simple = part.batch_first and not part.bidirectional and part.dropout == 0
    return simple and part.proj_size == 0


def _is_size(node: fx.Node) -> bool:
    """Whether a value is a size, or made of sizes alone: a number for each shape, not a tensor."""
    if node.op == "call_method" and node.target in _SIZES:
        return True
    if node.op == "call_function" and node.target is getattr:
        return node.args[1] in ("shape", "ndim")
    sources = node.all_input_nodes
    return node.op == "call_function" and bool(sources) and all(_is_size(source) for source in sources)


def _tensors(node: fx.Node) -> list[fx.Node]:
    """The tensors that a value is made of, directly or through their sizes."""
    found: dict[fx.Node, None] = {}
    for source in node.all_input_nodes:
        found.update(dict.fromkeys(_tensors(source) if _is_size(source) else [source]))
    return list(found)


def _value(node: fx.Node, known: Mapping[fx.Node, Any]) -> Any:
    """What a node gives for the values of its tensors, of one copy."""
    if node in known:
        return known[node]
    args = fx.map_arg(node.args, lambda n: _value(n, known))
    kwargs = fx.map_arg(node.kwargs, lambda n: _value(n, known))
    assert isinstance(args, tuple)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def _call(node: fx.Node, module: Callable[..., Any], x: Sequence[Any]) -> Any:
    """What a module gives for the values of its tensors, of one copy."""
    known = dict(zip(_tensors(node), x, strict=True))
    args = fx.map_arg(node.args, lambda n: _value(n, known))
    kwargs = fx.map_arg(node.kwargs, lambda n: _value(n, known))
    assert isinstance(args, tuple)
    return module(*args, **kwargs)


def _flattens(node: fx.Node) -> bool:
    """Whether a function makes a vector of each sample."""
    rest = node.args[1:]
    if node.target in (torch.flatten, "flatten"):
        return (*rest, *node.kwargs.values()) in ((1,), (1, -1))
    if node.target not in ("view", "reshape", torch.reshape) or node.kwargs:
        return False
    shape = rest[0] if len(rest) == 1 and isinstance(rest[0], Sequence) else rest
    return len(shape) == 2 and bool(shape[1] == -1) and _first_size(shape[0], node.args[0])


def _first_size(size: object, of: object) -> bool:
    """Whether a value is the number of samples of another."""
    if not isinstance(size, fx.Node):
        return False
    if size.target == "size":
        return bool(size.args == (of, 0))
    if size.target is not operator.getitem or size.args[1] != 0 or not isinstance(size.args[0], fx.Node):
        return False
    whole = size.args[0]
    if whole.target == "size":
        return bool(whole.args == (of,))
    return whole.target is getattr and bool(whole.args == (of, "shape"))


def _pooling(
    kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: Any = False, **other: Any
) -> Any:
    """The arguments of a max-pooling that gives its maxima alone; None for another."""
    how = (kernel, stride or kernel, padding, dilation, ceil_mode)
    return None if any(other.values()) or any(isinstance(h, fx.Node) for h in how) else how
