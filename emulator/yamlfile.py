"""YAML as people mean it, with the place of every key and value.

PyYAML reads YAML 1.1, where ``1e3`` is a string, ``no`` is False, ``12:30:00`` is 45000 and the second of two equal
keys silently wins. Here scalars follow YAML 1.2's core schema, equal keys are an error, and every node keeps its line
and column, so that whoever checks the content can point at it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

import yaml

from emulator.errors import Problem, ScenarioError

Path_ = tuple[str | int, ...]  # where a value stands: ("topology", "links", "access")

MAX_BYTES = 1_000_000
MAX_DEPTH = 30
MAX_NODES = 100_000
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Mark:
    """Line and column, from 1, of a key or a value, and the file (or the option) it was written in."""

    file: str
    line: int
    column: int


@dataclass
class Document:
    """Plain data and where each part of it was written. ``keys`` holds the place of a mapping's key, ``values`` of its value.

    ``notes`` holds what is to be added to any problem at a path, for example where a value comes from that is not in the file.
    """

    file: str
    data: Any = None
    keys: dict[Path_, Mark] = field(default_factory=dict)
    values: dict[Path_, Mark] = field(default_factory=dict)
    notes: dict[Path_, str] = field(default_factory=dict)

    def problem(self, path: Path_, message: str, at_key: bool = False) -> Problem:
        """A problem at ``path``, or at the nearest place above it that was written down."""
        message += self.notes.get(path, "")
        for end in range(len(path), -1, -1):
            part = path[:end]
            first, second = (self.keys, self.values) if at_key or end < len(path) else (self.values, self.keys)
            mark = first.get(part) or second.get(part)
            if mark is not None:
                return Problem(mark.file, mark.line, mark.column, dotted(path), message)
        return Problem(self.file, 0, 0, dotted(path), message)

    def below(self, path: Path_) -> Document:
        """What stands at ``path``, with its places, as a document of its own."""
        data, depth = self.data, len(path)
        for part in path:
            data = data[part]
        keys, values = (
            {p[depth:]: m for p, m in table.items() if p[:depth] == path} for table in (self.keys, self.values)
        )
        return Document(self.file, data, keys, values)


def dotted(path: Path_) -> str:
    """``topology.links.access``, ``output.against[0]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


class _Loader(yaml.SafeLoader):
    """PyYAML's composer with YAML 1.2's core schema for plain scalars."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (as PyYAML has it)


class _Dumper(yaml.SafeDumper):
    """PyYAML's dumper, which also puts quotes around text that YAML 1.2 would take for something else, such as 1e3."""


_CORE = (
    ("null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"), list("-+0123456789")),
    ("float", re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"), list("-+.0123456789")),
    ("float", re.compile(r"^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"), list("-+.")),
)
for _kind, _pattern, _first in _CORE:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(f"{_TAG}{_kind}", _pattern, _first)


