"""Clusters of clients, each with a model of its own, and what the run folder tells of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emulator.grouping.cluster_agreement import adjusted_rand_index, purity
from emulator.learning.interface import AnyLab
from emulator.learning.recipes import Handle
from emulator.tables import Table

CLUSTERS = Table(  # the tree of clusters
    "clusters",
    ("cluster", "parents", "reason", "round", "time_s", "layer", "reference", "cosines", "size", "members"),
)
CLUSTER_METRICS = ("clusters", "accuracy_clusters", "accuracy_clients", "adjusted_rand", "purity")


@dataclass(frozen=True)
class Clusters:
    """A model for each cluster, and the cluster of each client. There is one to begin with."""

    models: tuple[Handle, ...]
    of: np.ndarray = field(repr=False)

    def shares(self) -> list[tuple[Handle, float]]:
        """The models, each with the share of the clients that use it."""
        sizes = np.bincount(self.of, minlength=len(self.models))
        return [(model, float(size) / len(self.of)) for model, size in zip(self.models, sizes, strict=True)]

    def with_models(self, changed: Mapping[int, Handle]) -> Clusters:
        """The same clusters, some with another model."""
        return Clusters(tuple(changed.get(c, model) for c, model in enumerate(self.models)), self.of)


def cluster_row(
    number: int,
    members: Sequence[int],
    reason: str,
    round: int,  # noqa: A002
    time_s: float,
    parents: Sequence[int] = (),
    layer: str = "",
    reference: int | None = None,
    cosines: int | None = None,
) -> dict[str, Any]:
    """A row of ``clusters.csv``: a cluster as it came to be at the end of a round, and out of which others, by which layer.

    ``reference`` is the client with which the others were compared, ``cosines`` how many comparisons that took.
    """
    return {
        "cluster": number,
        "parents": " ".join(map(str, parents)),
        "reason": reason,
        "round": round,
        "time_s": time_s,
        "layer": layer,
        "reference": "" if reference is None else reference,
        "cosines": "" if cosines is None else cosines,
        "size": len(members),
        "members": " ".join(map(str, members)),
    }


def one_cluster(model: Handle, clients: int) -> Clusters:
    """All clients together."""
    return Clusters((model,), np.zeros(clients, dtype=np.int64))


def cluster_metrics(lab: AnyLab, clusters: Clusters) -> dict[str, float]:
    """How good clusters and their models are, by the names in `CLUSTER_METRICS`.

    ``accuracy_clusters`` is the mean over the clusters that have clients, each cluster's model tested on data that is
    distributed as its clients' data together (S3 §V-A); ``accuracy_clients`` the mean over clients, each one's model on data of
    the client's own distribution. ``adjusted_rand`` and ``purity`` compare with the true clusters; nan where there are none.
    """
    members = {c: np.flatnonzero(clusters.of == c).tolist() for c in np.unique(clusters.of).tolist()}
    by_cluster = lab.evaluate_each([(clusters.models[c], own) for c, own in members.items()])
    by_client = lab.evaluate_each([(clusters.models[c], [i]) for i, c in enumerate(clusters.of.tolist())])
    truth = lab.clients.clusters
    return {
        "clusters": float(len(members)),
        "accuracy_clusters": float(np.mean([e.accuracy for e in by_cluster])),
        "accuracy_clients": float(np.mean([e.accuracy for e in by_client])),
        "adjusted_rand": np.nan if truth is None else adjusted_rand_index(clusters.of, truth),
        "purity": np.nan if truth is None else purity(clusters.of, truth),
    }
