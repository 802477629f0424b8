"""Files that appear whole or not at all, that show whether they were changed, and folders with one writer.

A file is written aside and then renamed. What is read back carries a checksum: a JSON file its own SHA-256 as its last entry
(`write_json`, `read_json`), an entry of a larger store one over its key and its value (`sealed`, `unsealed`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import uuid
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from emulator.errors import HflError, InputError

LOCK = ".lock"  # in every folder that was written; it stays, because deleting it would let two writers in
CHECK_BYTES = 16  # of a checksum over key and value
_SEAL = re.compile(r'"sha256": "([0-9a-f]{64})"\n}\n\Z')


class HeldError(InputError):
    """Another process is writing the folder."""


def slug(text: str) -> str:
    """A name for a file or a folder, made from any text."""
    return re.sub(r"[^a-z0-9.+_]+", "-", text.lower()).strip("-") or "run"


def aside_of(path: Path) -> Path:
    """A new hidden name beside ``path``, for what is not whole yet."""
    return path.with_name(f".{path.stem}.{os.getpid()}-{uuid.uuid4().hex[:8]}.part{path.suffix}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside ``path`` to write to; it takes the place of ``path`` at the end, unless something was raised.

    Raises `HflError` that names ``path`` where it cannot be written.
    """
    aside = aside_of(path)
    try:
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield aside
            aside.replace(path)
    finally:
        with suppress(OSError):
            aside.unlink()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Within the block an ``OSError`` becomes one that names ``path``: `InputError` where the path is wrong, else `HflError`.

    Many such errors do not say what could not be written, or name a file that is aside.
    """
    try:
        yield
    except OSError as error:
        wrong_path = FileNotFoundError | NotADirectoryError | IsADirectoryError | PermissionError | FileExistsError
        kind = InputError if isinstance(error, wrong_path) else HflError
        raise kind(f"cannot write '{path}': {error.strerror or error}") from error


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


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes a JSON object, whole or not at all. Its last entry, ``sha256``, is the hash of the file with that entry empty."""
    content = {name: each for name, each in value.items() if name != "sha256"}
    text = json.dumps(content | {"sha256": ""}, indent=2) + "\n"
    seal = hashlib.sha256(text.encode()).hexdigest()
    write_text(path, text.removesuffix('"\n}\n') + f'{seal}"\n}}\n')


def read_json(path: Path) -> dict[str, Any] | None:
    """The object that `write_json` wrote; None where there is no such file. Raises `InputError` where it was changed."""
    if not path.is_file():
        return None
    try:
        text = path.read_bytes().decode()
        content = json.loads(text)
    except (ValueError, RecursionError) as error:  # also what is no UTF-8
        raise InputError(f"'{path}' is damaged: {error}") from None
    seal = _SEAL.search(text)
    if seal is None or not isinstance(content, dict):
        raise InputError(f"'{path}' is damaged, or of another version: it does not end with its SHA-256")
    if hashlib.sha256((text[: seal.start(1)] + text[seal.end(1) :]).encode()).hexdigest() != seal[1]:
        raise InputError(f"'{path}' is damaged: it was changed after it was written (its SHA-256 is another)")
    del content["sha256"]
    return content


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def changed_files(folder: Path, summary: Mapping[str, Any]) -> list[str]:
    """The result files of a run folder that are there and are not as its summary has them.

    ``memory.json`` is not among them: its entries carry checksums of their own, and what is left of it is of use.
    """
    known = {name: digest for name, digest in summary.get("files", {}).items() if name != "memory.json"}
    return [name for name, digest in known.items() if (folder / name).is_file() and digest_of(folder / name) != digest]


def sealed(key: str, value: bytes) -> bytes:
    """A value with a checksum over its key and itself before it."""
    return _check(key, value) + value


def unsealed(key: str, stored: object) -> bytes | None:
    """The value that `sealed` stored under a key; None where it is not what was stored."""
    if not isinstance(stored, bytes):
        return None
    value = stored[CHECK_BYTES:]
    return value if stored[:CHECK_BYTES] == _check(key, value) else None


def sealed_text(key: str, value: bytes) -> str:
    """`sealed`, for a text file."""
    return b64encode(sealed(key, value)).decode()


def unsealed_text(key: str, stored: object) -> bytes | None:
    """The value that `sealed_text` stored under a key; None where it is not what was stored."""
    try:
        return unsealed(key, b64decode(stored, validate=True)) if isinstance(stored, str) else None
    except ValueError:
        return None


def _check(key: str, value: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + value).digest()[:CHECK_BYTES]


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Makes a folder, and keeps other processes from writing it for as long as the block lasts.

    Raises `HeldError` that says who is at work where somebody is. A process that is killed lets go of the folder. A
    folder that cannot be written at all needs no lock.
    """
    from filelock import FileLock, Timeout

    if folder.is_file():
        raise InputError(f"{folder} is a file; --out must name a folder")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.resolve() / LOCK
    lock = FileLock(path, blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise HeldError(f"{folder} is being written by {_holder(path)}; wait until it has ended, or stop it") from None
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        yield
        return
    try:
        with suppress(OSError):
            path.write_text(_introduction(), encoding="utf-8", errors="backslashreplace")
        yield
    finally:
        lock.release()


def _introduction() -> str:
    """Who this is, for a message to others."""
    command = " ".join([Path(sys.argv[0]).name or "python", *sys.argv[1:]])
    since = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
    return f"process {os.getpid()} on {platform.node()} ({command}) since {since}\n"


def _holder(lock: Path) -> str:
    try:
        return lock.read_text(encoding="utf-8").strip() or "another process"
    except (OSError, ValueError):
        return "another process"
