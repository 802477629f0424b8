"""The servers of a topology as a tree below the cloud: from a number of edges, from tiers, from a list or from a file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from devices.profile import find_profile
from emulator.errors import InputError, suggestion
from emulator.scenario.fleet_table import FleetTable, read_servers
from emulator.scenario.link_schema import Jitter, Link, PlayedTrace, SharedLink
from emulator.scenario.topology_schema import Topology, blocks
from emulator.scenario.words import TIER_NAME

CLOUD = "cloud"
EDGE = "edge"
# What tiers are called by how deep they stand, where nobody says it, for so many tiers between the cloud and the clients.
TIERS: dict[int, tuple[str, ...]] = {1: (EDGE,), 2: (EDGE, "gateway"), 3: ("region", EDGE, "gateway")}
RESERVED = (CLOUD, "client", "server")  # which are parts of names of hops
MOST_PROBLEMS = 20
JITTERS = ("exponential", "uniform", "normal")


@dataclass(frozen=True)
class Server:
    """A server. ``link`` leads to its parent; all that stand right below it share its ``cell``."""

    name: str
    parent: str  # "" for the cloud, which is below nobody
    tier: str
    device: str
    link: Link
    cell: SharedLink | None = None
    x: float = np.nan
    y: float = np.nan


def bundled_fleets() -> dict[str, Path]:
    """The files of clients or servers that come with the project, by name."""
    return {path.stem: path for path in sorted(Path(str(files("emulator") / "scenarios" / "fleets")).glob("*.csv"))}


def find_fleet(name: str) -> Path:
    """The file that the user means: a path, or the name of a bundled one. A relative path counts from the current folder."""
    path = Path(name)
    try:
        there = path.exists()
    except (OSError, ValueError):
        return path  # whoever opens it will say what is wrong with it
    return path if there else bundled_fleets().get(name, path)


def read(reader: Callable[[str], FleetTable], file: str, key: str) -> FleetTable:
    """What a file holds; errors get the key."""
    try:
        return reader(str(find_fleet(file)))
    except InputError as error:
        raise InputError(error.message, key) from error


def servers_of(topology: Topology) -> tuple[Server, ...]:
    """All servers, tier by tier, the cloud first."""
    said = [name for name in ("edges", "tiers", "servers") if getattr(topology, name) is not None]
    if len(said) != 1:
        if not said:
            raise InputError("is required, or 'tiers' or 'servers' in its place", "topology.edges")
        raise InputError(f"'{said[0]}' says which servers there are; leave one of the two out", f"topology.{said[1]}")
    links = topology.links
    backhaul = links.backhaul
    if isinstance(topology.servers, str):
        table = read(read_servers, topology.servers, "topology.servers")
        found = _nodes_of(topology, table)
    elif topology.servers is not None:
        nodes = [
            Server(n.name, n.parent, n.tier or "", n.device or topology.edge_device, n.links.over(backhaul), n.cell)
            for n in topology.servers
        ]
        found = _in_order(nodes, lambda i: f"servers[{i}]", "topology.servers")
    elif topology.tiers is not None:
        found = _in_tiers(topology)
    else:
        device = topology.edge_device
        found = [Server(f"{EDGE}-{e}", CLOUD, EDGE, device, backhaul) for e in range(topology.edges or 0)]
    cloud = Server(CLOUD, "", CLOUD, topology.cloud_device, backhaul, None if found else links.cell)
    lowest = {server.parent for server in found}  # those that are not
    return (
        cloud,
        *(s if s.cell is not None or s.name in lowest else _with_cell(s, links.cell) for s in found),
    )


def _with_cell(server: Server, cell: SharedLink | None) -> Server:
    return server if cell is None else replace(server, cell=cell)


def lowest(servers: Sequence[Server]) -> list[int]:
    """The places of the servers that have none below them."""
    above = {server.parent for server in servers}
    return [place for place, server in enumerate(servers) if server.name not in above]


def _in_tiers(topology: Topology) -> list[Server]:
    assert topology.tiers is not None
    problems = []
    names = [tier.name for tier in topology.tiers]
    for place, name in enumerate(names):
        if name in RESERVED:
            problems.append(
                f"tier {place + 1}: '{name}' is a name that tiers cannot have; take another, such as 'site'"
            )
        elif name in names[:place]:
            problems.append(f"tier {place + 1}: there is another tier '{name}'; give it a name of its own")
    counts = [1, *(tier.count for tier in topology.tiers)]
    for place, (above, count) in enumerate(itertools.pairwise(counts)):
        if count < above:
            problems.append(
                f"tier {place + 1}: {count} of '{names[place]}' for {above} of '{names[place - 1]}' would leave some without any"
            )
    refuse(problems, "topology.tiers")
    found: list[Server] = []
    parents = [CLOUD]
    for tier in topology.tiers:
        link, device = tier.links.over(topology.links.backhaul), tier.device or topology.edge_device
        own = [f"{tier.name}-{number}" for number in range(tier.count)]
        for parent, block in zip(parents, blocks(tier.count, len(parents)), strict=True):
            found += [Server(own[number], parent, tier.name, device, link, tier.cell) for number in block]
        parents = own
    return found


def _nodes_of(topology: Topology, table: FleetTable) -> list[Server]:
    """The servers of a file."""
    texts, numbers = table.texts, table.numbers
    problems = list(unknown_devices(table))
    nodes = []
    for row in range(len(table)):

        def text(column: str, otherwise: str = "", row: int = row) -> str:
            return texts[column][row] or otherwise if column in texts else otherwise

        def number(column: str, row: int = row) -> float | None:
            value = numbers[column][row] if column in numbers else np.nan
            return None if np.isnan(value) else float(value)

        up, down, cell = number("cell_up"), number("cell_down"), None
        if up is not None and down is not None:
            cell = SharedLink.model_construct(up=up, down=down)
        elif up is not None or down is not None:
            problems.append(f"{table.place(row, 'cell_up')}: a cell has both 'cell_up' and 'cell_down'")
        if text("jitter_kind", JITTERS[0]) not in JITTERS:
            tip = suggestion(text("jitter_kind"), JITTERS)
            problems.append(f"{table.place(row, 'jitter_kind')}: unknown kind '{text('jitter_kind')[:40]}'; {tip}")
        if text("tier") and not re.match(TIER_NAME, text("tier")):
            named = f"'{text('tier')[:40]}' is no name of a tier"
            problems.append(f"{table.place(row, 'tier')}: {named}; write small letters and digits, such as 'gateway'")
        link = _own(topology.links.backhaul, number, text)
        device = text("device", topology.edge_device)
        nodes.append(
            Server(
                text("name"),
                text("parent", CLOUD),
                text("tier"),
                device,
                link,
                cell,
                *(np.nan if (value := number(axis)) is None else value for axis in ("x", "y")),
            )
        )
    refuse(problems, "topology.servers")
    return _in_order(nodes, table.place, "topology.servers")


def unknown_devices(table: FleetTable) -> Iterator[str]:
    """What is wrong with the devices that a file names; each is looked up once."""
    wrong: dict[str, str] = {}
    said = table.texts.get("device", ())
    for name in dict.fromkeys(said):
        if name:
            try:
                find_profile(name)
            except InputError as error:
                wrong[name] = error.message
    if wrong:
        yield from (f"{table.place(row, 'device')}: {wrong[name]}" for row, name in enumerate(said) if name in wrong)


def _own(kind: Link, number: Callable[[str], float | None], text: Callable[[str], str]) -> Link:
    """The link of a row: as the kind has it, but for what the row says."""
    said: dict[str, Any] = {
        name: value for name in ("up", "down", "latency", "overhead", "loss") if (value := number(name)) is not None
    }
    scale = number("jitter")
    if scale is not None:
        said["jitter"] = jitter_of(scale, text("jitter_kind"), kind.jitter)
    if text("trace"):
        said["trace"] = PlayedTrace(file=text("trace"))
    return kind.model_copy(update=said) if said else kind


def jitter_of(scale_s: float, kind: str, otherwise: Jitter | None) -> Jitter | None:
    """Jitter of a scale; of the kind that others have, where none is said, or exponential. None where the scale is 0."""
    if scale_s == 0:
        return None
    kind = kind or ("exponential" if otherwise is None else otherwise.kind)
    return Jitter.model_construct(kind=cast(Literal["exponential", "uniform", "normal"], kind), scale=scale_s)


def _in_order(nodes: Sequence[Server], place: Callable[[int], str], key: str) -> list[Server]:
    """The servers tier by tier, with tiers for those that say none. Raises `InputError` where they are no tree."""
    problems = []
    first: dict[str, int] = {}
    for i, node in enumerate(nodes):
        if node.name in first:
            problems.append(f"{place(i)}: there is another server '{node.name}'; names must differ")
        elif node.name == CLOUD:
            problems.append(f"{place(i)}: the cloud is there already, as the parent of all; leave this one out")
        elif node.tier in RESERVED:
            problems.append(f"{place(i)}: '{node.tier}' is a name that tiers cannot have; take another, such as 'site'")
        first.setdefault(node.name, i)
    for i, node in enumerate(nodes):
        if node.parent != CLOUD and node.parent not in first:
            problems.append(
                f"{place(i)}: there is no server '{node.parent[:40]}' above it; {suggestion(node.parent[:40], (CLOUD, *first))}"
            )
    refuse(problems, key)
    depth: dict[str, int] = {CLOUD: 0}
    for i, node in enumerate(nodes):
        way, at = [], node.name
        while at not in depth and at not in way:
            way.append(at)
            at = nodes[first[at]].parent
        if at not in depth:
            problems.append(f"{place(i)}: {' is below '.join((*way, at))}: nothing of that is below the cloud")
            continue
        for name in reversed(way):
            depth[name] = depth[nodes[first[name]].parent] + 1
    refuse(problems, key)
    deepest = max(depth.values())
    names = TIERS.get(deepest)
    if names is None and not all(node.tier for node in nodes):
        i = next(i for i, node in enumerate(nodes) if not node.tier)
        raise InputError(
            f"{place(i)}: say its 'tier': names of {deepest} tiers below the cloud are not clear by themselves", key
        )
    named = [node if node.tier else replace(node, tier=(names or ())[depth[node.name] - 1]) for node in nodes]
    of = {node.name: node for node in named}
    for i, node in enumerate(named):
        if node.parent != CLOUD and of[node.parent].tier == node.tier:
            problems.append(
                f"{place(i)}: '{node.name}' is of tier '{node.tier}', and so is '{node.parent}' above it; give one another"
            )
    refuse(problems, key)
    return sorted(named, key=lambda node: depth[node.name])


def refuse(problems: Sequence[str], key: str) -> None:
    """Raises `InputError` with all problems, a line each, where there are any."""
    if problems:
        more = [f"... and {len(problems) - MOST_PROBLEMS} more"] if len(problems) > MOST_PROBLEMS else []
        raise InputError("\n".join([*problems[:MOST_PROBLEMS], *more]), key)
