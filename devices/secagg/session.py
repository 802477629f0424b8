"""A whole run of the protocol in one process, with real messages in bytes; measures times and counts bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from devices.secagg.client import Client
from devices.secagg.encoding import Encoding
from devices.secagg.mask import Words
from devices.secagg.messages import Delivery, KeyBook, Keys, MaskedInput, Revealed, Shares, Survivors
from devices.secagg.server import Server
from devices.secagg.shamir import Random
from devices.secagg.steps import KEYS, MASKED, SHARES, STEPS, UNMASK, Step

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """What came of a run. ``total`` is the sum of the survivors' vectors modulo 2^k.

    ``client_s`` are a client's seconds in each step (the mean of those that took it), ``server_s`` the server's.
    ``up_bytes`` and ``down_bytes`` are what each client sent to and got from the server, by client and step.
    """

    total: Words
    survivors: tuple[int, ...]
    client_s: Mapping[Step, float]
    server_s: Mapping[Step, float]
    up_bytes: Mapping[int, Mapping[Step, int]]
    down_bytes: Mapping[int, Mapping[Step, int]]


@dataclass
class _Meter:
    """Stopwatch and counters of a run."""

    client_s: dict[Step, list[float]] = field(default_factory=lambda: {step: [] for step in STEPS})
    server_s: dict[Step, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))
    up_bytes: dict[int, dict[Step, int]] = field(default_factory=dict)
    down_bytes: dict[int, dict[Step, int]] = field(default_factory=dict)

    def clients(self, step: Step, numbers: Sequence[int], work: Callable[[int], bytes]) -> list[bytes]:
        """What clients do in a step, from the message that each got to the one that it sends."""
        messages = []
        for number in numbers:
            began = time.perf_counter()
            messages.append(work(number))
            self.client_s[step].append(time.perf_counter() - began)
            self.up_bytes[number][step] += len(messages[-1])
        return messages

    def server(self, step: Step, work: Callable[[], T]) -> T:
        """What the server does in a step."""
        began = time.perf_counter()
        result = work()
        self.server_s[step] += time.perf_counter() - began
        return result

    def down(self, step: Step, number: int, data: bytes) -> None:
        """What the server sends to a client."""
        self.down_bytes[number][step] += len(data)


def run(
    inputs: Sequence[np.ndarray[Any, Any]] | Mapping[int, np.ndarray[Any, Any]],
    threshold: int,
    dropped_before_upload: Collection[int] = (),
    dropped_before_unmask: Collection[int] = (),
    *,
    dropped_before_sharing: Collection[int] = (),
    encoding: Encoding | None = None,
    random: Random = os.urandom,
) -> Outcome:
    """Runs the protocol over the clients' vectors, given by client number or as a list of clients 0, 1, 2, ...

    Without an encoding, vectors hold unsigned integers of 16, 32 or 64 bits; with one they hold real numbers, encoded as
    part of the client's work. The three lists name who falls silent before which step (a client in several, before the first of
    them). Raises `ProtocolAborted` where fewer than ``threshold`` clients are left at a step, and ``ValueError`` for
    arguments that make no sense.
    """
    vectors = dict(inputs) if isinstance(inputs, Mapping) else dict(enumerate(inputs))
    _check(vectors, threshold, {*dropped_before_sharing, *dropped_before_upload, *dropped_before_unmask})
    everyone = sorted(vectors)
    sharing = [c for c in everyone if c not in dropped_before_sharing]
    uploading = [c for c in sharing if c not in dropped_before_upload]
    unmasking = [c for c in uploading if c not in dropped_before_unmask]
    meter = _Meter(
        up_bytes={c: dict.fromkeys(STEPS, 0) for c in vectors},
        down_bytes={c: dict.fromkeys(STEPS, 0) for c in vectors},
    )
    clients = {c: Client(c, vector, threshold, encoding, random) for c, vector in vectors.items()}
    first = next(iter(vectors.values()))
    server = Server(threshold, len(first), encoding.bits if encoding else 8 * first.itemsize)

    keys = meter.clients(KEYS, everyone, lambda c: clients[c].advertise().pack())
    book = meter.server(KEYS, lambda: server.publish([Keys.unpack(data) for data in keys]).pack())
    for number in everyone:
        meter.down(KEYS, number, book)

    shares = meter.clients(SHARES, sharing, lambda c: clients[c].share(KeyBook.unpack(book)).pack())
    routed = meter.server(SHARES, lambda: server.route([Shares.unpack(data) for data in shares]))
    deliveries = meter.server(SHARES, lambda: {c: delivery.pack() for c, delivery in routed.items()})
    for number in sharing:
        meter.down(SHARES, number, deliveries[number])

    masked = meter.clients(MASKED, uploading, lambda c: clients[c].mask(Delivery.unpack(deliveries[c])).pack())
    survivors = meter.server(MASKED, lambda: server.collect([MaskedInput.unpack(data) for data in masked]).pack())
    for number in uploading:
        meter.down(MASKED, number, survivors)

    revealed = meter.clients(UNMASK, unmasking, lambda c: clients[c].reveal(Survivors.unpack(survivors)).pack())
    total = meter.server(UNMASK, lambda: server.unmask([Revealed.unpack(data) for data in revealed]))
    means = {step: sum(spent) / len(spent) for step, spent in meter.client_s.items()}
    return Outcome(total, tuple(uploading), means, meter.server_s, meter.up_bytes, meter.down_bytes)


def _check(vectors: Mapping[int, np.ndarray[Any, Any]], threshold: int, dropped: set[int]) -> None:
    if not 2 <= threshold <= len(vectors):
        raise ValueError(f"threshold must be between 2 and the {len(vectors)} clients, not {threshold}")
    if len({(vector.shape, vector.dtype) for vector in vectors.values()}) > 1:
        raise ValueError("the vectors of all clients must have the same length and type")
    if not dropped <= set(vectors):
        raise ValueError(f"there is no client {min(dropped - set(vectors))} that could drop out")
