"""The JSON Schema of scenario files, for editors: derived from the models and from whatever plug-ins are known."""

from __future__ import annotations

from typing import Any

from emulator.scenario.presets import presets
from emulator.scenario.schema import Scenario


def json_schema() -> dict[str, Any]:
    """The whole schema. A method may be a preset's name, or a mapping that gives a preset and then needs nothing else."""
    schema = Scenario.model_json_schema(mode="validation")
    names = sorted(presets())
    method = schema["properties"]["method"]
    relaxed = []
    for option in method["anyOf"]:
        if "properties" not in option:
            continue
        properties = {
            **option["properties"],
            "preset": {"enum": names, "description": "a published method to start from"},
        }
        properties = {key: _partial(value) for key, value in properties.items()}
        relaxed.append(option)
        relaxed.append({**option, "properties": properties, "required": ["preset"]})
    method["anyOf"] = [{"enum": names, "description": "a preset"}, *relaxed]
    devices = schema["$defs"]["Topology"]["properties"]["devices"]
    schema["$defs"]["Topology"]["properties"]["devices"] = {
        "anyOf": [{"type": "string"}, devices],
        "description": devices.get("description", ""),
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "hfl-emulator scenario", **schema}


def _partial(slot: Any) -> Any:
    """A slot beside a preset may leave out its kind and whatever else the preset gives."""
    if not isinstance(slot, dict) or "anyOf" not in slot:
        return slot
    options = [{k: v for k, v in o.items() if k != "required"} if "properties" in o else o for o in slot["anyOf"]]
    return {**slot, "anyOf": options}
