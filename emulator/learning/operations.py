"""Counts the floating-point operations of a model by kind of layer, and the bytes that its backward pass needs."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

DENSE, DEPTHWISE, RECURRENT = "dense", "depthwise", "recurrent"  # as `devices.profile.Efficiency` names them
_WHOLE: set[Any] = {torch.ops.prim.device.default}  # operations that are known to be made of no others
_GROUPS = 8  # which argument of a convolution is its number of groups


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within the block, ``flops`` adds up by kind of layer what torch's formulas say of every operation.

    Counts what torch's own `FlopCounterMode` counts, which on its first use imports torch's compiler: seconds in every process.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops: Counter[str] = Counter()
        self._recurrent = 0  # how many recurrent layers it is in: they may stand inside one another

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the other answer is what imports the compiler

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Takes an operation apart where it is made of others; does and counts it where it is not."""
        given = kwargs or {}
        if func not in _WHOLE:
            with self:
                result = func.decompose(*args, **given)
            if result is not NotImplemented:
                return result
            _WHOLE.add(func)
        result = func(*args, **given)
        formula: Callable[..., int] | None = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.flops[self._kind(func, args)] += formula(*args, **given, out_val=result)
        return result

    def _kind(self, func: Any, args: tuple[Any, ...]) -> str:
        if self._recurrent:
            return RECURRENT
        if func._overloadpacket is torch.ops.aten.convolution:
            channels, groups = args[0].shape[1], args[_GROUPS]
            return DEPTHWISE if groups == channels > 1 else DENSE
        return DENSE

    @contextlib.contextmanager
    def telling_recurrent(self, module: nn.Module) -> Iterator[None]:
        """A block in which operations inside the module's LSTM, GRU and RNN layers count as recurrent."""

        def enter(*_: Any) -> None:
            self._recurrent += 1

        def leave(*_: Any) -> None:
            self._recurrent -= 1

        hooks = []
        for layer in module.modules():
            if isinstance(layer, nn.RNNBase | nn.RNNCellBase):
                hooks += [layer.register_forward_pre_hook(enter), layer.register_forward_hook(leave)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


@contextlib.contextmanager
def kept_for_backward(module: nn.Module) -> Iterator[dict[int, torch.UntypedStorage]]:
    """A block with gradients; gives what autograd keeps in it for the backward pass beside the module's own state, by address."""
    own = {t.untyped_storage().data_ptr() for t in (*module.parameters(), *module.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}  # held, so that no address is used twice

    def pack(tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage

    def unpack(_: None) -> Tensor:
        raise RuntimeError("there is no backward pass here")

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield kept
