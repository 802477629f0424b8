"""What a run needs to go on after a crash: the models that are alive, and the small results so far.

``checkpoint.safetensors`` holds the values of all live handles by key; ``memory.json`` every small result that the run used.
A run that is started again plays the emulation from its beginning: remembered results take the place of the trainings behind
them, and where they end the models of the checkpoint are at hand. ``memory.json`` stays with a finished run.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.files import replacing, write_json
from emulator.learning.memo import RunMemory
from emulator.learning.timing import AnyLab

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

VALUES, MEMORY = "checkpoint.safetensors", "memory.json"


def write(folder: Path, lab: AnyLab) -> None:
    """Writes both files, each whole or not at all."""
    write_memory(folder, lab)
    values = lab.values()
    if values:
        from safetensors.torch import save_file

        with replacing(folder / VALUES) as aside:
            save_file({key: value.clone() for key, value in values.items()}, aside)


def write_memory(folder: Path, lab: AnyLab) -> None:
    """Writes the small results alone."""
    write_json(folder / MEMORY, lab.memory.to_json())


def clear(folder: Path) -> None:
    """Deletes the models of a run that no longer needs them."""
    (folder / VALUES).unlink(missing_ok=True)


def read_memory(folder: Path) -> dict[str, bytes]:
    """The small results in a run folder; none, with a warning, where the file is damaged."""
    path = folder / MEMORY
    if not path.exists():
        return {}
    try:
        return RunMemory.entries_from_json(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, AttributeError, TypeError, OSError) as error:
        log.warning("%s is damaged (%s); what it held is computed again", path, error)
        return {}


class Restored(Mapping[str, "Tensor"]):
    """The models of a checkpoint by key, read when they are asked for. Empty where there is none, or where it is damaged."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / VALUES
        self._keys: frozenset[str] = frozenset()
        if not self._path.exists():
            return
        from safetensors import SafetensorError, safe_open

        try:
            self._file = safe_open(self._path, framework="numpy")
            self._keys = frozenset(self._file.keys())  # type: ignore[no-untyped-call]
        except (SafetensorError, OSError) as error:
            log.warning("%s is damaged (%s); its models are computed again", self._path, error)

    def __getitem__(self, key: str) -> Tensor:
        if key not in self._keys:
            raise KeyError(key)
        import torch

        return torch.from_numpy(self._file.get_tensor(key))  # type: ignore[no-untyped-call]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)
