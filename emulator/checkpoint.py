"""What a run needs to go on after a crash: the models that are alive, and the small results so far.

``checkpoint.safetensors`` holds the values of all live handles by key; ``memory.json`` every small result that the run used.
A run that is started again plays the emulation from its beginning: remembered results take the place of the trainings behind
them, and where they end the models of the checkpoint are at hand. ``memory.json`` stays with a finished run.

Every value and every small result carries a checksum. What does not match it is computed again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emulator.files import replacing, write_text
from emulator.learning.interface import AnyLab
from emulator.learning.memo import RunMemory

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

VALUES, MEMORY = "checkpoint.safetensors", "memory.json"
CHECKS = "sha256"  # by key, as JSON: of several entries safetensors keeps no order


def write(folder: Path, lab: AnyLab) -> None:
    """Writes both files, each whole or not at all. Raises `HflError` that names the one that cannot be written."""
    write_memory(folder, lab)
    values = lab.values()
    if values:
        write_values(folder / VALUES, values)


def write_values(path: Path, values: Mapping[str, Tensor]) -> None:
    """Writes values by key with their checksums; the same values give the same file, byte for byte.

    Raises `HflError` where that is not possible.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    checks = {key: _check(key, value.detach().numpy()) for key, value in values.items()}
    with replacing(path) as aside:
        aside.touch()
        mode = aside.stat().st_mode  # safetensors would let nobody else read it
        try:
            save_file({key: value.clone() for key, value in values.items()}, aside, {CHECKS: json.dumps(checks)})
        except SafetensorError as error:  # a full disk, for example
            raise OSError(errno.EIO, str(error)) from error
        aside.chmod(mode)


def write_memory(folder: Path, lab: AnyLab) -> None:
    """Writes the small results alone."""
    write_text(folder / MEMORY, json.dumps(lab.memory.to_json(), indent=2) + "\n")


def clear(folder: Path) -> None:
    """Deletes the models of a run that no longer needs them."""
    (folder / VALUES).unlink(missing_ok=True)


def read_memory(folder: Path) -> dict[str, bytes]:
    """The small results in a run folder; without those that are damaged, with a warning."""
    path = folder / MEMORY
    if not path.exists():
        return {}
    try:
        entries, damaged = RunMemory.entries_from_json(json.loads(path.read_bytes()))
    except (ValueError, OSError, RecursionError) as error:
        log.warning("%s is damaged (%s); what it held is computed again", path, error)
        return {}
    if damaged:
        message = "%s: %d of %d results are damaged, or of another version; they are computed again"
        log.warning(message, path, damaged, damaged + len(entries))
    return entries


def _check(key: str, value: np.ndarray) -> str:
    about = f"{key} {value.dtype.str} {value.shape} ".encode()
    return hashlib.sha256(about + np.ascontiguousarray(value).tobytes()).hexdigest()


class Restored(Mapping[str, "Tensor"]):
    """The values in a file by key, read when they are asked for; without those that are damaged, with a warning."""

    def __init__(self, folder: Path, name: str = VALUES) -> None:
        self._path = folder / name
        self._checks: dict[str, str] = {}
        self._warned = False
        if not self._path.exists():
            return
        from safetensors import SafetensorError, safe_open

        try:
            self._file = safe_open(self._path, framework="numpy")
            keys = frozenset(self._file.keys())  # type: ignore[no-untyped-call]
            checks = dict(json.loads((self._file.metadata() or {}).get(CHECKS, "{}")))  # type: ignore[no-untyped-call]
        except (SafetensorError, OSError, ValueError, TypeError) as error:
            log.warning("%s is damaged (%s); its models are computed again", self._path, error)
            return
        self._checks = {key: check for key, check in checks.items() if key in keys}
        if len(self._checks) < len(keys):
            self._warn(f"{len(keys) - len(self._checks)} models have no checksum")

    def __getitem__(self, key: str) -> Tensor:
        import torch
        from safetensors import SafetensorError

        check = self._checks[key]
        try:
            value = self._file.get_tensor(key)  # type: ignore[no-untyped-call]
            if _check(key, value) == check:
                return torch.from_numpy(value)
        except (SafetensorError, OSError, TypeError, ValueError, AttributeError) as error:
            self._warn(str(error))
        self._warn("a model does not match its checksum")
        del self._checks[key]
        raise KeyError(key)

    @property
    def whole(self) -> bool:
        """Whether there are values, and all of them are as they were written."""
        keys = list(self._checks)
        return bool(keys) and all(self.get(key) is not None for key in keys)

    def __contains__(self, key: object) -> bool:
        return key in self._checks

    def __iter__(self) -> Iterator[str]:
        return iter(self._checks)

    def __len__(self) -> int:
        return len(self._checks)

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "%s is damaged, or of another version (%s); what does not match is computed again", self._path, why
            )
