"""Where code of the user's comes from: the files of a module and their SHA-256, found without importing anything."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from emulator.modules import look_here
from emulator.processes import MAIN


@dataclass(frozen=True)
class Source:
    """A module of the user's as it was at some time.

    ``given`` is what the user named it by: a path that ends in ``.py``, or the name of a module. ``file`` is the whole path of
    its file, of a package that of its ``__init__.py``. ``distribution`` is the installed package that it belongs to, with its
    version; empty where there is none. ``sha256`` is that of its file, of a package over all its Python files. ``factory``: it
    registers nothing, and a scenario names it for a model.
    """

    name: str
    given: str
    file: str
    distribution: str
    sha256: str
    factory: bool = False


def source_of(given: str) -> Source | None:
    """The code that a path to a ``.py`` file or the name of a module stands for now; None where there is none in a file.

    A name is looked for where `emulator.modules.find` finds it. Of a name with dots the whole package counts, because its
    modules use one another.
    """
    if given.endswith(".py"):
        name, files = Path(given).stem, [Path(given).resolve()]
    else:
        name, files = given, _files_of(given)
    try:
        digest = _digest(files)
    except OSError:
        return None
    return (
        Source(name, given, str(files[0]), "" if given.endswith(".py") else _distribution(name, files[0]), digest)
        if files
        else None
    )


def _files_of(module: str) -> list[Path]:
    """The files of a module, that of a package's own code first."""
    if module == MAIN:
        file = getattr(sys.modules.get(MAIN), "__file__", None)
        return [Path(file).resolve()] if isinstance(file, str) and Path(file).is_file() else []
    top, *below = module.split(".")
    before = list(sys.path)
    try:
        look_here()
        spec = importlib.util.find_spec(top)
    except (ValueError, ImportError):  # a module that something made up
        return []
    finally:
        sys.path[:] = before
    if spec is None:
        return []
    places = [Path(place) for place in spec.submodule_search_locations or ()]
    if spec.has_location and spec.origin is not None:
        return _within(Path(spec.origin).resolve()) if places else [Path(spec.origin).resolve()]
    for part in below:  # folders without code of their own
        for place in places:
            if (place / part / "__init__.py").is_file():
                return _within((place / part / "__init__.py").resolve())
            if (place / f"{part}.py").is_file():
                return [(place / f"{part}.py").resolve()]
        places = [place / part for place in places]
    return []


def _within(first: Path) -> list[Path]:
    return [first, *sorted(file for file in first.parent.rglob("*.py") if file != first)]


def _digest(files: list[Path]) -> str:
    """The SHA-256 of a file; of several, over their places and theirs."""
    found = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    if len(files) == 1:
        return found[0]
    lines = (
        f"{each}  {file.relative_to(files[0].parent).as_posix()}\n" for each, file in zip(found, files, strict=True)
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _distribution(module: str, file: Path) -> str:
    if not any(file.is_relative_to(sysconfig.get_path(name)) for name in ("purelib", "platlib")):
        return ""  # finding all that is installed takes a while
    names = importlib.metadata.packages_distributions().get(module.partition(".")[0], ())
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in dict.fromkeys(names))
