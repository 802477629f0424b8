"""The one door through which torchvision is imported.

Write ``from emulator.learning.torchvision_cpu import torchvision``, inside a function.

torchvision's published wheel is compiled against GPU builds of torch. Beside a CPU build its extension
library does not load, torchvision goes on without it, and then stumbles over its own registration of two
detection operators: "operator torchvision::nms does not exist". Data sets and classification models need
none of them. So, only where a plain import fails in this way, the two operators are declared (without an
implementation; calling one still fails) and the import is repeated.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import torch

# The schemas with which the extension library itself declares the operators.
_MISSING = ("nms", "qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def _import() -> ModuleType:
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise
    # What the failed attempt left half-imported must go, or the second one would find and skip it.
    for name in [n for n in sys.modules if n == "torchvision" or n.startswith("torchvision.")]:
        del sys.modules[name]
    for operator in _MISSING:
        torch.library.define(f"torchvision::{operator}", _SCHEMA)
    return importlib.import_module("torchvision")


torchvision = _import()
