"""Clusters of clients that differ in how their images are rotated (S3 §V-A)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.learning import Partition, PartitionFacts, partitions
from emulator.errors import InputError
from emulator.learning.partitions.parts import KEY, ClusteredParts, equal_clusters, too_few_clients
from emulator.registry import Params, Scale


class RotationParams(Params):
    """By how much each cluster is rotated, and how samples are divided."""

    degrees: tuple[Literal[0, 90, 180, 270], ...] = Field(
        (0, 180), min_length=1, description="the rotation of each cluster, anticlockwise: 0, 90, 180 or 270"
    )
    of: Partition = Field(
        "iid", validate_default=True, description="the partition that divides the samples between the clients"
    )

    @model_validator(mode="after")
    def _distinct(self) -> RotationParams:
        if len(set(self.degrees)) < len(self.degrees):
            raise PydanticCustomError("degrees", "'degrees' must differ: each is the rotation of one cluster")
        return self

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """More clusters than clients, or images that cannot be rotated so."""
        if few := too_few_clients(scale.clients, len(self.degrees)):
            yield "degrees", few
        if scale.shape is not None and (why := cannot_turn(scale.shape, [d // 90 for d in self.degrees])):
            yield "degrees", why


def cannot_turn(shape: tuple[int, ...], turns: list[int]) -> str:
    """Why samples of this shape cannot be rotated by these quarter turns; "" where they can."""
    if len(shape) != 3:
        return "only images can be rotated; a sample must have channels, height and width"
    if shape[1] != shape[2] and any(t % 2 for t in turns):
        return f"images of {shape[1]}×{shape[2]} cannot be rotated by 90 or 270 degrees; only square ones can"
    return ""


def _code(params: RotationParams) -> str:
    return params.of.plugin.code(params.of.params)


@partitions.register("rotation", RotationParams, PartitionFacts(clusters=True, owners=True, code=_code))
def rotation(
    labels: np.ndarray,
    clients: int,
    classes: int,
    rng: np.random.Generator,
    params: RotationParams,
    owners: np.ndarray | None = None,
) -> ClusteredParts:
    """Clusters of clients whose images are rotated, each by its own angle (S3 Non-IID-3).

    Another partition (``of``) divides the samples. Clients are dealt out to the clusters at random, equally many
    (but for one) to each. Where ``of`` makes clusters itself, each of them is divided so, and the clusters are
    those that differ in either.
    """
    try:
        parts = params.of(labels, clients, classes, rng, owners)
    except InputError as error:
        raise InputError(error.message, error.key.replace(KEY, f"{KEY}.of", 1)) from error
    if few := too_few_clients(clients, len(params.degrees)):
        raise InputError(few, f"{KEY}.degrees")
    inner, turned = np.zeros(clients, np.int64), np.zeros(clients, np.int64)
    if isinstance(parts, ClusteredParts):
        inner, turned = parts.clusters, parts.turns
    angle = np.zeros(clients, np.int64)
    for cluster in np.unique(inner):
        members = np.flatnonzero(inner == cluster)
        angle[members] = equal_clusters(len(members), len(params.degrees), rng)
    _, clusters = np.unique(inner * len(params.degrees) + angle, return_inverse=True)
    quarter_turns = np.asarray(params.degrees, np.int64) // 90
    return ClusteredParts(parts, clusters, (turned + quarter_turns[angle]) % 4)
