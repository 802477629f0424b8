"""The clients' data: a data set, public samples taken out, the rest divided by a partition."""

from __future__ import annotations

import numpy as np

from emulator.errors import InputError
from emulator.learning.data.arrays import ArraySet
from emulator.learning.partitions import label_counts
from emulator.rng import stream
from emulator.scenario.schema import Scenario


class ClientData:
    """Who holds which training samples. Reads the data set when it is made."""

    def __init__(self, scenario: Scenario) -> None:
        data = scenario.data
        self.arrays: ArraySet = data.set()
        pool, self.public = split_public(self.arrays.y_train, self.arrays.classes, data.public, scenario.seed)
        parts = data.partition(
            self.arrays.y_train[pool],
            scenario.topology.clients,
            self.arrays.classes,
            stream(scenario.seed, "partition"),
        )
        self.parts: list[np.ndarray] = [pool[p] for p in parts]
        self.label_counts = label_counts(self.arrays.y_train, self.parts, self.arrays.classes)


def split_public(labels: np.ndarray, classes: int, per_class: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of what is left for the clients and of the public samples, ``per_class`` of each class, drawn at random."""
    if per_class == 0:
        return np.arange(len(labels)), np.arange(0)
    rng = stream(seed, "public")
    chosen = []
    for c in range(classes):
        members = np.flatnonzero(labels == c)
        if len(members) <= per_class:
            raise InputError(
                f"class {c} has {len(members)} samples; {per_class} public ones would leave none", "data.public"
            )
        chosen.append(rng.choice(members, per_class, replace=False))
    public = np.sort(np.concatenate(chosen))
    return np.setdiff1d(np.arange(len(labels)), public), public
