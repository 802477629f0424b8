"""Sets that are folders of files: where they are, whether their content is the same, and what is wrong with a file.

A set whose people can be made up may say ``generated`` in place of ``path``: a small set in the very same format is
then written into the user's cache folder and read from there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.errors import HflError, InputError
from emulator.files import new_folder, write_text
from emulator.learning.data.generated import VERSION, GeneratedParams, write
from emulator.registry import Params

log = logging.getLogger(__name__)

KEY = "data.set.path"


class FolderParams(Params):
    """Where a set is, or how a small one like it is made."""

    path: str | None = Field(None, min_length=1, description="folder that holds the set")
    generated: GeneratedParams | None = Field(
        None, description="in place of 'path': a small made-up set in the same format, kept in the user's cache folder"
    )

    @model_validator(mode="after")
    def _one_source(self) -> FolderParams:
        if (self.path is None) == (self.generated is None):
            raise PydanticCustomError("source", "give either 'path' or 'generated'")
        return self


def cache_folder(name: str) -> Path:
    """A folder of this name beside the memo, in the user's cache folder."""
    from emulator.learning.memo import default_path

    return default_path().parent / name


def folder_of(params: FolderParams, kind: str) -> Path:
    """The set's folder; a generated one of this kind is written first, once. Raises `InputError` where there is none."""
    if params.generated is not None:
        folder = cache_folder("sample-data") / f"{kind}-v{VERSION}-{params.generated.name(kind)}"
        if not folder.is_dir():
            with new_folder(folder) as aside:
                write(kind, aside, params.generated)
        return folder
    return existing(params.path or "")


def existing(path: str) -> Path:
    """The folder at ``path``; raises `InputError` where there is none."""
    folder = Path(path)
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}", KEY)
    return folder


def wrong(path: Path, what: str, right: str) -> NoReturn:
    """Raises `InputError`: what is wrong with a file or folder, and what would be right."""
    raise InputError(f"{path}: {what}; {right}", KEY)


def fingerprint(name: str, params: Params, root: Path, paths: Sequence[Path]) -> str:
    """The set's name, its parameters but for the place, and a digest of names and content of its files.

    Files are read once: the digest is remembered in the user's cache folder for as long as their sizes and times of
    change stay. Raises `InputError`.
    """
    return f"{_settings(name, params)}:{_digest(root, paths)}"


def generated_fingerprint(name: str, params: FolderParams, kind: str) -> str | None:
    """The fingerprint of a set that is made up as of this kind, which needs no file; None for any other."""
    if params.generated is None:
        return None
    return f"{_settings(name, params)}:generated-{VERSION}:{params.generated.name(kind)}"


def _settings(name: str, params: Params) -> str:
    return f"{name}:{params.model_dump_json(exclude={'path', 'generated'})}"


def _digest(root: Path, paths: Sequence[Path]) -> str:
    names = [p.relative_to(root).as_posix() for p in paths]

    def compute() -> str:
        whole = hashlib.sha256()
        for name, path in zip(names, paths, strict=True):
            with path.open("rb") as file:
                whole.update(f"{name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
        return whole.hexdigest()

    try:
        stats = [p.stat() for p in paths]
        state = [(n, s.st_size, s.st_mtime_ns) for n, s in zip(names, stats, strict=True)]
        return remembered([str(root.resolve()), state], compute)
    except OSError as error:
        raise InputError(f"{error.filename or root} cannot be read: {error.strerror}", KEY) from error


def remembered(state: Sequence[object], compute: Callable[[], str]) -> str:
    """A digest of files, remembered in the user's cache folder for as long as their state (plain data) stays."""
    known = cache_folder("digests") / f"{hashlib.sha256(json.dumps(state).encode()).hexdigest()}.txt"
    with contextlib.suppress(OSError, ValueError):
        text = known.read_text(encoding="utf-8").strip()
        if len(bytes.fromhex(text)) == hashlib.sha256().digest_size:
            return text
    found = compute()
    try:
        write_text(known, found + "\n")
    except HflError as error:
        log.warning("%s; the files will be read again next time", error)
    return found
