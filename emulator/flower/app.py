"""A Flower app as the user names it: a folder with its ``pyproject.toml``, or two objects as ``module:object``."""

from __future__ import annotations

import hashlib
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from emulator.errors import InputError, suggestion
from emulator.files import slug

PROJECT = "pyproject.toml"
Value = str | int | float | bool
_SKIPPED = {"__pycache__", "node_modules", "venv", "build", "dist", "runs"}


@dataclass(frozen=True)
class App:
    """An app: its name, the folder that it is imported from, its two objects, its run configuration, and the hash of its code."""

    name: str
    folder: Path
    server: str
    client: str
    config: dict[str, Value]
    sha256: str


def find_app(words: Sequence[str], overrides: Sequence[str] = ()) -> App:
    """The app that the user means, with changes ``key=value`` of its run configuration.

    Raises `InputError` that says what is missing, or wrong in its ``pyproject.toml``.
    """
    if len(words) == 1 and ":" not in words[0]:
        return _from_folder(Path(words[0]), overrides)
    if len(words) != 2 or not all(_is_reference(word) for word in words):
        given = " ".join(words)
        raise InputError(
            f"APP is '{given}'; give the folder of an app, or its ServerApp and its ClientApp as two words MODULE:OBJECT"
        )
    folder = Path.cwd()
    server, client = words
    for word in words:
        _check_there(word, folder, f"'{word}'")
    name = slug(server.partition(":")[0].split(".")[0])
    return App(name, folder, server, client, _parsed(overrides), _hash_of_modules([server, client], folder))


def _from_folder(folder: Path, overrides: Sequence[str]) -> App:
    file = folder / PROJECT
    if not folder.is_dir():
        raise InputError(f"there is no folder '{folder}'; APP is the folder of a Flower app, with its {PROJECT}")
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"'{folder}' is no Flower app: it has no {PROJECT}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file}: {error}") from None
    section = _section(project, file, "tool", "flwr", "app")
    components = _section(project, file, "tool", "flwr", "app", "components")
    references = []
    for key in ("serverapp", "clientapp"):
        given = components.get(key)
        if not isinstance(given, str) or not _is_reference(given):
            said = "is missing" if given is None else f"is {given!r}"
            raise InputError(f"{file}: tool.flwr.app.components.{key} {said}; write it as MODULE:OBJECT")
        _check_there(given, folder.absolute(), f"{file}: tool.flwr.app.components.{key}: '{given}'")
        references.append(given)
    flat = dict(_flat(section.get("config", {}), file))
    changes = _parsed(overrides)
    for key in changes:
        if key not in flat:
            raise InputError(f"--run-config {key}: the app has no such key; {suggestion(key, flat)}")
    name = project.get("project", {}).get("name")
    name = slug(name if isinstance(name, str) else folder.absolute().name)
    return App(name, folder.absolute(), references[0], references[1], {**flat, **changes}, _hash_of_folder(folder))


def _section(project: dict[str, Any], file: Path, *keys: str) -> dict[str, Any]:
    found: Any = project
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        raise InputError(f"{file} has no [{'.'.join(keys)}], which every Flower app has")
    return found


def _flat(config: Any, file: Path, above: str = "") -> Iterator[tuple[str, Value]]:
    if not isinstance(config, dict):
        raise InputError(f"{file}: tool.flwr.app.config is {config!r}; it is a table of keys and values")
    for key, value in config.items():
        name = f"{above}{key}"
        if isinstance(value, dict):
            yield from _flat(value, file, f"{name}.")
        elif isinstance(value, str | int | float | bool):
            yield name, value
        else:
            raise InputError(f"{file}: tool.flwr.app.config.{name} is {value!r}; it is a number, a text, true or false")


def _parsed(overrides: Sequence[str]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for text in overrides:
        try:
            flat = dict(_flat(tomllib.loads(text), Path("--run-config")))
        except tomllib.TOMLDecodeError:
            raise InputError(
                f"--run-config {text}: write KEY=VALUE as in TOML, for example lr=0.01 or 'name=\"a\"'"
            ) from None
        found |= flat
    return found


def _is_reference(text: str) -> bool:
    module, colon, attribute = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))


def _check_there(reference: str, folder: Path, what: str) -> None:
    """Raises `InputError` where there is no such module; nothing of it is imported but the packages that it stands in."""
    module = reference.partition(":")[0]
    top = module.split(".")[0]
    with importing_from(folder):
        try:
            found = find_spec(top)
        except (ImportError, ValueError):
            found = None
    if found is None:
        raise InputError(f"{what}: there is no module '{top}' in {folder}, and none is installed")


@contextmanager
def importing_from(folder: Path) -> Iterator[None]:
    """A block in which modules are found in a folder first. What it imports from there is forgotten at its end."""
    before, path = set(sys.modules), list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if isinstance(file, str) and Path(file).is_relative_to(folder):
                del sys.modules[name]


def _hash_of_folder(folder: Path) -> str:
    """Of every Python file below a folder, with its path; hidden folders and those of environments are left out."""
    files = []
    for path in folder.rglob("*.py"):
        inside = path.relative_to(folder)
        if not any(part.startswith(".") or part in _SKIPPED for part in inside.parts[:-1]):
            files.append((inside.as_posix(), path))
    return _hash_of(files)


def _hash_of_modules(references: Sequence[str], folder: Path) -> str:
    """Of the packages that these stand in, or of all modules beside them, where they stand in none."""
    files: dict[str, Path] = {}
    for reference in references:
        top = reference.partition(":")[0].split(".")[0]
        with importing_from(folder):
            spec = find_spec(top)
        if spec is not None and spec.submodule_search_locations:
            for root in map(Path, spec.submodule_search_locations):
                files |= {f"{top}/{path.relative_to(root).as_posix()}": path for path in root.rglob("*.py")}
        elif spec is not None and spec.origin and Path(spec.origin).is_file():
            files |= {path.name: path for path in Path(spec.origin).parent.glob("*.py")}
    return _hash_of(files.items())


def _hash_of(files: Any) -> str:
    found = hashlib.sha256()
    for name, path in sorted(files):
        content = path.read_bytes()
        found.update(f"{name}\n{len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()
