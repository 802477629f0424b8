"""Masks: a key expanded into a vector (the key stream of ChaCha20, RFC 8439), and words modulo 2^k.

A key is expanded once only, so its stream may always begin at the same place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

Words = np.ndarray[tuple[int, ...], np.dtype[np.unsignedinteger[Any]]]  # integers modulo 2^k; numpy's arithmetic wraps

WORD_BITS = (16, 32, 64)


def word_type(bits: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The type of integers modulo 2^bits, lowest byte first; raises ``ValueError`` where there is none."""
    if bits not in WORD_BITS:
        raise ValueError(f"bits must be 16, 32 or 64, not {bits}")
    return np.dtype(f"<u{bits // 8}")


def expand(key: bytes, length: int, dtype: np.dtype[np.unsignedinteger[Any]]) -> Words:
    """``length`` words that look random to whoever does not know the 32-byte key."""
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(length * dtype.itemsize)), dtype=dtype)
