"""Devices that models are computed on, and precisions, as a scenario names them. Nothing here imports torch at its top."""

from __future__ import annotations

import ctypes
import importlib
import re
import sys
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from emulator.registry import Params

PATTERN = r"^(auto|cpu|cuda(:\d{1,3})?)$"

Precision = Literal["float32", "bfloat16"]


def _named(text: str) -> str:
    """A device by its name; ``auto`` becomes what this machine has. So a scenario that was checked says what it runs on."""
    if not re.fullmatch(PATTERN, text):
        raise PydanticCustomError(
            "device",
            "'{name}' is no device that models are computed on; give auto, cpu, cuda (all GPUs) or cuda:N (GPU number N)",
            {"name": text[:60]},
        )
    if text == "auto":
        return "cuda" if _finds_cuda() else "cpu"
    return text


Device = Annotated[str, AfterValidator(_named), Field(json_schema_extra={"pattern": PATTERN})]


class Compute(Params):
    """What models are computed on, and how precisely. Both may change results, so both are part of what these are known by."""

    device: Device = Field(
        "cpu",
        description="cpu; cuda: all GPUs of the machine; cuda:N: the one with this number; auto: cuda where there is a GPU",
    )
    precision: Precision = Field(
        "float32",
        description="of the arithmetic of models; with bfloat16 weights, sums over models and losses stay float32",
    )

    @property
    def kind(self) -> str:
        """The kind of device, without a number."""
        return self.device.partition(":")[0]

    @property
    def number(self) -> int | None:
        """The number of the one GPU that is wanted; None: all of them, or none."""
        return int(self.device.partition(":")[2]) if ":" in self.device else None

    def identity(self) -> list[str]:
        """What of it determines results, beside the ground case: a CPU and float32, which need no mention."""
        return [] if (self.kind, self.precision) == ("cpu", "float32") else [self.kind, self.precision]


def _finds_cuda() -> bool:
    """Whether torch sees a GPU. Without a driver there is none, and torch need not be imported to say so."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    # By its name: the world of time imports this module, and torch is imported here for those alone who say `auto`.
    return bool(importlib.import_module("torch").cuda.is_available())
