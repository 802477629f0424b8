"""Links beside the tree: between servers of one tier (a ring, a line, a mesh, or as given), and between clients by name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from emulator.errors import suggestion
from emulator.scenario.fleet_table import FleetTable, read_links
from emulator.scenario.link_schema import DirectLink
from emulator.scenario.server_tree import CLOUD, EDGE, JITTERS, MOST_PROBLEMS, Server, jitter_of, read, refuse
from emulator.scenario.topology_schema import Topology

KEY = "topology.links.direct"
MOST_MESHED = 1_000  # servers of a mesh, which has a link for every two

Pair = tuple[str, str]


@dataclass(frozen=True)
class _Said:
    """One link as somebody said it: its ends, what it is like, and where that stands."""

    ends: Pair
    link: DirectLink
    where: str


def direct_links(topology: Topology, servers: Sequence[Server], clients: Set[str]) -> dict[Pair, DirectLink]:
    """What joins two nodes beside the tree, by sender and receiver: each link stands there in both directions.

    Raises `InputError` with everything that is wrong, a line each.
    """
    given = topology.links.direct
    if not given:
        return {}
    problems: list[str] = []
    tier_of = {server.name: server.tier for server in servers}
    said = list(_of_file(given) if isinstance(given, str) else _of_list(given, tier_of, problems))
    found: dict[Pair, DirectLink] = {}
    for each in said:
        (a, b), where = each.ends, each.where
        unknown = [name for name in each.ends if name not in tier_of and name not in clients]
        if unknown:
            known = (*tier_of, *clients) if len(clients) <= MOST_MESHED else tier_of
            tip = suggestion(unknown[0][:40], known) if len(problems) < MOST_PROBLEMS else ""
            problems.append(f"{where}: there is no server or client '{unknown[0][:40]}'; {tip}")
        elif a == b:
            problems.append(f"{where}: joins '{a}' with itself; name two")
        elif (a in clients) != (b in clients):
            problems.append(f"{where}: joins a client with a server; name two clients, or two servers of a tier")
        elif a in tier_of and (CLOUD in each.ends or tier_of[a] != tier_of[b]):
            problems.append(f"{where}: '{a}' and '{b}' are not of one tier; the tree joins servers of different tiers")
        elif (a, b) in found:
            problems.append(f"{where}: '{a}' and '{b}' are joined already; leave one of the links out")
        else:
            found[a, b] = found[b, a] = each.link
    refuse(problems, KEY)
    return found


def neighbours(links: Mapping[Pair, DirectLink]) -> dict[str, list[str]]:
    """To whom each node has a direct link, in the order in which links were given."""
    found: dict[str, list[str]] = {}
    for sender, receiver in links:
        found.setdefault(sender, []).append(receiver)
    return found


def neighbourhoods(tiers: Mapping[str, Sequence[str]], near: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Into how many parts direct links join the servers of a tier; tiers without such links are left out."""
    found: dict[str, int] = {}
    for tier, names in tiers.items():
        left, parts = set(names), 0
        if left.isdisjoint(near):
            continue
        while left:
            parts += 1
            reached = [left.pop()]
            while reached:
                further = left.intersection(near.get(reached.pop(), ()))
                left -= further
                reached += further
        found[tier] = parts
    return found


def _of_list(given: Sequence[DirectLink], tier_of: Mapping[str, str], problems: list[str]) -> Iterator[_Said]:
    for number, link in enumerate(given):
        where = f"direct[{number}]"
        if link.pairs is not None:
            yield from (_Said(pair, link, where) for pair in link.pairs)
            continue
        tier = link.tier or EDGE
        names = [name for name, own in tier_of.items() if own == tier and name != CLOUD]
        if len(names) < 2:
            known = suggestion(tier, [t for t in dict.fromkeys(tier_of.values()) if t != CLOUD], "tiers")
            unknown = f"there are no servers of tier '{tier}'; {known}"
            alone = f"tier '{tier}' has one server, and neighbours are at least two; leave it out"
            problems.append(f"{where}: {alone if names else unknown}")
        elif link.shape == "mesh" and len(names) > MOST_MESHED:
            problems.append(
                f"{where}: a mesh of {len(names)} servers has a link for every two of them; take a ring or pairs"
            )
        else:
            yield from (_Said(pair, link, where) for pair in _shaped(names, link.shape or ""))


def _shaped(names: Sequence[str], shape: str) -> Iterator[Pair]:
    if shape == "mesh":
        yield from itertools.combinations(names, 2)
        return
    yield from itertools.pairwise(names)
    if shape == "ring" and len(names) > 2:
        yield names[-1], names[0]


def _of_file(file: str) -> Iterator[_Said]:
    table = read(read_links, file, KEY)
    kinds = table.texts.get("jitter_kind", ())
    wrong = [(row, kind) for row, kind in enumerate(kinds) if kind and kind not in JITTERS]
    tell = "{}: unknown kind '{}'; {}".format
    refuse([tell(table.place(row, "jitter_kind"), kind[:40], suggestion(kind, JITTERS)) for row, kind in wrong], KEY)
    for row in range(len(table)):
        yield _Said((table.texts["a"][row], table.texts["b"][row]), _link(table, row), table.place(row))


def _link(table: FleetTable, row: int) -> DirectLink:
    numbers: dict[str, Any] = {
        name: float(column[row])
        for name, column in table.numbers.items()
        if name != "jitter" and not np.isnan(column[row])
    }
    scale = table.numbers["jitter"][row] if "jitter" in table.numbers else 0.0
    kind = table.texts["jitter_kind"][row] if "jitter_kind" in table.texts else ""
    jitter = None if np.isnan(scale) else jitter_of(float(scale), kind, None)
    return DirectLink.model_construct(**numbers, jitter=jitter, pairs=((table.texts["a"][row], table.texts["b"][row]),))
