"""Counts the floating-point operations of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within the block, ``flops`` adds up what torch's formulas say of every operation.

    Counts what torch's own `FlopCounterMode` counts, which on its first use imports torch's compiler: seconds in every process.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the other answer is what imports the compiler

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Takes an operation apart where it is made of others; does and counts it where it is not."""
        given = kwargs or {}
        if func is not torch.ops.prim.device.default:
            with self:
                result = func.decompose(*args, **given)
            if result is not NotImplemented:
                return result
        result = func(*args, **given)
        formula: Callable[..., int] | None = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **given, out_val=result)
        return result
