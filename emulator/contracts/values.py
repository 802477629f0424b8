"""What plug-ins give back, looked at: numbers of a shape, processes; and how to show what is wrong."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from emulator.registry import AnyChosen

if TYPE_CHECKING:
    import simpy

Floats = npt.NDArray[np.float64]


def numbers(chosen: AnyChosen, found: object, shape: tuple[int | None, ...]) -> Floats:
    """What a plug-in gave as floats of this shape (None: any length); raises `Chosen.broken` where it is something else."""
    wanted = f"it must give numbers [{', '.join('any' if n is None else str(n) for n in shape)}]"
    try:
        array = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError):
        raise chosen.broken(f"{wanted}, and gives {short(found)}") from None
    if array.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, array.shape, strict=True)):
        raise chosen.broken(f"{wanted}, and gives {list(array.shape)}")
    return array


def process(chosen: AnyChosen, made: object) -> Generator[simpy.Event, Any, Any]:
    """What a plug-in gave as a process; raises `Chosen.broken` where it is none."""
    if not isinstance(made, Generator):
        raise chosen.broken(f"it must be a process, a function that yields what it waits for; it gives {short(made)}")
    return made


def short(value: object) -> str:
    """A value in a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
