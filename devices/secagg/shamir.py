"""Secret sharing (Shamir 1979): any ``threshold`` shares give the secret back, fewer say nothing about it.

A secret is the value at 0 of a polynomial of degree below the threshold over a prime field; a share is its value at another
point. The prime is the smallest above 2^256, so that every 32 bytes are a secret.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from devices.secagg.errors import ProtocolAborted

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33

Random = Callable[[int], bytes]  # so many bytes that nobody can foretell, as `os.urandom` gives them


def least_threshold(clients: int) -> int:
    """The smallest threshold with which no two disjoint sets of the clients can each put secrets together.

    It is above half of them: whoever gets one share from each client cannot have both secrets of anybody. At least 2,
    because with 1 a share is the secret.
    """
    return max(2, clients // 2 + 1)


def threshold_of(clients: int, share: float) -> int:
    """The threshold that is this share of the clients, rounded up; at least `least_threshold`.

    Raises ``ValueError`` where the share is not above one half and at most 1.
    """
    if not 0.5 < share <= 1:
        raise ValueError(f"the threshold's share of the clients must be above 0.5 and at most 1, not {share}")
    rounded = math.ceil(share * clients - 1e-9)  # two thirds of 300 are 200, whatever the float says
    return max(least_threshold(clients), rounded)


def split(secret: bytes, threshold: int, points: Sequence[int], random: Random) -> dict[int, bytes]:
    """A share of ``secret`` for each point. Raises ``ValueError`` for a secret or points that cannot be shared."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
    if len(set(points)) < len(points) or not all(0 < x < PRIME for x in points):
        raise ValueError("points must be distinct and greater than 0")
    if not 1 <= threshold <= len(points):
        raise ValueError(f"threshold must be between 1 and the {len(points)} shares, not {threshold}")
    coefficients = [int.from_bytes(secret, "big"), *(_element(random) for _ in range(threshold - 1))]
    return {x: evaluate(coefficients, x).to_bytes(SHARE_BYTES, "big") for x in points}


def evaluate(coefficients: Sequence[int], x: int, prime: int = PRIME) -> int:
    """The value of a polynomial (constant term first) at ``x``."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % prime
    return value


def basis(points: Iterable[int], prime: int = PRIME) -> dict[int, int]:
    """What the share at each of these points weighs in the value at 0 (Lagrange); the same for all secrets."""
    every = list(points)
    weights = {}
    for x in every:
        above, below = 1, 1
        for other in every:
            if other != x:
                above = above * other % prime
                below = below * (other - x) % prime
        weights[x] = above * pow(below, -1, prime) % prime
    return weights


def combine(shares: Mapping[int, bytes], weights: Mapping[int, int]) -> bytes:
    """The secret, from the shares at the points of ``weights``; raises `ProtocolAborted` where they are not of one secret.

    Most sets of shares that do not belong together give some secret all the same: whoever can, must check it.
    """
    value = sum(number_of(shares[x]) * weight for x, weight in weights.items()) % PRIME
    if value >= 1 << (8 * SECRET_BYTES):
        raise ProtocolAborted("the shares do not belong to one secret")
    return value.to_bytes(SECRET_BYTES, "big")


def number_of(share: bytes) -> int:
    """A share as an element of the field; raises `ProtocolAborted` where it is none."""
    value = int.from_bytes(share, "big")
    if len(share) != SHARE_BYTES or value >= PRIME:
        raise ProtocolAborted("a share is not an element of the field")
    return value


def _element(random: Random) -> int:
    """An element of the field, each with the same probability: what is too large is drawn again."""
    while True:
        value = int.from_bytes(random(SHARE_BYTES), "big") >> (8 * SHARE_BYTES - PRIME.bit_length())
        if value < PRIME:
            return value
