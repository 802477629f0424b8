"""A stand-in for a GPU: the device ``meta``, and a mode that fails where an operation mixes devices.

Tensors on ``meta`` have shapes and no values. Every operation on them is dispatched as on any other device, so code that leaves a
tensor behind on the CPU shows. Whoever reads a value gets a made-up one: 0, and true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.fx.experimental import _config
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from emulator.learning import engine
from emulator.learning.device import Place

META = torch.device("meta")
aten = torch.ops.aten
MOVES = (aten.copy_.default, aten._to_copy.default)  # what may see two devices: it takes values from one to the other


class MixedDevicesError(AssertionError):
    """An operation was given tensors of two devices."""


class OneDevice(TorchDispatchMode):
    """Fails on any operation whose tensors are on several devices, 0-dimensional ones excepted. Counts those on ``meta``."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.reads = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the other answer imports torch's compiler

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func is not torch.ops.prim.device.default:
            with self:  # in inference mode operations arrive that are made of others
                result = func.decompose(*args, **given)
            if result is not NotImplemented:
                return result
        tensors = [leaf for leaf in tree_leaves((args, given)) if isinstance(leaf, torch.Tensor)]
        on_meta = any(t.device == META for t in tensors)
        self.seen[str(func._overloadpacket)] += on_meta
        if func not in MOVES and len({t.device for t in tensors if t.dim()}) > 1:
            raise MixedDevicesError(f"{func} on {[(t.device.type, tuple(t.shape)) for t in tensors]}")
        if on_meta and self._reads(func, args, given):
            self.reads += 1
            return self._made_up(func, args, given)
        return func(*args, **given)

    def _reads(self, func: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> bool:
        if func is aten._to_copy.default:
            return given.get("device") is not None and torch.device(given["device"]) != META
        if func is aten.copy_.default:
            return args[0].device != META
        return func in (aten._local_scalar_dense.default, aten.equal.default, aten.allclose.default)

    def _made_up(self, func: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> Any:
        if func in (aten.equal.default, aten.allclose.default):
            return True
        if func is aten.copy_.default:
            return args[0].zero_()
        if func is aten._to_copy.default:
            return torch.zeros(args[0].shape, dtype=given.get("dtype") or args[0].dtype)
        return True if args[0].dtype == torch.bool else 0 if not args[0].is_floating_point() else 0.0


@contextmanager
def on_meta(monkeypatch: pytest.MonkeyPatch) -> Iterator[OneDevice]:
    """A block in which engines compute on ``meta``, and nothing mixes devices."""
    # A mask is true everywhere: how many values it chooses is read off it too.
    chooses_all = _config.patch(meta_nonzero_assume_all_nonzero=True)
    with monkeypatch.context() as patch, chooses_all, OneDevice() as mode:
        patch.setattr(engine, "places_of", lambda compute: [Place(META, compute.precision)])
        yield mode
