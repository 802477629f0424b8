"""Signatures against a server that forges, changes, withholds and replays them, or stands between the clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from secagg_parties import Parties, seeded, vectors

from devices.secagg.client import Client, point_of
from devices.secagg.errors import ProtocolAborted
from devices.secagg.identity import PUBLIC_KEYS, SURVIVORS, Identity, Membership
from devices.secagg.keys import MASKING, SEALING, KeyPair
from devices.secagg.mask import Words, expand
from devices.secagg.messages import Consents, Delivery, KeyBook, Keys, Survivors
from devices.secagg.sealing import open_box
from devices.secagg.session import memberships
from devices.secagg.shamir import basis, combine

LENGTH = 12
DTYPE = np.dtype("<u4")


# Signatures of survivors that are not what they should be.


@dataclass
class Signed:
    """Five clients that all signed the same list, and client 0, who is about to see the signatures."""

    parties: Parties
    survivors: Survivors
    signatures: dict[int, bytes]

    @classmethod
    def of(cls, members: Mapping[int, Membership], seed: int = 0) -> Signed:
        parties = Parties.of(vectors(5, LENGTH), 3, seed, members)
        survivors = parties.survivors()
        return cls(parties, survivors, {c.number: c.consent(survivors).signature for c in parties.clients})

    def refuses(self, signatures: Mapping[int, bytes] | None, message: str) -> None:
        client = self.parties.clients[0]
        with pytest.raises(ProtocolAborted, match=message):
            client.reveal(self.survivors, None if signatures is None else Consents(signatures))
        with pytest.raises(ProtocolAborted, match="out of turn"):  # nor later, with the right ones
            client.reveal(self.survivors, Consents(self.signatures))


def test_a_client_reveals_where_enough_signed_what_it_signed() -> None:
    signed = Signed.of(memberships(range(5), seeded(3)))
    few = {c: signed.signatures[c] for c in (1, 2, 4)}  # its own need not be among them
    assert set(signed.parties.clients[0].reveal(signed.survivors, Consents(few)).seeds) == set(range(5))


def test_a_client_refuses_signatures_that_are_forged_changed_missing_or_of_strangers() -> None:
    def signed() -> Signed:
        return Signed.of(memberships(range(5), seeded(3)))

    not_of_one = "a signature is not that of client 1"
    forger = Identity(seeded(9)(32))
    for forged in (forger.sign(SURVIVORS), bytes(64), b"", b"short"):
        one = signed()
        one.refuses({**one.signatures, 1: forged}, not_of_one)
    one = signed()
    changed = bytes([one.signatures[1][0] ^ 1]) + one.signatures[1][1:]
    one.refuses({**one.signatures, 1: changed}, not_of_one)
    one = signed()
    one.refuses({**one.signatures, 1: one.signatures[2]}, not_of_one)  # of another, who did sign
    one = signed()
    one.refuses({**one.signatures, 1: one.parties.clients[1]._keys.signature}, not_of_one)  # for another purpose
    one = signed()
    one.refuses({c: one.signatures[c] for c in (0, 1)}, "only 2 clients signed the list of survivors")
    one = signed()
    one.refuses({}, "only 0 clients signed")
    signed().refuses(None, "was not given the signatures of the list that it signed")
    one = signed()
    one.refuses({**one.signatures, 9: one.signatures[1]}, "was not given the signatures")


def test_a_client_refuses_another_list_than_it_signed() -> None:
    parties = Parties.of(vectors(5, LENGTH), 3, members=memberships(range(5), seeded(3)))
    parties.survivors()
    first, second = Survivors((0, 1, 2, 3, 4)), Survivors((0, 1, 2, 3))
    parties.clients[0].consent(first)
    signatures = {client.number: client.consent(second).signature for client in parties.clients[1:4]}
    with pytest.raises(ProtocolAborted, match="was not given the signatures of the list that it signed"):
        parties.clients[0].reveal(second, Consents(signatures))


def test_signatures_of_another_run_are_refused() -> None:
    members = memberships(range(5), seeded(3))
    other = {c: replace(member, session=b"s" * 32) for c, member in members.items()}
    old = Signed.of(members, seed=1).signatures
    now = Signed.of(other, seed=2)
    now.refuses({**now.signatures, 1: old[1]}, "a signature is not that of client 1")
    # Even where a session comes again, because the keys of each run are new.
    now = Signed.of(members, seed=2)
    now.refuses({**now.signatures, 1: old[1]}, "a signature is not that of client 1")


def test_the_consistency_check_has_its_turn() -> None:
    parties = Parties.of(vectors(3, LENGTH), 2)
    survivors = parties.survivors()
    with pytest.raises(ProtocolAborted, match="client 0 was asked for the step 'consistency' out of turn"):
        parties.clients[0].consent(survivors)
    with pytest.raises(ProtocolAborted, match="the server was asked for the step 'consistency' out of turn"):
        parties.server.confirm([])
    parties = Parties.of(vectors(3, LENGTH), 2, members=memberships(range(3), seeded(3)))
    survivors = parties.survivors()
    with pytest.raises(ProtocolAborted, match="the step 'unmask' out of turn"):
        parties.clients[0].reveal(survivors)
    consents = parties.server.confirm([client.consent(survivors) for client in parties.clients[:2]])
    with pytest.raises(ProtocolAborted, match="out of turn"):
        parties.clients[0].consent(survivors)
    revealed = [client.reveal(survivors, consents) for client in parties.clients[:2]]
    with pytest.raises(ProtocolAborted, match="client 2 sent a message for a step that it is not part of"):
        parties.server.unmask([*revealed, replace(revealed[0], client=2)])


# A server that stands between the clients from the first step on.


def man_in_the_middle(clients: Sequence[Client], victim: int) -> Words:
    """The server gives the victim its own keys as those of all others, and takes off every mask."""
    published = {client.number: client.advertise() for client in clients}
    sealing, masking = ({c: KeyPair(seeded(100 * k + c)(32)) for c in published} for k in (1, 2))
    false = [Keys(c, sealing[c].public, masking[c].public, published[c].signature) for c in published]
    own = published[victim]
    shares = clients[victim].share(KeyBook(tuple(own if keys.client == victim else keys for keys in false)))
    held = {
        point_of(c): open_box(sealing[c].agree(own.sealing, SEALING), victim, c, box) for c, box in shares.boxes.items()
    }
    message = clients[victim].mask(Delivery(shares.boxes))
    found = np.frombuffer(message.vector, DTYPE).copy()
    found -= expand(combine({x: seed for x, (_, seed) in held.items()}, basis(held)), LENGTH, DTYPE)
    for c in shares.boxes:
        stream = expand(masking[c].agree(own.masking, MASKING), LENGTH, DTYPE)
        found += -stream if victim < c else stream
    return found


def test_without_signatures_a_server_may_stand_between_all_clients() -> None:
    inputs = vectors(4, LENGTH)
    assert (man_in_the_middle(Parties.of(inputs, 3).clients, 1) == inputs[1]).all()
    signing = Parties.of(inputs, 3, members=memberships(range(4), seeded(4))).clients
    with pytest.raises(ProtocolAborted, match="a signature is not that of client 0"):
        man_in_the_middle(signing, 1)


def test_a_client_refuses_keys_that_others_did_not_sign_for_this_run() -> None:
    members = memberships(range(4), seeded(4))
    old = (
        Parties.of(vectors(4, LENGTH), 3, 7, {c: replace(m, session=b"s" * 32) for c, m in members.items()}).book().keys
    )

    def refuses(change: Callable[[Keys], Keys], message: str) -> None:
        parties = Parties.of(vectors(4, LENGTH), 3, 8, members)
        keys = parties.book().keys
        with pytest.raises(ProtocolAborted, match=message):
            parties.clients[0].share(KeyBook((*keys[:3], change(keys[3]))))

    not_of_three, own = "a signature is not that of client 3", KeyPair(seeded(5)(32)).public
    refuses(lambda keys: replace(keys, masking=own), not_of_three)
    refuses(lambda keys: replace(keys, sealing=own), not_of_three)
    refuses(lambda keys: replace(keys, sealing=keys.masking, masking=keys.sealing), not_of_three)
    refuses(lambda keys: replace(keys, signature=b""), not_of_three)
    refuses(lambda keys: replace(keys, signature=Identity(seeded(6)(32)).sign(keys.content)), not_of_three)
    refuses(lambda keys: old[3], not_of_three)  # signed, but for another run
    refuses(lambda keys: replace(keys, client=9), "nobody knows the identity of client 9")
    # A client that the server invented, with keys that it signed itself.
    invented = replace(members[3], identity=Identity(seeded(7)(32)))
    unsigned = Keys(9, own, KeyPair(seeded(8)(32)).public)
    signed = replace(unsigned, signature=invented.sign(PUBLIC_KEYS, unsigned.content))
    refuses(lambda keys: signed, "nobody knows the identity of client 9")


def test_a_session_has_its_length() -> None:
    with pytest.raises(ValueError, match="a session has 32 bytes, not 4"):
        Membership(b"four", Identity(seeded(0)(32)), {})


def test_a_signature_is_for_one_purpose_and_one_key() -> None:
    member = memberships([0], seeded(0))[0]
    member.verify(0, member.sign(SURVIVORS, b"x"), SURVIVORS, b"x")
    with pytest.raises(ProtocolAborted, match="a signature is not that of client 0"):
        member.verify(0, member.sign(PUBLIC_KEYS, b"x"), SURVIVORS, b"x")
    with pytest.raises(ProtocolAborted, match="a signature is not that of client 0"):  # no key at all
        replace(member, known={0: b"short"}).verify(0, member.sign(SURVIVORS, b""), SURVIVORS, b"")
