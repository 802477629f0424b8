"""Real numbers as integers modulo 2^k, so that sums of them are exact and masks hide them perfectly.

Fixed point: values are clipped to [-clip, clip] and rounded to steps that are as fine as the sum of all clients allows
without overflow. Negative numbers are the upper half of the range (two's complement).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from devices.secagg.mask import Words, word_type

_EXACT = 2**52  # beyond, neighbouring integers are no longer neighbouring floats


@dataclass(frozen=True)
class Encoding:
    """How the vectors of up to ``clients`` clients are written. Raises ``ValueError`` for values out of range."""

    clients: int
    clip: float = 8.0
    bits: int = 32

    def __post_init__(self) -> None:
        word_type(self.bits)
        if self.clients < 1:
            raise ValueError(f"clients must be at least 1, not {self.clients}")
        if not (self.clip > 0 and math.isfinite(self.clip)):
            raise ValueError(f"clip must be a number greater than 0, not {self.clip}")
        if self.limit < 1:
            raise ValueError(f"{self.bits} bits cannot hold the sum of {self.clients} clients")

    @property
    def limit(self) -> int:
        """The largest integer that stands for a value: that of ``clip``."""
        return min(((1 << (self.bits - 1)) - 1) // self.clients, _EXACT)

    @property
    def step(self) -> float:
        """The distance of neighbouring values; a value is off by half of it at most."""
        return self.clip / self.limit

    def encode(self, values: np.ndarray[Any, Any]) -> Words:
        """The integers that stand for ``values``; raises ``ValueError`` for values that are not numbers."""
        clipped = np.clip(np.asarray(values, dtype=np.float64), -self.clip, self.clip)
        if np.isnan(clipped).any():
            raise ValueError("values that are not a number cannot be encoded")
        scaled = np.rint(clipped * (self.limit / self.clip)).astype(np.int64)
        return np.clip(scaled, -self.limit, self.limit).astype(word_type(self.bits))

    def decode(self, total: Words) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The sum of the values, from the sum of the integers of at most ``clients`` clients."""
        signed = total.astype(word_type(self.bits)).view(f"<i{self.bits // 8}")
        return np.asarray(signed.astype(np.float64) * (self.clip / self.limit))
