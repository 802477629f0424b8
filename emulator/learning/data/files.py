"""Files of data sets: finding them, fetching them with torchvision, telling one content from another."""

from __future__ import annotations

import hashlib
import http.client
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from emulator.errors import InputError
from emulator.files import digest_of
from emulator.learning.data.folders import remembered
from emulator.registry import Params

KEY = "data.set"
REMEMBERED_FROM_BYTES = 1 << 24

# What a transfer, or the unpacking of what came over, can raise.
_FAILURES = (
    OSError,
    EOFError,
    RuntimeError,
    http.client.HTTPException,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


class StoredParams(Params):
    """Where a set of the torchvision collection is kept."""

    root: str = Field("data", min_length=1, description="folder that holds the set in torchvision's own layout")
    download: bool = Field(False, description="fetch the set into that folder with torchvision where it is missing")
    pixels: Literal["standardised", "unit"] = Field(
        "standardised",
        description="standardised: less the mean of the training images, over their deviation, by channel; unit: from 0 to 1",
    )

    @model_serializer(mode="wrap")
    def _as_it_was(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Keys and names of folders of runs that were there before `pixels` stay as they are.
        said: dict[str, Any] = dump(self)
        if self.pixels == "standardised":
            said.pop("pixels")
        return said

    def titled(self, name: str) -> str:
        """The name of a set, told apart by its pixels."""
        return name if self.pixels == "standardised" else f"{name}-{self.pixels}"


P = TypeVar("P", bound=StoredParams)


def obtain(
    name: str,
    params: StoredParams,
    find: Callable[[], list[Path] | None],
    places: Sequence[Path],
    collection_class: str,
    advice: str = "",
    **options: Any,
) -> list[Path]:
    """The files of the set ``name``, as ``find`` gives them, fetched first where that is needed and wanted.

    ``collection_class`` is torchvision's class of the set, which gets ``options``. Raises `InputError`
    where the files are in none of ``places`` and cannot be or shall not be fetched.
    """
    paths = find()
    if paths is None and params.download:
        _download(name, Path(params.root), collection_class, options)
        paths = find()
    if paths is None:
        looked = " nor in ".join(str(p) for p in places)
        raise InputError(f"{name} is not in {looked}; set 'download: true' to fetch it with torchvision{advice}", KEY)
    return paths


def unless_fetched(files: Callable[[P], object]) -> Callable[[P], None]:
    """A check that the files of a set are there, unless they may be fetched (see `emulator.learning.data.check`)."""

    def check(params: P) -> None:
        if not params.download:
            files(params)

    return check


def _download(name: str, root: Path, collection_class: str, options: dict[str, Any]) -> None:
    from emulator.learning.torchvision_cpu import torchvision

    try:
        getattr(torchvision.datasets, collection_class)(root=str(root), download=True, **options)
    except _FAILURES as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise InputError(f"{name} could not be fetched into {root}: {reason}", KEY) from error


def damaged(path: Path, reason: str) -> NoReturn:
    """Raises `InputError`: the file is there but cannot be used."""
    raise InputError(f"{path} is damaged: {reason}; remove it and fetch the set again", KEY)


def fingerprint(name: str, paths: Sequence[Path]) -> str:
    """The set's name and a digest of the content of its files, in this order. Raises `InputError`."""
    whole = hashlib.sha256()
    for path in paths:
        try:
            stat = path.stat()
            whole.update(_digest(path, stat.st_size, stat.st_mtime_ns))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}", KEY) from error
    return f"{name}:{whole.hexdigest()}"


@lru_cache(maxsize=256)
def _digest(path: Path, size_bytes: int, modified_ns: int) -> bytes:
    """SHA-256 of a file; size and time of change are there so that a changed file is read again. Of a large one it is kept."""
    if size_bytes < REMEMBERED_FROM_BYTES:
        return bytes.fromhex(digest_of(path))
    return bytes.fromhex(remembered([str(path.resolve()), size_bytes, modified_ns], lambda: digest_of(path)))
