"""Totals as pure functions of ledger rows: bytes by hop, cost in client-seconds, energy of the clients, money and CO2.

Cost is S2 Eq. 5: over all clients, the seconds that they spend in training and in group operations. It is a sum over
clients, not a span of time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from devices.profile import Power
from emulator.errors import InputError
from emulator.ledger import BROKEN, COMPUTE, GROUP_OPERATION, HOPS, TRANSFER, Ledger, Row, Tag, numbers_of
from emulator.priced import CARBON, MONEY
from emulator.scenario.prices import Prices, outlived

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]
Spans = tuple[NDArray[np.int64], Floats, Floats]  # whose, from when, to when

STATES = ("idle", "compute", "send", "receive")
# Which rows put a client into a state, and in which column it stands.
_AT_WORK, _ON_THE_AIR = 0, 1
_KINDS = {COMPUTE: _AT_WORK, GROUP_OPERATION: _AT_WORK, TRANSFER: _ON_THE_AIR}
_ACTIVE = (("compute", "who", _AT_WORK), ("send", "who", _ON_THE_AIR), ("receive", "peer", _ON_THE_AIR))


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
    extra_carbon_g: float = 0.0  # of the energy beside idle power, where carbon goes by a trace

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
        ledger.add(
            row.kind, row.who, row.start_s, row.end_s, tag, row.peer, row.bytes, row.samples, row.hop, row.status
        )
    return Meter(ledger, clients).totals()


class Meter:
    """Running totals of a ledger that still grows: each reading adds only the rows that are new since the last one.

    Sums go row by row, so that they do not depend in a single bit on when they are read. ``hops`` are kinds of hops that there
    are beside the usual ones. ``prices`` are those that `bill` is to apply; ``servers`` counts those of each tier.
    """

    def __init__(
        self,
        ledger: Ledger,
        clients: Mapping[str, Power],
        hops: Sequence[str] = (),
        prices: Prices | None = None,
        servers: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._ledger = ledger
        self._clients = clients
        self._read = 0
        self._totals = Totals(dict.fromkeys((*HOPS, *hops), 0))
        self._idle_w = sum(p.idle for p in clients.values())
        # By the number of a node's name: whether it is a client, and what sending, receiving and computing add to its idle power.
        self._charged = np.zeros(0, bool)
        self._extra_w = np.zeros((3, 0))
        self._prices, self._servers = prices, servers
        self._carbon = None if prices is None else prices.carbon_over_time
        self._drawn_j: Floats | None = None  # by node, above its idle power, where that is kept
        ledger.before_spill = self._before_spill

    def _before_spill(self) -> None:
        self.totals()
        self._read = 0

    def keep_clients(self) -> None:
        """Sums up from now on what each client draws too. To be called before there are rows."""
        self._drawn_j = np.zeros(len(self._charged))

    def client_energy_j(self, client: str, now_s: float) -> float:
        """Energy of one client since the start, which is kept after `keep_clients`."""
        self.totals()
        number = self._ledger.number(client)
        drawn_j = 0.0 if self._drawn_j is None or number >= len(self._drawn_j) else float(self._drawn_j[number])
        return self._clients[client].idle * now_s + drawn_j

    def totals(self) -> Totals:
        """The totals of all rows so far."""
        rows = self._ledger.packed[self._read :]
        self.take(rows)
        self._read += len(rows)
        return self._totals

    def take(self, rows: np.ndarray) -> None:
        """Adds rows as a ledger packs them, with the numbers that the meter's ledger has for texts."""
        if len(rows):
            self._know_all()
            self._add(rows)

    def _know_all(self) -> None:
        """Looks up the names that are new."""
        powers = [self._clients.get(name) for name in self._ledger.texts[len(self._charged) :]]
        if powers:
            extra = [
                (p.send - p.idle, p.receive - p.idle, p.compute - p.idle) if p else (0.0, 0.0, 0.0) for p in powers
            ]
            self._charged = np.append(self._charged, [p is not None for p in powers])
            self._extra_w = np.append(self._extra_w, np.array(extra).T, axis=1)
            if self._drawn_j is not None:
                self._drawn_j = np.append(self._drawn_j, np.zeros(len(powers)))

    def _add(self, rows: np.ndarray) -> None:
        totals, number = self._totals, self._ledger.number
        send_w, receive_w, compute_w = self._extra_w
        spans_s = rows["end_s"] - rows["start_s"]
        kinds, own, peer = rows["kind"], rows["who"], rows["peer"]
        transfers = kinds == number(TRANSFER)
        broken = rows["status"] == number(BROKEN)
        sizes, hops = rows["bytes"][transfers], rows["hop"][transfers]
        totals.bytes_wasted += int(sizes[broken[transfers]].sum())
        for each, hop in {number(hop): hop for hop in totals.bytes_by_hop}.items():
            totals.bytes_by_hop[hop] += int(sizes[hops == each].sum())
        training, group = kinds == number(COMPUTE), kinds == number(GROUP_OPERATION)
        charged = self._charged[own]
        totals.cost_training_s = _summed(totals.cost_training_s, spans_s[training & charged])
        totals.cost_group_s = _summed(totals.cost_group_s, spans_s[group & charged])
        totals.cost_wasted_s = _summed(totals.cost_wasted_s, spans_s[(training | group) & charged & broken])
        extra_w = np.zeros((len(rows), 2))  # of a transfer both ends may pay
        extra_w[:, 0] = np.where(transfers, send_w[own], np.where(training | group, compute_w[own], 0.0))
        extra_w[:, 1] = np.where(transfers, receive_w[peer], 0.0)
        extra_j = extra_w * spans_s[:, None]
        if self._drawn_j is not None:
            np.add.at(self._drawn_j, own, extra_j[:, 0])
            np.add.at(self._drawn_j, peer, extra_j[:, 1])
        totals.extra_energy_j = _summed(totals.extra_energy_j, extra_j.ravel())
        if self._carbon is not None:
            of_a_watt_g = self._carbon[0].sums(rows["end_s"]) - self._carbon[0].sums(rows["start_s"])
            totals.extra_carbon_g = _summed(totals.extra_carbon_g, (extra_w * of_a_watt_g[:, None]).ravel())

    def energy_j(self, now_s: float) -> float:
        """Energy of all clients since the start: idle power all the time, and what their activities drew above it."""
        return self._idle_w * now_s + self.totals().extra_energy_j

    def bill(self, now_s: float) -> dict[str, float]:
        """Money and grams of CO2 since the start, as far as there are prices, by their columns of ``metrics.csv``.

        Raises `InputError` where the run has outlived a carbon trace that says nothing of what comes after its end.
        """
        prices = self._prices
        if prices is None:
            return {}
        found, totals, energy_j = {}, self.totals(), self.energy_j(now_s)
        if prices.priced:
            found[MONEY] = money_of(prices, totals, energy_j, self._servers, now_s)
        if prices.carbon is not None:
            found[CARBON] = prices.carbon.each * energy_j
        if self._carbon is not None and prices.carbon_trace is not None:
            function, end_s = self._carbon
            if end_s is not None and now_s > end_s:
                raise InputError(outlived(prices.carbon_trace, end_s), "prices.carbon_trace.end")
            found[CARBON] = self._idle_w * float(function.sums(np.array([now_s]))[0]) + totals.extra_carbon_g
        return found


