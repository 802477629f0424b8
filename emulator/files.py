"""Files that appear whole or not at all: written aside, then renamed."""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def slug(text: str) -> str:
    """A name for a file or a folder, made from any text."""
    return re.sub(r"[^a-z0-9.+_]+", "-", text.lower()).strip("-") or "run"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside ``path`` to write to; it takes the place of ``path`` at the end, unless something was raised."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder beside ``path`` to fill; it becomes ``path`` at the end, unless something was raised.

    Where somebody else has filled ``path`` in the meantime, theirs stays.
    """
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    aside.mkdir(parents=True)
    try:
        yield aside
        try:
            aside.rename(path)
        except OSError:
            if not path.is_dir():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file, whole or not at all."""
    write_text(path, json.dumps(value, indent=2) + "\n")
