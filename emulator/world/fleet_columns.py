"""A resolved fleet as columns of texts: what `hfl fleet` shows, and what its files hold."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from emulator.scenario.link_schema import DirectLink, Imperfect, Jitter, Link
from emulator.scenario.roster import Each
from emulator.units import RATE, TIME, Dimension
from emulator.world.fleet import CLOUD, Fleet
from emulator.world.movements import Movements

Columns = dict[str, list[str]]


MANY = 1000  # different values in a column
SHOWN_S = 3600.0  # emulated seconds from the start whose moves are shown of a fleet that no run has played
MOST_MOVES = 100_000  # of those rows


def tables(fleet: Fleet, moving: Movements, until_s: float = SHOWN_S) -> dict[str, Columns]:
    """All that there is to say of a fleet: its clients, its servers, its links beside the tree, and who moves where."""
    return {
        "clients": client_columns(fleet),
        "servers": server_columns(fleet),
        "links": link_columns(fleet),
        "moves": move_columns(fleet, moving, until_s),
    }


def client_columns(fleet: Fleet) -> Columns:
    """Every client with all that it has, in units that read back to the same numbers; columns that say nothing are left out."""
    roster, access = fleet.roster, fleet.roster.access
    everybody = range(len(roster.names))
    both = fleet.assigned.access_bps
    default = fleet.topology.links.access.trace
    played = {c: each.trace.file for each in roster.traces if each.trace != default for c in each.clients}
    jitters = [roster.jitters[c if len(roster.jitters) > 1 else 0] for c in everybody]
    columns: Columns = {
        "name": list(roster.names),
        "parent": [fleet.home(c) for c in everybody],
        "device": [name for name, _ in fleet.assigned.made_of],
        "speed": ["" if speed == 1 else repr(speed) for _, speed in fleet.assigned.made_of],
        "up": _texts(access.up_bps if both is None else both, everybody, RATE),
        "down": _texts(access.down_bps if both is None else both, everybody, RATE),
        "latency": _texts(access.latency_s, everybody, TIME),
        **_jitter_columns(jitters),
        "overhead": _texts(access.overhead_s, everybody, TIME, zero=""),
        "loss": _texts(access.loss, everybody, None, zero=""),
        "trace": [played.get(c, "") for c in everybody],
    }
    online = {c: each.trace.file for each in roster.presences for c in each.clients}
    columns["owner"] = list(roster.owners)
    columns["samples"] = [] if roster.samples is None else [_plain(count) for count in roster.samples.tolist()]
    columns["availability"] = [online.get(c, "") for c in everybody]
    columns |= {name: [_plain(value) for value in values.tolist()] for name, values in roster.columns.items()}
    return _used(columns)


def server_columns(fleet: Fleet) -> Columns:
    """Every server but the cloud, in the same way; nothing where there is none."""
    servers = [server for server in fleet.roster.servers if server.name != CLOUD]
    links: list[Link] = [server.link for server in servers]
    default = fleet.topology.links.backhaul.trace
    cells = [server.cell for server in servers]
    columns: Columns = {
        "name": [server.name for server in servers],
        "parent": [server.parent for server in servers],
        "tier": [server.tier for server in servers],
        "device": [server.device for server in servers],
        "up": [RATE.format(link.up) for link in links],
        "down": [RATE.format(link.down) for link in links],
        "latency": [TIME.format(link.latency) for link in links],
        **_jitter_columns([link.jitter for link in links]),
        **_losses(links),
        "trace": ["" if k.trace is None or k.trace == default else k.trace.file for k in links],
        "cell_up": ["" if cell is None else RATE.format(cell.up) for cell in cells],
        "cell_down": ["" if cell is None else RATE.format(cell.down) for cell in cells],
        "x": [_plain(server.x) for server in servers],
        "y": [_plain(server.y) for server in servers],
    }
    return _used(columns)


def link_columns(fleet: Fleet) -> Columns:
    """Every link beside the tree, once, in the order in which they were given; nothing where there is none."""
    once: dict[tuple[str, str], DirectLink] = {}
    for (a, b), link in fleet.roster.direct.items():
        if (b, a) not in once:
            once[a, b] = link
    links = list(once.values())
    columns: Columns = {
        "a": [a for a, _ in once],
        "b": [b for _, b in once],
        "bandwidth": [RATE.format(link.bandwidth) for link in links],
        "latency": [TIME.format(link.latency) for link in links],
        **_jitter_columns([link.jitter for link in links]),
        **_losses(links),
    }
    return _used(columns)


def move_columns(fleet: Fleet, moving: Movements, until_s: float) -> Columns:
    """From when on which client is behind which server (none in reach: an empty text), in the order of time; at most so many."""
    moves: list[tuple[float, int, str]] = []
    for client, path in moving.paths.items():
        now_s, own = 0.0, 0
        if path.at(0.0) != fleet.home(client):
            moves.append((0.0, client, path.at(0.0)))
        while (now_s := path.next_change(now_s)) <= until_s and own < MOST_MOVES:
            moves.append((now_s, client, path.at(now_s)))
            own += 1
    moves = sorted(moves)[:MOST_MOVES]
    columns: Columns = {
        "client": [fleet.client_names[client] for _, client, _ in moves],
        "time": [TIME.format(round(instant_s, 3)) for instant_s, _, _ in moves],
        "parent": [server for _, _, server in moves],
    }
    return columns if moves else {}


def unwritable(fleet: Fleet) -> str:
    """Why a fleet cannot be written as files; "" where it can be."""
    defaults = (fleet.topology.links.access.trace, fleet.topology.links.backhaul.trace)
    own = [each.trace for each in fleet.roster.traces] + [server.link.trace for server in fleet.roster.servers]
    for trace in own:
        said = trace is not None and not any(trace == default for default in defaults)
        if (
            said
            and trace is not None
            and (trace.format is not None or trace.end is not None or trace.start != "random")
        ):
            return f"'{trace.file}' is played with a format, start or end of its own, which a row cannot say"
    return ""


def _jitter_columns(jitters: list[Jitter | None]) -> Columns:
    scales = ["0 s" if jitter is None else TIME.format(jitter.scale) for jitter in jitters]
    if not any(jitters):
        return {}
    return {"jitter": scales, "jitter_kind": ["" if jitter is None else jitter.kind for jitter in jitters]}


def _losses(links: Sequence[Imperfect]) -> Columns:
    return {
        "overhead": ["" if link.overhead == 0 else TIME.format(link.overhead) for link in links],
        "loss": ["" if link.loss == 0 else repr(link.loss) for link in links],
    }


def _texts(values: Each, clients: range, dimension: Dimension | None, zero: str | None = None) -> list[str]:
    """Each client's value in the unit that makes the shortest text; in the base unit where many differ, which is quicker."""
    if not isinstance(values, np.ndarray):
        values = np.array([values])
    distinct, whose = np.unique(values, return_inverse=True)
    if dimension is None:
        texts = [repr(value) for value in distinct.tolist()]
    elif len(distinct) > MANY:
        texts = [f"{value!r} {dimension.base}" for value in distinct.tolist()]
    else:
        texts = [dimension.format(value) for value in distinct.tolist()]
    if zero is not None:
        texts = [zero if value == 0 else text for value, text in zip(distinct.tolist(), texts, strict=True)]
    each = [texts[place] for place in whose.tolist()]
    return each if len(each) > 1 else each * len(clients)


def _plain(value: float) -> str:
    return "" if math.isnan(value) else repr(int(value) if value.is_integer() else value)


def _used(columns: Columns) -> Columns:
    return {name: column for name, column in columns.items() if any(column)}
