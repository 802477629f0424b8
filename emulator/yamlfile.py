"""YAML as people mean it, with the place of every key and value.

PyYAML reads YAML 1.1, where ``1e3`` is a string, ``no`` is False, ``12:30:00`` is 45000 and the second of two equal
keys silently wins. Here scalars follow YAML 1.2's core schema, equal keys are an error, and every node keeps its line
and column, so that whoever checks the content can point at it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from emulator.errors import Problem, ScenarioError

Path_ = tuple[str | int, ...]  # where a value stands: ("topology", "links", "access")

MAX_BYTES = 1_000_000
MAX_DEPTH = 30
MAX_NODES = 100_000


@dataclass(frozen=True)
class Mark:
    """Line and column, from 1, of a key or a value, and the file (or the option) it was written in."""

    file: str
    line: int
    column: int


@dataclass
class Document:
    """Plain data and where each part of it was written. ``keys`` holds the place of a mapping's key, ``values`` of its value."""

    file: str
    data: Any = None
    keys: dict[Path_, Mark] = field(default_factory=dict)
    values: dict[Path_, Mark] = field(default_factory=dict)

    def problem(self, path: Path_, message: str, at_key: bool = False) -> Problem:
        """A problem at ``path``, or at the nearest place above it that was written down."""
        for end in range(len(path), -1, -1):
            part = path[:end]
            first, second = (self.keys, self.values) if at_key or end < len(path) else (self.values, self.keys)
            mark = first.get(part) or second.get(part)
            if mark is not None:
                return Problem(mark.file, mark.line, mark.column, dotted(path), message)
        return Problem(self.file, 0, 0, dotted(path), message)


def dotted(path: Path_) -> str:
    """``topology.links.access``, ``output.against[0]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


class _Loader(yaml.SafeLoader):
    """PyYAML's composer with YAML 1.2's core schema for plain scalars."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (as PyYAML has it)


for _tag, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", list("-+0123456789")),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", list("-+.0123456789")),
    ("float", r"^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", list("-+.")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def load(path: Path) -> Document:
    """Reads a YAML file. Raises `ScenarioError` with a message for anything that keeps it from being read."""
    name = str(path)
    try:
        raw = path.read_bytes() if path.stat().st_size <= MAX_BYTES else None
    except FileNotFoundError:
        raise _unreadable(name, "there is no such file") from None
    except IsADirectoryError:
        raise _unreadable(name, "this is a folder, not a file") from None
    except (OSError, ValueError) as error:
        raise _unreadable(name, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if raw is None:
        raise _unreadable(name, f"is larger than {MAX_BYTES} bytes; that is no scenario file")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _unreadable(name, "is not a text file in UTF-8") from None
    return parse(text, name)


def parse(text: str, file: str) -> Document:
    """Reads YAML text; ``file`` is what messages call it. Raises `ScenarioError` with all that is wrong with its form."""
    document = Document(file)
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise ScenarioError((Problem(file, line, column, "", _syntax_message(error, text)),)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        raise ScenarioError((Problem(file, line, column, "", "has a character that YAML does not allow"),)) from None
    except RecursionError:
        raise _unreadable(file, f"is nested deeper than {MAX_DEPTH} levels") from None
    finally:
        if loader is not None:
            loader.dispose()
    if node is not None:
        builder = _Builder(document)
        document.data = builder.build(node, ())
        if builder.problems:
            raise ScenarioError(tuple(builder.problems))
    return document


def scalar(text: str, file: str) -> Document:
    """Reads the value part of ``--set key=value``: a scalar or a flow collection."""
    return parse(text, file)


class _Builder:
    """Turns PyYAML's nodes into plain data, noting places and problems on the way."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self.nodes = 0

    def build(self, node: yaml.Node, path: Path_) -> Any:
        self.nodes += 1
        mark = Mark(self.document.file, node.start_mark.line + 1, node.start_mark.column + 1)
        self.document.values[path] = mark
        if len(path) > MAX_DEPTH:
            return self._fail(mark, path[:3], f"is nested deeper than {MAX_DEPTH} levels")
        if self.nodes > MAX_NODES:
            return self._fail(mark, path[:3], f"has more than {MAX_NODES} values (aliases counted)")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(child, (*path, i)) for i, child in enumerate(node.value)]
        return self._scalar(node, path, mark)

    def _mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            mark = Mark(self.document.file, key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            if not isinstance(key_node, yaml.ScalarNode):
                self._fail(mark, path, "a key must be a plain word")
                continue
            key = key_node.value
            if key in result:
                first = self.document.keys[(*path, key)].line
                self._fail(mark, (*path, key), f"the key stands twice in this mapping (first in line {first})")
                continue
            self.document.keys[(*path, key)] = mark
            result[key] = self.build(value_node, (*path, key))
        return result

    def _scalar(self, node: yaml.Node, path: Path_, mark: Mark) -> Any:
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        text: str = node.value
        if kind == "str":
            return text
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind == "int":
            if len(text) > 18:
                return self._fail(mark, path, "the number is too large")
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if kind == "float":
            return float(text.replace(".inf", "inf").replace(".nan", "nan")) if text[-1].isalpha() else float(text)
        return self._fail(mark, path, f"the tag '{node.tag}' is not allowed here")

    def _fail(self, mark: Mark, path: Path_, message: str) -> None:
        if len(self.problems) < 20:
            self.problems.append(Problem(mark.file, mark.line, mark.column, dotted(path), message))


def _unreadable(file: str, message: str) -> ScenarioError:
    return ScenarioError((Problem(file, 0, 0, "", message),))


def _syntax_message(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark
    if mark is not None:
        lines = text.splitlines()
        line = lines[mark.line] if mark.line < len(lines) else ""
        if "\t" in line[: len(line) - len(line.lstrip())] or line[mark.column : mark.column + 1] == "\t":
            return "a tab stands in the indentation; YAML wants spaces"
    what = error.problem or error.context or "cannot be read"
    return f"is not valid YAML: {what}"
