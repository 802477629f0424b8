"""The JSON Schema of scenario files, for editors: derived from the models and from whatever plug-ins are known."""

from __future__ import annotations

from typing import Any

from emulator.scenario.presets import presets
from emulator.scenario.schema import Scenario


def json_schema() -> dict[str, Any]:
    """The whole schema. A method may be a preset's name, or a mapping that gives a preset and then needs nothing else.

    A file need not name its scenario.
    """
    schema = Scenario.model_json_schema(mode="validation")
    schema["required"].remove("name")
    names = sorted(presets())
    method = schema["properties"]["method"]
    relaxed = []
    for option in method["anyOf"]:
        if "properties" not in option:
            continue
        preset = {"enum": names, "description": "a published method to start from"}
        partial = {key: _partial(value) for key, value in option["properties"].items()}
        # A resolved scenario without a preset says `preset: ''`.
        relaxed.append({**option, "properties": {**option["properties"], "preset": {**preset, "enum": ["", *names]}}})
        relaxed.append({**option, "properties": {**partial, "preset": preset}, "required": ["preset"]})
    method["anyOf"] = [{"enum": names, "description": "a preset"}, *relaxed]
    schema["$defs"]["Output"]["properties"]["against"]["items"] = {"enum": names}
    for section in ("Topology", "ClientKind"):
        fields = schema["$defs"][section]["properties"]
        devices = fields["devices"]
        fields["devices"] = {"anyOf": [{"type": "string"}, devices], "description": devices.get("description", "")}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "hfl-emulator scenario"}


def _partial(slot: Any) -> Any:
    """A slot beside a preset may leave out its kind and whatever else the preset gives; so any name may stand alone."""
    kinds = [o for o in slot.get("anyOf", ()) if "kind" in o.get("properties", ())]
    if not kinds:
        return slot
    names = {"enum": [o["properties"]["kind"]["const"] for o in kinds]}
    return {**slot, "anyOf": [names, *({k: v for k, v in o.items() if k != "required"} for o in kinds)]}
