"""Pydantic's errors in our words, each with its file, line and column."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from emulator.errors import Problem, suggestion
from emulator.registry import NESTED
from emulator.yamlfile import Document, Path_

_MESSAGES = {
    "missing": "is required",
    "string_type": "expected text",
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "dict_type": "expected a mapping",
    "model_type": "expected a mapping",
    "model_attributes_type": "expected a mapping",
    "tuple_type": "expected a list",
    "finite_number": "expected a finite number",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "needs at least {min_length} entries",
    "string_too_short": "must not be empty",
    "string_too_long": "is longer than {max_length} characters",
    "literal_error": "expected {expected}",
    "string_pattern_mismatch": "may hold only letters, digits, spaces and _ . + -, and begins with a letter or digit",
}


def explain(document: Document, errors: Sequence[Any], model: type[BaseModel], above: Path_ = ()) -> Iterator[Problem]:
    """Problems in our words and with their places, from pydantic's errors about ``model``, which stands at ``above``."""
    for error in errors:
        loc = tuple(part for part in error["loc"] if part != "[key]")
        path = (*above, *loc)
        kind, context = error["type"], error.get("ctx", {})
        if kind == NESTED:
            yield from explain(document, context["errors"], context["model"], path)
        elif kind == "extra_forbidden":
            allowed = _fields_at(model, loc[:-1])
            yield document.problem(path, f"unknown key; {suggestion(str(loc[-1]), allowed, 'allowed')}", at_key=True)
        elif kind == "missing":
            yield document.problem(path, "is required", at_key=True)
        elif kind == "choice_kind" and (*path, "kind") in document.values:
            yield document.problem((*path, "kind"), error["msg"])
        else:
            message = _MESSAGES[kind].format(**context) if kind in _MESSAGES else error["msg"]
            given = error.get("input")
            shown = (
                f", not {_shown(given)}"
                if kind.endswith("_type") or kind in ("int_from_float", "literal_error")
                else ""
            )
            if isinstance(given, int | float) and not shown and kind in _MESSAGES:
                shown = f" (it is {_shown(given)})"
            yield document.problem(path, message + shown)


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _fields_at(model: type[BaseModel], loc: Path_) -> list[str]:
    """The keys that are allowed in the section at ``loc`` of a model."""
    current: Any = model
    for part in loc:
        fields = getattr(current, "model_fields", {})
        if part not in fields:
            return []
        options = (
            typing.get_args(fields[part].annotation)
            if _is_union(fields[part].annotation)
            else (fields[part].annotation,)
        )
        current = next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)
    return list(getattr(current, "model_fields", {}))


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)
