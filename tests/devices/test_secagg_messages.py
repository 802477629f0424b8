from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secagg_parties import seeded

from devices.secagg.encoding import Encoding
from devices.secagg.errors import ProtocolAborted
from devices.secagg.keys import MASKING, SEALING, KeyPair
from devices.secagg.mask import expand, word_type
from devices.secagg.messages import Consent, Consents, Delivery, KeyBook, Keys, MaskedInput, Revealed, Shares, Survivors
from devices.secagg.sealing import BOX_BYTES, open_box, seal

BOX = b"x" * BOX_BYTES
SHARE = b"s" * 33
MESSAGES = [
    (Keys(7, b"a" * 32, b"b" * 32), 68),
    (Consent(7, b"z" * 64), 68),
    (Consents({7: b"z" * 64, 9: b"y" * 64}), 136),
    (KeyBook((Keys(7, b"a" * 32, b"b" * 32), Keys(2**32 - 1, b"c" * 32, b"d" * 32))), 136),
    (Shares(1, {2: BOX, 3: BOX}), 4 + 2 * 86),
    (Delivery({2: BOX}), 86),
    (MaskedInput(5, b"\x01\x02\x03\x04"), 8),
    (Survivors((1, 5, 9)), 12),
    (Revealed(3, {1: SHARE, 2: SHARE}, {4: SHARE}), 8 + 3 * 37),
]


@pytest.mark.parametrize(("message", "size"), MESSAGES)
def test_messages_in_bytes(message, size: int) -> None:
    data = message.pack()
    assert len(data) == size
    assert type(message).unpack(data) == message


@pytest.mark.parametrize(("message", "size"), [pair for pair in MESSAGES if not isinstance(pair[0], MaskedInput)])
def test_messages_of_the_wrong_length(message, size: int) -> None:
    data = message.pack()
    for broken in (data[:-1], data + b"\0"):
        with pytest.raises(ProtocolAborted, match="instead of"):
            type(message).unpack(broken)


def test_signed_keys_in_bytes() -> None:
    one, two = Keys(7, b"a" * 32, b"b" * 32, b"z" * 64), Keys(8, b"c" * 32, b"d" * 32, b"y" * 64)
    assert (len(one.pack()), len(KeyBook((one, two)).pack())) == (132, 264)
    assert Keys.unpack(one.pack(), signed=True) == one
    assert KeyBook.unpack(KeyBook((one, two)).pack(), signed=True) == KeyBook((one, two))
    for unpack, data in ((Keys.unpack, one.pack()), (KeyBook.unpack, one.pack()[:-1])):
        with pytest.raises(ProtocolAborted, match="instead of"):  # signed where no signature is expected, or cut off
            unpack(data)
    with pytest.raises(ProtocolAborted, match="instead of 132"):
        Keys.unpack(one.content, signed=True)


def test_messages_that_end_too_early() -> None:
    for kind in (Shares, MaskedInput, Revealed):
        with pytest.raises(ProtocolAborted, match="ends too early"):
            kind.unpack(b"\0\0")
    with pytest.raises(ProtocolAborted, match="announces 5 shares and has 1"):
        Revealed.unpack((3).to_bytes(4, "big") + (5).to_bytes(4, "big") + (1).to_bytes(4, "big") + SHARE)


def test_nobody_stands_twice_in_a_list() -> None:
    one, keys = (1).to_bytes(4, "big"), Keys(1, b"a" * 32, b"b" * 32).pack()
    for kind, data in (
        (KeyBook, keys + keys),
        (Shares, one + one + BOX + one + BOX),
        (Delivery, one + BOX + one + BOX),
        (Survivors, one + one),
        (Consents, 2 * (one + b"z" * 64)),
        (Revealed, one + one + one + SHARE + one + SHARE),  # once among the seeds and once among the mask keys
    ):
        with pytest.raises(ProtocolAborted, match="client 1 stands twice"):
            kind.unpack(data)


