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
from devices.secagg.identity import SESSION_BYTES, Identity, Membership
from devices.secagg.keys import KEY_BYTES
from devices.secagg.mask import Words
from devices.secagg.messages import (
    Consent,
    Consents,
    Delivery,
    KeyBook,
    Keys,
    MaskedInput,
    Revealed,
    Shares,
    Survivors,
)
from devices.secagg.server import Server
from devices.secagg.shamir import Random, least_threshold
from devices.secagg.steps import CONSISTENCY, KEYS, MASKED, SHARES, UNMASK, Adversary, Step, steps_of

T = TypeVar("T")


@dataclass(frozen=True)
class ProtocolRun:
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

    steps: Sequence[Step]
    numbers: Sequence[int]
    client_s: dict[Step, list[float]] = field(init=False)
    server_s: dict[Step, float] = field(init=False)
    up_bytes: dict[int, dict[Step, int]] = field(init=False)
    down_bytes: dict[int, dict[Step, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.client_s = {step: [] for step in self.steps}
        self.server_s = dict.fromkeys(self.steps, 0.0)
        self.up_bytes, self.down_bytes = ({c: dict.fromkeys(self.steps, 0) for c in self.numbers} for _ in range(2))

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
    dropped_before_consistency: Collection[int] = (),
    adversary: Adversary = "passive",
    encoding: Encoding | None = None,
    random: Random = os.urandom,
) -> ProtocolRun:
    """Runs the protocol over the clients' vectors, given by client number or as a list of clients 0, 1, 2, ...

    Without an encoding, vectors hold unsigned integers of 16, 32 or 64 bits; with one they hold real numbers, encoded as
    part of the client's work. The four lists name who falls silent before which step (a client in several, before the first of
    them). Against an active ``adversary`` keys are signed and survivors checked; identity keys and session, which clients know
    beforehand, are neither timed nor counted. Raises `ProtocolAborted` where fewer than ``threshold`` clients are left at a
    step, and ``ValueError`` for arguments that make no sense.
    """
    vectors = dict(inputs) if isinstance(inputs, Mapping) else dict(enumerate(inputs))
    silent = {*dropped_before_sharing, *dropped_before_upload, *dropped_before_consistency, *dropped_before_unmask}
    _check(vectors, threshold, silent)
    everyone = sorted(vectors)
    sharing = [c for c in everyone if c not in dropped_before_sharing]
    uploading = [c for c in sharing if c not in dropped_before_upload]
    consenting = [c for c in uploading if c not in dropped_before_consistency]
    unmasking = [c for c in consenting if c not in dropped_before_unmask]
    meter = _Meter(steps_of(adversary), everyone)
    signed = adversary == "active"
    members = memberships(everyone, random) if signed else {}
    clients = {c: Client(c, vector, threshold, encoding, random, members.get(c)) for c, vector in vectors.items()}
    first = next(iter(vectors.values()))
    server = Server(threshold, len(first), encoding.bits if encoding else 8 * first.itemsize, adversary)

    keys = meter.clients(KEYS, everyone, lambda c: clients[c].advertise().pack())
    book = meter.server(KEYS, lambda: server.publish([Keys.unpack(data, signed) for data in keys]).pack())
    for number in everyone:
        meter.down(KEYS, number, book)

    shares = meter.clients(SHARES, sharing, lambda c: clients[c].share(KeyBook.unpack(book, signed)).pack())
    routed = meter.server(SHARES, lambda: server.route([Shares.unpack(data) for data in shares]))
    deliveries = meter.server(SHARES, lambda: {c: delivery.pack() for c, delivery in routed.items()})
    for number in sharing:
        meter.down(SHARES, number, deliveries[number])

    masked = meter.clients(MASKED, uploading, lambda c: clients[c].mask(Delivery.unpack(deliveries[c])).pack())
    survivors = meter.server(MASKED, lambda: server.collect([MaskedInput.unpack(data) for data in masked]).pack())
    for number in uploading:
        meter.down(MASKED, number, survivors)

    consents: bytes | None = None
    if signed:
        given = meter.clients(CONSISTENCY, consenting, lambda c: clients[c].consent(Survivors.unpack(survivors)).pack())
        consents = meter.server(CONSISTENCY, lambda: server.confirm([Consent.unpack(data) for data in given]).pack())
        for number in consenting:
            meter.down(CONSISTENCY, number, consents)

    def reveal(c: int) -> bytes:
        checked = None if consents is None else Consents.unpack(consents)
        return clients[c].reveal(Survivors.unpack(survivors), checked).pack()

    revealed = meter.clients(UNMASK, unmasking, reveal)
    total = meter.server(UNMASK, lambda: server.unmask([Revealed.unpack(data) for data in revealed]))
    means = {step: sum(spent) / len(spent) for step, spent in meter.client_s.items()}
    return ProtocolRun(total, tuple(uploading), means, meter.server_s, meter.up_bytes, meter.down_bytes)


def memberships(clients: Sequence[int], random: Random = os.urandom) -> dict[int, Membership]:
    """A new session, and an identity for each client that all others know."""
    identities = {c: Identity(random(KEY_BYTES)) for c in clients}
    known = {c: identity.public for c, identity in identities.items()}
    session = random(SESSION_BYTES)
    return {c: Membership(session, identity, known) for c, identity in identities.items()}


def _check(vectors: Mapping[int, np.ndarray[Any, Any]], threshold: int, dropped: set[int]) -> None:
    if not least_threshold(len(vectors)) <= threshold <= len(vectors):
        raise ValueError(
            f"threshold must be above half of the {len(vectors)} clients and at most all of them, not {threshold}"
        )
    if len({(vector.shape, vector.dtype) for vector in vectors.values()}) > 1:
        raise ValueError("the vectors of all clients must have the same length and type")
    if not dropped <= set(vectors):
        raise ValueError(f"there is no client {min(dropped - set(vectors))} that could drop out")
