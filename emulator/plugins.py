"""Modules of the user's that register plug-ins: imported by name or from a file, in this process and in its workers."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from emulator.errors import InputError

loaded: list[str] = []  # what was imported here, so that worker processes can do the same


def load(names: Sequence[str]) -> None:
    """Imports modules by name, or files by path (ending in ``.py``); raises `InputError` where that fails."""
    for name in names:
        try:
            if name.endswith(".py"):
                _load_file(Path(name).resolve())
            else:
                importlib.import_module(name)
        except Exception as error:
            raise InputError(f"--plugin {name}: {type(error).__name__}: {error}") from error
        loaded.append(name if not name.endswith(".py") else str(Path(name).resolve()))


def _load_file(path: Path) -> None:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
