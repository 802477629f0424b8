"""Arrays that lie in files: their pages are read when they are needed, and the system drops them again.

Every process that maps a file has the same pages. Arrays are mapped privately: who writes into one, as a model that works in
place does, changes its own copy of a page and never the file.
"""

from __future__ import annotations

import contextlib
import errno
import math
import mmap
import os
import shutil
import sys
import uuid
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from emulator.machine import memory_bytes

if TYPE_CHECKING:
    from torch import Tensor

# Linux would otherwise refuse to map more than there is memory, for all pages could be written to.
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0


class _Mapped(NamedTuple):
    """A file that is mapped: how many bytes of it, and a descriptor by which it can be mapped again, even without a name."""

    size: int
    descriptor: int


_files: dict[int, _Mapped] = {}  # all that are mapped by this process, by their addresses


def map_array(path: Path) -> np.ndarray:
    """The array in a ``.npy`` file, mapped. Raises ``OSError`` or ``ValueError`` where it cannot be."""
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"{path} is of version {version}")
        shape, transposed, dtype = np.lib.format.read_array_header_1_0(file)
        if transposed or dtype.hasobject:
            raise ValueError(f"{path} cannot be mapped")
        return _map(file.fileno(), file.tell(), shape, dtype)


def new_array(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """A new array in a ``.npy`` file: what is written into it is written into the file.

    All of the file is allocated at once, so that a full disk is an ``OSError`` here, and not the end of the process later.
    """
    with path.open("w+b") as file:
        head = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, head)
        start = file.tell()
        file.flush()
        end = start + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, end)
        elif shutil.disk_usage(path.parent).free < end:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        file.truncate(end)
        return _map(file.fileno(), start, shape, dtype, mmap.MAP_SHARED)


def unnamed_array(folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """A new array in a file of this folder that goes with the last process that maps it. Raises ``OSError``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f".{uuid.uuid4().hex}.npy"
    try:
        return new_array(path, shape, dtype)
    finally:
        path.unlink(missing_ok=True)


def is_mapped(array: np.ndarray) -> bool:
    """Whether an array lies in a file."""
    return _found(array.ctypes.data) is not None


def travelling(tensor: Tensor) -> Tensor | None:
    """What arrives in another process as this tensor, mapped from the same file; None where the tensor lies in no file.

    It can be sent to processes that this one started, and is of no other use.
    """
    at = _found(tensor.data_ptr())
    if at is None or not tensor.is_contiguous():
        return None
    start, file = at
    dtype = tensor.new_empty(0).numpy().dtype
    return cast("Tensor", _Travelling(file.descriptor, tensor.data_ptr() - start, tuple(tensor.shape), dtype))


@dataclass(frozen=True)
class _Travelling:
    descriptor: int
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __reduce__(self) -> tuple[Any, ...]:
        from multiprocessing import reduction

        return _arrived, (reduction.DupFd(self.descriptor), self.offset, self.shape, self.dtype)


def _arrived(sent: Any, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
    import torch

    descriptor = sent.detach()
    try:
        return torch.from_numpy(_map(descriptor, offset, shape, dtype))
    finally:
        os.close(descriptor)


@dataclass
class Room:
    """A folder in which arrays are made, and the files of those that were, by their addresses."""

    folder: Path
    made: dict[int, Path] = field(default_factory=dict)


_room: ContextVar[Room | None] = ContextVar("room", default=None)


@contextlib.contextmanager
def arrays_in(folder: Path) -> Iterator[Room]:
    """Within the block `sample_array` makes arrays in files of this folder."""
    room = Room(folder)
    before = _room.set(room)
    try:
        yield room
    finally:
        _room.reset(before)


def sample_array(shape: tuple[int, ...], dtype: type[np.generic] = np.float32) -> np.ndarray:
    """An array to be filled, for samples that may be larger than memory.

    While a set is prepared that is kept on this machine (see `emulator.learning.data.prepared`), it lies in a file;
    otherwise, and where the disk is full, in memory.
    """
    room = _room.get()
    if room is not None:
        path = room.folder / f"made-{len(room.made)}.npy"
        try:
            array = new_array(path, shape, np.dtype(dtype))
        except OSError:
            path.unlink(missing_ok=True)
        else:
            room.made[array.ctypes.data] = path
            return array
    return np.empty(shape, dtype)


def _map(
    descriptor: int,
    offset: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    flags: int = mmap.MAP_PRIVATE | _NO_RESERVE,
) -> np.ndarray:
    pages = mmap.mmap(descriptor, 0, flags=flags)
    if len(pages) > (memory_bytes() or math.inf) / 2 and hasattr(mmap, "MADV_RANDOM"):
        # The samples of a batch are anywhere: what is read ahead is dropped before it is used.
        pages.madvise(mmap.MADV_RANDOM)
    array: np.ndarray = np.ndarray(shape, dtype, buffer=pages, offset=offset)
    start = array.ctypes.data - offset
    _files[start] = _Mapped(len(pages), os.dup(descriptor))
    weakref.finalize(pages, _forget, start, _files[start])
    return array


def _forget(start: int, file: _Mapped) -> None:
    """What a file's pages leave behind when nobody refers to them; another file may have their address already."""
    if _files.get(start) is file:
        del _files[start]
    os.close(file.descriptor)


def _found(address: int) -> tuple[int, _Mapped] | None:
    """The file that is mapped at an address, and where it begins."""
    return next(((s, f) for s, f in list(_files.items()) if s <= address < s + f.size), None)
