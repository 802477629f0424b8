"""Content keys, and arrays as bytes: the ground of what the lab remembers."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from emulator.learning.public import about_public_set
from emulator.scenario.roster import roster_of
from emulator.scenario.schema import Scenario


def content_key(kind: str, *parts: Any) -> str:
    """A hash of plain data (numbers, texts, lists, mappings); floats count with every bit."""
    return text_key(kind, json.dumps([kind, parts], sort_keys=True, separators=(",", ":"), default=_plain))


def text_key(kind: str, text: str) -> str:
    """A hash of a text."""
    return f"{kind}:{hashlib.sha256(text.encode()).hexdigest()[:40]}"


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in a content key")


def to_npy(array: np.ndarray) -> bytes:
    """An array as bytes that `from_npy` reads."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def from_npy(raw: bytes) -> np.ndarray:
    """The array that `to_npy` wrote."""
    return np.asarray(np.load(io.BytesIO(raw), allow_pickle=False))


class Keys:
    """Content keys of what a scenario learns from: its data set, what of it is public, its model, and how clients share it."""

    def __init__(self, scenario: Scenario, versions: Sequence[Any]) -> None:
        chosen = scenario.data.set
        self._scenario = scenario
        self.set = content_key("set", chosen.identity(), chosen.plugin.facts.fingerprint(chosen.params), versions)
        self.model = content_key("model", self.set, scenario.model.identity(), scenario.seed, versions)
        source = (*_other_public(scenario), *_split(scenario))
        self.public = content_key("public", self.set, scenario.data.public, scenario.seed, *source)

    def data(self, clients: int) -> str:
        """The key of the set, divided between so many clients."""
        data, roster = self._scenario.data, roster_of(self._scenario.topology)
        said: list[Any] = [list(roster.owners[:clients])] if any(roster.owners) else []
        said += [] if roster.samples is None else [str(roster.samples[:clients].tolist())]
        task = self._scenario.objective
        said += [] if task.kind == "classification" else [task.identity()]
        return content_key(
            "data", self.set, data.partition.identity(), data.kept_back, clients, self._scenario.seed, *said
        )


def _split(scenario: Scenario) -> list[Any]:
    """Which part of their set public samples come from, where it is not the training samples."""
    return [] if scenario.data.public_split == "train" else [scenario.data.public_split]


def _other_public(scenario: Scenario) -> list[Any]:
    """What public samples are determined by where they come from another set; raises `InputError` where that is not there."""
    chosen = scenario.data.public_set
    if chosen is None:
        return []
    with about_public_set():
        return [chosen.identity(), chosen.plugin.facts.fingerprint(chosen.params)]
