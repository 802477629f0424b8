"""Key pairs (X25519, RFC 7748) and the keys that two parties derive from them (HKDF with SHA-256, RFC 5869)."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from devices.secagg.errors import ProtocolAborted

KEY_BYTES = 32
SEALING = b"hfl secure aggregation: sealing"
MASKING = b"hfl secure aggregation: masking"


class KeyPair:
    """A private key and its public key, from 32 random bytes."""

    def __init__(self, private: bytes) -> None:
        self.private = private
        self._key = X25519PrivateKey.from_private_bytes(private)
        self.public = self._key.public_key().public_bytes_raw()

    def agree(self, public: bytes, purpose: bytes) -> bytes:
        """The 32-byte key that only the owners of the two key pairs know, for one purpose.

        Both public keys go into the derivation, the smaller one first, so that both sides derive the same. Raises
        `ProtocolAborted` for a public key with which there is no secret.
        """
        try:
            secret = self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise ProtocolAborted("a public key cannot be used") from None
        info = purpose + min(self.public, public) + max(self.public, public)
        return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(secret)
