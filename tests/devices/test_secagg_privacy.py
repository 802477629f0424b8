"""What the server can and cannot know. Its view is what it received; tests change what is hidden and keep the view."""

from __future__ import annotations

import numpy as np
import pytest
from secagg_parties import Parties, seeded, vectors

from devices.secagg.client import Client, point_of
from devices.secagg.errors import ProtocolAborted
from devices.secagg.keys import MASKING
from devices.secagg.mask import Words, expand
from devices.secagg.session import run
from devices.secagg.shamir import PRIME, basis, combine, number_of


def mask_between(one: Client, two: Client, length: int) -> Words:
    return expand(one._masking.agree(two._masking.public, MASKING), length, np.dtype("<u4"))


def masked_vectors(parties: Parties) -> list[Words]:
    return [np.frombuffer(message.vector, np.uint32) for message in parties.masked()]


def test_a_masked_vector_is_the_input_plus_a_mask_that_does_not_depend_on_it() -> None:
    inputs = vectors(4, 50, seed=1)
    others = vectors(4, 50, seed=2)
    one, two = (masked_vectors(Parties.of(x, 3, seed=5)) for x in (inputs, others))
    for c in range(4):
        assert (one[c] - inputs[c] == two[c] - others[c]).all()
        assert not (one[c] == inputs[c]).any()


@pytest.mark.parametrize("value", [0, 2**32 - 1, 0x01010101])
def test_masked_vectors_are_uniform_whatever_the_input(value: int) -> None:
    # Chi-square of the bytes against uniform: 255 degrees of freedom, standard deviation 22.6.
    inputs = [np.full(20_000, value, np.uint32)] * 3
    for masked in masked_vectors(Parties.of(inputs, 2, seed=11)):
        counts = np.bincount(np.frombuffer(masked.tobytes(), np.uint8), minlength=256)
        expected = 80_000 / 256
        assert ((counts - expected) ** 2 / expected).sum() < 255 + 4 * 22.6


def test_other_inputs_with_the_same_sum_fit_the_view_as_well() -> None:
    """Without the self-masks, which the server takes off in the end, the pairs' masks alone hide the inputs.

    For any other inputs with the same sum there are masks of the pairs, just as likely, with which the server sees the same.
    """
    inputs, length = vectors(3, 30, seed=3), 30
    parties = Parties.of(inputs, 2, seed=4)
    seen = [
        y - expand(c._seed, length, np.dtype("<u4"))
        for y, c in zip(masked_vectors(parties), parties.clients, strict=True)
    ]
    a, b, c = parties.clients
    masks = {"ab": mask_between(a, b, length), "ac": mask_between(a, c, length), "bc": mask_between(b, c, length)}

    def view(x: list[Words], m: dict[str, Words]) -> list[Words]:
        return [x[0] + m["ab"] + m["ac"], x[1] - m["ab"] + m["bc"], x[2] - m["ac"] - m["bc"]]

    assert all((v == s).all() for v, s in zip(view(inputs, masks), seen, strict=True))
    others = vectors(3, length, seed=99)
    others[2] = inputs[0] + inputs[1] + inputs[2] - others[0] - others[1]
    first, second = others[0] - inputs[0], others[1] - inputs[1]
    other_masks = {**masks, "ab": masks["ab"] - first, "bc": masks["bc"] - first - second}
    assert all((v == s).all() for v, s in zip(view(others, other_masks), seen, strict=True))


def test_below_the_threshold_every_sum_is_as_possible_as_any_other() -> None:
    inputs, threshold = vectors(5, 8, seed=6), 4
    parties = Parties.of(inputs, threshold, seed=6)
    survivors = parties.survivors()
    revealed = [client.reveal(survivors) for client in parties.clients[: threshold - 1]]
    with pytest.raises(ProtocolAborted, match=r"only 3 clients revealed shares.*their sum cannot be had"):
        parties.server.unmask(revealed)
    # The server holds three shares of the seed of client 0. Whatever the seed, one fourth share would confirm it.
    shares = {point_of(message.client): message.seeds[0] for message in revealed}
    weights = basis([*shares, point_of(4)])
    known = sum(number_of(share) * weights[x] for x, share in shares.items())
    masks = set()
    for candidate in (parties.clients[0]._seed, bytes(32), b"\xff" * 32, seeded(8)(32)):
        share = (int.from_bytes(candidate, "big") - known) * pow(weights[point_of(4)], -1, PRIME) % PRIME
        assert combine({**shares, point_of(4): share.to_bytes(33, "big")}, weights) == candidate
        masks.add(expand(candidate, 8, np.dtype("<u4")).tobytes())
    assert len(masks) == 4  # and each gives another sum


def test_a_vector_that_comes_too_late_stays_hidden() -> None:
    """The server counted client 3 as dropped and got its mask key; its self-mask still hides the vector that comes late."""
    inputs, length = vectors(4, 20, seed=9), 20
    parties = Parties.of(inputs, 3, seed=9)
    masked = parties.masked()
    survivors = parties.server.collect(masked[:3])
    revealed = [client.reveal(survivors) for client in parties.clients[:3]]
    assert all(3 not in message.seeds for message in revealed)
    assert (parties.server.unmask(revealed) == inputs[0] + inputs[1] + inputs[2]).all()
    late = np.frombuffer(masked[3].vector, np.uint32).copy()
    for other in parties.clients[:3]:
        late += mask_between(parties.clients[3], other, length)  # client 3 has the largest number: it took them away
    assert (late - inputs[3] == expand(parties.clients[3]._seed, length, np.dtype("<u4"))).all()
    assert not (late == inputs[3]).any()


def test_the_seeds_of_survivors_and_the_keys_of_the_dropped_are_all_that_is_revealed() -> None:
    parties = Parties.of(vectors(5, 4), 3)
    survivors = parties.survivors(dropped=[1, 4])
    for client in (0, 2, 3):
        revealed = parties.clients[client].reveal(survivors)
        assert set(revealed.seeds) == {0, 2, 3}
        assert set(revealed.mask_keys) == {1, 4}


def test_fresh_randomness_gives_other_messages_and_the_same_sum() -> None:
    inputs = vectors(3, 16)
    one, two = (masked_vectors(Parties.of(inputs, 2, seed=s)) for s in (1, 2))
    assert all(not (a == b).any() for a, b in zip(one, two, strict=True))
    assert (run(inputs, 2).total == run(inputs, 2).total).all()
