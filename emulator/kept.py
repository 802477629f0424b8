"""Models that the folder of a run keeps after some of its rounds (``output.keep_models``), so that a what-if begins from them.

``model-N.safetensors`` holds, by key, all that later computations may begin from after round N: the global model (or those that
stand in its place), and what training needs beside it: in asynchronous runs the models under way, the states of local rules, of
server optimisers and of encodings. What a file lacks is found by going further back. ``models.json`` says after which rounds
something is kept, and the keys of the models that were global then.

A round is kept where it is a multiple of ``every``, or the first to end after one. Where there is no more room, ``every`` doubles
and the files that no longer count are deleted. So what is there does not depend on whether the run was cut off.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.checkpoint import Restored, write_values
from emulator.errors import InputError
from emulator.files import read_json, write_json
from emulator.learning.lab import Lab
from emulator.learning.recipes import Handle
from emulator.scenario.schema import KeepModels

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

INDEX = "models.json"
_NAME = re.compile(r"model-(\d+)\.safetensors")


def name_of(round: int) -> str:  # noqa: A002
    """The file of what is kept after a round."""
    return f"model-{round}.safetensors"


def kept_in(folder: Path) -> dict[int, str]:
    """The rounds after which something was kept in a run folder, in their order, each with its file's name."""
    found = [match for path in folder.glob("model-*.safetensors") if (match := _NAME.fullmatch(path.name))]
    return {number: name_of(number) for number in sorted(int(match[1]) for match in found)}


class KeptModels(Mapping[str, "Tensor"]):
    """All values that a run folder keeps, by key, read when they are asked for; without those that are damaged.

    ``used`` are the rounds after which those were kept that somebody has read.
    """

    def __init__(self, folder: Path) -> None:
        self.used: set[int] = set()
        self._files = {number: Restored(folder, name) for number, name in kept_in(folder).items()}

    def __getitem__(self, key: str) -> Tensor:
        for number, values in self._files.items():
            found = values.get(key) if key in values else None
            if found is not None:
                self.used.add(number)
                return found
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return any(key in values for values in self._files.values())

    def __iter__(self) -> Iterator[str]:
        return iter({key for values in self._files.values() for key in values})

    def __len__(self) -> int:
        return sum(map(len, self._files.values()))


class ModelKeeper:
    """Keeps models of a run while it lasts. What an earlier part of the same run kept stays, as far as it is whole."""

    def __init__(self, folder: Path, lab: Lab, wanted: KeepModels) -> None:
        self._folder = folder
        self._lab = lab
        self._most = wanted.most
        self._ended = 0  # the last round that ended
        self._every, self._kept = self._earlier() or (wanted.every, {})
        self._delete_others()

    def round_ended(self, round: int, models: Sequence[Handle]) -> None:  # noqa: A002
        """Keeps what is alive now, where that is due. Raises `HflError` where it cannot be written."""
        due, self._ended = round // self._every > self._ended // self._every, round
        keys, known = [model.key for model in models], self._kept.get(round)
        if not due or (known is not None and known["models"] == keys):
            return
        path = self._folder / name_of(round)
        write_values(path, self._lab.settle())
        self._kept[round] = {"models": keys, "bytes": path.stat().st_size}
        self._make_room()
        index = {"every": self._every, "rounds": {str(number): self._kept[number] for number in sorted(self._kept)}}
        write_json(self._folder / INDEX, index)
        self._delete_others()

    def _make_room(self) -> None:
        while sum(each["bytes"] for each in self._kept.values()) > self._most:
            self._every *= 2
            rounds = sorted(self._kept)
            for before, number in itertools.pairwise([0, *rounds]):
                if number // self._every == before // self._every:
                    del self._kept[number]
            if not self._kept:
                log.warning(
                    "there is no room for a single model after round %d; raise output.keep_models.most", rounds[-1]
                )

    def _earlier(self) -> tuple[int, dict[int, dict[str, Any]]] | None:
        """How often an earlier part of the run kept something at last, and what is whole of it; None where that is not known."""
        try:
            index = read_json(self._folder / INDEX)
        except (OSError, InputError) as error:
            log.warning("%s; models are kept anew", error)
            return None
        if index is None:
            return None
        found = {int(number): about for number, about in index["rounds"].items()}
        whole = {number: Restored(self._folder, name_of(number)) for number in found}
        return index["every"], {n: found[n] for n, values in whole.items() if values.whole}

    def _delete_others(self) -> None:
        for number, name in kept_in(self._folder).items():
            if number not in self._kept:
                (self._folder / name).unlink(missing_ok=True)
