"""Named methods: ``method: group-fel`` or ``method: {preset: group-fel, ...}`` becomes a whole method section.

What the scenario says beside the preset wins over the preset, slot by slot. Where both give a slot, its parameters are merged
as long as they are of the same kind (or the scenario does not name a kind); another kind replaces the slot.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from emulator.errors import suggestion
from emulator.yamlfile import Document, load

# What a comparison (`output.against`) carries over from the scenario's own method: how clients train, not how they are grouped.
CARRIED_OVER = ("local", "group_rounds", "group_operation", "initial_model")


@cache
def presets() -> dict[str, dict[str, Any]]:
    """All presets by name, as plain data; ``summary`` says in a line what each is."""
    data = load(Path(str(files("emulator") / "methods" / "presets.yaml"))).data
    assert isinstance(data, dict)  # the file is ours
    return data


def expand(document: Document) -> str | None:
    """Puts the preset's slots under those of a scenario's method section; returns a message if there is no such preset."""
    if not isinstance(document.data, dict):
        return None
    given = document.data.get("method")
    if isinstance(given, str):
        given = {"preset": given}
    if not isinstance(given, dict) or "preset" not in given:
        return None
    name = given["preset"]
    if not isinstance(name, str) or name not in presets():
        return f"unknown preset '{str(name)[:60]}'; {suggestion(str(name), presets())}"
    base = {k: v for k, v in presets()[name].items() if k != "summary"}
    document.data = {**document.data, "method": merged(base, given)}
    return None


def against(method: Any, preset: str) -> dict[str, Any]:
    """The method section that runs ``preset`` with the local training of another method section."""
    own = method if isinstance(method, dict) else {}
    return {"preset": preset, **{k: own[k] for k in CARRIED_OVER if k in own}}


def merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """``own`` over ``base``, by the rule in the module's docstring."""
    result = dict(base)
    for key, value in own.items():
        below = base.get(key)
        if isinstance(value, dict):
            if isinstance(below, str):
                below = {"kind": below}
            if isinstance(below, dict) and value.get("kind", below.get("kind")) == below.get("kind"):
                value = merged(below, value)
        result[key] = value
    return result
