"""Whether a model fits into memory, before anybody tries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from emulator.errors import InputError
from emulator.machine import memory_bytes
from emulator.scenario.schema import Scenario

KEY = "model"
TRAINING_COPIES = 4  # at least: the global model, one that is trained, its gradient, and its result


@contextmanager
def fitting(scenario: Scenario, shape: tuple[int, ...], classes: int, copies: int) -> Iterator[None]:
    """A block that builds the scenario's model, of which so many copies are needed at once.

    Raises `InputError` before it where they cannot fit into memory, and where memory runs out in it all the same. The user's
    own models tell their size only when they are there.
    """
    if scenario.model.kind != "module" and scenario.model.plugin.code(scenario.model.params) == "":
        with torch.device("meta"):  # layers without their numbers
            _check(scenario.model(shape, classes), copies)
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate" not in str(error):
            raise
        raise InputError(f"the model is too large: memory ran out when it was built ({error})", KEY) from error


def _check(module: nn.Module, copies: int) -> None:
    left = memory_bytes()
    parameters = sum(tensor.numel() for tensor in (*module.parameters(), *module.buffers()))
    needed = copies * 4 * parameters
    if left is not None and needed > left:
        held = f"{copies} copies, the least that training needs, take" if copies > 1 else "it takes"
        there = f"{left / 1e9:,.1f} GB of memory are left"
        raise InputError(f"the model has {parameters:,} parameters: {held} {needed / 1e9:,.1f} GB, and {there}", KEY)
