"""What the partitions share: sizes of clients, and from counts of labels to samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Annotated

import numpy as np
from pydantic import Field

from emulator.errors import InputError
from emulator.registry import Scale

KEY = "data.partition"

SamplesPerClient = Annotated[int, Field(ge=1, le=100_000_000)]


class ClusteredParts(list[np.ndarray]):
    """The parts of clients that belong to clusters, and what is true of the clients beside: int64 [clients] each.

    ``clusters`` numbers the cluster of every client from 0. ``turns`` are the quarter turns, 0 to 3, by which a
    client's images are rotated as `numpy.rot90` rotates them.
    """

    def __init__(self, parts: Iterable[np.ndarray], clusters: np.ndarray, turns: np.ndarray | None = None) -> None:
        super().__init__(parts)
        self.clusters = clusters
        self.turns = np.zeros(len(self), np.int64) if turns is None else turns


def label_counts(labels: np.ndarray, parts: Sequence[np.ndarray], classes: int) -> np.ndarray:
    """How many samples of each class every client holds: int64 [clients, classes]."""
    owners = np.repeat(np.arange(len(parts)), [len(p) for p in parts])
    held = labels[np.concatenate(parts)] if parts else labels[:0]
    return np.bincount(owners * classes + held, minlength=len(parts) * classes).reshape(len(parts), classes)


def check_pool(samples: int, clients: int) -> None:
    """Raises `InputError` where there are more clients than samples."""
    if clients > samples:
        raise InputError(f"{clients} clients cannot share {samples} samples; every client needs at least one", KEY)


def check_sum(wanted: int, samples: int, advice: str) -> None:
    """Raises `InputError` where the clients want more samples than there are."""
    if wanted > samples:
        raise InputError(f"the clients' sizes add up to {wanted} samples, but there are only {samples}; {advice}", KEY)


def equal_sizes(samples: int, clients: int, samples_per_client: int | None) -> np.ndarray:
    """The samples of every client, int64: ``samples_per_client``, or all, in sizes that differ by at most
    one.

    Raises `InputError` where there are not so many.
    """
    check_pool(samples, clients)
    if samples_per_client is not None:
        check_sum(clients * samples_per_client, samples, f"at most {samples // clients} per client are possible")
        return np.full(clients, samples_per_client, np.int64)
    base, extra = divmod(samples, clients)
    return np.full(clients, base, np.int64) + (np.arange(clients) < extra)


def too_many_samples(
    scale: Scale, samples_per_client: int | None, key: str = "samples_per_client"
) -> Iterator[tuple[str, str]]:
    """The problem, if it is one, that so many samples for every client (given under ``key``) are more than the set has."""
    if samples_per_client is not None and scale.train_samples is not None:
        needed = scale.clients * samples_per_client
        if needed > scale.train_samples:
            message = f"{scale.clients} clients need {needed} samples; the set has {scale.train_samples} to train"
            yield key, message


def equal_clusters(clients: int, clusters: int, rng: np.random.Generator) -> np.ndarray:
    """The cluster of every client, int64, at random; the sizes of clusters differ by at most one."""
    return rng.permutation(np.arange(clients) % clusters)


def too_few_clients(clients: int, clusters: int) -> str:
    """What is wrong where there are not enough clients for every cluster to have one; "" where there are."""
    return "" if clients >= clusters else f"{clusters} clusters for {clients} clients would leave clusters empty"


def by_owner(owners: np.ndarray, clients: int) -> list[np.ndarray]:
    """The parts, from the client (or -1) that owns each sample."""
    order = np.argsort(owners, kind="stable")  # stable: the indices of one owner stay sorted
    ends = np.cumsum(np.bincount(owners + 1, minlength=clients + 1))
    return [order[a:b] for a, b in pairwise(ends)]


def draw_parts(labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Draws ``counts[i, c]`` samples of class c for client i, at random and without replacement."""
    clients, classes = counts.shape
    owners = np.full(len(labels), -1, np.int64)
    for c in range(classes):
        members = rng.permutation(np.flatnonzero(labels == c))
        holders = np.repeat(np.arange(clients), counts[:, c])
        owners[members[: len(holders)]] = holders
    return by_owner(owners, clients)


def spread_evenly(total: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Divides ``total[c]`` over the rows that have ``shares[:, c]`` set, equally but for one; int64."""
    base, extra = np.divmod(total, np.maximum(shares.sum(axis=0), 1))
    rank = np.cumsum(shares, axis=0) - 1
    counts: np.ndarray = np.where(shares, base + (rank < extra), 0)
    return counts
