"""Clusters of clients that differ in their labels: blocks of labels, or one label that dominates (S3 §V-A)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.learning import PartitionFacts, partitions
from emulator.errors import InputError
from emulator.learning.partitions.dirichlet import log_dirichlet, shares
from emulator.learning.partitions.parts import (
    KEY,
    ClusteredParts,
    SamplesPerClient,
    check_pool,
    draw_parts,
    equal_clusters,
    too_few_clients,
    too_many_samples,
)
from emulator.registry import Params, Scale

Label = Annotated[int, Field(ge=0, le=100_000)]


class ClusterParams(Params):
    """How many samples a client gets, and how clients of one cluster differ."""

    samples_per_client: SamplesPerClient | None = Field(
        None, description="samples of every client; without it as many as fit, the same number for all"
    )
    min_samples: SamplesPerClient | None = Field(
        None, description="in place of samples_per_client: sizes are drawn evenly from here ..."
    )
    max_samples: SamplesPerClient | None = Field(None, description="... to here")
    alpha: Annotated[float, Field(gt=0, le=1e9)] | None = Field(
        None,
        description="each client draws its mix of the labels from Dir(alpha); without it, the mix of the data set",
    )
    overlap: bool = Field(
        False, description="clients may hold the same samples: each draws from the whole set by itself"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> ClusterParams:
        low, high = self.min_samples, self.max_samples
        message = None
        if (low is None) != (high is None):
            message = "give both 'min_samples' and 'max_samples', or neither"
        elif low is not None and high is not None and low > high:
            message = "'min_samples' must not be greater than 'max_samples'"
        elif low is not None and self.samples_per_client is not None:
            message = "give either 'samples_per_client' or 'min_samples' and 'max_samples'"
        elif self.overlap and low is None and self.samples_per_client is None:
            message = "'overlap' needs 'samples_per_client', or 'min_samples' and 'max_samples'"
        if message is not None:
            raise PydanticCustomError("sizes", "{text}", {"text": message})
        return self

    def problems_of(self, scale: Scale, key: str, labels: Sequence[Sequence[int]]) -> Iterator[tuple[str, str]]:
        """What is wrong with clusters whose labels, one entry a cluster, stand under ``key``."""
        if few := too_few_clients(scale.clients, len(labels)):
            yield key, few
        if scale.classes is not None and (missing := _no_such_label(labels, scale.classes)):
            yield key, missing
        if not self.overlap:
            yield from too_many_samples(scale, self.samples_per_client)
            yield from too_many_samples(scale, self.min_samples, "min_samples")


class LabelBlocksParams(ClusterParams):
    """Which labels each cluster has."""

    blocks: tuple[Annotated[tuple[Label, ...], Field(min_length=1, strict=False)], ...] = Field(
        ((0, 1, 2, 3), (3, 4, 5, 6), (4, 5, 6, 7, 8, 9), (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)),
        min_length=1,
        description="the labels of each cluster; blocks may overlap",
    )

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """Labels that there are not, more clusters than clients, or more samples than the set has."""
        return self.problems_of(scale, "blocks", self.blocks)


class DominantLabelParams(ClusterParams):
    """Which label dominates in each cluster, and how much."""

    beta: Annotated[float, Field(gt=0, le=1)] = Field(
        description="share of each client's samples that carry the label of its cluster"
    )
    labels: tuple[Label, ...] = Field((0, 1, 2, 3), min_length=1, description="the label of each cluster")

    @model_validator(mode="after")
    def _distinct(self) -> DominantLabelParams:
        if len(set(self.labels)) < len(self.labels):
            raise PydanticCustomError("labels", "'labels' must differ: each is the label of one cluster")
        return self

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """Labels that there are not, more clusters than clients, or more samples than the set has."""
        return self.problems_of(scale, "labels", [(label,) for label in self.labels])


@partitions.register("label-blocks", LabelBlocksParams, PartitionFacts(by_class=True, clusters=True))
def label_blocks(
    labels: np.ndarray, clients: int, classes: int, rng: np.random.Generator, params: LabelBlocksParams
) -> ClusteredParts:
    """Clusters of clients, each with a block of labels (S3 Non-IID-1).

    Clients are dealt out to the clusters at random, equally many (but for one) to each. A client's samples are
    divided over the labels of its block in whole numbers, in proportion to the data set or, with ``alpha``, by
    a mix of its own.

    No two clients hold the same sample, unless ``overlap`` is set: then each draws from the whole set, and only
    its own samples differ from each other. S3 lets each client sample from the set and says no more. Without
    ``overlap`` its twenty clients can have 2,000 samples each of a balanced set of 60,000, since three of the
    four clusters share label 3 (1,500 each where a label dominates with a share of 0.7). Raises `InputError`
    where the samples are not enough, and says how many would be.
    """
    if missing := _no_such_label(params.blocks, classes):
        raise InputError(missing, f"{KEY}.blocks")
    allowed = np.zeros((len(params.blocks), classes), bool)
    for row, block in zip(allowed, params.blocks, strict=True):
        row[list(block)] = True
    return _parts_of_clusters(labels, clients, rng, params, allowed)


@partitions.register("dominant-label", DominantLabelParams, PartitionFacts(by_class=True, clusters=True))
def dominant_label(
    labels: np.ndarray, clients: int, classes: int, rng: np.random.Generator, params: DominantLabelParams
) -> ClusteredParts:
    """Clusters of clients, in each of which one label dominates (S3 Non-IID-2).

    A share beta of each client's samples, to the nearest whole number, carries the label of its cluster; the rest
    is divided over all other labels. All else is as in `label_blocks`.
    """
    if missing := _no_such_label([params.labels], classes):
        raise InputError(missing, f"{KEY}.labels")
    others = np.ones((len(params.labels), classes), bool)
    others[np.arange(len(params.labels)), list(params.labels)] = False
    return _parts_of_clusters(labels, clients, rng, params, others, params.beta, params.labels)


def _no_such_label(labels: Sequence[Sequence[int]], classes: int) -> str:
    """What is wrong where some label is beyond the classes of the set; "" where none is."""
    highest = max(max(each) for each in labels)
    return "" if highest < classes else f"there is no label {highest}; the set's labels go from 0 to {classes - 1}"


def _parts_of_clusters(
    labels: np.ndarray,
    clients: int,
    rng: np.random.Generator,
    params: ClusterParams,
    allowed: np.ndarray,
    beta: float = 0.0,
    dominant: Sequence[int] = (),
) -> ClusteredParts:
    """Samples for clusters whose clients spread a share 1 - beta over the labels that are ``allowed`` [clusters, classes].

    The share beta carries the label that is ``dominant`` in the cluster.
    """
    check_pool(len(labels), clients)
    if few := too_few_clients(clients, len(allowed)):
        raise InputError(few, KEY)
    pools = np.bincount(labels, minlength=allowed.shape[1])
    for c in dominant:
        if not pools[c]:
            raise InputError(f"the set has no samples of label {c}", f"{KEY}.labels")
    clusters = equal_clusters(clients, len(allowed), rng)
    mixes = np.zeros((clients, len(pools)))
    if beta < 1:
        mixes = _mixes(allowed & (pools > 0), clusters, pools, params.alpha, rng)
    tie = rng.random(mixes.shape)

    def counts_of(sizes: np.ndarray) -> np.ndarray:
        main = np.rint(beta * sizes).astype(np.int64)
        counts = apportioned(mixes, sizes - main, tie)
        if beta:
            counts[np.arange(clients), np.asarray(dominant)[clusters]] += main
        return counts

    if params.min_samples is not None and params.max_samples is not None:
        sizes = rng.integers(params.min_samples, params.max_samples, clients, endpoint=True)
    else:
        size = params.samples_per_client or _largest_size(counts_of, pools, clients)
        sizes = np.full(clients, size, np.int64)
    counts = counts_of(sizes)
    _check(counts, pools, params, lambda: _largest_size(counts_of, pools, clients))
    parts = _drawn_by_each(labels, counts, rng) if params.overlap else draw_parts(labels, counts, rng)
    return ClusteredParts(parts, clusters)


def _mixes(
    allowed: np.ndarray, clusters: np.ndarray, pools: np.ndarray, alpha: float | None, rng: np.random.Generator
) -> np.ndarray:
    """The mix of labels of each client, in rows that add up to 1."""
    empty = np.flatnonzero(~allowed.any(axis=1))
    if len(empty):
        raise InputError(f"the set has no samples of the labels of cluster {empty[0]}", KEY)
    if alpha is None:
        cluster_mixes = allowed * pools
        return np.asarray((cluster_mixes / cluster_mixes.sum(axis=1, keepdims=True))[clusters])
    logs = log_dirichlet(alpha, len(clusters), len(pools), rng)
    return shares(np.where(allowed[clusters], logs, -np.inf))


def apportioned(mixes: np.ndarray, sizes: np.ndarray, tie: np.ndarray) -> np.ndarray:
    """Whole numbers by mixes, int64, in rows that add up to ``sizes``, by the largest remainders.

    Equal remainders go by ``tie``, the smaller first.
    """
    exact = mixes * sizes[:, None]
    counts: np.ndarray = np.floor(exact).astype(np.int64)
    missing = sizes - counts.sum(axis=1)
    order = np.lexsort((tie, counts - exact), axis=1)
    rank = np.argsort(order, axis=1)
    counts += rank < missing[:, None]
    return counts


def _largest_size(counts_of: Callable[[np.ndarray], np.ndarray], pools: np.ndarray, clients: int) -> int:
    """The largest size that all clients can have without holding the same samples; 0 where there is none."""
    big = 1_000_000
    share = counts_of(np.full(clients, big, np.int64)).sum(axis=0) / big  # what each unit of size needs of each label
    needed = share > 0
    # Whole numbers are off by less than 2 for each client: by a half in the share of one label, by one in the rest.
    size = min(int(pools.sum()) // clients, int(((pools + 2 * clients)[needed] / share[needed]).min()))
    while size and (counts_of(np.full(clients, size, np.int64)).sum(axis=0) > pools).any():
        size -= 1
    return size


def _check(counts: np.ndarray, pools: np.ndarray, params: ClusterParams, largest: Callable[[], int]) -> None:
    """Raises `InputError` where the set does not have so many samples of each label."""
    if not counts.any():
        message = "there are not enough samples of the clusters' labels for each client to have one"
        raise InputError(f"{message}; take fewer clients", KEY)
    needed = counts.max(axis=0) if params.overlap else counts.sum(axis=0)
    short = np.flatnonzero(needed > pools)
    if not len(short):
        return
    c = short[0]
    if params.overlap:
        raise InputError(f"a client needs {needed[c]} samples of label {c}, and there are only {pools[c]}", KEY)
    advice = f"at most {largest()} samples per client fit" if params.min_samples is None else "take smaller sizes"
    message = f"the clients need {needed[c]} samples of label {c}, and there are only {pools[c]}; {advice}"
    raise InputError(f"{message}, or let clients hold the same samples with 'overlap: true'", KEY)


def _drawn_by_each(labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Draws ``counts[i, c]`` samples of class c for client i, all different, from all of them."""
    members = [np.flatnonzero(labels == c) for c in range(counts.shape[1])]
    return [
        np.sort(np.concatenate([rng.choice(m, n, replace=False) for m, n in zip(members, row, strict=True)]))
        for row in counts
    ]
