"""Totals as pure functions of ledger rows: bytes by hop, cost in client-seconds, energy of the clients.

Cost is S2 Eq. 5: over all clients, the seconds that they spend in training and in group operations. It is a sum over
clients, not a span of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from devices.profile import Power
from emulator.ledger import COMPUTE, GROUP_OPERATION, HOPS, TRANSFER, Ledger, Row, Tag


@dataclass
class Totals:
    """Sums over rows. ``extra_energy_j`` is what the clients drew above their idle power."""

    bytes_by_hop: dict[str, int] = field(default_factory=lambda: dict.fromkeys(HOPS, 0))
    cost_training_s: float = 0.0
    cost_group_s: float = 0.0
    extra_energy_j: float = 0.0

    @property
    def bytes_total(self) -> int:
        """Bytes over all hops."""
        return sum(self.bytes_by_hop.values())

    @property
    def cost_s(self) -> float:
        """Client-seconds of training and group operations."""
        return self.cost_training_s + self.cost_group_s


def totals_of(rows: Iterable[Row], clients: Mapping[str, Power]) -> Totals:
    """The totals of all these rows. ``clients`` gives the power states of every client by name; other nodes are not charged."""
    ledger = Ledger()
    for row in rows:
        tag = Tag(row.what, row.round, row.group, row.group_round)
        ledger.add(row.kind, row.who, row.start_s, row.end_s, tag, row.peer, row.bytes, row.samples, row.hop)
    return Meter(ledger, clients).totals()


class Meter:
    """Running totals of a ledger that still grows: each reading adds only the rows that are new since the last one.

    Sums go row by row, so that they do not depend in a single bit on when they are read.
    """

    def __init__(self, ledger: Ledger, clients: Mapping[str, Power]) -> None:
        self._ledger = ledger
        self._clients = clients
        self._read = 0
        self._totals = Totals()
        self._idle_w = sum(p.idle for p in clients.values())
        # By the number of a node's name: whether it is a client, and what sending, receiving and computing add to its idle power.
        self._charged = np.zeros(0, bool)
        self._extra_w = np.zeros((3, 0))
        ledger.before_spill = self._before_spill

    def _before_spill(self) -> None:
        self.totals()
        self._read = 0

    def totals(self) -> Totals:
        """The totals of all rows so far."""
        rows = self._ledger.packed[self._read :]
        if len(rows):
            self._know_all()
            self._add(rows)
            self._read += len(rows)
        return self._totals

    def _know_all(self) -> None:
        """Looks up the names that are new."""
        powers = [self._clients.get(name) for name in self._ledger.texts[len(self._charged) :]]
        if powers:
            extra = [
                (p.send - p.idle, p.receive - p.idle, p.compute - p.idle) if p else (0.0, 0.0, 0.0) for p in powers
            ]
            self._charged = np.append(self._charged, [p is not None for p in powers])
            self._extra_w = np.append(self._extra_w, np.array(extra).T, axis=1)

    def _add(self, rows: np.ndarray) -> None:
        totals, number = self._totals, self._ledger.number
        send_w, receive_w, compute_w = self._extra_w
        spans_s = rows["end_s"] - rows["start_s"]
        kinds, own, peer = rows["kind"], rows["who"], rows["peer"]
        transfers = kinds == number(TRANSFER)
        for hop in HOPS:
            totals.bytes_by_hop[hop] += int(rows["bytes"][transfers & (rows["hop"] == number(hop))].sum())
        training, group = kinds == number(COMPUTE), kinds == number(GROUP_OPERATION)
        charged = self._charged[own]
        totals.cost_training_s = _summed(totals.cost_training_s, spans_s[training & charged])
        totals.cost_group_s = _summed(totals.cost_group_s, spans_s[group & charged])
        extra_j = np.zeros((len(rows), 2))  # of a transfer both ends may pay
        extra_j[:, 0] = np.where(transfers, send_w[own], np.where(training | group, compute_w[own], 0.0)) * spans_s
        extra_j[:, 1] = np.where(transfers, receive_w[peer], 0.0) * spans_s
        totals.extra_energy_j = _summed(totals.extra_energy_j, extra_j.ravel())

    def energy_j(self, now_s: float) -> float:
        """Energy of all clients since the start: idle power all the time, and what their activities drew above it."""
        return self._idle_w * now_s + self.totals().extra_energy_j


def _summed(start: float, values: np.ndarray) -> float:
    """The sum in the order of the values, one after another, as a loop would add them (``sum`` would add them in pairs)."""
    return float(np.add.accumulate(np.concatenate([[start], values]))[-1])
