"""The clients' data: a data set, public samples taken out, the rest divided by a partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from emulator.contracts.learning import Parts
from emulator.errors import InputError, suggestion
from emulator.learning.data import read
from emulator.learning.data.arrays import ArraySet, Outline, is_text
from emulator.learning.data.prepared import scratch
from emulator.learning.partitions import ClusteredParts, label_counts
from emulator.learning.partitions.rotation import cannot_turn
from emulator.learning.public import drawn_public, public_of_another, split_public
from emulator.rng import stream
from emulator.scenario.roster import roster_of
from emulator.scenario.schema import Scenario
from emulator.scenario.server_tree import refuse

TOGETHER = 4096  # images that are rotated at a time


class ClientData:
    """Who holds which training samples. Reads the data set when it is made.

    ``truth`` holds the true cluster of each client and the quarter turns of its images, int64 [2, clients] (no
    clients, where the partition makes no clusters). Rotated images stand behind the others in ``arrays``, and
    the parts of the clients that hold them refer to them there.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.arrays = read(scenario.data.set)
        divided = divide_data(scenario, self.arrays.outline, scenario.topology.client_count)
        self.public, self.label_counts, self.truth = divided.public, divided.label_counts, divided.truth
        self.arrays, self.parts = turned(self.arrays, divided.parts, divided.truth[1])
        self._scenario = scenario

    @cached_property
    def people(self) -> np.ndarray:
        """The owner behind each client, int64 [clients], where each holds samples of one and there are test samples of all.

        Otherwise there is nobody in it.
        """
        owners, tested = self.arrays.owners, self.arrays.test_owners
        if owners is None or tested is None:
            return np.zeros(0, np.int64)
        behind = [np.unique(owners[part]) for part in self.parts]
        if any(len(each) != 1 for each in behind) or not np.isin(np.concatenate(behind), tested).all():
            return np.zeros(0, np.int64)
        return np.concatenate(behind)

    @cached_property
    def public_samples(self) -> tuple[np.ndarray, np.ndarray]:
        """The public samples and their labels, in the order of their data set; read when first asked for, if from another set."""
        if self._scenario.data.public_set is not None:
            return public_of_another(self._scenario, self.arrays.shape)
        if self._scenario.data.public_split == "test":
            return drawn_public(self._scenario, self.arrays)
        return self.arrays.x_train[self.public], self.arrays.y_train[self.public]


@dataclass(frozen=True, eq=False)
class DividedData:
    """A data set divided between clients, as indices of its labels; ``truth`` is that of `ClientData`."""

    parts: list[np.ndarray]
    public: np.ndarray
    label_counts: np.ndarray
    truth: np.ndarray


def divide_data(scenario: Scenario, outline: Outline, clients: int) -> DividedData:
    """Divides a set between so many clients, by the scenario's partition. Raises `InputError` where that cannot be done."""
    data = scenario.data
    labels, classes = scenario.objective.kinds_of(outline.y_train, outline.classes)
    pool, public = split_public(labels, classes, data.kept_back, scenario.seed, is_text(outline.shape))
    owners = None if outline.owners is None else outline.owners[pool]
    roster = roster_of(scenario.topology)
    if any(roster.owners):
        found: Parts = _of_owners(scenario, roster.owners[:clients], owners, outline.owner_names)
    else:
        found = data.partition(labels[pool], clients, classes, stream(scenario.seed, "partition"), owners)
    parts = [pool[p] for p in found]
    if roster.samples is not None:
        parts = _so_many(scenario, parts, roster.samples[:clients].tolist(), roster.names)
    truth = np.zeros((2, 0), np.int64)
    if isinstance(found, ClusteredParts):
        truth = np.stack([found.clusters, found.turns])
    return DividedData(parts, public, label_counts(labels, parts, classes), truth)


def _of_owners(
    scenario: Scenario, wanted: Sequence[str], owners: np.ndarray | None, names: Sequence[str]
) -> list[np.ndarray]:
    """The samples of each client's owner, whom its row in the fleet's file names."""
    key = "topology.fleet"
    if owners is None:
        raise InputError(
            "its rows say whose data clients have, and the data set does not say whose its samples are", key
        )
    number = {name: place for place, name in enumerate(names)}
    missing = [name for name in wanted if name not in number]
    refuse([f"nobody in the data set is called '{n[:40]}'; {suggestion(n[:40], number)}" for n in missing], key)
    return [np.flatnonzero(owners == number[name]) for name in wanted]


def _so_many(
    scenario: Scenario, parts: list[np.ndarray], wanted: Sequence[float], names: Sequence[str]
) -> list[np.ndarray]:
    """Of what each client would have, as many samples as its row says, drawn at random."""
    result, problems = list(parts), list[str]()
    for client, (part, count) in enumerate(zip(parts, wanted, strict=True)):
        if np.isnan(count):
            continue
        if count > len(part):
            message = f"'{names[client]}' is to have {int(count)} samples, and the partition gives it {len(part)}"
            problems.append(f"{message}; lower 'samples', or take a partition that gives more")
            continue
        rng = stream(scenario.seed, "samples", client)
        result[client] = np.sort(rng.choice(part, int(count), replace=False))
    refuse(problems, "topology.fleet")
    return result


def outline_of(scenario: Scenario) -> Outline:
    """What is known of the scenario's data set without its samples, as far as the set can tell without reading them."""
    chosen = scenario.data.set
    known = chosen.plugin.facts.outline
    return read(chosen).outline if known is None else known(chosen.params)


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
    x = scratch(arrays.x_train, (end + sum(len(rows) for rows in wanted.values()), *arrays.shape))
    x[:end] = arrays.x_train
    result = list(parts)
    for turn, rows in wanted.items():
        for start in range(0, len(rows), TOGETHER):
            some = rows[start : start + TOGETHER]
            x[end + start : end + start + len(some)] = np.rot90(arrays.x_train[some], turn, axes=(2, 3))
        for i in holders[turn]:
            result[i] = end + np.searchsorted(rows, parts[i])
        end += len(rows)
    every = np.concatenate([np.arange(len(arrays.y_train)), *wanted.values()])
    owners = None if arrays.owners is None else arrays.owners[every]
    return replace(arrays, x_train=x, y_train=arrays.y_train[every], owners=owners), result