def load(path: Path) -> Document:
    """Reads a YAML file. Raises `ScenarioError` with a message for anything that keeps it from being read."""
    name = str(path)
    try:
        with path.open("rb") as file:  # a pipe or a device may be endless, whatever size it states
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _unreadable(name, "there is no such file") from None
    except IsADirectoryError:
        raise _unreadable(name, "this is a folder, not a file") from None
    except (OSError, ValueError) as error:
        raise _unreadable(name, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > MAX_BYTES:
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


def from_data(data: Any, name: str) -> Document:
    """A document of data that was built in Python; ``name`` is what messages call it, and it has no lines.

    Mappings, sequences and the scalars of numpy are taken as what they hold. Raises `ScenarioError` for anything that YAML could
    not say, as `parse` would.
    """
    try:
        document = parse(dump(_plain(data, (), name)), name)
    except ScenarioError as error:
        raise ScenarioError(tuple(replace(p, line=0, column=0) for p in error.problems)) from None
    here = Mark(name, 0, 0)
    return Document(name, document.data, dict.fromkeys(document.keys, here), dict.fromkeys(document.values, here))


def _plain(value: Any, path: Path_, name: str) -> Any:
    if len(path) > MAX_DEPTH:
        raise ScenarioError((Problem(name, 0, 0, dotted(path[:3]), f"is nested deeper than {MAX_DEPTH} levels"),))
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ScenarioError((Problem(name, 0, 0, dotted(path), f"the key {key!r} is not text"),))
        return {str(key): _plain(each, (*path, key), name) for key, each in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(each, (*path, i), name) for i, each in enumerate(value)]
    if hasattr(value, "tolist"):  # numpy's arrays and numbers
        return _plain(value.tolist(), path, name)
    if isinstance(value, PurePath):
        return str(value)
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if value is None:
        return None
    what = f"expected text, a number, a list or a mapping, not {type(value).__name__}"
    raise ScenarioError((Problem(name, 0, 0, dotted(path), what),))


def dump(data: Any) -> str:
    """Plain data as YAML; `parse` reads the same data from it, and so do readers of YAML 1.1."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def _write_text(dumper: _Dumper, text: str) -> yaml.Node:
    # Breaks other than \n come back as something else unless they are escaped, which only double quotes do.
    style = '"' if re.search("[\r\x85\u2028\u2029]", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)


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
            raise ScenarioError((Problem(mark.file, 0, 0, "", f"has more than {MAX_NODES} values (aliases counted)"),))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path, mark)
        if node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
            return self._fail(mark, path, f"the tag '{node.tag}' is not allowed here")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        return [self.build(child, (*path, i)) for i, child in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            mark = Mark(self.document.file, key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            if not isinstance(key_node, yaml.ScalarNode):
                self._fail(mark, path, "a key must be a plain word")
                continue
            key = self._text(key_node, path, mark)
            if key is None:
                continue
            if key in result:
                first = self.document.keys[(*path, key)].line
                self._fail(mark, (*path, key), f"the key stands twice in this mapping (first in line {first})")
                continue
            self.document.keys[(*path, key)] = mark
            result[key] = self.build(value_node, (*path, key))
        return result

    def _scalar(self, node: yaml.Node, path: Path_, mark: Mark) -> Any:
        kind = node.tag.removeprefix(_TAG)
        text: str = node.value
        if kind == "str":
            return self._text(node, path, mark)
        if not any(kind == core and pattern.fullmatch(text) for core, pattern, _ in _CORE):  # a tag that the user wrote
            return self._fail(mark, path, f"the tag '{node.tag}' is not allowed here")
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind == "int":
            if len(text) > 18:
                return self._fail(mark, path, "the number is too large")
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if text[-1].isalpha():
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        value = float(text)
        return value if math.isfinite(value) else self._fail(mark, path, "the number is too large")

    def _text(self, node: yaml.Node, path: Path_, mark: Mark) -> str | None:
        # Half of a surrogate pair, written as an escape, could be neither printed nor stored.
        if any("\ud800" <= character <= "\udfff" for character in node.value):
            self._fail(mark, path, "has a character that YAML does not allow")
            return None
        return str(node.value)

    def _fail(self, mark: Mark, path: Path_, message: str) -> None:
        if len(self.problems) < 20:
            self.problems.append(Problem(mark.file, mark.line, mark.column, dotted(path), message))


def _unreadable(file: str, message: str) -> ScenarioError:
    return ScenarioError((Problem(file, 0, 0, "", message),))


# PyYAML's words for the commonest slips, and ours.
_HINTS = {
    "mapping values are not allowed": "a key cannot stand here; check the indentation, or put a text with ': ' in quotes",
    "expected <block end>": "this does not fit what stands before it; check the indentation and the quotes",
    "could not find expected ':'": "a key without ':'; write 'key: value', or check the indentation",
    "but found another document": "a second document begins here; a file holds only one",
    "found unexpected end of stream": "a quote is opened and never closed",
    "found character": "a plain text cannot begin with this character; put it in quotes",
}


def _syntax_message(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark
    if mark is not None:
        lines = text.splitlines()
        line = lines[mark.line] if mark.line < len(lines) else ""
        if "\t" in line[: len(line) - len(line.lstrip())] or line[mark.column : mark.column + 1] == "\t":
            return "a tab stands in the indentation; YAML wants spaces"
    what = error.problem or error.context or "cannot be read"
    hint = next((hint for begin, hint in _HINTS.items() if what.startswith(begin)), "")
    return f"is not valid YAML: {hint or what}"
