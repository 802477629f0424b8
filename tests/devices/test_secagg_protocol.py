from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secagg_parties import Parties, vectors

from devices.secagg.client import Client
from devices.secagg.encoding import Encoding
from devices.secagg.errors import ProtocolAborted
from devices.secagg.mask import Words
from devices.secagg.messages import Delivery, KeyBook, Keys, MaskedInput, Survivors
from devices.secagg.server import Server
from devices.secagg.session import run
from devices.secagg.shamir import least_threshold
from devices.secagg.steps import STEPS, Adversary


def total(inputs: list[Words], clients: list[int]) -> np.ndarray:
    """The sum modulo 2^k, in Python's own integers."""
    modulus = 1 << (8 * inputs[0].itemsize)
    return np.array([sum(int(inputs[c][i]) for c in clients) % modulus for i in range(len(inputs[0]))], inputs[0].dtype)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_sums_are_exact_whoever_drops_out_and_abort_below_the_threshold(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 8), "clients")
    threshold = data.draw(st.integers(least_threshold(count), count), "threshold")
    adversary: Adversary = data.draw(st.sampled_from(["passive", "active"]), "adversary")
    steps = st.sampled_from([None, None, 1, 2, 3, 4])
    when = data.draw(st.lists(steps, min_size=count, max_size=count), "dropped before")
    bits, length = data.draw(st.sampled_from([16, 32, 64]), "bits"), data.draw(st.integers(1, 20), "length")
    inputs = vectors(count, length, seed=count, bits=bits)
    sharing, upload, consistency, unmask = ([c for c in range(count) if when[c] == step] for step in (1, 2, 3, 4))

    def aggregate():
        silent = {"dropped_before_sharing": sharing, "dropped_before_consistency": consistency}
        return run(inputs, threshold, upload, unmask, **silent, adversary=adversary)

    if when.count(None) < threshold:
        with pytest.raises(ProtocolAborted, match=f"fewer than the threshold of {threshold}"):
            aggregate()
    else:
        survivors = [c for c in range(count) if when[c] in (None, 3, 4)]
        outcome = aggregate()
        assert outcome.survivors == tuple(survivors)
        assert (outcome.total == total(inputs, survivors)).all()


def test_real_numbers_are_summed_by_their_encoding() -> None:
    rng = np.random.default_rng(4)
    values = [rng.normal(size=500) for _ in range(5)]
    encoding = Encoding(clients=5)
    outcome = run(values, 3, [1], [2], encoding=encoding)
    expected = sum(values[c] for c in (0, 2, 3, 4))
    assert np.abs(encoding.decode(outcome.total) - expected).max() <= 4 * encoding.step / 2
    assert (outcome.total == sum(encoding.encode(values[c]) for c in (0, 2, 3, 4))).all()


def test_clients_may_have_any_numbers() -> None:
    inputs = dict(zip((2**32 - 1, 0, 77, 12), vectors(4, 5), strict=True))
    outcome = run(inputs, 3, [77])
    assert outcome.survivors == (0, 12, 2**32 - 1)
    assert (outcome.total == inputs[0] + inputs[12] + inputs[2**32 - 1]).all()


def test_the_server_refuses_more_clients_than_its_threshold_is_for() -> None:
    keys = [client.advertise() for client in Parties.of(vectors(4, 4), 3).clients]
    with pytest.raises(ProtocolAborted, match="4 clients published keys, and the threshold of 2 is not above half"):
        Server(2, 4).publish(keys)