def money_of(prices: Prices, totals: Totals, energy_j: float, servers: Mapping[str, int], now_s: float) -> float:
    """What totals cost by a price list: traffic by hop, clients while they work, servers all the time, energy of the clients."""
    terms = [price.each * totals.bytes_by_hop[hop] for hop, price in prices.traffic.items()]
    terms += [price.each * servers[tier] * now_s for tier, price in prices.servers.items()]
    if prices.devices is not None:
        terms.append(prices.devices.each * totals.cost_s)
    if prices.energy is not None:
        terms.append(prices.energy.each * energy_j)
    return math.fsum(terms)


def _summed(start: float, values: np.ndarray) -> float:
    """The sum in the order of the values, one after another, as a loop would add them (``sum`` would add them in pairs)."""
    return float(np.add.accumulate(np.concatenate([[start], values]))[-1])


def energy_by_state(
    batches: Iterable[pa.RecordBatch], clients: Sequence[str], powers: Sequence[Power], elapsed_s: float
) -> dict[str, Floats]:
    """Seconds (``idle_s``, ...) and joules (``idle_j``, ...) of each client in each of `STATES`, over ``elapsed_s`` seconds.

    ``batches`` are those of `ledger.batches`. Group operations count as computing. A client is idle while it does nothing else.
    States may overlap, so joules are split as `Meter.energy_j` adds them up: idle power all the time, and for every other state
    what it draws above that. The sum over all clients and states is that of the meter.
    """
    number = {name: i for i, name in enumerate(clients)}
    seconds = {state: np.zeros(len(clients)) for state in STATES}
    busy: list[Spans] = []
    for batch in batches:
        kinds = _looked_up(batch.column("kind"), _KINDS)
        numbers = {column: _looked_up(batch.column(column), number) for column in ("who", "peer")}
        start_s, end_s = numbers_of(batch.column("start_s")), numbers_of(batch.column("end_s"))
        spans: list[Spans] = []
        for state, column, kind in _ACTIVE:
            mine = (kinds == kind) & (numbers[column] >= 0)
            span: Spans = (numbers[column][mine], start_s[mine], end_s[mine])
            seconds[state] += np.bincount(span[0], span[2] - span[1], len(clients))
            spans.append(span)
        busy.append(disjoint_spans(spans))
    who, start_s, end_s = disjoint_spans(busy)
    seconds["idle"] = np.maximum(0.0, elapsed_s - np.bincount(who, end_s - start_s, len(clients)))
    idle_w = np.array([power.idle for power in powers], dtype=np.float64)
    joules = {"idle": idle_w * elapsed_s}
    for state in STATES[1:]:
        joules[state] = (np.array([getattr(power, state) for power in powers]) - idle_w) * seconds[state]
    return {f"{s}_s": seconds[s] for s in STATES} | {f"{s}_j": joules[s] for s in STATES}


def _looked_up(column: pa.DictionaryArray, numbers: Mapping[str, int]) -> NDArray[np.int64]:
    """The numbers of the texts in a column of a ledger; -1 for those that have none."""
    known = np.array([numbers.get(text, -1) for text in column.dictionary.to_pylist()], dtype=np.int64)
    found: NDArray[np.int64] = known[numbers_of(column.indices)]
    return found


def disjoint_spans(spans: Sequence[Spans]) -> Spans:
    """The same time as spans that neither overlap nor touch, whose they are in rising order."""
    if not spans:
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
    who, start_s, end_s = (np.concatenate(parts) for parts in zip(*spans, strict=True))
    times, step, whose = np.concatenate((start_s, end_s)), np.repeat([1, -1], len(who)), np.tile(who, 2)
    order = np.lexsort((-step, times, whose))  # at one instant, what begins comes before what ends
    over = np.cumsum(step[order]) == 0  # nothing is going on any more; each client ends so
    begins = np.append(True, over)[:-1]
    times, whose = times[order], whose[order]
    return whose[begins], times[begins], times[over]
