"""A client: holds a vector, and hands out only what hides it.

Its methods are called once each and in the order of the steps: `advertise`, `share`, `mask`, `reveal`; against an active
adversary `consent` comes before `reveal`. A client that is asked out of turn, or for something that the protocol does not
allow, raises `ProtocolAborted` and gives nothing; so the server gets a share of the seed or of the mask key of any client, and
never of both.
"""

from __future__ import annotations

import os
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np

from devices.secagg import shamir
from devices.secagg.encoding import Encoding
from devices.secagg.errors import ProtocolAborted
from devices.secagg.identity import PUBLIC_KEYS, SURVIVORS, Membership
from devices.secagg.keys import KEY_BYTES, MASKING, SEALING, KeyPair
from devices.secagg.mask import Words, expand, word_type
from devices.secagg.messages import (
    MAX_CLIENT,
    Consent,
    Consents,
    Delivery,
    KeyBook,
    Keys,
    MaskedInput,
    Revealed,
    Shares,
    Survivors,
    unique,
)
from devices.secagg.sealing import open_box, seal
from devices.secagg.shamir import Random, least_threshold, split
from devices.secagg.steps import CONSISTENCY, KEYS, MASKED, SHARES, UNMASK, Step, steps_of


def point_of(client: int) -> int:
    """Where the polynomials of the secret sharing have their values for a client (not at 0, where the secret is)."""
    return client + 1


