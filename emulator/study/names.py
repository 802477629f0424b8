"""Names of runs, made from what is varied: readable, fit for a folder, and different for different runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from emulator.files import slug

FAILURES = "failures.json"  # in the folder of a study: why runs failed the last time, by their names
TUNED = "tuned.json"  # in the folder of a study that tunes something: what was chosen where
LONGEST_PART = 40
LONGEST_NAME = 200  # file systems allow 255 bytes


def text_of(value: Any) -> str:
    """A varied value as people read it: ``0.1``, ``20 Mbit/s``, ``64, 32``, ``dirichlet, alpha 0.1``."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "none"
    if isinstance(value, dict):
        named = [text_of(value[k]) for k in ("preset", "kind") if value.get(k)]
        return ", ".join([*named, *(f"{k} {text_of(v)}" for k, v in value.items() if k not in ("preset", "kind"))])
    if isinstance(value, list | tuple):
        return ", ".join(text_of(v) for v in value)
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The shortest ending of each dotted key that no other key has: ``alpha`` for ``data.partition.alpha``."""
    found = {}
    for key in keys:
        parts = key.split(".")
        endings = [".".join(parts[-n:]) for n in range(1, len(parts) + 1)]
        others = [other for other in keys if other != key]
        found[key] = next((e for e in endings if not any(f".{o}".endswith(f".{e}") for o in others)), key)
    return found


def file_names(texts: Sequence[str]) -> dict[str, str]:
    """A part of a file name for each text; a piece of a hash tells apart what would look the same, or was cut."""
    plain = {text: slug(text).replace("_", "-") for text in texts}
    taken = list(plain.values())
    return {
        text: name if len(name) <= LONGEST_PART and taken.count(name) == 1 else f"{name[:LONGEST_PART]}-{_hash(text)}"
        for text, name in plain.items()
    }


def run_name(variant: str, point: Mapping[str, str], seed: str) -> str:
    """The name of a run from parts that `file_names` made; ``point`` maps short names of keys to those of values."""
    return _name(variant, point, f"seed-{seed}")


def world_name(world: str, point: Mapping[str, str]) -> str:
    """The name of a world, as `run_name` but for the seed."""
    return _name(world, point)


def _name(named: str, point: Mapping[str, str], *more: str) -> str:
    parts = [*([named] if named else []), *(f"{slug(key)}-{value}" for key, value in point.items())]
    name = "_".join([*(part.replace("_", "-") for part in parts), *more])
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}-{_hash(name)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
