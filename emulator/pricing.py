"""Finished runs and price lists: what a run cost, worked out afterwards from its ledger and its tables.

The list and its figures go into ``prices.json`` of the run's folder, where `analysis.runs` finds them, and what-ifs the list.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from emulator.accounting import Meter
from emulator.errors import InputError
from emulator.files import digest_of, write_json
from emulator.ledger import EVALUATION, PACKED, TEXTS, Ledger, batches, numbers_of
from emulator.priced import PRICED
from emulator.run_folder import LEDGER, METRICS
from emulator.scenario.prices import Prices
from emulator.whatif import open_run
from emulator.world.fleet import Fleet
from emulator.yamlfile import Document

_READ = ("kind", "who", "peer", "start_s", "end_s", "bytes", "hop", "status")  # what a meter needs of a row


def price(folder: Path, given: Document) -> dict[str, Any]:
    """Applies a price list to a finished run, and writes ``prices.json`` into its folder; returns what that says.

    The figures are those that the run would have in ``metrics.csv`` with the same list in its scenario, bit for bit. Raises
    `InputError` where the folder holds no finished run, or the list does not fit it.
    """
    loaded = open_run(folder, priced=False).changed([("prices", given)]).loaded
    scenario = loaded.scenario
    assert scenario.prices is not None
    fleet, ledger = Fleet(scenario.topology, scenario.seed), Ledger()
    powers = {name: device.power for name, device in zip(fleet.client_names, fleet.client_devices, strict=True)}
    servers = {tier: len(names) for tier, names in fleet.roster.tiers.items()}
    meter = Meter(ledger, powers, fleet.hops, scenario.prices, servers)
    with loaded.locating():
        bills = [meter.bill(now_s) for now_s in _evaluations(folder / LEDGER, ledger, meter)]
    with (folder / METRICS).open(encoding="utf-8", newline="") as file:
        rounds = [int(row["round"]) for row in csv.DictReader(file)]
    if len(rounds) != len(bills):
        raise InputError(f"'{folder / LEDGER}' has {len(bills)} evaluations, and {METRICS} has {len(rounds)}")
    said = {
        "prices": as_data(scenario.prices),
        "currency": scenario.prices.currency,
        "of": digest_of(folder / METRICS),
        "columns": {name: [bill[name] for bill in bills] for name in bills[0]},
    }
    write_json(folder / PRICED, said)
    return said


def as_data(prices: Prices) -> dict[str, Any]:
    """A list as plain data from which the same can be read, without what it does not say."""
    return {name: value for name, value in prices.model_dump().items() if value}


def _evaluations(path: Path, ledger: Ledger, meter: Meter) -> Iterator[float]:
    """Gives a meter the rows of a ledger's file in their order; yields the time of each evaluation after those before it."""
    for batch in batches(path, *_READ):
        rows = np.zeros(batch.num_rows, PACKED)
        for name in _READ:
            column = batch.column(name)
            if name in TEXTS:
                rows[name] = ledger.numbers(column.dictionary.to_pylist())[numbers_of(column.indices)]
            else:
                rows[name] = numbers_of(column)
        begin = 0
        for place in np.flatnonzero(rows["kind"] == ledger.number(EVALUATION)).tolist():
            meter.take(rows[begin:place])
            begin = place
            yield float(rows["end_s"][place])
        meter.take(rows[begin:])
