"""Who is who where the server may lie: clients sign with keys that all of them know beforehand (Ed25519, RFC 8032)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from devices.secagg.errors import ProtocolAborted

SIGNATURE_BYTES = 64
SESSION_BYTES = 32

# What a signature is for, so that none can stand in for another.
PUBLIC_KEYS = b"hfl secure aggregation: public keys"
SURVIVORS = b"hfl secure aggregation: survivors"


class Identity:
    """A client's private identity key and its public one, from 32 random bytes; they outlast a run."""

    def __init__(self, private: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(private)
        self.public = self._key.public_key().public_bytes_raw()

    def __reduce__(self) -> tuple[type[Identity], tuple[bytes]]:
        """How it gets to the process of the client that it is of, over a way that its owner trusts."""
        return Identity, (self._key.private_bytes_raw(),)

    def sign(self, message: bytes) -> bytes:
        """The signature of a message."""
        return self._key.sign(message)


@dataclass(frozen=True)
class Membership:
    """What a client knows before a run against an active adversary, from whoever is trusted to say who takes part.

    ``session`` names the run and must never come again; ``known`` are the public identity keys of all clients that may
    take part, by client. Raises ``ValueError`` for a session of another length.
    """

    session: bytes
    identity: Identity
    known: Mapping[int, bytes]

    def __post_init__(self) -> None:
        if len(self.session) != SESSION_BYTES:
            raise ValueError(f"a session has {SESSION_BYTES} bytes, not {len(self.session)}")

    def sign(self, purpose: bytes, content: bytes) -> bytes:
        """This client's signature of ``content``, for one purpose in this run."""
        return self.identity.sign(purpose + self.session + content)

    def verify(self, client: int, signature: bytes, purpose: bytes, content: bytes) -> None:
        """Raises `ProtocolAborted` unless ``client`` is known and signed ``content`` for this purpose in this run."""
        if client not in self.known:
            raise ProtocolAborted(f"nobody knows the identity of client {client}")
        try:
            key = Ed25519PublicKey.from_public_bytes(self.known[client])
            key.verify(signature, purpose + self.session + content)
        except (InvalidSignature, ValueError):
            raise ProtocolAborted(
                f"a signature is not that of client {client} on what it is said to have signed"
            ) from None
