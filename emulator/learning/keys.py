"""Content keys, and arrays as bytes: the ground of what the lab remembers."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

import numpy as np


def content_key(kind: str, *parts: Any) -> str:
    """A hash of plain data (numbers, texts, lists, mappings); floats count with every bit."""
    return text_key(kind, json.dumps([kind, parts], sort_keys=True, separators=(",", ":"), default=_plain))


def text_key(kind: str, text: str) -> str:
    """A hash of a text."""
    return f"{kind}:{hashlib.sha256(text.encode()).hexdigest()[:40]}"


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in a content key")


def to_npy(array: np.ndarray) -> bytes:
    """An array as bytes that `from_npy` reads."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def from_npy(raw: bytes) -> np.ndarray:
    """The array that `to_npy` wrote."""
    return np.asarray(np.load(io.BytesIO(raw), allow_pickle=False))
