"""Clients that hold a fixed number of labels (S5 §III-C, quantity-based label imbalance)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

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
    spread_evenly,
    too_many_samples,
)
from emulator.registry import Params, Scale


class ClassesPerClientParams(Params):
    """How many labels, and how many samples, a client gets."""

    classes: Annotated[int, Field(ge=1, le=100_000)] = Field(description="labels of every client (C)")
    samples_per_client: SamplesPerClient | None = Field(
        None,
        description="samples of every client; without it, those of a label are divided between its holders",
    )

    @model_validator(mode="after")
    def _enough_samples(self) -> ClassesPerClientParams:
        if self.samples_per_client is not None and self.samples_per_client < self.classes:
            message = "'samples_per_client' must be at least {classes}, one sample of each of a client's classes"
            raise PydanticCustomError("samples", message, {"classes": self.classes})
        return self

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """More labels than there are, or more samples."""
        if scale.classes is not None and self.classes > scale.classes:
            yield "classes", f"the set has only {scale.classes} classes"
        yield from too_many_samples(scale, self.samples_per_client)


@partitions.register("classes-per-client", ClassesPerClientParams)
def classes_per_client(
    labels: np.ndarray, clients: int, classes: int, rng: np.random.Generator, params: ClassesPerClientParams
) -> list[np.ndarray]:
    """Every client holds exactly C labels, which overlap between clients; all labels are used equally often.

    Clients take, one after another, the C labels that were taken least often so far, at random among equals.
    So the numbers of holders of two labels differ by at most one. With ``samples_per_client`` a client has
    equally many samples (but for one) of each of its labels; without it every sample of a label that has
    holders is dealt out, to each of them equally many (but for one).
    """
    check_pool(len(labels), clients)
    pools = np.bincount(labels, minlength=classes)
    there = np.flatnonzero(pools)
    if params.classes > len(there):
        message = f"{params.classes} classes per client, but the samples are of only {len(there)} classes"
        raise InputError(message, f"{KEY}.classes")
    held = np.zeros((clients, classes), bool)
    held[:, there] = _take_least_used(clients, len(there), params.classes, rng)
    if params.samples_per_client is None:
        counts = spread_evenly(pools, held)
    else:
        advice = f"at most {len(labels) // clients} per client are possible"
        check_sum(clients * params.samples_per_client, len(labels), advice)
        counts = _equal_rows(held, params.samples_per_client, pools, rng)
    _check_classes(counts, pools, held)
    return draw_parts(labels, counts, rng)


def _take_least_used(clients: int, classes: int, take: int, rng: np.random.Generator) -> np.ndarray:
    """Bool [clients, classes] with ``take`` set in each row; the sums of columns differ by at most one."""
    held = np.zeros((clients, classes), bool)
    uses = np.zeros(classes)
    for row, tie in zip(held, rng.random((clients, classes)), strict=True):
        chosen = np.argpartition(uses + tie, take - 1)[:take]
        row[chosen] = True
        uses[chosen] += 1
    return held


def _equal_rows(held: np.ndarray, total: int, pools: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """``total`` in each row, equally over what is held; what is left over goes where most samples remain."""
    base, extra = divmod(total, int(held[0].sum()))
    given = np.zeros(held.shape, np.int64)  # 1 for each label of a client that gets one sample more
    room = pools - base * held.sum(axis=0)
    if extra:
        remaining = room.astype(float)
        for row, one_more, tie in zip(held, given, rng.random(held.shape), strict=True):
            chosen = np.argpartition(np.where(row, -remaining - tie, np.inf), extra - 1)[:extra]
            one_more[chosen] = 1
            remaining[chosen] -= 1
        _relieve(given, held, room)
    return base * held + given


def _relieve(given: np.ndarray, held: np.ndarray, room: np.ndarray) -> None:
    """Moves ones within rows of ``given`` until no column exceeds its room, where that is possible at all.

    A one may move from label a to label b in a row that holds both. Along the shortest chain of such moves a
    column that is too full passes one on to a column that has room (an augmenting path).
    """
    while len(full := np.flatnonzero(given.sum(axis=0) > room)):
        may_move = given.T @ (held - given) > 0
        came_from = {int(full[0]): -1}
        queue = [int(full[0])]
        for a in queue:
            if given[:, a].sum() < room[a]:
                break
            for b in np.flatnonzero(may_move[a]).tolist():
                if b not in came_from:
                    came_from[b] = a
                    queue.append(b)
        else:
            return  # no chain leads to room: the caller reports what is too full
        while came_from[a] >= 0:
            b, a = a, came_from[a]
            row = np.flatnonzero(given[:, a] & held[:, b] & (1 - given[:, b]))[0]
            given[row, a], given[row, b] = 0, 1


def _check_classes(counts: np.ndarray, pools: np.ndarray, held: np.ndarray) -> None:
    needed = np.maximum(counts, held).sum(axis=0)  # a holder needs at least one sample of the class
    short = np.flatnonzero(needed > pools)
    if len(short):
        c = short[0]
        raise InputError(
            f"class {c} has {pools[c]} samples and its {held[:, c].sum()} holders need {needed[c]}; "
            "take fewer clients or fewer samples per client",
            KEY,
        )