def test_both_sides_agree_on_a_key_and_purposes_on_different_ones() -> None:
    random = seeded(3)
    one, two, three = (KeyPair(random(32)) for _ in range(3))
    assert one.agree(two.public, MASKING) == two.agree(one.public, MASKING)
    keys = {one.agree(two.public, MASKING), one.agree(two.public, SEALING), one.agree(three.public, MASKING)}
    assert len(keys) == 3
    for public in (bytes(32), b"short"):  # a point of low order, with which everybody knows the secret; no key at all
        with pytest.raises(ProtocolAborted, match="public key"):
            one.agree(public, MASKING)


def test_a_box_opens_for_its_reader_only_and_unchanged_only() -> None:
    key = seeded(0)(32)
    box = seal(key, 1, 2, b"m" * 33, b"s" * 33)
    assert len(box) == BOX_BYTES
    assert open_box(key, 1, 2, box) == (b"m" * 33, b"s" * 33)
    for at in range(0, len(box), 9):
        changed = bytearray(box)
        changed[at] ^= 1
        with pytest.raises(ProtocolAborted, match="from client 1 to client 2 were changed"):
            open_box(key, 1, 2, bytes(changed))
    for arguments in ((key, 1, 3), (key, 2, 2), (seeded(1)(32), 1, 2)):
        with pytest.raises(ProtocolAborted, match="were changed"):
            open_box(*arguments, box)
    with pytest.raises(ProtocolAborted, match="2 bytes of shares instead of 66"):
        open_box(key, 1, 2, seal(key, 1, 2, b"m", b"s"))


def test_a_mask_is_the_key_stream_of_chacha20() -> None:
    # RFC 8439, appendix A.1, test vectors 1 and 2 (key zero, counters 0 and 1).
    expected = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    assert expand(bytes(32), 8, word_type(32)).tobytes() == expected
    for bits in (16, 32, 64):
        mask = expand(bytes(32), 24, word_type(bits))
        assert mask.dtype.itemsize == bits // 8
        assert mask.tobytes() == expand(bytes(32), 200, word_type(bits))[:24].tobytes()
    with pytest.raises(ValueError, match="16, 32 or 64, not 24"):
        word_type(24)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.floats(-10, 10), min_size=3, max_size=3), min_size=1, max_size=9),
    st.sampled_from([16, 32, 64]),
)
def test_a_sum_is_decoded_within_half_a_step_of_each_client(values: list[list[float]], bits: int) -> None:
    encoding = Encoding(clients=len(values), clip=8.0, bits=bits)
    total = sum((encoding.encode(np.array(each)) for each in values), np.zeros(3, word_type(bits)))
    expected = np.clip(np.array(values), -8, 8).sum(axis=0)
    error = np.abs(encoding.decode(total) - expected)
    assert (error <= len(values) * (encoding.step / 2 + 1e-14)).all()


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_clipping_keeps_the_sum_from_overflowing(bits: int) -> None:
    for clients in (1, 7, 100):
        encoding = Encoding(clients, clip=0.5, bits=bits)
        for value in (1e30, np.inf, 0.5):
            words = encoding.encode(np.array([value, -value]))
            total = (words.astype(object) * clients) % 2**bits
            assert encoding.decode(np.array(total, word_type(bits))) == pytest.approx([0.5 * clients, -0.5 * clients])


def test_encoding_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="not a number"):
        Encoding(3).encode(np.array([1.0, np.nan]))
    for arguments, message in (
        ({"clients": 0}, "clients"),
        ({"clients": 2, "clip": 0.0}, "clip"),
        ({"clients": 2, "clip": np.inf}, "clip"),
        ({"clients": 2, "bits": 8}, "bits"),
        ({"clients": 40_000, "bits": 16}, "cannot hold the sum of 40000 clients"),
    ):
        with pytest.raises(ValueError, match=message):
            Encoding(**arguments)
