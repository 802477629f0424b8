"""The server: passes messages on, adds masked vectors, and takes the remaining masks off their sum.

Its methods are called once each and in the order of the steps: `publish`, `route`, `collect`, `unmask`; against an active
adversary, which clients must take the server for, `confirm` comes before `unmask`. Each takes the
messages that arrived in time; whoever is missing has dropped out. They raise `ProtocolAborted` where fewer clients than the
threshold are left, and for a message that does not belong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from devices.secagg.client import point_of
from devices.secagg.errors import ProtocolAborted
from devices.secagg.keys import MASKING, KeyPair
from devices.secagg.mask import Words, expand, word_type
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
    unique,
)
from devices.secagg.shamir import basis, combine, least_threshold
from devices.secagg.steps import CONSISTENCY, KEYS, MASKED, SHARES, UNMASK, Adversary, Step, steps_of

M = TypeVar("M", Keys, Shares, MaskedInput, Consent, Revealed)


class Server:
    """The server of one run over vectors of ``length`` integers of ``bits`` bits; raises ``ValueError`` for nonsense."""

    def __init__(self, threshold: int, length: int, bits: int = 32, adversary: Adversary = "passive") -> None:
        if threshold < 2:
            raise ValueError(f"threshold must be at least 2, not {threshold}")
        if length < 1:
            raise ValueError(f"length must be at least 1, not {length}")
        self._threshold = threshold
        self._dtype = word_type(bits)
        self._length = length
        self._steps = steps_of(adversary)
        self._next = 0
        self._book: dict[int, Keys] = {}
        self._members: set[int] = set()  # those whose shares arrived: all masks are between them
        self._survivors: set[int] = set()  # those whose vectors arrived
        self._helpers: set[int] = set()  # those that may reveal shares
        self._total: Words = np.zeros(length, self._dtype)

    def publish(self, messages: Sequence[Keys]) -> KeyBook:
        """Step 1: the list of all public keys, for every client that sent its own."""
        self._turn(KEYS)
        self._book = self._by_client(messages, None, "published keys")
        if self._threshold < least_threshold(len(self._book)):
            raise ProtocolAborted(
                f"{len(self._book)} clients published keys, and the threshold of {self._threshold} is not above half of "
                "them; they would go no further"
            )
        return KeyBook(tuple(self._book.values()))

    def route(self, messages: Sequence[Shares]) -> dict[int, Delivery]:
        """Step 2: what the others sealed for each client that sent shares."""
        self._turn(SHARES)
        arrived = self._by_client(messages, self._book, "sent shares")
        for client, message in arrived.items():
            if set(message.boxes) != set(self._book) - {client}:
                raise ProtocolAborted(f"client {client} did not send shares to exactly the others")
        self._members = set(arrived)
        return {
            reader: Delivery({client: m.boxes[reader] for client, m in arrived.items() if client != reader})
            for reader in arrived
        }

    def collect(self, messages: Sequence[MaskedInput]) -> Survivors:
        """Step 3: whose vectors are in the sum, for those clients themselves."""
        self._turn(MASKED)
        arrived = self._by_client(messages, self._members, "sent masked vectors")
        for client, message in arrived.items():
            if len(message.vector) != self._length * self._dtype.itemsize:
                raise ProtocolAborted(
                    f"client {client} sent a vector of {len(message.vector)} bytes instead of "
                    f"{self._length * self._dtype.itemsize}"
                )
            self._total += np.frombuffer(message.vector, self._dtype)
        self._survivors = self._helpers = set(arrived)
        return Survivors(tuple(arrived))

    def confirm(self, messages: Sequence[Consent]) -> Consents:
        """The consistency check: all signatures of the list of survivors, for those clients that signed it."""
        self._turn(CONSISTENCY)
        arrived = self._by_client(messages, self._survivors, "signed the list of survivors")
        self._helpers = set(arrived)
        return Consents({client: message.signature for client, message in arrived.items()})

    def unmask(self, messages: Sequence[Revealed]) -> Words:
        """Step 4: the sum of the vectors that arrived, modulo 2^bits."""
        self._turn(UNMASK)
        dropped = self._members - self._survivors
        arrived = self._by_client(messages, self._helpers, "revealed shares")
        for client, message in arrived.items():
            if set(message.seeds) != self._survivors or set(message.mask_keys) != dropped:
                raise ProtocolAborted(f"client {client} did not reveal exactly the shares that it was asked for")
        helpers = {point_of(client): arrived[client] for client in list(arrived)[: self._threshold]}
        weights = basis(helpers)
        for client in sorted(self._survivors):
            seed = combine({x: m.seeds[client] for x, m in helpers.items()}, weights)
            self._total -= expand(seed, self._length, self._dtype)
        for client in sorted(dropped):
            pair = KeyPair(combine({x: m.mask_keys[client] for x, m in helpers.items()}, weights))
            if pair.public != self._book[client].masking:
                raise ProtocolAborted(f"the shares of the mask key of client {client} do not give its key")
            self._take_off(client, pair)
        return self._total

    def _take_off(self, dropped: int, pair: KeyPair) -> None:
        """Removes the masks that the survivors shared with a client that dropped out."""
        for client in sorted(self._survivors):
            stream = expand(pair.agree(self._book[client].masking, MASKING), self._length, self._dtype)
            if client < dropped:  # the survivor had added it
                self._total -= stream
            else:
                self._total += stream

    def _by_client(
        self, messages: Sequence[M], allowed: Iterable[int] | Mapping[int, object] | None, what: str
    ) -> dict[int, M]:
        """The messages by client, in the order of clients; all from different clients that may send one, and enough."""
        clients = unique(message.client for message in messages)
        strangers = sorted(clients - set(allowed)) if allowed is not None else []
        if strangers:
            raise ProtocolAborted(f"client {strangers[0]} sent a message for a step that it is not part of")
        if len(clients) < self._threshold:
            raise ProtocolAborted(
                f"only {len(clients)} clients {what}, fewer than the threshold of {self._threshold}; "
                "their sum cannot be had"
            )
        return {message.client: message for message in sorted(messages, key=lambda m: m.client)}

    def _turn(self, step: Step) -> None:
        if self._next >= len(self._steps) or self._steps[self._next] != step:
            raise ProtocolAborted(f"the server was asked for the step '{step}' out of turn")
        self._next += 1
