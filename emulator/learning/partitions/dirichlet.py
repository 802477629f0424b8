"""Label skew by a Dirichlet distribution, in the three forms that the literature uses."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.learning import partitions
from emulator.errors import InputError
from emulator.learning.partitions.parts import (
    KEY,
    SamplesPerClient,
    check_pool,
    check_sum,
    draw_parts,
    equal_sizes,
    too_many_samples,
)
from emulator.registry import Params, Scale


class DirichletParams(Params):
    """How skewed the labels are, and how many samples a client gets."""

    alpha: Annotated[float, Field(ge=0, le=1e9)] = Field(
        description="concentration: the smaller, the more skewed; 0 gives every client a single class"
    )
    sizes: Literal["equal", "normal", "by-class"] = Field(
        "equal",
        description="equal or normally distributed sizes, or each class divided over the clients",
    )
    samples_per_client: SamplesPerClient | None = Field(
        None, description="for equal: samples of every client; without it all samples are divided"
    )
    min_samples: SamplesPerClient = Field(20, description="for normal: the smallest client")
    max_samples: SamplesPerClient = Field(200, description="for normal: the largest client")
    mean_samples: Annotated[float, Field(gt=0)] | None = Field(
        None, description="for normal: mean before the restriction; without it the middle of the range"
    )
    std_samples: Annotated[float, Field(gt=0)] | None = Field(
        None, description="for normal: deviation before the restriction; without it a quarter of the range"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> DirichletParams:
        message = None
        span = self.max_samples - self.min_samples
        if self.sizes != "equal" and self.samples_per_client is not None:
            message = "'samples_per_client' goes with 'sizes: equal' only"
        elif self.sizes != "normal" and (self.mean_samples is not None or self.std_samples is not None):
            message = "'mean_samples' and 'std_samples' go with 'sizes: normal' only"
        elif span < 0:
            message = "'min_samples' must not be greater than 'max_samples'"
        elif self.mean_samples is not None and not self.min_samples <= self.mean_samples <= self.max_samples:
            message = "'mean_samples' must lie between 'min_samples' and 'max_samples'"
        elif self.std_samples is not None and self.std_samples > max(span, 1):
            message = "'std_samples' must not be greater than the range of sizes"
        if message is not None:
            raise PydanticCustomError("sizes", "{text}", {"text": message})
        return self

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """More samples than the set has, even if every client were as small as it may be."""
        yield from too_many_samples(scale, self.samples_per_client)
        least = self.min_samples * scale.clients
        if self.sizes == "normal" and scale.train_samples is not None and least > scale.train_samples:
            message = f"{scale.clients} clients need {least} samples; the set has {scale.train_samples} to train"
            yield "min_samples", message


@partitions.register("dirichlet", DirichletParams)
def dirichlet(
    labels: np.ndarray, clients: int, classes: int, rng: np.random.Generator, params: DirichletParams
) -> list[np.ndarray]:
    """Skewed labels: each client's mix, or each class's division over clients, is drawn from Dir(alpha).

    ``equal`` and ``normal`` give each client a size and a mix of labels drawn from Dir(alpha · 1). Its
    samples are drawn by that mix, without replacement. Where a class runs dry, clients in random order get
    what is left of it, and the rest of their samples is drawn from the classes that still have some, by
    their own mix over those; so mixes are truest where many samples stay undealt. ``normal`` sizes are
    whole numbers from a normal distribution restricted to [min_samples, max_samples] (S2 §6.2 restricts
    them to [20, 200]); the paper does not give its mean and deviation.

    ``by-class`` divides all samples of each class over the clients by shares from Dir(alpha · 1) (Hsu et
    al. 2019). A client that would get nothing takes one sample from the client that has most.

    ``alpha: 0`` gives every client a single class (S4), the classes in proportion to their samples. With
    equal sizes and no ``samples_per_client`` the size is then the largest that leaves room for everybody.
    """
    check_pool(len(labels), clients)
    pools = np.bincount(labels, minlength=classes)
    if params.sizes == "by-class":
        counts = _lots_divided(pools, clients, params.alpha, rng)
    elif params.alpha == 0:
        counts = _single_classes(pools, clients, params, rng)
    else:
        sizes = _sizes(len(labels), clients, params, rng)
        counts = _drawn_by_mix(pools, sizes, log_dirichlet(params.alpha, clients, classes, rng), rng)
    return draw_parts(labels, counts, rng)


def log_dirichlet(alpha: float, rows: int, columns: int, rng: np.random.Generator) -> np.ndarray:
    """Logarithms of ``rows`` draws from Dir(alpha · 1), each up to a constant, for any alpha > 0.

    A Gamma(alpha) variable is a Gamma(alpha + 1) one times U^(1/alpha). For small alpha its logarithm keeps
    what the variable itself loses: all of a row may underflow to zero.
    """
    logs: np.ndarray = np.log(rng.standard_gamma(alpha + 1, (rows, columns)))
    logs -= rng.standard_exponential((rows, columns)) / max(alpha, 1e-300)
    return logs


def shares(logs: np.ndarray) -> np.ndarray:
    """Rows that add up to 1, from their logarithms up to a constant for each row."""
    result: np.ndarray = np.exp(logs - logs.max(axis=1, keepdims=True))
    result /= result.sum(axis=1, keepdims=True)
    return result


def _sizes(samples: int, clients: int, params: DirichletParams, rng: np.random.Generator) -> np.ndarray:
    """Samples of every client, int64, for ``equal`` and ``normal``."""
    if params.sizes == "equal":
        return equal_sizes(samples, clients, params.samples_per_client)
    low, high = params.min_samples, params.max_samples
    mean = params.mean_samples if params.mean_samples is not None else (low + high) / 2
    std = params.std_samples if params.std_samples is not None else (high - low) / 4
    drawn = np.full(clients, float(low))
    outside = np.arange(clients) if low < high else np.arange(0)
    while len(outside):  # a third of the draws or more fall inside, whatever the parameters
        drawn[outside] = rng.normal(mean, std, len(outside))
        outside = outside[(drawn[outside] < low) | (drawn[outside] > high)]
    sizes: np.ndarray = np.rint(drawn).astype(np.int64)
    check_sum(int(sizes.sum()), samples, "lower 'max_samples' or the number of clients")
    return sizes


def _drawn_by_mix(pools: np.ndarray, sizes: np.ndarray, log_mixes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Counts [clients, classes] with the given row sums; no column exceeds its pool."""
    counts = np.zeros(log_mixes.shape, np.int64)
    left, missing = pools.copy(), sizes.copy()
    while missing.any():  # whoever still misses something found a class dry, so the passes end with the classes
        waiting = rng.permutation(np.flatnonzero(missing))
        mixes = shares(np.where(left > 0, log_mixes[waiting], -np.inf))
        wanted = rng.multinomial(missing[waiting], mixes)
        before = np.cumsum(wanted, axis=0) - wanted
        granted = np.clip(left - before, 0, wanted)
        counts[waiting] += granted
        missing[waiting] -= granted.sum(axis=1)
        left -= granted.sum(axis=0)
    return counts


