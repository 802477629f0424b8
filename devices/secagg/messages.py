"""What the parties send, and its exact form in bytes.

Numbers of clients and counts take four bytes, highest first. A message that lists clients is a row of entries of one
size; nothing else is sent, so its length says how many there are. ``unpack`` raises `ProtocolAborted` where bytes are no
such message or where a client stands twice in a list. Steps: `Keys` and `KeyBook`; `Shares` and `Delivery`;
`MaskedInput` and `Survivors`; `Revealed`. Against an active adversary, keys are signed, and `Consent` and `Consents` come
before `Revealed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from devices.secagg.errors import ProtocolAborted
from devices.secagg.identity import SIGNATURE_BYTES
from devices.secagg.keys import KEY_BYTES
from devices.secagg.sealing import BOX_BYTES
from devices.secagg.shamir import SHARE_BYTES

NUMBER_BYTES = 4
MAX_CLIENT = 2**32 - 1


@dataclass(frozen=True)
class Keys:
    """Client to server: its two public keys, and its signature of them against an active adversary."""

    client: int
    sealing: bytes
    masking: bytes
    signature: bytes = b""

    SIZE = NUMBER_BYTES + 2 * KEY_BYTES  # without a signature

    @property
    def content(self) -> bytes:
        """What is signed: the message without its signature."""
        return _packed(self.client) + self.sealing + self.masking

    def pack(self) -> bytes:
        """The message in bytes."""
        return self.content + self.signature

    @classmethod
    def unpack(cls, data: bytes, signed: bool = False) -> Keys:
        """The message from bytes."""
        return KeyBook.unpack(data, signed, exactly=1).keys[0]


@dataclass(frozen=True)
class KeyBook:
    """Server to every client: the public keys of all."""

    keys: tuple[Keys, ...]

    def pack(self) -> bytes:
        """The message in bytes."""
        return b"".join(each.pack() for each in self.keys)

    @classmethod
    def unpack(cls, data: bytes, signed: bool = False, exactly: int | None = None) -> KeyBook:
        """The message from bytes; all keys in it are signed, or none are. ``exactly`` so many, where that is given."""
        both = 2 * KEY_BYTES
        entries = _entries(data, both + SIGNATURE_BYTES if signed else both, exactly)
        return cls(tuple(Keys(c, k[:KEY_BYTES], k[KEY_BYTES:both], k[both:]) for c, k in entries))


@dataclass(frozen=True)
class Shares:
    """Client to server: for each other client two shares, sealed (`devices.secagg.sealing`)."""

    client: int
    boxes: Mapping[int, bytes]  # by receiver

    def pack(self) -> bytes:
        """The message in bytes."""
        return _packed(self.client) + _row(self.boxes)

    @classmethod
    def unpack(cls, data: bytes) -> Shares:
        """The message from bytes."""
        return cls(_number(data), dict(_entries(data[NUMBER_BYTES:], BOX_BYTES)))


@dataclass(frozen=True)
class Delivery:
    """Server to a client: what the others sealed for it."""

    boxes: Mapping[int, bytes]  # by sender

    def pack(self) -> bytes:
        """The message in bytes."""
        return _row(self.boxes)

    @classmethod
    def unpack(cls, data: bytes) -> Delivery:
        """The message from bytes."""
        return cls(dict(_entries(data, BOX_BYTES)))


@dataclass(frozen=True)
class MaskedInput:
    """Client to server: its masked vector, as bytes (how many stand for a number is settled before)."""

    client: int
    vector: bytes

    def pack(self) -> bytes:
        """The message in bytes."""
        return _packed(self.client) + self.vector

    @classmethod
    def unpack(cls, data: bytes) -> MaskedInput:
        """The message from bytes."""
        return cls(_number(data), data[NUMBER_BYTES:])


@dataclass(frozen=True)
class Survivors:
    """Server to each client that is left: whose masked vectors arrived."""

    clients: tuple[int, ...]

    def pack(self) -> bytes:
        """The message in bytes."""
        return b"".join(_packed(client) for client in self.clients)

    @classmethod
    def unpack(cls, data: bytes) -> Survivors:
        """The message from bytes."""
        return cls(tuple(client for client, _ in _entries(data, 0)))


@dataclass(frozen=True)
class Consent:
    """Client to server, against an active adversary: its signature of the list of survivors that it was given."""

    client: int
    signature: bytes

    SIZE = NUMBER_BYTES + SIGNATURE_BYTES

    def pack(self) -> bytes:
        """The message in bytes."""
        return _packed(self.client) + self.signature

    @classmethod
    def unpack(cls, data: bytes) -> Consent:
        """The message from bytes."""
        ((client, signature),) = _entries(data, SIGNATURE_BYTES, exactly=1)
        return cls(client, signature)


@dataclass(frozen=True)
class Consents:
    """Server to each client that signed the list of survivors: the signatures of all that did."""

    signatures: Mapping[int, bytes]  # by client

    def pack(self) -> bytes:
        """The message in bytes."""
        return _row(self.signatures)

    @classmethod
    def unpack(cls, data: bytes) -> Consents:
        """The message from bytes."""
        return cls(dict(_entries(data, SIGNATURE_BYTES)))


@dataclass(frozen=True)
class Revealed:
    """Client to server: one share for each client, of its seed or of its mask key."""

    client: int
    seeds: Mapping[int, bytes]  # of those whose vectors arrived
    mask_keys: Mapping[int, bytes]  # of those that dropped out

    def pack(self) -> bytes:
        """The message in bytes."""
        return _packed(self.client) + _packed(len(self.seeds)) + _row(self.seeds) + _row(self.mask_keys)

    @classmethod
    def unpack(cls, data: bytes) -> Revealed:
        """The message from bytes."""
        client, count = _number(data), _number(data[NUMBER_BYTES:])
        entries = _entries(data[2 * NUMBER_BYTES :], SHARE_BYTES)
        if count > len(entries):
            raise ProtocolAborted(f"a message announces {count} shares and has {len(entries)}")
        return cls(client, dict(entries[:count]), dict(entries[count:]))


ENTRY_OF_SHARES_BYTES = NUMBER_BYTES + BOX_BYTES
ENTRY_OF_REVEALED_BYTES = NUMBER_BYTES + SHARE_BYTES


def unique(clients: Iterable[int]) -> set[int]:
    """The clients as a set; raises `ProtocolAborted` where one stands twice."""
    seen: set[int] = set()
    for client in clients:
        if client in seen:
            raise ProtocolAborted(f"client {client} stands twice in a message, or sent it twice")
        seen.add(client)
    return seen


def _packed(number: int) -> bytes:
    return number.to_bytes(NUMBER_BYTES, "big")


def _number(data: bytes) -> int:
    if len(data) < NUMBER_BYTES:
        raise ProtocolAborted("a message ends too early")
    return int.from_bytes(data[:NUMBER_BYTES], "big")


def _row(entries: Mapping[int, bytes]) -> bytes:
    return b"".join(_packed(client) + content for client, content in entries.items())


def _entries(data: bytes, content: int, exactly: int | None = None) -> list[tuple[int, bytes]]:
    """The entries of a row: a client and so many bytes each."""
    size = NUMBER_BYTES + content
    if len(data) % size or (exactly is not None and len(data) != exactly * size):
        wanted = f"a multiple of {size}" if exactly is None else str(exactly * size)
        raise ProtocolAborted(f"a message has {len(data)} bytes in its list instead of {wanted}")
    entries = [
        (_number(data[at : at + NUMBER_BYTES]), data[at + NUMBER_BYTES : at + size]) for at in range(0, len(data), size)
    ]
    unique(client for client, _ in entries)
    return entries
