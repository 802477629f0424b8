"""Clients that are the people behind the data: writers, speakers, roles (Caldas et al. 2018, "LEAF")."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.learning import PartitionFacts, data_sets, partitions
from emulator.errors import InputError
from emulator.learning.partitions.parts import KEY, SamplesPerClient, by_owner
from emulator.registry import Params, Scale


class NaturalParams(Params):
    """Which owners count, and how much of theirs."""

    min_samples: SamplesPerClient = Field(1, description="owners of fewer training samples are left out")
    max_samples: SamplesPerClient | None = Field(
        None, description="of an owner with more samples so many are drawn at random; without it all are taken"
    )

    @model_validator(mode="after")
    def _in_order(self) -> NaturalParams:
        if self.max_samples is not None and self.max_samples < self.min_samples:
            raise PydanticCustomError("sizes", "'min_samples' must not be greater than 'max_samples'")
        return self

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """A set that never says whose its samples are."""
        if not scale.owners:
            yield "", _no_owners()


def _no_owners() -> str:
    facts = {name: data_sets[name].facts.owners for name in data_sets.names()}
    having = ", ".join(f"'{n}'" if told is True else f"'{n}' ({told})" for n, told in facts.items() if told)
    return f"this data set does not say whose its samples are; these do: {having}"


@partitions.register("natural", NaturalParams, PartitionFacts(owners=True))
def natural(
    labels: np.ndarray,
    clients: int,
    classes: int,
    rng: np.random.Generator,
    params: NaturalParams,
    owners: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Each client is one owner of the data set (a writer, a speaker, a role) and holds what is theirs.

    Clients stand in the order of the owners' names. Where there are more owners than clients, they are drawn at
    random among those with at least ``min_samples`` samples beside the public ones. Raises `InputError` where
    there are fewer, or where the set does not say whose its samples are.
    """
    if owners is None:
        raise InputError(_no_owners(), KEY)
    counts = np.bincount(owners)
    fit = np.flatnonzero(counts >= params.min_samples)
    if clients > len(fit):
        there = np.count_nonzero(counts)
        few = f", of whom {len(fit)} have at least {params.min_samples} samples" if len(fit) < there else ""
        raise InputError(f"{clients} clients for the {there} owners of the data set{few}; take fewer clients", KEY)
    chosen = fit if clients == len(fit) else np.sort(rng.choice(fit, clients, replace=False))
    client_of = np.full(len(counts), -1, np.int64)
    client_of[chosen] = np.arange(clients)
    parts = by_owner(client_of[owners], clients)
    most = params.max_samples
    return [p if most is None or len(p) <= most else np.sort(rng.choice(p, most, replace=False)) for p in parts]
