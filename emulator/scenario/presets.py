"""Named methods: ``method: group-fel`` or ``method: {preset: group-fel, ...}`` becomes a whole method section.

What the scenario says beside the preset wins over the preset, slot by slot. Where both give a slot, its parameters are merged
as long as they are of the same kind (or the scenario does not name a kind); another kind replaces the slot. A name alone is a
mapping with nothing but the kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from emulator.contracts.learning import LocalParams
from emulator.contracts.methods import methods, trainings
from emulator.errors import quote_all, suggestion
from emulator.yamlfile import Document, Path_, load

# What a comparison (`output.against`) carries over from the scenario's own method: how clients train, not how they are grouped.
# The rounds inside a group go only to methods whose groups are at the edges; under the cloud a group round is a round.
CARRIED_OVER = ("local", "group_rounds", "group_operation", "initial_model")


@cache
def presets() -> dict[str, dict[str, Any]]:
    """All presets by name, as plain data; ``summary`` says in a line what each is."""
    data = load(Path(str(files("emulator") / "methods" / "presets.yaml"))).data
    assert isinstance(data, dict)  # the file is ours
    return data


def expand(document: Document) -> str | None:
    """Puts the preset's slots under those of a scenario's method section, and notes which values come from it.

    Returns a message where the section names neither a preset nor a kind of method, or a preset that there is not.
    """
    if not isinstance(document.data, dict) or "method" not in document.data:
        return None
    given = document.data["method"]
    if isinstance(given, str):
        given = {"preset": given}
    known = f"presets: {quote_all(sorted(presets()))}"
    if not isinstance(given, dict) or not ("preset" in given or "kind" in given):
        return f"expected the name of a preset or a mapping with 'preset' or 'kind'; {known}"
    name = given.get("preset", "")
    if name == "" and "kind" in given:  # as a resolved scenario says that there is no preset
        return None
    if not isinstance(name, str):
        return f"expected the name of a preset; {known}"
    if name not in presets():
        if name in methods.names():
            return f"'{name}' is a kind of method, not a preset; write 'kind: {name}' and its slots"
        return f"unknown preset '{name[:60]}'; {suggestion(name, presets())}"
    base = {k: v for k, v in presets()[name].items() if k != "summary"}
    document.data = {**document.data, "method": merge_settings(base, given)}
    document.notes |= dict(_inherited(base, given, ("method",), name))
    return None


def against(resolved: dict[str, Any], preset: str) -> dict[str, Any]:
    """The method section that runs ``preset`` with what comparisons share of another, resolved method section.

    They share `CARRIED_OVER`: epochs, batch size and step size of the local training, but not its rule, which is the preset's;
    and the group operation, unless members of the preset's groups have nothing to do together.
    """
    base = presets().get(preset, {})
    kept = {k: resolved[k] for k in CARRIED_OVER if k in resolved}
    if base.get("aggregator") == "cloud":
        kept.pop("group_rounds", None)
    facts = trainings[_kind(base["training"])].facts if "training" in base else None
    if facts is not None and (facts.headers or not facts.together):
        kept.pop("group_operation", None)
    rule = _kind(base.get("local", kept.get("local")))
    if "local" in kept and rule != kept["local"]["kind"]:
        kept["local"] = {"kind": rule, **{k: v for k, v in kept["local"].items() if k in LocalParams.model_fields}}
    return {"preset": preset, **kept}


def _kind(slot: Any) -> Any:
    return slot.get("kind") if isinstance(slot, dict) else slot


def merge_settings(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """``own`` over ``base``, by the rule in the module's docstring."""
    result = dict(base)
    for key, value in own.items():
        layers = _layers(base.get(key), value)
        result[key] = merge_settings(*layers) if layers else value
    return result


def _layers(below: Any, above: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """What a preset and a scenario say of a slot, as two mappings to be merged; None where they are not of one kind."""
    if isinstance(below, str) and isinstance(above, dict):
        below = {"kind": below}
    if isinstance(below, dict) and isinstance(above, str):
        above = {"kind": above}
    if not isinstance(below, dict) or not isinstance(above, dict):
        return None
    kind = below.get("kind")
    return (below, above) if above.get("kind", kind) == kind else None


def _inherited(base: dict[str, Any], own: dict[str, Any], above: Path_, preset: str) -> Iterator[tuple[Path_, str]]:
    """Notes for messages: which values, and which parts of a slot, come from the preset."""
    for key, value in base.items():
        path = (*above, key)
        if key not in own:
            yield path, f" (from the preset '{preset}')"
            if isinstance(value, dict):
                yield from _inherited(value, {}, path, preset)
        elif layers := _layers(value, own[key]):
            rest = [k for k in layers[0] if k not in layers[1] and k != "kind"]
            if rest:
                yield path, f" (the preset '{preset}' gives {quote_all(rest)})"
            yield from _inherited(*layers, path, preset)
