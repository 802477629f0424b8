"""Secure aggregation for real, from the inside of a node: the parties of `devices.secagg` with the models that the node has.

Each member multiplies its model by its share of the samples, so that the sum is the average. Where members drop out before their
masked vectors have arrived, the server divides by what is left of the shares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from devices.secagg.client import Client
from devices.secagg.encoding import Encoding
from devices.secagg.identity import Membership
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
from emulator.errors import HflError

CLIP = 16.0  # the largest value of a model times its share that can be encoded
BITS = 32


@dataclass(frozen=True)
class Joining:
    """What a member must know to join: its number, its share of the samples, how many there are, how many must stay."""

    number: int
    share: float
    members: int
    threshold: int
    membership: Membership | None


@dataclass(frozen=True)
class Opening:
    """What a server must know: how many members, how many must stay, the length of vectors, whether keys are signed."""

    members: int
    threshold: int
    length: int
    signed: bool


def encoding_of(members: int) -> Encoding:
    """How the vectors of so many members are written."""
    return Encoding(members, CLIP, BITS)


class Member:
    """A client in a meeting. Each call gets the bytes of the server's message and gives those of the answer."""

    def __init__(self, told: Joining, state: np.ndarray) -> None:
        vector = state.astype(np.float64) * told.share
        if (largest := float(np.abs(vector).max(initial=0.0))) > CLIP:
            raise HflError(f"a value of {largest:g} is larger than secure aggregation can encode ({CLIP:g})")
        self._signed = told.membership is not None
        encoding = encoding_of(told.members)
        self._client = Client(told.number, vector, told.threshold, encoding, membership=told.membership)
        self._survivors = b""

    def advertise(self, message: bytes) -> bytes:
        """Step 1."""
        return self._client.advertise().pack()

    def share(self, message: bytes) -> bytes:
        """Step 2."""
        return self._client.share(KeyBook.unpack(message, self._signed)).pack()

    def mask(self, message: bytes) -> bytes:
        """Step 3: the masked vector alone; whose it is, the transfer says."""
        return self._client.mask(Delivery.unpack(message)).vector

    def consent(self, message: bytes) -> bytes:
        """The consistency check."""
        self._survivors = message
        return self._client.consent(Survivors.unpack(message)).pack()

    def reveal(self, message: bytes) -> bytes:
        """Step 4: by the list of survivors, or by what they consented to."""
        if self._signed:
            return self._client.reveal(Survivors.unpack(self._survivors), Consents.unpack(message)).pack()
        return self._client.reveal(Survivors.unpack(message)).pack()


class Aggregator:
    """The server in a meeting. Each call gets clients' messages and gives the answer to each of them."""

    def __init__(self, told: Opening) -> None:
        self._told = told
        self._server = Server(told.threshold, told.length, BITS, "active" if told.signed else "passive")

    def publish(self, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        """Step 1."""
        book = self._server.publish([Keys.unpack(data, self._told.signed) for data in messages.values()]).pack()
        return dict.fromkeys(messages, book)

    def route(self, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        """Step 2."""
        routed = self._server.route([Shares.unpack(data) for data in messages.values()])
        return {client: delivery.pack() for client, delivery in routed.items()}

    def collect(self, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        """Step 3."""
        survivors = self._server.collect([MaskedInput(client, data) for client, data in messages.items()]).pack()
        return dict.fromkeys(messages, survivors)

    def confirm(self, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        """The consistency check."""
        consents = self._server.confirm([Consent.unpack(data) for data in messages.values()]).pack()
        return dict.fromkeys(messages, consents)

    def unmask(self, messages: Mapping[int, bytes], share: float) -> np.ndarray:
        """Step 4: the average, of those who have so large a share of the samples together."""
        total = self._server.unmask([Revealed.unpack(data) for data in messages.values()])
        average: np.ndarray = (encoding_of(self._told.members).decode(total) / share).astype(np.float32)
        return average


MEMBER_CALLS: Mapping[str, Callable[[Member, bytes], bytes]] = {
    call.__name__: call for call in (Member.advertise, Member.share, Member.mask, Member.consent, Member.reveal)
}
SERVER_CALLS: Mapping[str, Callable[[Aggregator, Mapping[int, bytes]], dict[int, bytes]]] = {
    call.__name__: call for call in (Aggregator.publish, Aggregator.route, Aggregator.collect, Aggregator.confirm)
}
