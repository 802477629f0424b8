"""The clients' data: a data set, public samples taken out, the rest divided by a partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from emulator.errors import InputError
from emulator.learning.data.arrays import ArraySet
from emulator.learning.partitions import ClusteredParts, label_counts
from emulator.learning.partitions.rotation import cannot_turn
from emulator.rng import stream
from emulator.scenario.schema import Scenario


class ClientData:
    """Who holds which training samples. Reads the data set when it is made.

    ``truth`` holds the true cluster of each client and the quarter turns of its images, int64 [2, clients] (no
    clients, where the partition makes no clusters). Rotated images stand behind the others in ``arrays``, and
    the parts of the clients that hold them refer to them there.
    """

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
        self.truth = np.zeros((2, 0), np.int64)
        if isinstance(parts, ClusteredParts) != bool(data.partition.plugin.facts.get("clusters")):
            message = (
                f"'{data.partition.kind}' must be registered with clusters=True if it makes clusters, and only then"
            )
            raise InputError(message, "data.partition")
        if isinstance(parts, ClusteredParts):
            self.truth = np.stack([parts.clusters, parts.turns])
            self.arrays, self.parts = turned(self.arrays, self.parts, parts.turns)


def turned(arrays: ArraySet, parts: Sequence[np.ndarray], turns: np.ndarray) -> tuple[ArraySet, list[np.ndarray]]:
    """The set with the rotated images of clients added behind its training samples, and parts that refer to them.

    An image is there once for each number of quarter turns in which somebody holds it. Raises `InputError` where
    the images cannot be rotated.
    """
    holders = {t: np.flatnonzero(turns == t).tolist() for t in (1, 2, 3) if (turns == t).any()}
    if not holders:
        return arrays, list(parts)
    wanted = {t: np.unique(np.concatenate([parts[i] for i in each])) for t, each in holders.items()}
    if why := cannot_turn(arrays.shape, list(wanted)):
        raise InputError(why, "data.partition")
    end = len(arrays.x_train)
    x = np.empty((end + sum(len(rows) for rows in wanted.values()), *arrays.shape), arrays.x_train.dtype)
    x[:end] = arrays.x_train
    result = list(parts)
    for turn, rows in wanted.items():
        x[end : end + len(rows)] = np.rot90(arrays.x_train[rows], turn, axes=(2, 3))
        for i in holders[turn]:
            result[i] = end + np.searchsorted(rows, parts[i])
        end += len(rows)
    y = np.concatenate([arrays.y_train, *(arrays.y_train[rows] for rows in wanted.values())])
    return replace(arrays, x_train=x, y_train=y), result


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
