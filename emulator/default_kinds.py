"""Choices that a field makes by default: a mapping without ``kind`` then gives parameters of the default kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue


def default_kinds(fields: Mapping[str, FieldInfo], marker: type) -> dict[str, str]:
    """The default kind of each field that is marked as a choice (an instance of ``marker``) and has one."""
    marked = {name: f.default for name, f in fields.items() if any(isinstance(each, marker) for each in f.metadata)}
    kinds = {name: _kind_of(default) for name, default in marked.items()}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, str)}


def _kind_of(default: Any) -> Any:
    """The kind of a default: a name, a mapping, or a choice that was read already."""
    if isinstance(default, dict):
        return default.get("kind")
    return default if isinstance(default, str) else getattr(default, "kind", None)


def with_kind(given: Any, kind: str | None) -> Any:
    """What a scenario says of a choice, with the default kind where it is a mapping that names none."""
    return {"kind": kind, **given} if kind is not None and isinstance(given, dict) and "kind" not in given else given


def kind_optional(choice: JsonSchemaValue, kind: str) -> JsonSchemaValue:
    """The JSON schema of a choice in which ``kind``, its default, may be left out."""
    return {**choice, "anyOf": [_optional(option, kind) for option in choice["anyOf"]]}


def _optional(option: JsonSchemaValue, kind: str) -> JsonSchemaValue:
    named = option.get("properties", {}).get("kind", {})
    if named.get("const") != kind and kind not in named.get("enum", ()):
        return option
    return {**option, "required": [key for key in option["required"] if key != "kind"]}
