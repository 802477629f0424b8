"""Named random streams: one for each purpose, so that a new draw somewhere changes nothing elsewhere.

A stream is named by the scenario's seed and any number of words or numbers, for example
``stream(seed, "sampling", round)``. Equal names give equal streams on every machine.
"""

from __future__ import annotations

import hashlib

import numpy as np


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream with this name (63, so that ``torch.Generator`` takes it too)."""
    text = "\x1f".join([str(seed), *(f"{type(n).__name__}:{n}" for n in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The numpy generator of the stream with this name."""
    return np.random.Generator(np.random.PCG64(derive(seed, *names)))
