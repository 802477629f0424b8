"""A server that does not follow the protocol: what it learns where nothing stops it, and what stops it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secagg_parties import Parties, seeded, vectors

from devices.secagg import client as client_module
from devices.secagg import server as server_module
from devices.secagg.client import Client, point_of
from devices.secagg.errors import ProtocolAborted
from devices.secagg.identity import SURVIVORS, Membership
from devices.secagg.keys import MASKING, KeyPair
from devices.secagg.mask import Words, expand
from devices.secagg.messages import Consents, Delivery, KeyBook, Revealed, Survivors
from devices.secagg.session import memberships, run
from devices.secagg.shamir import basis, combine, least_threshold

LENGTH = 12
DTYPE = np.dtype("<u4")
EVERYBODY = tuple(range(6))


@dataclass
class Liar:
    """All that a server has seen: masked vectors, public keys, every share that it got, and the keys of conspirators."""

    threshold: int
    public: Mapping[int, bytes]  # of the masks, by client
    masked: Mapping[int, Words]
    seeds: dict[int, dict[int, bytes]] = field(default_factory=dict)  # shares by client and by point
    mask_keys: dict[int, dict[int, bytes]] = field(default_factory=dict)
    given: dict[int, KeyPair] = field(default_factory=dict)  # of the masks, by conspirator

    @classmethod
    def of(cls, parties: Parties, threshold: int, shares_for_0: Collection[int] = ()) -> Liar:
        """A server up to the masked vectors; where ``shares_for_0`` are given, client 0 gets the shares of those alone."""
        deliveries = parties.deliveries()
        if shares_for_0:
            deliveries[0] = Delivery({c: deliveries[0].boxes[c] for c in shares_for_0})
        sent = [client.mask(deliveries[client.number]) for client in parties.clients]
        public = {client.number: client._masking.public for client in parties.clients}
        return cls(threshold, public, {m.client: np.frombuffer(m.vector, DTYPE) for m in sent})

    def hear(self, helper: int, seeds: Mapping[int, bytes], mask_keys: Mapping[int, bytes]) -> None:
        for owner, share in seeds.items():
            self.seeds.setdefault(owner, {})[point_of(helper)] = share
        for owner, share in mask_keys.items():
            self.mask_keys.setdefault(owner, {})[point_of(helper)] = share

    def ask(self, clients: Iterable[Client], reveal: Callable[[Client], Revealed]) -> list[Revealed]:
        """Asks all of them for shares; those that go no further give none."""
        heard = []
        for client in clients:
            try:
                heard.append(reveal(client))
            except ProtocolAborted:
                continue
            self.hear(client.number, heard[-1].seeds, heard[-1].mask_keys)
        return heard

    def sum_of(self, targets: Collection[int], among: Collection[int] = ()) -> Words | None:
        """The sum of these clients' vectors; None where the shares do not give it.

        ``among`` are those whom the targets have masks in common with, where not with everybody.
        """
        total = np.zeros(LENGTH, DTYPE)
        for one in targets:
            seed = self._secret(self.seeds, one)
            if seed is None:
                return None
            total += self.masked[one] - expand(seed, LENGTH, DTYPE)
            for other in set(among or self.masked) - set(targets):
                stream = self._mask_between(one, other)
                if stream is None:
                    return None
                total += -stream if one < other else stream
        return total

    def _mask_between(self, one: int, other: int) -> Words | None:
        for owner, peer in ((one, other), (other, one)):
            private = self._secret(self.mask_keys, owner)
            pair = self.given.get(owner) if private is None else KeyPair(private)
            if pair is not None:
                return expand(pair.agree(self.public[peer], MASKING), LENGTH, DTYPE)
        return None

    def _secret(self, shares: Mapping[int, Mapping[int, bytes]], owner: int) -> bytes | None:
        held = shares.get(owner, {})
        return combine(held, basis(list(held)[: self.threshold])) if len(held) >= self.threshold else None


def split_in_halves(inputs: list[Words], threshold: int, members: Mapping[int, Membership] | None = None) -> Liar:
    """The server tells clients 0, 1 and 2 that everybody is there, and clients 3, 4 and 5 that client 0 dropped out."""
    parties = Parties.of(inputs, threshold, members=members)
    liar = Liar.of(parties, threshold)
    whole, without = Survivors(EVERYBODY), Survivors(EVERYBODY[1:])
    told = {c: whole if c < 3 else without for c in EVERYBODY}
    if members is None:
        liar.ask(parties.clients, lambda client: client.reveal(told[client.number]))
        return liar
    signatures = {client.number: client.consent(told[client.number]).signature for client in parties.clients}
    for client in parties.clients:  # whichever signatures it passes on: nobody goes on
        side = [c for c in EVERYBODY if (c < 3) == (client.number < 3)]
        alike = Consents({c: signatures[c] for c in side})
        mixed = Consents({c: signatures[c] for c in told[client.number].clients})
        with pytest.raises(ProtocolAborted, match=r"only 3 clients signed|is not that of client"):
            client.reveal(told[client.number], alike if client.number % 2 else mixed)
    return liar


def test_with_a_threshold_of_half_the_clients_a_server_learns_a_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (client_module, server_module):  # as if nobody asked for more than half
        monkeypatch.setattr(module, "least_threshold", lambda clients: 2)
    inputs = vectors(6, LENGTH)
    found = split_in_halves(inputs, threshold=3).sum_of([0])
    assert found is not None
    assert (found == inputs[0]).all()


def test_a_threshold_of_half_the_clients_is_refused_before_anything_is_shared() -> None:
    with pytest.raises(ValueError, match="above half of the 6 clients"):
        run(vectors(6, LENGTH), 3)
    parties = Parties.of(vectors(6, LENGTH), 3)
    book = KeyBook(tuple(client.advertise() for client in parties.clients))
    for client in parties.clients:  # whatever the server lets pass
        with pytest.raises(ProtocolAborted, match="the threshold of 3 is not above half of them"):
            client.share(book)


def test_above_half_the_same_lie_gives_nobodys_vector() -> None:
    liar = split_in_halves(vectors(6, LENGTH), threshold=4)
    assert all(liar.sum_of([c]) is None for c in EVERYBODY)
    assert (len(liar.seeds[0]), len(liar.mask_keys[0])) == (3, 3)  # one short of either, whoever reveals what


def lists_for(data: st.DataObject, count: int, threshold: int, choices: int) -> dict[int, Survivors]:
    """A list of survivors for each client: one of a few, as long as they must be, and with itself."""
    names = st.sets(st.integers(0, count - 1), min_size=threshold)
    few = [data.draw(names, "survivors") for _ in range(choices)]
    told = (few[data.draw(st.integers(0, choices - 1), f"told to {c}")] for c in range(count))
    return {c: Survivors(tuple(sorted({c, *survivors}))) for c, survivors in enumerate(told)}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_survivors_a_server_names_it_learns_nobodys_vector(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 7), "clients")
    threshold = data.draw(st.integers(least_threshold(count), count), "threshold")
    told = lists_for(data, count, threshold, choices=count)
    parties = Parties.of(vectors(count, LENGTH), threshold)
    liar = Liar.of(parties, threshold)
    heard = liar.ask(parties.clients, lambda client: client.reveal(told[client.number]))
    assert len(heard) == count
    assert all(liar.sum_of([c]) is None for c in range(count))


# Whom the server names as dropped to each client: clients 3, 4 and 5 to four each.
GONE = {0: (3, 4), 1: (4, 5), 2: (3, 5), 3: (4, 5), 4: (3, 5), 5: (3, 4)}


def test_without_signatures_a_server_learns_sums_of_fewer_than_the_threshold() -> None:
    """What `adversary: active` is for: above half of the clients, single vectors are safe, but sums may be of few."""
    inputs = vectors(6, LENGTH)
    told = {c: Survivors(tuple(sorted(set(EVERYBODY) - set(gone)))) for c, gone in GONE.items()}
    parties = Parties.of(inputs, 4)
    liar = Liar.of(parties, 4)
    liar.ask(parties.clients, lambda client: client.reveal(told[client.number]))
    found = liar.sum_of([0, 1, 2])
    assert found is not None
    assert (found == inputs[0] + inputs[1] + inputs[2]).all()

    parties = Parties.of(inputs, 4, members=memberships(EVERYBODY, seeded(1)))
    liar = Liar.of(parties, 4)
    signatures = {client.number: client.consent(told[client.number]).signature for client in parties.clients}
    heard = liar.ask(
        parties.clients,
        lambda client: client.reveal(
            told[client.number], Consents({c: signatures[c] for c in told[client.number].clients})
        ),
    )
    assert heard == []


def test_without_signatures_a_server_that_also_lies_about_shares_learns_a_vector() -> None:
    """Client 0 is told that 1, 2 and 3 alone sent shares; all others, that as many of these as they believe dropped out."""
    inputs, everybody = vectors(7, LENGTH), set(range(7))
    told = {c: Survivors(tuple(sorted(everybody - ({1, 2, 3} - {c})))) for c in everybody} | {
        0: Survivors((0, 1, 2, 3))
    }
    parties = Parties.of(inputs, 4)
    liar = Liar.of(parties, 4, shares_for_0=(1, 2, 3))
    liar.ask(parties.clients, lambda client: client.reveal(told[client.number]))
    found = liar.sum_of([0], among=(1, 2, 3))
    assert found is not None
    assert (found == inputs[0]).all()

    parties = Parties.of(inputs, 4, members=memberships(range(7), seeded(1)))
    liar = Liar.of(parties, 4, shares_for_0=(1, 2, 3))
    signatures = {client.number: client.consent(told[client.number]).signature for client in parties.clients}
    fitting = {c: {o: signatures[o] for o in told[c].clients if told[o] == told[c]} for c in everybody}
    assert (
        liar.ask(parties.clients, lambda client: client.reveal(told[client.number], Consents(fitting[client.number])))
        == []
    )


def test_with_signatures_the_same_lie_makes_everybody_abort() -> None:
    liar = split_in_halves(vectors(6, LENGTH), threshold=4, members=memberships(EVERYBODY, seeded(1)))
    assert (liar.seeds, liar.mask_keys) == ({}, {})


def conspire(
    inputs: list[Words], threshold: int, told: Mapping[int, Survivors], conspirators: Collection[int]
) -> tuple[Liar, set[tuple[int, ...]]]:
    """The best that a server can do with clients that sign whatever it likes and hand over the shares that they hold.

    Every other client is given all signatures that fit its list. Returns what the server has, and the lists that clients
    revealed shares for.
    """
    members = memberships(range(len(inputs)), seeded(2))
    parties = Parties.of(inputs, threshold, members=members)
    liar = Liar.of(parties, threshold)
    honest = [client for client in parties.clients if client.number not in conspirators]
    signed = {client.number: client.consent(told[client.number]).signature for client in honest}

    def reveal(client: Client) -> Revealed:
        survivors, fitting = told[client.number], {}
        for c in survivors.clients:
            if c in conspirators:
                fitting[c] = members[c].sign(SURVIVORS, client._seen())
            elif told[c] == survivors:
                fitting[c] = signed[c]
        return client.reveal(survivors, Consents(fitting))

    heard = liar.ask(honest, reveal)
    for c in conspirators:
        liar.given[c] = parties.clients[c]._masking
        shares = {owner: parties.clients[c]._shares_of(owner) for owner in range(len(inputs))}
        liar.hear(c, {o: seed for o, (_, seed) in shares.items()}, {o: key for o, (key, _) in shares.items()})
    return liar, {told[message.client].clients for message in heard}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_up_to_twice_the_threshold_less_all_clients_conspire_in_vain(data: st.DataObject) -> None:
    """Fewer than 2 t - n conspirators: all shares that are revealed are for one list."""
    count = data.draw(st.integers(2, 8), "clients")
    threshold = data.draw(st.integers(least_threshold(count), count), "threshold")
    number = data.draw(st.integers(0, 2 * threshold - count - 1), "conspirators")
    told = lists_for(data, count, threshold, choices=2)
    inputs = vectors(count, LENGTH)
    liar, finished = conspire(inputs, threshold, told, range(number))
    assert len(finished) <= 1
    honest = set(range(number, count))
    summed = [honest & set(survivors) for survivors in finished]
    # What the server learns is the sum over the honest clients of that list; of one client where it holds no other.
    for c in honest:
        assert (liar.sum_of([c]) is not None) == (summed == [{c}])
    for clients in summed:
        assert len(clients) >= threshold - number
        found = liar.sum_of(clients)
        assert found is not None
        assert (found == sum((inputs[c] for c in clients), np.zeros(LENGTH, DTYPE))).all()


def test_one_conspirator_more_is_too_many() -> None:
    inputs, conspirators = vectors(6, LENGTH), (4, 5)  # 2 t - n of them
    told = {c: Survivors(EVERYBODY if c < 2 else EVERYBODY[1:]) for c in EVERYBODY}
    liar, finished = conspire(inputs, 4, told, conspirators)
    assert len(finished) == 2
    found = liar.sum_of([0])
    assert found is not None
    assert (found == inputs[0]).all()
