from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secagg_parties import seeded

from devices.secagg import shamir
from devices.secagg.errors import ProtocolAborted
from devices.secagg.shamir import PRIME, basis, combine, evaluate, least_threshold, number_of, split, threshold_of

SECRETS = st.binary(min_size=32, max_size=32)


def miller_rabin(n: int, bases: range) -> bool:
    s = (n - 1 & -(n - 1)).bit_length() - 1
    for a in bases:
        x = pow(a, (n - 1) >> s, n)
        if x not in (1, n - 1) and not any((x := x * x % n) == n - 1 for _ in range(s - 1)):
            return False
    return True


def test_the_field_is_the_smallest_that_holds_every_secret() -> None:
    assert miller_rabin(PRIME, range(2, 50))
    assert not any(miller_rabin(n, range(2, 6)) for n in range(2**256, PRIME))
    assert PRIME.bit_length() <= 8 * shamir.SHARE_BYTES


@settings(max_examples=40, deadline=None)
@given(SECRETS, st.integers(1, 8), st.data())
def test_any_threshold_of_shares_gives_the_secret_back(secret: bytes, count: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, count))
    points = data.draw(st.lists(st.integers(1, 2**32), min_size=count, max_size=count, unique=True))
    shares = split(secret, threshold, points, seeded(data.draw(st.integers(0, 99))))
    chosen = data.draw(st.permutations(points))[:threshold]
    assert combine(shares, basis(chosen)) == secret


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_the_first_and_the_last_secret(secret: bytes) -> None:
    shares = split(secret, 3, [1, 2, 3, 4], seeded(0))
    assert all(combine(shares, basis(chosen)) == secret for chosen in itertools.combinations(shares, 3))


def test_too_few_shares_fit_every_secret_equally_often() -> None:
    # All polynomials of degree below 3 over a field of 7: whatever the secret, each pair of two shares comes exactly once.
    for secret in range(7):
        seen = Counter(
            (evaluate([secret, a, b], 1, 7), evaluate([secret, a, b], 4, 7))
            for a, b in itertools.product(range(7), repeat=2)
        )
        assert seen == Counter(itertools.product(range(7), repeat=2))


@settings(max_examples=40, deadline=None)
@given(SECRETS, SECRETS, st.integers(2, 6))
def test_one_share_short_every_candidate_has_exactly_one_completion(
    secret: bytes, candidate: bytes, threshold: int
) -> None:
    known = dict(list(split(secret, threshold, range(1, threshold + 2), seeded(1)).items())[: threshold - 1])
    weights = basis([*known, 99])
    so_far = sum(number_of(share) * weights[x] for x, share in known.items())
    # What is missing is one linear equation in the share at 99, whose factor is not zero: one solution for each candidate.
    assert math.gcd(weights[99], PRIME) == 1
    missing = (int.from_bytes(candidate, "big") - so_far) * pow(weights[99], -1, PRIME) % PRIME
    assert combine(known | {99: missing.to_bytes(33, "big")}, weights) == candidate


def test_shares_of_very_different_secrets_look_the_same() -> None:
    # The top byte below the 257th bit of one share, over many sharings; 255 degrees of freedom have a standard deviation of 22.6.
    for secret in (bytes(32), b"\xff" * 32):
        random = seeded(7)
        counts = Counter(split(secret, 2, [1, 2], random)[1][1] for _ in range(12_800))
        assert sum((counts[i] - 50) ** 2 / 50 for i in range(256)) < 255 + 4 * 22.6


def test_shares_that_do_not_belong_together() -> None:
    shares = split(b"a" * 32, 2, [1, 2, 3], seeded(0))
    other = split(b"b" * 32, 2, [1, 2, 3], seeded(1))
    try:
        assert combine({1: shares[1], 2: other[2]}, basis([1, 2])) not in (b"a" * 32, b"b" * 32)
    except ProtocolAborted as error:  # the few values between 2^256 and the prime are no secrets
        assert "one secret" in str(error)  # noqa: PT017
    with pytest.raises(ProtocolAborted, match="one secret"):
        combine({1: (2**256 + 1).to_bytes(33, "big")}, {1: 1})
    with pytest.raises(ProtocolAborted, match="not an element"):
        combine({1: PRIME.to_bytes(33, "big")}, {1: 1})
    with pytest.raises(ProtocolAborted, match="not an element"):
        combine({1: bytes(32)}, {1: 1})


@pytest.mark.parametrize(
    ("secret", "threshold", "points", "message"),
    [
        (bytes(31), 2, [1, 2], "32 bytes, not 31"),
        (bytes(32), 2, [1, 1], "distinct"),
        (bytes(32), 2, [0, 1], "greater than 0"),
        (bytes(32), 3, [1, 2], "between 1 and the 2 shares, not 3"),
        (bytes(32), 0, [1, 2], "not 0"),
    ],
)
def test_what_cannot_be_shared(secret: bytes, threshold: int, points: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split(secret, threshold, points, seeded(0))


def test_thresholds() -> None:
    assert [threshold_of(n, 2 / 3) for n in (1, 2, 3, 4, 100, 200, 300, 600, 1000)] == [
        2, 2, 2, 3, 67, 134, 200, 400, 667,
    ]  # fmt: skip
    assert threshold_of(10, 1.0) == 10
    assert [threshold_of(n, 0.5 + 1e-12) for n in (2, 3, 8, 9)] == [2, 2, 5, 5]  # above one half, however little
    for share in (0.0, 0.5, 1.1, -1.0, math.nan):
        with pytest.raises(ValueError, match=r"share of the clients must be above 0\.5 and at most 1"):
            threshold_of(5, share)


@settings(deadline=None)
@given(st.integers(2, 10_000), st.floats(0.5, 1, exclude_min=True))
def test_no_threshold_lets_two_halves_finish(clients: int, share: float) -> None:
    for threshold in (least_threshold(clients), threshold_of(clients, share)):
        assert clients < 2 * threshold <= 2 * clients
    assert 2 * (least_threshold(clients) - 1) <= max(clients, 2)  # and none is larger than that needs
