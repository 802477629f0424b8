"""Modules of the user's: where they are found, what is said when they fail, and which code it is.

A name is looked for where Python finds installed packages, and only then in the current folder, so that nothing that lies there
takes the place of anything else. The current folder is not looked at before somebody names a module.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from emulator.errors import InputError

from_files: set[str] = set()  # names of modules that came from files

_ROOT = Path(__file__).parent.parent
_IMPORTING = str(Path(importlib.__file__).parent)
_OURS = (*(str(_ROOT / room) for room in ("emulator", "analysis", "devices", "traces")), _IMPORTING)
_INSTALLED = tuple(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib"))


_hashed: dict[str, tuple[Any, str]] = {}  # by module: which import of it was looked at, and the hash of its file then


def code_hash(module: str, key: str = "") -> str:
    """A hash of the source file of a module that is imported; ``key`` is the key of the scenario that names it.

    Raises `InputError` where it says nothing of the code that runs: there is no file, as for the cells of a notebook, or it was
    changed after the module was looked at first. Results would then be remembered as those of other code.
    """
    found = sys.modules.get(module)
    file = getattr(found, "__file__", None)
    if not isinstance(file, str) or not Path(file).is_file():
        where = "a notebook or a prompt" if module == "__main__" else f"the module '{module}'"
        raise InputError(
            f"code of {where} stands in no file, so that its results could not be told from those of other code; "
            "put it into a .py file",
            key,
        )
    now = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]
    spec = getattr(found, "__spec__", None) or found  # another one after importlib.reload
    known, before = _hashed.get(module, (None, ""))
    if known is spec and before != now:
        raise InputError(
            f"'{file}' was changed after '{module}' was imported; restart Python, or reload it with importlib.reload",
            key,
        )
    _hashed[module] = spec, now
    return now


def find(name: str) -> ModuleType:
    """Imports a module by name: one that is installed, or else one of the current folder. Raises what the import raises."""
    look_here()
    return importlib.import_module(name)


def load_file(path: Path) -> None:
    """Imports a file, whole path, under its own name. Raises what the import raises, and ``ImportError`` for a taken name."""
    name = path.stem
    if name not in from_files and (name in sys.modules or _is_elsewhere(path)):
        raise ImportError(f"'{name}' is the name of another module; give the file another one")
    look_here()
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    from_files.add(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


@contextmanager
def refusing(what: str, key: str = "") -> Iterator[None]:
    """A block that runs the user's code. Whatever that raises becomes an `InputError` that begins with ``what``.

    The message ends with the place in the user's code. Only an interruption passes as it is.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also what would end this process, such as SystemExit
        if isinstance(error, InputError):  # it says what is wrong and where
            raise InputError(f"{what}: {error.message}", key) from error
        message = (error.msg if isinstance(error, SyntaxError) else str(error)) or "no message"
        raise InputError(f"{what}: {type(error).__name__}: {message}{_place_of(error)}", key) from error


def _place_of(error: BaseException) -> str:
    """`` (file.py:3)``: the line of the user's code that raised, or that led to it; nothing where there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}:{error.lineno})" if error.lineno else f" ({error.filename})"
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith(("<", *_OURS))]
    written = [f for f in theirs if not f.filename.startswith(_INSTALLED)] or theirs
    return f" ({written[-1].filename}:{written[-1].lineno})" if written else ""


def look_here() -> None:
    """Makes the current folder the last place where modules are found."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def _is_elsewhere(path: Path) -> bool:
    """Whether the file's name is that of an installed module."""
    found = importlib.util.find_spec(path.stem) if path.stem.isidentifier() else None
    return found is not None and (found.origin is None or Path(found.origin).resolve() != path)
