"""The clients' data: a data set, public samples taken out, the rest divided by a partition."""

from __future__ import annotations

import numpy as np

from emulator.errors import InputError
from emulator.learning.data.arrays import ArraySet, Outline
from emulator.learning.partitions import label_counts
from emulator.rng import stream
from emulator.scenario.schema import Scenario


class ClientData:
    """Who holds which training samples. Reads the data set when it is made."""

    def __init__(self, scenario: Scenario) -> None:
        self.arrays: ArraySet = scenario.data.set()
        labels, classes = self.arrays.y_train, self.arrays.classes
        self.parts, self.public = deal_out(scenario, labels, classes, scenario.topology.clients)
        self.label_counts = label_counts(labels, self.parts, classes)


def deal_out(scenario: Scenario, labels: np.ndarray, classes: int, clients: int) -> tuple[list[np.ndarray], np.ndarray]:
    """The samples of each of so many clients, and the public ones, as indices of ``labels``, by the scenario's partition."""
    pool, public = split_public(labels, classes, scenario.data.public, scenario.seed)
    parts = scenario.data.partition(labels[pool], clients, classes, stream(scenario.seed, "partition"))
    return [pool[p] for p in parts], public


def outline_of(scenario: Scenario) -> Outline:
    """What is known of the scenario's data set without its samples, as far as the set can tell without reading them."""
    chosen = scenario.data.set
    outline = chosen.plugin.facts.get("outline")
    if outline is not None:
        found: Outline = outline(chosen.params)
        return found
    arrays: ArraySet = chosen()
    return Outline(arrays.y_train, arrays.classes, arrays.shape)


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
