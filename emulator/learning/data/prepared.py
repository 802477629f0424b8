"""Prepared samples of data sets, kept once on a machine: spectrograms, windows, decoded images, tokens.

A set that declares `DataSetFacts.prepared` is read once. Its arrays are written as ``.npy`` files into a folder whose name is a
hash of all that they depend on, and are mapped from there (`emulator.learning.data.mapped`), by this run and all later ones. A
folder appears whole or not at all; one process prepares a set, others wait for it. What is not as it was written is prepared
again. The least recently used sets go first where there are too many. None of this ever fails a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emulator.contracts.learning import DataSetChoice
from emulator.errors import HflError, InputError
from emulator.files import aside_of, read_json, write_json
from emulator.learning.data.arrays import ArraySet, checked
from emulator.learning.data.folders import cache_folder
from emulator.learning.data.mapped import Room, arrays_in, is_mapped, map_array, unnamed_array
from emulator.units import SIZE

log = logging.getLogger(__name__)

PLACE, LIMIT = "HFL_PREPARED", "HFL_PREPARED_LIMIT"  # variables of the environment
USUAL_LIMIT_BYTES = 20e9
FORMAT = 1  # of a folder
FACTS = "entry.json"  # in every folder; the time of its last change is that of the last use
SAMPLES = ("x_train", "x_test")  # are mapped; all else is read
OTHERS = ("y_train", "y_test", "owners", "test_owners")
_TROUBLE = (OSError, HflError, NotImplementedError)  # of a disk; the last, where it knows no locks
_NAME = re.compile("[0-9a-f]{40}")
_warned: set[Path] = set()


class Entry(NamedTuple):
    """A set that is kept: its folder, what it is, its bytes, and when it was used last (seconds since 1970)."""

    folder: Path
    kind: str
    size_bytes: int
    used_s: float


def place() -> Path | None:
    """The folder in which sets are kept; None where none shall be."""
    named = os.environ.get(PLACE, "")
    return None if named == "off" else Path(named) if named else cache_folder("prepared")


def limit_bytes() -> float:
    """How much may be kept. Raises `InputError` where the environment says something that is no size."""
    given = os.environ.get(LIMIT)
    try:
        return USUAL_LIMIT_BYTES if not given else SIZE.parse(given)
    except ValueError as error:
        raise InputError(f"{LIMIT}: {error}") from None


def entries() -> list[Entry]:
    """All sets that are kept, the one that was used last at the end."""
    folder = place()
    found = []
    for each in [] if folder is None or not folder.is_dir() else folder.iterdir():
        if _NAME.fullmatch(each.name):  # the folder is the user's to choose: other things may be in it
            with contextlib.suppress(OSError):
                facts = each / FACTS
                size = sum(file.stat().st_size for file in each.iterdir())
                found.append(Entry(each, _kind(facts), size, facts.stat().st_mtime if facts.is_file() else 0.0))
    return sorted(found, key=lambda entry: entry.used_s)


def clear() -> int:
    """Deletes all that is kept, and what killed processes left; returns how many sets there were. Raises ``OSError``."""
    found = entries()
    for entry in found:
        _remove(entry.folder)
    if (folder := place()) is not None and folder.is_dir():
        _sweep(folder)
    return len(found)


def kept(chosen: DataSetChoice) -> ArraySet:
    """The samples of a set, mapped where they are kept on this machine; those that shall be kept are, from now on.

    Raises what reading the set does.
    """
    folder = place()
    if folder is None or not chosen.prepared:
        return checked(chosen())
    most, content = limit_bytes(), chosen.plugin.facts.fingerprint(chosen.params)
    entry = folder / _key(chosen, content)
    found = _opened(entry)
    return _prepared(chosen, entry, content, most) if found is None else found


def scratch(like: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A new array of the same type: in a file without a name where ``like`` lies in a file, else in memory."""
    folder = place()
    if folder is not None and is_mapped(like):
        try:
            return unnamed_array(folder, shape, like.dtype)
        except OSError as error:
            _warn(folder, error)
    return np.empty(shape, like.dtype)


def _key(chosen: DataSetChoice, content: str) -> str:
    """A hash of all that prepared samples depend on. A set of the user's counts with its code and all its parameters."""
    versions = [FORMAT, chosen.prepared, *map(importlib.metadata.version, ("numpy", "torch"))]
    who = chosen.kind if chosen.plugin.ours else chosen.identity()
    text = json.dumps([versions, who, content], sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:40]


