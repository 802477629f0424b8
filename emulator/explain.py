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
    "too_short": "has too few entries; it needs at least {min_length}",
    "too_long": "has too many entries; it may have at most {max_length}",
    "string_too_short": "must not be empty",
    "string_too_long": "is longer than {max_length} characters",
    "literal_error": "expected {expected}",
    "string_pattern_mismatch": "may hold only letters, digits, spaces and _ . + -, and begins with a letter or digit",
}


def explain(
    document: Document, errors: Sequence[Any], model: type[BaseModel], above: Path_ = (), assumed: str = ""
) -> Iterator[Problem]:
    """Problems in our words and with their places, from pydantic's errors about ``model``, which stands at ``above``.

    ``assumed`` is the kind of a choice whose parameters ``model`` holds, where it is a default that nobody wrote down.
    """
    for error in errors:
        loc = tuple(part for part in error["loc"] if part != "[key]")
        path = (*above, *loc)
        kind, context = error["type"], error.get("ctx", {})
        if kind == "too_short" and any(e["loc"] != error["loc"] == e["loc"][: len(error["loc"])] for e in errors):
            continue  # pydantic counts only the entries that are right, and says what is wrong with the others
        if kind == NESTED:
            kind = "" if _names_kind(document.data, path) else context["kind"]
            yield from explain(document, context["errors"], context["model"], path, kind)
        elif kind == "extra_forbidden":
            allowed = _fields_at(model, loc[:-1])
            hint = suggestion(str(loc[-1]), allowed, "allowed") if allowed else "there is nothing to set here"
            if assumed and len(loc) == 1:
                hint += f" (the kind is '{assumed}' by default; another one needs 'kind')"
            yield document.problem(path, f"unknown key; {hint}", at_key=True)
        elif kind == "missing":
            yield document.problem(path, "is required", at_key=True)
        elif kind == "choice_kind" and (*path, "kind") in document.values:
            yield document.problem((*path, "kind"), error["msg"])
        else:
            yield document.problem(path, _message(kind, context, error["msg"], error.get("input")))


def _names_kind(data: Any, path: Path_) -> bool:
    """Whether the choice at ``path`` says of which kind it is: by its name alone, or as a mapping with ``kind``."""
    try:
        for part in path:
            data = data[part]
    except (KeyError, IndexError, TypeError):  # a value that nobody wrote down
        return True
    return not isinstance(data, dict) or "kind" in data


def _message(kind: str, context: dict[str, Any], default: str, given: Any) -> str:
    """What is wrong, what would be right, and what stands there instead."""
    if kind not in _MESSAGES:
        return default
    message = _MESSAGES[kind].format(**{k: _whole(v) for k, v in context.items()})
    if kind in ("int_type", "int_from_float") and _whole(given) is not given:
        message += f" such as {_whole(given)}"  # 1e3 and 3.0 are whole, but not written as whole numbers
    if kind.endswith("_type") or kind in ("int_from_float", "literal_error"):
        return f"{message}, not {_shown(given)}"
    return f"{message} (it is {_shown(given)})" if isinstance(given, int | float) else message


def _whole(value: Any) -> Any:
    """A float without a fraction as an int; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list | tuple):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _fields_at(model: type[BaseModel], loc: Path_) -> list[str]:
    """The keys that are allowed in the section at ``loc`` of a model."""
    annotation: Any = model
    for part in loc:
        annotation = _below(annotation, part)
    models = (o for o in _options(annotation) if _is_model(o))
    return next(([field.alias or name for name, field in o.model_fields.items()] for o in models), [])


def _below(annotation: Any, part: str | int) -> Any:
    """The type of what stands at ``part`` in a value of this type: a field of a model, or an entry of a collection."""
    for option in _options(annotation):
        if _is_model(option) and part in option.model_fields:
            return option.model_fields[part].annotation
        if typing.get_origin(option) in (dict, list, tuple):
            return typing.get_args(option)[1 if typing.get_origin(option) is dict else 0]
    return None


def _options(annotation: Any) -> tuple[Any, ...]:
    """The members of a union; a type that is no union is its own only one."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