class Client:
    """One client in one run; another run needs a new one, because no key may serve twice.

    ``vector`` holds unsigned integers of 16, 32 or 64 bits, which are summed modulo 2^16, 2^32 or 2^64; or real numbers, where
    there is an ``encoding`` for them. With a ``membership`` it trusts the server with nothing that others did not sign (the
    active adversary). Raises ``ValueError`` for a number, a vector or a threshold that cannot be.
    """

    _sealing: KeyPair  # these are made in the first step
    _masking: KeyPair
    _keys: Keys

    def __init__(
        self,
        number: int,
        vector: np.ndarray[Any, Any],
        threshold: int,
        encoding: Encoding | None = None,
        random: Random = os.urandom,
        membership: Membership | None = None,
    ) -> None:
        if not 0 <= number <= MAX_CLIENT:
            raise ValueError(f"a client's number must be between 0 and {MAX_CLIENT}, not {number}")
        if vector.ndim != 1 or (encoding is None and vector.dtype != word_type(8 * vector.itemsize)):
            raise ValueError(
                "a client's vector must have one dimension and hold unsigned integers of 16, 32 or 64 bits"
            )
        if threshold < 2:
            raise ValueError(f"threshold must be at least 2, not {threshold}: with 1, a share is the secret itself")
        self.number = number
        self._vector = vector
        self._threshold = threshold
        self._encoding = encoding
        self._random = random
        self._membership = membership
        self._steps = steps_of("active" if membership else "passive")
        self._next = 0  # the step that may be asked for
        self._seed = random(shamir.SECRET_BYTES)
        self._book: dict[int, Keys] = {}
        self._seal_keys: dict[int, bytes] = {}
        self._own_shares: tuple[bytes, bytes] = (b"", b"")
        self._boxes: dict[int, bytes] = {}
        self._consented: set[int] = set()  # the survivors that it signed

    def advertise(self) -> Keys:
        """Step 1: the public keys."""
        self._turn(KEYS)
        self._sealing = KeyPair(self._random(KEY_BYTES))
        self._masking = KeyPair(self._random(KEY_BYTES))
        unsigned = Keys(self.number, self._sealing.public, self._masking.public)
        self._keys = replace(unsigned, signature=self._signature(PUBLIC_KEYS, unsigned.content))
        return self._keys

    def share(self, book: KeyBook) -> Shares:
        """Step 2: shares of the private mask key and of the seed, for each client in the book."""
        self._turn(SHARES)
        clients = unique(keys.client for keys in book.keys)
        self._enough(clients, "published keys")
        if self._threshold < least_threshold(len(clients)):
            raise ProtocolAborted(
                f"{len(clients)} clients published keys, and the threshold of {self._threshold} is not above half of "
                f"them; client {self.number} reveals nothing"
            )
        if self._keys not in book.keys:
            raise ProtocolAborted(f"client {self.number} was given a list of keys without its own")
        if len({key for keys in book.keys for key in (keys.sealing, keys.masking)}) < 2 * len(clients):
            raise ProtocolAborted("a public key stands twice in the list of keys; masks of its owners could cancel")
        if self._membership:
            for keys in book.keys:
                if keys.client != self.number:
                    self._membership.verify(keys.client, keys.signature, PUBLIC_KEYS, keys.content)
        self._book = {keys.client: keys for keys in book.keys}
        points = [point_of(client) for client in self._book]
        mask_key = split(self._masking.private, self._threshold, points, self._random)
        seed = split(self._seed, self._threshold, points, self._random)
        boxes = {}
        for client, keys in self._book.items():
            shares = mask_key[point_of(client)], seed[point_of(client)]
            if client == self.number:
                self._own_shares = shares
            else:
                self._seal_keys[client] = self._sealing.agree(keys.sealing, SEALING)
                boxes[client] = seal(self._seal_keys[client], self.number, client, *shares)
        return Shares(self.number, boxes)

    def mask(self, delivery: Delivery) -> MaskedInput:
        """Step 3: the vector, masked by its own seed and by the key shared with each client that sent shares."""
        self._turn(MASKED)
        if not set(delivery.boxes) <= set(self._seal_keys):
            raise ProtocolAborted(f"client {self.number} was given shares from somebody who published no keys")
        self._enough({self.number, *delivery.boxes}, "sent shares")
        self._boxes = dict(delivery.boxes)
        words: Words = self._vector if self._encoding is None else self._encoding.encode(self._vector)
        length, dtype = len(words), words.dtype
        masked = words + expand(self._seed, length, dtype)
        for client in self._boxes:
            stream = expand(self._masking.agree(self._book[client].masking, MASKING), length, dtype)
            if self.number < client:  # one of the two adds what the other takes away
                masked += stream
            else:
                masked -= stream
        return MaskedInput(self.number, masked.tobytes())

    def consent(self, survivors: Survivors) -> Consent:
        """The consistency check, against an active adversary: a signature of the clients whose vectors arrived."""
        self._turn(CONSISTENCY)
        self._consented = self._alive(survivors)
        return Consent(self.number, self._signature(SURVIVORS, self._seen()))

    def reveal(self, survivors: Survivors, consents: Consents | None = None) -> Revealed:
        """Step 4: a share of the seed of each client whose vector arrived, of the mask key of each that dropped out.

        Against an active adversary, only where at least as many as the threshold signed that they were given the same list.
        """
        self._turn(UNMASK)
        alive = self._alive(survivors)
        if self._membership:
            self._check(alive, consents, self._membership)
        seeds, mask_keys = {}, {}
        for client in sorted({self.number, *self._boxes}):
            mask_key, seed = self._shares_of(client)
            if client in alive:
                seeds[client] = seed
            else:
                mask_keys[client] = mask_key
        return Revealed(self.number, seeds, mask_keys)

    def _signature(self, purpose: bytes, content: bytes) -> bytes:
        return self._membership.sign(purpose, content) if self._membership else b""

    def _alive(self, survivors: Survivors) -> set[int]:
        """The clients whose vectors are said to have arrived."""
        alive = unique(survivors.clients)
        if not alive <= {self.number, *self._boxes} or self.number not in alive:
            raise ProtocolAborted(f"client {self.number} was given a list of clients that cannot be right")
        self._enough(alive, "sent masked vectors")
        return alive

    def _seen(self) -> bytes:
        """What clients sign: the survivors, and all public keys, which are new in each run."""
        book = sha256(b"".join(self._book[client].content for client in sorted(self._book))).digest()
        return book + Survivors(tuple(sorted(self._consented))).pack()

    def _check(self, alive: set[int], consents: Consents | None, membership: Membership) -> None:
        """Whether enough of the survivors saw the list that this client saw."""
        if consents is None or alive != self._consented or not set(consents.signatures) <= alive:
            raise ProtocolAborted(f"client {self.number} was not given the signatures of the list that it signed")
        self._enough(set(consents.signatures), "signed the list of survivors")
        seen = self._seen()
        for client, signature in consents.signatures.items():
            membership.verify(client, signature, SURVIVORS, seen)

    def _shares_of(self, client: int) -> tuple[bytes, bytes]:
        if client == self.number:
            return self._own_shares
        return open_box(self._seal_keys[client], client, self.number, self._boxes[client])

    def _turn(self, step: Step) -> None:
        """Goes on to ``step``. A step that fails is not tried again: its message may have been made to extract more."""
        if self._next >= len(self._steps) or self._steps[self._next] != step:
            raise ProtocolAborted(f"client {self.number} was asked for the step '{step}' out of turn")
        self._next += 1

    def _enough(self, clients: set[int], what: str) -> None:
        if len(clients) < self._threshold:
            raise ProtocolAborted(
                f"only {len(clients)} clients {what}, fewer than the threshold of {self._threshold}; "
                f"client {self.number} reveals nothing"
            )
