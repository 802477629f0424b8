"""Who there is: every client and every server of a topology, and who stands below whom; from numbers, kinds, tiers or files.

A roster says nothing that is drawn by chance. Devices and starts of traces are drawn from a seed by whoever plays it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from emulator.errors import InputError, suggestion
from emulator.hops import HOPS
from emulator.scenario.contents import state_of
from emulator.scenario.direct_links import direct_links, neighbours
from emulator.scenario.fleet_table import FleetTable, read_clients
from emulator.scenario.link_schema import DirectLink, Jitter, Link, PlayedTrace
from emulator.scenario.server_tree import (
    CLOUD,
    EDGE,
    JITTERS,
    MOST_PROBLEMS,
    Server,
    find_fleet,
    jitter_of,
    lowest,
    read,
    refuse,
    servers_of,
    unknown_devices,
)
from emulator.scenario.topology_schema import ClientKind, Topology, blocks

ACCESS_TRACE, FLEET = "topology.links.access.trace", "topology.fleet"

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Each = float | Floats  # one for all clients, or one for each


class Access(NamedTuple):
    """The clients' own links: bandwidths before loss, latencies beside overhead."""

    up_bps: Each
    down_bps: Each
    latency_s: Each
    overhead_s: Each
    loss: Each


@dataclass(frozen=True)
class Playing:
    """Clients by number whose links play a trace, and the scenario key that says so."""

    trace: PlayedTrace
    clients: Sequence[int]
    key: str


@dataclass(frozen=True)
class Roster:
    """Clients by number and servers by name.

    ``home_of`` holds for every client the place of the server right above it in ``servers``, which come tier by tier from the
    cloud on. ``devices`` and ``speeds`` are those that somebody said: "" and nan where nobody did.
    """

    names: Sequence[str]
    home_of: Numbers
    servers: tuple[Server, ...]
    access: Access
    jitters: Sequence[Jitter | None]  # one for all, or one for each
    traces: Sequence[Playing]  # of bandwidth
    devices: Sequence[str] | None = None
    kind_of: Numbers | None = None  # of each client, where there are kinds
    kind_devices: Mapping[int, Mapping[str, float]] = field(default_factory=dict)  # shares, of kinds that say them
    speeds: Floats | None = None
    presences: Sequence[Playing] = ()  # traces of availability of those who have one of their own
    columns: Mapping[str, Floats] = field(default_factory=dict)  # of a file: where clients stand (x, y)
    owners: Sequence[str] = ()  # of each one's data, where rows say it
    samples: Floats | None = None  # how many each holds; nan where its row does not say it
    direct: Mapping[tuple[str, str], DirectLink] = field(
        default_factory=dict
    )  # beside the tree, by sender and receiver

    @cached_property
    def by_name(self) -> dict[str, Server]:
        """The servers by name."""
        return {server.name: server for server in self.servers}

    @cached_property
    def tiers(self) -> dict[str, list[str]]:
        """The names of the servers of each tier, from the top; the cloud's is the first."""
        found: dict[str, list[str]] = {}
        for server in self.servers:
            found.setdefault(server.tier, []).append(server.name)
        return found

    @cached_property
    def paths(self) -> dict[str, tuple[str, ...]]:
        """For each server the way up: itself, its parent, ..., the cloud."""
        found: dict[str, tuple[str, ...]] = {}
        for server in self.servers:  # parents come before their children
            found[server.name] = (server.name, *found.get(server.parent, ()))
        return found

    @cached_property
    def hops(self) -> tuple[str, ...]:
        """The kinds of hops between servers that not every topology has (`emulator.hops`)."""
        of = self.by_name
        pairs = dict.fromkeys((of[s.parent].tier, s.tier) for s in self.servers if s.parent)
        names = [f"{a}-{b}" for above, below in pairs for a, b in ((above, below), (below, above))]
        names += dict.fromkeys(f"{of[a].tier}-{of[b].tier}" for a, b in self.direct if a in of)
        return tuple(name for name in names if name not in HOPS)

    @cached_property
    def neighbours(self) -> dict[str, list[str]]:
        """To whom each server or client has a direct link."""
        return neighbours(self.direct)

    def sizes(self, tier: str) -> list[int]:
        """How many clients there are below each server of a tier that has some, in the order of the servers."""
        counts = np.bincount(self.at_tier(tier) + 1, minlength=len(self.servers) + 1)[1:]
        return [count for count in counts.tolist() if count]

    def at_tier(self, tier: str, home_of: Numbers | None = None) -> Numbers:
        """For each client the place in ``servers`` of its server of a tier; -1 for those that have none.

        ``home_of``: where clients are, if not at home.
        """
        places = {server.name: place for place, server in enumerate(self.servers)}
        above = [
            next((places[name] for name in self.paths[server.name] if self.by_name[name].tier == tier), -1)
            for server in self.servers
        ]
        return np.array(above, dtype=np.int64)[self.home_of if home_of is None else home_of]


