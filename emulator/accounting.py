"""Totals as pure functions of ledger rows: bytes by hop, cost in client-seconds, energy of the clients.

Cost is S2 Eq. 5: over all clients, the seconds that they spend in training and in group operations. It is a sum over
clients, not a span of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from devices.profile import Power
from emulator.ledger import BROKEN, COMPUTE, GROUP_OPERATION, HOPS, TRANSFER, Ledger, Row


@dataclass
class Totals:
    """Sums over rows. ``extra_energy_j`` is what the clients drew above their idle power.

    What was wasted, because it was cut off on the way, is part of the other sums too.
    """

    bytes_by_hop: dict[str, int] = field(default_factory=lambda: dict.fromkeys(HOPS, 0))
    cost_training_s: float = 0.0
    cost_group_s: float = 0.0
    extra_energy_j: float = 0.0
    bytes_wasted: int = 0
    cost_wasted_s: float = 0.0

    @property
    def bytes_total(self) -> int:
        """Bytes over all hops."""
        return sum(self.bytes_by_hop.values())

    @property
    def cost_s(self) -> float:
        """Client-seconds of training and group operations."""
        return self.cost_training_s + self.cost_group_s


def add_rows(totals: Totals, rows: Iterable[Row], clients: Mapping[str, Power]) -> None:
    """Adds rows to totals. ``clients`` gives the power states of every client by name; other nodes are not charged."""
    for row in rows:
        span_s = row.end_s - row.start_s
        own, peer = clients.get(row.who), clients.get(row.peer)
        if row.kind == TRANSFER:
            totals.bytes_by_hop[row.hop] += row.bytes
            totals.bytes_wasted += row.bytes if row.status == BROKEN else 0
            if own is not None:
                totals.extra_energy_j += (own.send - own.idle) * span_s
            if peer is not None:
                totals.extra_energy_j += (peer.receive - peer.idle) * span_s
        elif own is not None and row.kind in (COMPUTE, GROUP_OPERATION):
            totals.extra_energy_j += (own.compute - own.idle) * span_s
            if row.kind == COMPUTE:
                totals.cost_training_s += span_s
            else:
                totals.cost_group_s += span_s
            totals.cost_wasted_s += span_s if row.status == BROKEN else 0.0


def totals_of(rows: Sequence[Row], clients: Mapping[str, Power]) -> Totals:
    """The totals of all these rows."""
    totals = Totals()
    add_rows(totals, rows, clients)
    return totals


class Meter:
    """Running totals of a ledger that still grows: each reading adds only the rows that are new since the last one."""

    def __init__(self, ledger: Ledger, clients: Mapping[str, Power]) -> None:
        self._ledger = ledger
        self._clients = clients
        self._read = 0
        self._totals = Totals()
        self._idle_w = sum(p.idle for p in clients.values())
        ledger.before_spill = self._before_spill

    def _before_spill(self) -> None:
        self.totals()
        self._read = 0

    def totals(self) -> Totals:
        """The totals of all rows so far."""
        rows = self._ledger.rows
        add_rows(self._totals, rows[self._read :], self._clients)
        self._read = len(rows)
        return self._totals

    def energy_j(self, now_s: float) -> float:
        """Energy of all clients since the start: idle power all the time, and what their activities drew above it."""
        return self._idle_w * now_s + self.totals().extra_energy_j
