"""Modules of the user's that register plug-ins: imported by name or from a file, in this process and in its workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emulator import modules

loaded: list[str] = []  # what was imported here, so that worker processes can do the same


def load(names: Sequence[str]) -> None:
    """Imports modules by name, or files by path (ending in ``.py``); raises `InputError` where that fails."""
    for name in names:
        with modules.refusing(f"--plugin {name}"):
            if name.endswith(".py"):
                modules.load_file(Path(name).resolve())
            else:
                modules.find(name)
        loaded.append(name if not name.endswith(".py") else str(Path(name).resolve()))