def at(values: Each, client: int) -> float:
    """What one client has of a number that is one for all, or one for each."""
    return float(values[client]) if isinstance(values, np.ndarray) else values


def count_clients(topology: Topology) -> int:
    """Clients in all, where a topology does not say it as a number."""
    return len(roster_of(topology).names)


def roster_of(topology: Topology) -> Roster:
    """All that a topology says of who there is. Raises `InputError` with everything that is wrong, a line each, and the key."""
    files = [name for name in (topology.fleet, topology.servers, topology.links.direct) if isinstance(name, str)]
    return _made(_Same(topology), tuple(state_of(find_fleet(name)) for name in files))


class _Same:
    """A topology as a key: equal ones are the same, although parts of them cannot be hashed."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._text = topology.model_dump_json(
            include={"edges", "tiers", "servers", "clients", "total", "fleet", "devices", "links", "edge_device"}
        )

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._text == other._text


@lru_cache(maxsize=8)
def _made(same: _Same, states: tuple[tuple[int, int], ...]) -> Roster:
    topology = same.topology
    servers = servers_of(topology)
    homes = lowest(servers)
    if topology.fleet is not None:
        made = _from_table(topology, read(read_clients, topology.fleet, FLEET), servers, homes)
    elif isinstance(topology.clients, tuple):
        made = _from_kinds(topology, topology.clients, servers, homes)
    else:
        if topology.clients is None:
            raise InputError("is required, or a file with clients as 'fleet' in its place", "topology.clients")
        if topology.total not in (None, topology.clients):
            raise InputError(f"there are {topology.clients} clients; leave it out", "topology.total")
        made = _alike(topology, topology.clients, servers, homes)
    _all_used(topology, made)
    direct = direct_links(topology, servers, set(made.names)) if topology.links.direct else {}
    return replace(made, direct=direct) if direct else made


def describe(topology: Topology) -> str:
    """``30 clients, 3 edges``; with further tiers, ``... 2 of region, 5 of edge``."""
    roster = roster_of(topology)
    others = {tier: names for tier, names in roster.tiers.items() if tier not in (CLOUD, EDGE)}
    if not others:
        return f"{len(roster.names)} clients, {len(roster.tiers.get(EDGE, ()))} edges"
    below = [f"{len(names)} of {tier}" for tier, names in roster.tiers.items() if tier != CLOUD]
    return f"{len(roster.names)} clients, servers: {', '.join(below)}"


# Clients.


def _alike(topology: Topology, count: int, servers: tuple[Server, ...], homes: Sequence[int]) -> Roster:
    access = topology.links.access
    trace = [] if access.trace is None else [Playing(access.trace, range(count), ACCESS_TRACE)]
    names = [f"client-{c}" for c in range(count)]
    return Roster(names, _dealt(count, homes), servers, _link_numbers(access), [access.jitter], trace)


def _link_numbers(link: Link) -> Access:
    return Access(link.up, link.down, link.latency, link.overhead, link.loss)


def _dealt(count: int, homes: Sequence[int]) -> Numbers:
    """So many clients in equal blocks behind these servers."""
    if count < len(homes):
        what = f"{len(homes)} edges for {count} clients"
        raise InputError(f"{what} would leave edges without any", "topology.edges")
    return np.repeat(np.asarray(homes, dtype=np.int64), [len(block) for block in blocks(count, len(homes))])


def _from_kinds(
    topology: Topology, kinds: Sequence[ClientKind], servers: tuple[Server, ...], homes: Sequence[int]
) -> Roster:
    counts = _counts(topology, kinds)
    problems, at, names, taken, more = [], [], list[str](), set[str](), dict[tuple[int, ...], int]()
    for i, (kind, count) in enumerate(zip(kinds, counts, strict=True)):
        wrong = [e for e in kind.edges or () if e >= len(homes)]
        if wrong:
            problems.append(f"kind {i + 1}: there is no server {wrong[0]}; they go from 0 to {len(homes) - 1}")
            continue
        behind = homes if kind.edges is None else [homes[e] for e in dict.fromkeys(kind.edges)]
        # Where a kind leaves off among its servers the next one goes on, so that all get as many clients, if one more or less.
        begun = more.get(tuple(behind), 0)
        sizes = np.roll([len(block) for block in blocks(count, len(behind))], begun)
        more[tuple(behind)] = (begun + count) % len(behind)
        at.append(np.repeat(np.asarray(behind, dtype=np.int64), sizes))
        begin = kind.name or "client"
        start = 0 if kind.name else len(names)
        if kind.name in taken or (kind.name == "client" and len(kinds) > 1):
            problems.append(f"kind {i + 1}: another kind has the name '{kind.name}'; take another")
        taken.add(begin)
        names += [f"{begin}-{number}" for number in range(start, start + count)]
    clash = {server.name for server in servers}.intersection(names)
    if clash:
        problems.append(f"'{min(clash)}' is the name of a client and of a server; name the kind otherwise")
    refuse(problems, "topology.clients")
    links = [kind.links.over(topology.links.access) for kind in kinds]
    kind_of = np.repeat(np.arange(len(kinds)), counts)
    each = Access(*(np.array(column)[kind_of] for column in zip(*map(_link_numbers, links), strict=True)))
    traces = [
        Playing(
            link.trace,
            np.flatnonzero(kind_of == i).tolist(),
            ACCESS_TRACE if own is None else f"topology.clients.{i}.links.trace",
        )
        for i, (link, own) in enumerate(zip(links, (kind.links.trace for kind in kinds), strict=True))
        if link.trace is not None
    ]
    said = {i: kind.devices for i, kind in enumerate(kinds) if kind.devices}
    speeds = np.array([np.nan if kind.speed is None else kind.speed for kind in kinds])[kind_of]
    jitters = [links[k].jitter for k in kind_of.tolist()]
    return Roster(
        names, np.concatenate(at), servers, each, jitters, traces, None, kind_of, said, speeds,
    )  # fmt: skip


def _counts(topology: Topology, kinds: Sequence[ClientKind]) -> list[int]:
    """How many clients of each kind there are: by their counts, or by their shares of the total."""
    key = "topology.clients"
    if not kinds:
        raise InputError("there are no kinds of clients; give at least one, with 'count' or 'share'", key)
    if all(kind.share is None for kind in kinds):
        if topology.total is not None and sum(k.count or 0 for k in kinds) != topology.total:
            raise InputError(f"kinds of clients have {sum(k.count or 0 for k in kinds)} together", "topology.total")
        return [kind.count or 0 for kind in kinds]
    if any(kind.share is None for kind in kinds):
        raise InputError("some kinds say 'count' and some 'share'; give all of them the same", key)
    if topology.total is None:
        raise InputError("shares of how many clients? say it with 'topology.total'", key)
    shares = [kind.share or 0.0 for kind in kinds]
    if abs(sum(shares) - 1) > 1e-6:
        raise InputError(f"the shares add up to {sum(shares):g}; they must add up to 1", key)
    exact = np.array(shares) * topology.total
    counts = (exact + 1e-9).astype(np.int64)
    for place in np.argsort(counts - exact, kind="stable")[: topology.total - int(counts.sum())].tolist():
        counts[place] += 1
    if (counts == 0).any():
        raise InputError(f"kind {int(np.argmin(counts)) + 1} has none of {topology.total} clients", key)
    return [int(count) for count in counts]


def _from_table(topology: Topology, table: FleetTable, servers: tuple[Server, ...], homes: Sequence[int]) -> Roster:
    if topology.clients is not None:
        raise InputError("'fleet' says which clients there are; leave one of the two out", "topology.clients")
    texts, numbers, access = table.texts, table.numbers, topology.links.access
    names, problems = list(texts["name"]), list[str]()
    places = {server.name: place for place, server in enumerate(servers)}
    for row, name in enumerate(names):
        if name in places:
            problems.append(f"{table.place(row, 'name')}: '{name}' is the name of a server too; names must differ")
    home_of = (
        _dealt(len(names), homes) if "parent" not in texts or "" in texts["parent"] else np.zeros(len(names), np.int64)
    )
    if "parent" in texts:
        for row, parent in enumerate(texts["parent"]):
            if parent in places:
                home_of[row] = places[parent]
            elif parent:
                tip = suggestion(parent[:40], places) if len(problems) < MOST_PROBLEMS else ""  # takes a while each
                problems.append(f"{table.place(row, 'parent')}: there is no server '{parent[:40]}'; {tip}")
    problems += unknown_devices(table)
    for row, kind in enumerate(texts.get("jitter_kind", ())):
        if kind and kind not in JITTERS:
            problems.append(
                f"{table.place(row, 'jitter_kind')}: unknown kind '{kind[:40]}'; {suggestion(kind, JITTERS)}"
            )
    refuse(problems, FLEET)
    said = [numbers.get(column) for column in ("up", "down", "latency", "overhead", "loss")]
    otherwise = (access.up, access.down, access.latency, access.overhead, access.loss)
    each = Access(*(_filled(column, value) for column, value in zip(said, otherwise, strict=True)))
    jitters: Sequence[Jitter | None] = [access.jitter]
    if "jitter" in numbers:
        scales, kinds = numbers["jitter"].tolist(), texts.get("jitter_kind", [""] * len(names))
        jitters = [
            access.jitter if np.isnan(scale) else jitter_of(scale, kind, access.jitter)
            for scale, kind in zip(scales, kinds, strict=True)
        ]
    by_file: dict[str, list[int]] = {}
    for row, file in enumerate(texts.get("trace", [""] * len(names))):
        by_file.setdefault(file, []).append(row)
    traces = [Playing(PlayedTrace(file=file), rows, FLEET) for file, rows in by_file.items() if file]
    if access.trace is not None and "" in by_file:
        traces.append(Playing(access.trace, by_file[""], ACCESS_TRACE))
    online: dict[str, list[int]] = {}
    for row, file in enumerate(texts.get("availability", ())):
        if file:
            online.setdefault(file, []).append(row)
    presences = [Playing(PlayedTrace(file=file), rows, FLEET) for file, rows in online.items()]
    owners = texts.get("owner", ())
    if any(owners):
        first: dict[str, int] = {}
        for row, owner in enumerate(owners):
            if not owner:
                problems.append(
                    f"{table.place(row, 'owner')}: is left out; where some rows say whose data a client has, all do"
                )
            elif first.setdefault(owner, row) != row:
                problems.append(
                    f"{table.place(row, 'owner')}: another client has the data of '{owner[:40]}'; each has one owner"
                )
        refuse(problems, FLEET)
    columns = {name: numbers[name] for name in ("x", "y") if name in numbers}
    return Roster(
        names, home_of, servers, each, jitters, traces, texts.get("device"), None, {}, numbers.get("speed"), presences, columns,
        owners, numbers.get("samples"),
    )  # fmt: skip


def _filled(column: Floats | None, otherwise: float) -> Each:
    """A column with what rows leave out filled in; one number where all are the same."""
    if column is None:
        return otherwise
    whole: Floats = np.where(np.isnan(column), otherwise, column)
    return float(whole[0]) if (whole == whole[0]).all() else whole


def _all_used(topology: Topology, roster: Roster) -> None:
    """Raises `InputError` where a server has no clients below it."""
    used = {roster.servers[place].name for place in np.unique(roster.home_of).tolist()}
    above = {name for home in used for name in roster.paths[home]}
    idle = [server.name for server in roster.servers if server.name not in above]
    if idle:
        key = "fleet" if topology.fleet is not None else "clients"
        few = ", ".join(idle[:MOST_PROBLEMS])
        raise InputError(f"no client is below {few}; leave servers out that nobody is behind", f"topology.{key}")
