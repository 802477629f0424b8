"""A JSON Schema checker for the keywords that our schema uses; it raises on any other, so that nothing goes unchecked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
ANNOTATIONS = {"title", "description", "default", "examples", "$schema", "$defs"}


def subschemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema and all that it is made of, definitions included."""
    yield schema
    for key, value in schema.items():
        parts: list[Any] = []
        if key in ("properties", "$defs"):
            parts = list(value.values())
        elif key in ("anyOf", "allOf", "prefixItems"):
            parts = value
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            parts = [value]
        for part in parts:
            yield from subschemas(part)


def resolve(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    """What ``#/$defs/Name`` refers to; raises ``KeyError`` where there is no such thing."""
    found = root
    assert reference.startswith("#/"), reference
    for part in reference[2:].split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def accepts(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> bool:
    """Whether a value is valid under a schema whose references are resolved in ``root``."""
    return all(_holds(key, schema, value, root) for key in schema if key not in ANNOTATIONS)


def _holds(key: str, schema: dict[str, Any], value: Any, root: dict[str, Any]) -> bool:
    bound = schema[key]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match key:
        case "$ref":
            return accepts(resolve(bound, root), value, root)
        case "type":
            return isinstance(value, TYPES[bound]) and (bound == "boolean" or not isinstance(value, bool))
        case "const":
            return _equal(value, bound)
        case "enum":
            return any(_equal(value, each) for each in bound)
        case "allOf":
            return all(accepts(each, value, root) for each in bound)
        case "anyOf":
            return any(accepts(each, value, root) for each in bound)
        case "minimum":
            return not number or value >= bound
        case "maximum":
            return not number or value <= bound
        case "exclusiveMinimum":
            return not number or value > bound
        case "exclusiveMaximum":
            return not number or value < bound
        case "pattern":
            return not isinstance(value, str) or re.search(bound, value) is not None
        case "minLength" | "minItems" | "minProperties":
            kind = {"minLength": str, "minItems": list, "minProperties": dict}[key]
            return not isinstance(value, kind) or len(value) >= bound
        case "maxLength" | "maxItems":
            return not isinstance(value, str if key == "maxLength" else list) or len(value) <= bound
        case "items":
            rest = value[len(schema.get("prefixItems", ())) :] if isinstance(value, list) else []
            return all(accepts(bound, each, root) for each in rest)
        case "prefixItems":
            return not isinstance(value, list) or all(accepts(s, v, root) for s, v in zip(bound, value, strict=False))
        case "required":
            return not isinstance(value, dict) or set(bound) <= set(value)
        case "properties":
            return not isinstance(value, dict) or all(
                accepts(s, value[k], root) for k, s in bound.items() if k in value
            )
        case "additionalProperties":
            others = set(value) - set(schema.get("properties", ())) if isinstance(value, dict) else set()
            return not others if bound is False else all(accepts(bound, value[k], root) for k in others)
    raise NotImplementedError(key)


def _equal(value: Any, other: Any) -> bool:
    """As JSON has it: 0 and 0.0 are equal, 0 and false are not."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)
