"""Shares on their way through the server: sealed for one reader (ChaCha20-Poly1305, RFC 8439).

The two clients of a pair share one key and use it for one message in each direction. The sender's number is the nonce, so
no nonce comes twice; both numbers are authenticated, so the server cannot swap messages.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from devices.secagg.errors import ProtocolAborted
from devices.secagg.shamir import SHARE_BYTES

_TAG_BYTES = 16
BOX_BYTES = 2 * SHARE_BYTES + _TAG_BYTES


def seal(key: bytes, sender: int, receiver: int, mask_key_share: bytes, seed_share: bytes) -> bytes:
    """The two shares of ``sender`` for ``receiver``, encrypted."""
    plain = mask_key_share + seed_share
    return ChaCha20Poly1305(key).encrypt(_nonce(sender), plain, _parties(sender, receiver))


def open_box(key: bytes, sender: int, receiver: int, box: bytes) -> tuple[bytes, bytes]:
    """The shares of the sender's mask key and of its seed; raises `ProtocolAborted` where the box was changed on its way."""
    try:
        plain = ChaCha20Poly1305(key).decrypt(_nonce(sender), box, _parties(sender, receiver))
    except InvalidTag:
        raise ProtocolAborted(
            f"the shares from client {sender} to client {receiver} were changed on their way"
        ) from None
    if len(plain) != 2 * SHARE_BYTES:
        raise ProtocolAborted(f"client {sender} sent {len(plain)} bytes of shares instead of {2 * SHARE_BYTES}")
    return plain[:SHARE_BYTES], plain[SHARE_BYTES:]


def _nonce(sender: int) -> bytes:
    return sender.to_bytes(12, "big")


def _parties(sender: int, receiver: int) -> bytes:
    return sender.to_bytes(4, "big") + receiver.to_bytes(4, "big")