def _prepared(chosen: DataSetChoice, entry: Path, content: str, most: float) -> ArraySet:
    from filelock import FileLock

    with contextlib.ExitStack() as stack:
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(f"{entry}.lock"))
            if (found := _opened(entry)) is not None:
                return found  # another process was quicker
            _sweep(entry.parent, entry.name)
            if entry.exists():
                log.warning("what was kept of data set '%s' in %s is damaged; it is prepared again", chosen.kind, entry)
                _remove(entry)
            aside = stack.enter_context(_folder(aside_of(entry)))
        except _TROUBLE as error:
            _warn(entry.parent, error)
            return checked(chosen())
        with arrays_in(aside) as room:
            arrays = checked(chosen())
        if chosen.plugin.facts.fingerprint(chosen.params) != content:
            return arrays  # its files were changed while they were read
        try:
            size = _write(arrays, room, {"kind": chosen.kind})
            if size > most:
                message = "data set '%s' has %.3g GB and is not kept: %s allows %.3g GB"
                log.warning(message, chosen.kind, size / 1e9, LIMIT, most / 1e9)
                # Its files have no names from now on, and go with the last who uses them.
                return _opened(aside) or arrays
            _make_room(most - size)
            aside.rename(entry)
        except _TROUBLE as error:
            if not entry.exists():  # where locks do not work, another process may have been quicker
                _warn(entry.parent, error)
        return _opened(entry) or arrays


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[Path]:
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _write(arrays: ArraySet, room: Room, facts: dict[str, Any]) -> int:
    """Writes a set into the folder, where some of its arrays may be already; its bytes."""
    files = {name: room.folder / f"{name}.npy" for name in (*SAMPLES, *OTHERS) if getattr(arrays, name) is not None}
    for name, path in files.items():
        array: np.ndarray = getattr(arrays, name)
        made = room.made.get(array.ctypes.data)
        if made is not None and _is_whole(array, made):
            made.rename(path)
        else:
            np.save(path, np.ascontiguousarray(array), allow_pickle=False)
    for leftover in room.folder.glob("made-*.npy"):
        leftover.unlink()
    for path in files.values():
        with path.open("rb") as file:
            os.fsync(file.fileno())  # otherwise the folder could outlive a power failure that its files do not
    states = {name: _state(path) for name, path in files.items()}
    facts |= {"classes": arrays.classes, "owner_names": list(arrays.owner_names), "files": states}
    write_json(room.folder / FACTS, facts)
    return sum(size for size, *_ in states.values())


def _is_whole(array: np.ndarray, path: Path) -> bool:
    """Whether a file holds just this array: it was not cut or laid out anew since the file was made."""
    there = np.load(path, mmap_mode="r", allow_pickle=False)
    return there.shape == array.shape and there.dtype == array.dtype and array.flags.c_contiguous


def _opened(entry: Path) -> ArraySet | None:
    """The set in a folder, if it is whole; it counts as used now."""
    try:
        facts = read_json(entry / FACTS)
        if facts is None:
            return None
        files: dict[str, list[int]] = facts["files"]
        if any(_state(entry / f"{name}.npy") != state for name, state in files.items()):
            return None
        arrays = {name: map_array(entry / f"{name}.npy") for name in SAMPLES}
        arrays |= {name: np.load(entry / f"{name}.npy", allow_pickle=False) for name in OTHERS if name in files}
        found = checked(ArraySet(**arrays, classes=facts["classes"], owner_names=tuple(facts["owner_names"])))
    except (*_TROUBLE, ValueError, LookupError, TypeError, EOFError):
        return None
    with contextlib.suppress(OSError):
        os.utime(entry / FACTS)
    return found


def _state(path: Path) -> list[int]:
    """What shows that a file was changed: its bytes, and the times at which its content and all else of it changed last.

    Reading all of a file that may be larger than memory would take longer than much of what is kept.
    """
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _make_room(most: float) -> None:
    """Deletes the sets that were not used for longest until so many bytes are left. Who has mapped one keeps it."""
    there = entries()
    total = sum(entry.size_bytes for entry in there)
    for entry in there:
        if total <= most:
            return
        _remove(entry.folder)
        total -= entry.size_bytes


def _remove(folder: Path) -> None:
    """Deletes a folder: at once for everybody who looks for it."""
    aside = aside_of(folder)
    with contextlib.suppress(FileNotFoundError):
        folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _sweep(folder: Path, held: str = "") -> None:
    """Deletes what processes that were killed left behind; nobody else has the lock of the set ``held``."""
    from filelock import FileLock, Timeout

    for left in folder.glob(".*.part"):
        name = left.name[1:].partition(".")[0]
        lock = contextlib.nullcontext() if name == held else FileLock(folder / f"{name}.lock", blocking=False)
        with contextlib.suppress(Timeout, OSError), lock:
            shutil.rmtree(left, ignore_errors=True)


def _kind(facts: Path) -> str:
    try:
        return str((read_json(facts) or {}).get("kind", "damaged"))
    except InputError:
        return "damaged"


def _warn(folder: Path, error: Exception) -> None:
    if folder not in _warned:
        _warned.add(folder)
        log.warning("prepared data cannot be kept in %s (%s); going on without", folder, error)
