"""Where models are computed: the devices of a scenario as torch has them, and how they are made to compute reproducibly.

Data, models and stacks live on the device. What lasts beyond a computation (the states of models, distilled images, what was
measured) lives in the memory of the process: states are combined there, in double precision, and checkpoints and other processes
read them from there. So a GPU holds what it computes with and nothing else, however many models a run has under way.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from emulator.compute import Compute, Precision
from emulator.errors import HflError, InputError

KEY = "compute.device"
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@dataclass(frozen=True)
class Place:
    """A device, and the precision of what models compute there."""

    device: torch.device
    precision: Precision = "float32"

    def arithmetic(self) -> contextlib.AbstractContextManager[object]:
        """A block for a model's forward pass: in bfloat16, matrix products and convolutions take and give such numbers."""
        if self.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def seed(self, number: int) -> None:
        """Seeds torch's own stream of random numbers on this device; on a GPU that of no other, which may be at work too."""
        if self.device.type == "cuda":
            torch.cuda.default_generators[self.device.index].manual_seed(number)
        else:
            torch.manual_seed(number)


HOST = Place(torch.device("cpu"))


def places_of(compute: Compute) -> list[Place]:
    """Where a scenario computes: the CPU, or one or more GPUs; evaluations go to the first.

    Raises `InputError` where there are no such GPUs.
    """
    check_there(compute)
    if compute.kind == "cpu":
        return [Place(HOST.device, compute.precision)]
    numbers = range(torch.cuda.device_count()) if compute.number is None else [compute.number]
    return [Place(torch.device("cuda", number), compute.precision) for number in numbers]


def check_there(compute: Compute) -> None:
    """Raises `InputError` where a scenario asks for GPUs that torch does not see here."""
    if compute.kind == "cpu":
        return
    names = gpu_names()
    if not names:
        built = f"was built for CUDA {torch.version.cuda}" if torch.version.cuda else "was built without CUDA"
        raise InputError(
            f"there is no GPU for '{compute.device}': torch {torch.__version__} {built}, and sees none", KEY
        )
    if compute.number is not None and compute.number >= len(names):
        seen = ", ".join(f"cuda:{number} ({name})" for number, name in enumerate(names))
        raise InputError(f"there is no '{compute.device}' here; torch sees {seen}", KEY)


def gpu_names() -> list[str]:
    """The names of the GPUs that torch sees, in the order of their numbers."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [torch.cuda.get_device_name(number) for number in range(count)]


@contextlib.contextmanager
def reproducible(place: Place) -> Iterator[None]:
    """A block in which a GPU gives the same bits each time: deterministic kernels, and float32 that is not rounded to TF32.

    An operation that has no deterministic kernel raises `RuntimeError` that names it. On a CPU nothing changes: computing with
    one thread is enough there.
    """
    if place.device.type != "cuda":
        yield
        return
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    strict, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    before, workspace = (matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark), os.environ.get(WORKSPACE)
    try:
        if workspace not in (":4096:8", ":16:8"):  # with others cuBLAS is not deterministic
            os.environ[WORKSPACE] = ":4096:8"
        torch.use_deterministic_algorithms(True)
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = False, False, False
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before
        torch.use_deterministic_algorithms(strict, warn_only=warns)
        if workspace is None:
            os.environ.pop(WORKSPACE, None)
        else:
            os.environ[WORKSPACE] = workspace


@contextlib.contextmanager
def within_memory(place: Place, what: str) -> Iterator[None]:
    """A block that does something on a device. Raises `HflError` where the memory of a GPU does not suffice for ``what``."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        why = str(error).partition(". ")[0]
        raise HflError(f"{place.device} has too little memory for {what} ({why}); compute it on the CPU") from error