def _lots_divided(pools: np.ndarray, clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """Counts [clients, classes]; columns add up to the pools (with alpha 0: of the classes that are used)."""
    if alpha == 0:
        return _one_hot_counts(_proportional(pools, clients, rng), pools, None, rng)
    divided = shares(log_dirichlet(alpha, len(pools), clients, rng))
    ends = np.rint(np.cumsum(divided, axis=1) * pools[:, None]).astype(np.int64)
    ends[:, -1] = pools
    counts: np.ndarray = np.diff(ends, axis=1, prepend=0).T.copy()
    _feed_empty(counts)
    return counts


def _feed_empty(counts: np.ndarray) -> None:
    """Moves one sample to each empty client, from the client with most and of its most frequent class."""
    totals = counts.sum(axis=1)
    donors = [(-t, i) for i, t in enumerate(totals.tolist()) if t > 1]
    heapq.heapify(donors)
    for empty in np.flatnonzero(totals == 0):
        negative, donor = donors[0]
        heapq.heapreplace(donors, (negative + 1, donor))
        c = counts[donor].argmax()
        counts[donor, c] -= 1
        counts[empty, c] += 1


def _single_classes(pools: np.ndarray, clients: int, params: DirichletParams, rng: np.random.Generator) -> np.ndarray:
    """Counts [clients, classes] with one class a client, for ``equal`` and ``normal``."""
    if params.sizes == "normal":
        return _packed(pools, _sizes(int(pools.sum()), clients, params, rng), rng)
    holders = _proportional(pools, clients, rng)
    used = holders > 0
    size = int((pools[used] // holders[used]).min())
    wanted = params.samples_per_client
    if wanted is not None and wanted > size:
        message = f"{clients} clients with {wanted} samples of a single class each do not fit into the classes; "
        raise InputError(message + f"at most {size} samples per client are possible", f"{KEY}.samples_per_client")
    return _one_hot_counts(holders, pools, wanted or size, rng)


def _proportional(pools: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
    """How many clients hold each class, by D'Hondt's rule.

    It makes the smallest number of samples that a class has for each of its holders as large as possible.
    """
    holders = np.zeros(len(pools), np.int64)
    ties = rng.permutation(len(pools))
    queue = [(-float(pool), int(tie), c) for c, (pool, tie) in enumerate(zip(pools, ties, strict=True)) if pool]
    heapq.heapify(queue)
    for _ in range(clients):
        _, tie, c = queue[0]
        holders[c] += 1
        heapq.heapreplace(queue, (-float(pools[c]) / (holders[c] + 1), tie, c))
    return holders


def _one_hot_counts(holders: np.ndarray, pools: np.ndarray, size: int | None, rng: np.random.Generator) -> np.ndarray:
    """Counts with one class a client: ``size`` samples each, or else every class divided over its holders."""
    clients = int(holders.sum())
    classes_of = np.repeat(np.arange(len(holders)), holders)
    rank = np.arange(clients) - np.repeat(np.cumsum(holders) - holders, holders)
    base, extra = np.divmod(pools, np.maximum(holders, 1))
    sizes = base[classes_of] + (rank < extra[classes_of]) if size is None else np.full(clients, size)
    counts = np.zeros((clients, len(holders)), np.int64)
    counts[rng.permutation(clients), classes_of] = sizes
    return counts


def _packed(pools: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Counts with one class a client and the given sizes.

    The largest client chooses first, and each takes the class that has most samples left.
    """
    counts = np.zeros((len(sizes), len(pools)), np.int64)
    order = rng.permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    ties = rng.permutation(len(pools))
    queue = [(-int(pool), int(tie), c) for c, (pool, tie) in enumerate(zip(pools, ties, strict=True))]
    heapq.heapify(queue)
    for client in order:
        negative, tie, c = queue[0]
        size = int(sizes[client])
        if size > -negative:
            message = f"a client of {size} samples of a single class finds no class with so many left; "
            raise InputError(message + "lower 'max_samples' or the number of clients", KEY)
        counts[client, c] = size
        heapq.heapreplace(queue, (negative + size, tie, c))
    return counts