def test_what_is_measured() -> None:
    outcome = run(vectors(5, 10), 3, [0], [1])
    assert set(outcome.client_s) == set(outcome.server_s) == set(STEPS)
    assert min(*outcome.client_s.values(), *outcome.server_s.values()) > 0
    assert outcome.up_bytes[0] == {"keys": 68, "shares": 4 + 4 * 86, "masked": 0, "unmask": 0}
    assert outcome.up_bytes[1] == {"keys": 68, "shares": 4 + 4 * 86, "masked": 44, "unmask": 0}
    assert outcome.up_bytes[2] == {"keys": 68, "shares": 4 + 4 * 86, "masked": 44, "unmask": 8 + 5 * 37}
    assert outcome.down_bytes[0] == {"keys": 5 * 68, "shares": 4 * 86, "masked": 0, "unmask": 0}
    assert outcome.down_bytes[1] == outcome.down_bytes[2] == {"keys": 340, "shares": 344, "masked": 16, "unmask": 0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((vectors(3, 4), 1), "above half of the 3 clients and at most all of them, not 1"),
        ((vectors(6, 4), 3), "above half of the 6 clients and at most all of them, not 3"),
        ((vectors(2, 4), 1), "not 1"),
        ((vectors(3, 4), 4), "not 4"),
        (([*vectors(2, 4), *vectors(1, 5)], 2), "same length"),
        (([*vectors(2, 4), *vectors(1, 4, bits=16)], 2), "same length and type"),
        ((vectors(3, 4), 2, [5]), "no client 5"),
        (([np.zeros(3)] * 3, 2), "unsigned integers"),
        (([np.zeros((3, 3), np.uint32)] * 3, 2), "one dimension"),
    ],
)
def test_runs_that_make_no_sense(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(*arguments)


def test_parties_that_make_no_sense() -> None:
    vector = vectors(1, 3)[0]
    for make, message in (
        (lambda: Client(-1, vector, 2), "number"),
        (lambda: Client(2**32, vector, 2), "number"),
        (lambda: Client(0, vector, 1), "a share is the secret itself"),
        (lambda: Server(1, 3), "threshold"),
        (lambda: Server(2, 0), "length"),
        (lambda: Server(2, 3, 20), "bits"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


# What clients refuse.


def test_a_client_answers_each_step_once_and_in_order() -> None:
    parties = Parties.of(vectors(3, 4), 2)
    client = parties.clients[0]
    with pytest.raises(ProtocolAborted, match="client 0 was asked for the step 'unmask' out of turn"):
        client.reveal(Survivors((0, 1)))
    survivors = parties.survivors()
    client.reveal(survivors)
    for again in (client.advertise, lambda: client.mask(Delivery({})), lambda: client.reveal(survivors)):
        with pytest.raises(ProtocolAborted, match="out of turn"):
            again()


def test_a_client_never_reveals_both_shares_of_anybody() -> None:
    parties = Parties.of(vectors(4, 4), 3)
    parties.survivors()
    client = parties.clients[0]
    revealed = client.reveal(Survivors((0, 1, 2)))
    assert set(revealed.seeds) == {0, 1, 2}
    assert set(revealed.mask_keys) == {3}
    with pytest.raises(ProtocolAborted, match="out of turn"):  # the server now claims that 1 dropped out
        client.reveal(Survivors((0, 2, 3)))


def test_a_client_that_refused_once_reveals_nothing_later() -> None:
    parties = Parties.of(vectors(4, 4), 3)
    parties.survivors()
    client = parties.clients[0]
    with pytest.raises(ProtocolAborted, match=r"only 2 clients sent masked vectors.*client 0 reveals nothing"):
        client.reveal(Survivors((0, 1)))
    with pytest.raises(ProtocolAborted, match="out of turn"):
        client.reveal(Survivors((0, 1, 2)))


@pytest.mark.parametrize("survivors", [(1, 2, 3), (0, 1, 9), (0, 1, 1, 2)])
def test_a_client_refuses_lists_of_survivors_that_cannot_be_right(survivors: tuple[int, ...]) -> None:
    parties = Parties.of(vectors(4, 4), 3)
    parties.survivors()
    with pytest.raises(ProtocolAborted, match=r"cannot be right|stands twice"):
        parties.clients[0].reveal(Survivors(survivors))


def test_a_client_refuses_lists_of_keys_that_cannot_be_right() -> None:
    def share(change, message: str) -> None:
        parties = Parties.of(vectors(3, 4), 2)
        keys = parties.book().keys
        with pytest.raises(ProtocolAborted, match=message):
            parties.clients[0].share(KeyBook(tuple(change(keys))))

    share(lambda keys: keys[:1], "only 1 clients published keys")
    share(lambda keys: keys[1:], "without its own")
    share(lambda keys: [replace(keys[0], masking=keys[1].masking), *keys[1:]], "without its own")
    share(lambda keys: [*keys, keys[2]], "client 2 stands twice")
    low = bytes(32), b"\1" + bytes(31)  # points of low order
    share(lambda keys: [*keys[:2], Keys(2, *low)], "public key cannot be used")
    share(lambda keys: [*keys[:2], replace(keys[2], masking=keys[1].masking)], "a public key stands twice")
    share(
        lambda keys: [*keys, Keys(3, b"c" * 32, b"d" * 32)],
        "threshold of 2 is not above half of them; client 0 reveals",
    )


def test_a_client_notices_shares_that_were_changed_on_their_way() -> None:
    parties = Parties.of(vectors(3, 4), 2)
    deliveries = parties.deliveries()
    boxes = dict(deliveries[0].boxes)
    boxes[1], boxes[2] = boxes[2], boxes[1]  # as they are, but said to come from the other
    client = parties.clients[0]
    client.mask(Delivery(boxes))
    with pytest.raises(ProtocolAborted, match="from client 1 to client 0 were changed on their way"):
        client.reveal(Survivors((0, 1, 2)))


def test_a_client_refuses_shares_from_too_few_and_from_strangers() -> None:
    parties = Parties.of(vectors(4, 4), 3)
    boxes = parties.deliveries()
    with pytest.raises(ProtocolAborted, match="only 2 clients sent shares"):
        parties.clients[0].mask(Delivery({1: boxes[0].boxes[1]}))
    with pytest.raises(ProtocolAborted, match="published no keys"):
        parties.clients[1].mask(Delivery({**boxes[1].boxes, 9: boxes[0].boxes[1]}))


# What the server refuses.


def test_the_server_goes_through_the_steps_once() -> None:
    parties = Parties.of(vectors(3, 4), 2)
    with pytest.raises(ProtocolAborted, match="the server was asked for the step 'unmask' out of turn"):
        parties.server.unmask([])
    survivors = parties.survivors()
    parties.server.unmask([client.reveal(survivors) for client in parties.clients])
    with pytest.raises(ProtocolAborted, match="out of turn"):
        parties.server.unmask([])


def test_the_server_refuses_messages_that_came_twice_or_from_strangers() -> None:
    parties = Parties.of(vectors(3, 4), 2)
    keys = [client.advertise() for client in parties.clients]
    with pytest.raises(ProtocolAborted, match="client 0 stands twice in a message, or sent it twice"):
        Server(2, 4).publish([*keys, keys[0]])
    parties = Parties.of(vectors(3, 4), 2)
    masked = parties.masked()
    with pytest.raises(ProtocolAborted, match="client 8 sent a message for a step that it is not part of"):
        parties.server.collect([*masked, MaskedInput(8, masked[0].vector)])


def test_the_server_refuses_shares_that_do_not_go_to_exactly_the_others() -> None:
    parties = Parties.of(vectors(3, 4), 2)
    shares = parties.shares()
    boxes = dict(shares[0].boxes)
    del boxes[1]
    with pytest.raises(ProtocolAborted, match="client 0 did not send shares to exactly the others"):
        parties.server.route([replace(shares[0], boxes=boxes), *shares[1:]])


def test_the_server_refuses_vectors_of_another_length() -> None:
    parties = Parties.of(vectors(3, 4), 2)
    masked = parties.masked()
    with pytest.raises(ProtocolAborted, match="client 1 sent a vector of 15 bytes instead of 16"):
        parties.server.collect([masked[0], replace(masked[1], vector=masked[1].vector[:-1]), masked[2]])


def test_the_server_refuses_other_shares_than_it_asked_for() -> None:
    parties = Parties.of(vectors(4, 4), 3)
    survivors = parties.survivors(dropped=[3])
    revealed = [client.reveal(survivors) for client in parties.clients[:3]]
    both = replace(revealed[0], seeds={**revealed[0].seeds, 3: revealed[0].seeds[0]})
    with pytest.raises(ProtocolAborted, match="client 0 did not reveal exactly the shares"):
        parties.server.unmask([both, *revealed[1:]])


def test_the_server_notices_shares_of_a_mask_key_that_do_not_give_it() -> None:
    parties = Parties.of(vectors(4, 4), 3)
    survivors = parties.survivors(dropped=[3])
    revealed = [client.reveal(survivors) for client in parties.clients[:3]]
    wrong = replace(revealed[0], mask_keys={3: revealed[1].mask_keys[3]})
    with pytest.raises(ProtocolAborted, match=r"do not give its key|one secret"):
        parties.server.unmask([wrong, *revealed[1:]])


def test_an_abort_can_be_raised_again_as_simpy_does() -> None:
    error = ProtocolAborted("only 1 clients are left")
    assert str(type(error)(*error.args)) == "only 1 clients are left"
    assert error.exit_code == 1
