"""Parties of secure aggregation for tests: with randomness that can be repeated, and taken step by step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from devices.secagg.client import Client
from devices.secagg.identity import Membership
from devices.secagg.mask import Words
from devices.secagg.messages import Delivery, KeyBook, MaskedInput, Shares, Survivors
from devices.secagg.server import Server
from devices.secagg.shamir import Random
from devices.secagg.steps import Adversary


def seeded(seed: int) -> Random:
    """Bytes that look random and are the same again."""
    return np.random.default_rng(seed).bytes


def vectors(clients: int, length: int, seed: int = 0, bits: int = 32) -> list[Words]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 2**bits, length, dtype=f"u{bits // 8}") for _ in range(clients)]


@dataclass
class Parties:
    """Clients 0, 1, 2, ... and a server that went through some steps; with ``members``, against an active adversary."""

    clients: list[Client]
    server: Server

    @classmethod
    def of(
        cls, inputs: list[Words], threshold: int, seed: int = 0, members: Mapping[int, Membership] | None = None
    ) -> Parties:
        known = members or {}
        clients = [
            Client(i, x, threshold, random=seeded(1000 * seed + i), membership=known.get(i))
            for i, x in enumerate(inputs)
        ]
        adversary: Adversary = "active" if members else "passive"
        return cls(clients, Server(threshold, len(inputs[0]), 8 * inputs[0].itemsize, adversary))

    def book(self) -> KeyBook:
        return self.server.publish([client.advertise() for client in self.clients])

    def shares(self) -> list[Shares]:
        book = self.book()
        return [client.share(book) for client in self.clients]

    def deliveries(self) -> dict[int, Delivery]:
        return self.server.route(self.shares())

    def masked(self) -> list[MaskedInput]:
        deliveries = self.deliveries()
        return [client.mask(deliveries[client.number]) for client in self.clients]

    def survivors(self, dropped: Collection[int] = ()) -> Survivors:
        return self.server.collect([message for message in self.masked() if message.client not in dropped])
