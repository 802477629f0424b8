"""A client: holds a vector, and hands out only what hides it.

Its methods are called once each and in the order of the steps: `advertise`, `share`, `mask`, `reveal`. A client that is
asked out of turn, or for something that the protocol does not allow, raises `ProtocolAborted` and gives nothing; so the
server gets a share of the seed or of the mask key of any client, and never of both.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from devices.secagg import shamir
from devices.secagg.encoding import Encoding
from devices.secagg.errors import ProtocolAborted
from devices.secagg.keys import KEY_BYTES, MASKING, SEALING, KeyPair
from devices.secagg.mask import Words, expand, word_type
from devices.secagg.messages import (
    MAX_CLIENT,
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
from devices.secagg.shamir import Random, split
from devices.secagg.steps import KEYS, MASKED, SHARES, STEPS, UNMASK, Step


def point_of(client: int) -> int:
    """Where the polynomials of the secret sharing have their values for a client (not at 0, where the secret is)."""
    return client + 1


class Client:
    """One client in one run; another run needs a new one, because no key may serve twice.

    ``vector`` holds unsigned integers of 16, 32 or 64 bits, which are summed modulo 2^16, 2^32 or 2^64; or real numbers, where
    there is an ``encoding`` for them. Raises ``ValueError`` for a number, a vector or a threshold that cannot be.
    """

    _sealing: KeyPair  # both are made in the first step
    _masking: KeyPair

    def __init__(
        self,
        number: int,
        vector: np.ndarray[Any, Any],
        threshold: int,
        encoding: Encoding | None = None,
        random: Random = os.urandom,
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
        self._next = 0  # the step that may be asked for
        self._seed = random(shamir.SECRET_BYTES)
        self._book: dict[int, Keys] = {}
        self._seal_keys: dict[int, bytes] = {}
        self._own_shares: tuple[bytes, bytes] = (b"", b"")
        self._boxes: dict[int, bytes] = {}

    def advertise(self) -> Keys:
        """Step 1: the public keys."""
        self._turn(KEYS)
        self._sealing = KeyPair(self._random(KEY_BYTES))
        self._masking = KeyPair(self._random(KEY_BYTES))
        return self._keys()

    def share(self, book: KeyBook) -> Shares:
        """Step 2: shares of the private mask key and of the seed, for each client in the book."""
        self._turn(SHARES)
        clients = unique(keys.client for keys in book.keys)
        self._enough(clients, "published keys")
        if self._keys() not in book.keys:
            raise ProtocolAborted(f"client {self.number} was given a list of keys without its own")
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

    def reveal(self, survivors: Survivors) -> Revealed:
        """Step 4: a share of the seed of each client whose vector arrived, of the mask key of each that dropped out."""
        self._turn(UNMASK)
        alive = unique(survivors.clients)
        members = {self.number, *self._boxes}
        if not alive <= members or self.number not in alive:
            raise ProtocolAborted(f"client {self.number} was given a list of clients that cannot be right")
        self._enough(alive, "sent masked vectors")
        seeds, mask_keys = {}, {}
        for client in sorted(members):
            mask_key, seed = self._shares_of(client)
            if client in alive:
                seeds[client] = seed
            else:
                mask_keys[client] = mask_key
        return Revealed(self.number, seeds, mask_keys)

    def _keys(self) -> Keys:
        return Keys(self.number, self._sealing.public, self._masking.public)

    def _shares_of(self, client: int) -> tuple[bytes, bytes]:
        if client == self.number:
            return self._own_shares
        return open_box(self._seal_keys[client], client, self.number, self._boxes[client])

    def _turn(self, step: Step) -> None:
        """Goes on to ``step``. A step that fails is not tried again: its message may have been made to extract more."""
        if self._next >= len(STEPS) or STEPS[self._next] != step:
            raise ProtocolAborted(f"client {self.number} was asked for the step '{step}' out of turn")
        self._next += 1

    def _enough(self, clients: set[int], what: str) -> None:
        if len(clients) < self._threshold:
            raise ProtocolAborted(
                f"only {len(clients)} clients {what}, fewer than the threshold of {self._threshold}; "
                f"client {self.number} reveals nothing"
            )
