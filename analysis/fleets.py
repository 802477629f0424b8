"""Who took part in runs: the clients, servers and links of their fleets, as columns of texts and as short tables.

A run folder's ``fleet.json`` has what ``hfl fleet`` shows of the run's scenario (`emulator.world.fleet_columns`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.runs import Run
from analysis.series import Series
from analysis.texttable import TextTable
from emulator.errors import InputError
from emulator.files import digest_of, read_json
from emulator.units import RATE, TIME

FLEET = "fleet.json"
CLOUD = "cloud"
FEW = 20  # rows that are shown one by one
MOST_KINDS = 20  # rows of a table of kinds

Columns = Mapping[str, Sequence[str]]

_QUANTITIES: dict[str, Callable[[str], float]] = (
    dict.fromkeys(("up", "down", "bandwidth", "cell_up", "cell_down"), RATE.parse)
    | dict.fromkeys(("latency", "jitter", "overhead"), TIME.parse)
    | dict.fromkeys(("speed", "loss", "samples", "clients"), float)
)
_OWN = ("name", "parent", "x", "y", "owner", "samples", "availability", "clients", "a", "b")  # what makes no kind
_NUMBER = re.compile(r"[-_ ]?\d+$")


@dataclass(frozen=True)
class FleetTables:
    """The columns of a fleet, of one length in each table. Tables without rows have none; servers come after their parents.

    ``moves``: from when on which client is behind which server, in the order of time.
    """

    clients: Columns
    servers: Columns
    links: Columns
    moves: Columns = field(default_factory=dict)

    def handovers(self) -> dict[tuple[str, str], int]:
        """How often clients moved from one server to another, in either direction; where none is in reach they only pause."""
        last = dict(zip(self.clients["name"], self.clients["parent"], strict=True))
        found: dict[tuple[str, str], int] = {}
        rows = zip(*(self.moves.get(column, ()) for column in ("client", "time", "parent")), strict=True)
        for client, time, parent in rows:
            if parent and parent != last[client] and TIME.parse(time) > 0:
                pair = (parent, last[client]) if (parent, last[client]) in found else (last[client], parent)
                found[pair] = found.get(pair, 0) + 1
            last[client] = parent or last[client]
        return found

    def below(self) -> dict[str, int]:
        """How many clients there are below each server."""
        parent = dict(zip(self.servers.get("name", ()), self.servers.get("parent", ()), strict=True))
        found = dict.fromkeys((CLOUD, *parent), 0)
        for home in self.clients["parent"]:
            found[home] += 1
        for name in reversed(parent):
            found[parent[name]] += found[name]
        return found


def fleet_of(run: Run) -> FleetTables:
    """The fleet of a run. Raises `InputError` where its file is missing or damaged."""
    file = run.folder / FLEET
    packed = read_json(file)
    if packed is None:
        raise InputError(f"the run in '{run.folder}' has no {FLEET}: it has not ended yet, or is of an older version")
    try:
        tables = {name: {c: cells.split("\n") for c, cells in columns.items()} for name, columns in packed.items()}
        found = FleetTables(**tables)
        _ = found.clients["name"], found.clients["device"], found.below()
    except (AttributeError, TypeError, LookupError):
        raise InputError(f"'{file}' was written by another version") from None
    return found


def different(series: Sequence[Series]) -> list[tuple[FleetTables, list[Series]]]:
    """Each different fleet of the first runs of series, with the series that have it.

    Raises `InputError` where a run has none, or a damaged one.
    """
    found: dict[str, tuple[FleetTables, list[Series]]] = {}
    for each in series:
        file = each.first.folder / FLEET
        key = digest_of(file) if file.is_file() else ""
        if key not in found:
            found[key] = fleet_of(each.first), []
        found[key][1].append(each)
    return list(found.values())


def drawn_by_seed(series: Iterable[Series]) -> bool:
    """Whether runs that differ in their seed alone have fleets that differ."""
    files = [[run.folder / FLEET for run in each.runs] for each in series]
    return any(len({digest_of(file) for file in group if file.is_file()}) > 1 for group in files)


def tables_of(fleet: FleetTables, whose: str = "") -> tuple[TextTable, ...]:
    """Short tables of servers, links and clients: kinds with their numbers, and every one where there are few."""
    title = f", {whose}" if whose else ""
    below = fleet.below()
    tables = []
    if fleet.servers:
        servers = {**fleet.servers, "clients": [str(below[name]) for name in fleet.servers["name"]]}
        tables.append(_each(f"Servers{title}", servers) or _kinds(f"Kinds of servers{title}", servers, ("tier",)))
    if fleet.links:
        tier = dict(zip(fleet.servers.get("name", ()), fleet.servers.get("tier", ()), strict=True))
        links = {**fleet.links, "between": [tier.get(a, "client") for a in fleet.links["a"]]}
        every = _each(f"Links beside the tree{title}", fleet.links)
        tables.append(every or _kinds(f"Kinds of links beside the tree{title}", links, ("between",)))
    if handovers := fleet.handovers():
        rows = tuple((a, b, f"{count:,}") for (a, b), count in sorted(handovers.items(), key=lambda each: -each[1]))
        left = f", the first {MOST_KINDS} of {len(rows)} pairs" if len(rows) > MOST_KINDS else ""
        header = ("between", "and", "handovers")
        tables.append(TextTable(f"Handovers{title}{left}", header, rows[:MOST_KINDS], (False, False, True)))
    tables.append(_kinds(f"Kinds of clients{title}", fleet.clients, ("device",)))
    every = _each(f"Clients{title}", fleet.clients)
    return tuple(tables) if every is None else (*tables, every)


def _each(title: str, columns: Columns) -> TextTable | None:
    """A row for each, where there are few."""
    rows = tuple(zip(*columns.values(), strict=True))
    if len(rows) > FEW:
        return None
    return TextTable(title, tuple(columns), rows, tuple(name in _QUANTITIES for name in columns))


def _kinds(title: str, columns: Columns, least: tuple[str, ...]) -> TextTable:
    """A row for all that are alike; where that makes many, for those whose names begin alike, or for those alike in ``least``."""
    names = columns.get("name")
    shown = [name for name in columns if name not in ("name", "parent", "x", "y", "owner", "a", "b")]
    alike = [columns[name] for name in shown if name not in _OWN]
    begins = [] if names is None else [[_NUMBER.sub("", name) for name in names]]
    some = [columns[name] for name in least]
    ways = ((*begins, *alike), (*begins, *some), some)
    kinds = next((found for way in ways if len(found := _together(way)) <= MOST_KINDS), _together(some))
    lines = []
    for members in list(kinds.values())[:MOST_KINDS]:
        ends = [] if names is None else [" – ".join(names[m] for m in dict.fromkeys((members[0], members[-1])))]
        lines.append(
            (f"{len(members):,}", *ends, *(_span(name, [columns[name][m] for m in members]) for name in shown))
        )
    header = ("number", *([] if names is None else ["names"]), *shown)
    right = tuple(name in _QUANTITIES or name == "number" for name in header)
    left = f", the first {MOST_KINDS} of {len(kinds)}" if len(kinds) > MOST_KINDS else ""
    return TextTable(title + left, header, tuple(lines), right)


def _together(columns: Iterable[Sequence[str]]) -> dict[tuple[str, ...], list[int]]:
    found: dict[tuple[str, ...], list[int]] = {}
    for row, key in enumerate(zip(*columns, strict=True)):
        found.setdefault(key, []).append(row)
    return found


def _span(column: str, cells: Sequence[str]) -> str:
    """What cells have in common: one text, the least and the largest quantity, or how many texts there are."""
    texts = list(dict.fromkeys(cells))
    if len(texts) == 1:
        return texts[0]
    if column not in _QUANTITIES:
        return ", ".join(filter(None, texts)) if len(texts) <= 3 else f"{len(texts)} different"
    said = sorted(filter(None, texts), key=_QUANTITIES[column])
    return " – ".join(dict.fromkeys((said[0], said[-1])))


def replaced(links: Mapping[str, Any]) -> str:
    """What a scenario's ``links`` put in place of bandwidths and latencies that a fleet shows; "" where that is nothing."""
    kinds = {"access": "clients' links", "backhaul": "servers' links upwards"}
    traces = {text: (links.get(kind) or {}).get("trace") for kind, text in kinds.items()}
    played = "; ".join(f"{text}: {trace['file']}" for text, trace in traces.items() if trace)
    said = f"Traces give bandwidths over time in place of those shown ({played}). " if played else ""
    sites = links.get("latencies")
    return said + (
        f"Latencies between sites ({sites['file']}) are in place of those of servers' links." if sites else ""
    )
