"""Fleets of runs: what of them is drawn, and what their tables say."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledger_samples import write_run

from analysis.fleet_layout import MOST_CLIENTS, MOST_HOMES, MOST_LINKS, lay_out
from analysis.fleets import FleetTables, fleet_of, replaced, tables_of
from analysis.plots.fleet import line_width
from analysis.runs import load_run
from emulator.errors import InputError
from emulator.files import write_json

NONE: dict[str, list[str]] = {}


def fleet(edges: int, clients: int, ring: bool = False, **columns: list[str]) -> FleetTables:
    """So many clients in turn behind so many edges; ``columns`` are further ones of the clients."""
    names = [f"edge-{e}" for e in range(edges)]
    servers = {"name": names, "parent": ["cloud"] * edges, "tier": ["edge"] * edges, "device": ["edge-server"] * edges}
    links = {"a": names, "b": [*names[1:], names[0]], "bandwidth": ["5 Mbit/s"] * edges} if ring else NONE
    everybody = {
        "name": [f"client-{c}" for c in range(clients)],
        "parent": [names[c % edges] for c in range(clients)],
        "device": ["laptop"] * clients,
    }
    return FleetTables(everybody | columns, servers, links)


def test_small_fleets_are_drawn_whole_and_nobody_stands_where_another_does() -> None:
    tree = FleetTables(
        {"name": ["a", "b", "c", "d"], "parent": ["low", "low", "top", "cloud"], "device": ["laptop"] * 4},
        {"name": ["top", "low"], "parent": ["cloud", "top"], "tier": ["edge", "gateway"]},
        {"a": ["a"], "b": ["d"], "bandwidth": ["1 Mbit/s"]},
    )
    layout = lay_out(tree)
    assert (layout.left_out, layout.levels) == ("", ["cloud", "edge", "gateway", "client"])
    assert sorted(client.x for client in layout.clients) == [0.5, 1.5, 2.5, 3.5]
    assert {client.name: client.above for client in layout.clients} == {
        "a": "low",
        "b": "low",
        "c": "top",
        "d": "cloud",
    }
    assert (layout.servers["low"].x, layout.servers["top"].x, layout.servers["cloud"].x) == (1.0, 1.5, 2.0)
    (arc,) = layout.arcs
    assert (arc.x[0], arc.x[-1], arc.y[0], arc.y[-1]) == (0.5, 3.5, -3, -3)
    assert tree.below() == {"cloud": 4, "top": 3, "low": 2}


@pytest.mark.parametrize("ring", [False, True])
def test_large_fleets_are_drawn_in_part_and_the_rest_is_counted(ring: bool) -> None:
    layout = lay_out(fleet(500, 20_000, ring))
    assert len(layout.clients) == MOST_CLIENTS
    assert len(layout.servers) == MOST_HOMES + 1
    assert len({client.x for client in layout.clients}) == MOST_CLIENTS
    assert {client.above for client in layout.clients} == layout.servers.keys() - {"cloud"}
    shown = [int(name.removeprefix("edge-")) for name in layout.servers if name != "cloud"]
    assert min(shown) < 50
    assert max(shown) >= 450
    joined = sum(b - a == 1 for a, b in zip(sorted(shown), sorted(shown)[1:], strict=False))
    assert len(layout.arcs) == (joined if ring else 0)
    assert (joined >= MOST_HOMES / 2) == ring
    links = f", {500 - joined} of 500 links beside the tree" if ring else ""
    assert layout.left_out == f"Not drawn: 19,700 of 20,000 clients, 440 of 500 servers{links}"


def test_a_large_server_leaves_room_for_small_ones() -> None:
    homes = ["edge-0"] * 5_000 + ["edge-1"] * 3 + ["edge-2"] * 200
    shown = [client.above for client in lay_out(fleet(3, 5_203, parent=homes)).clients]
    assert {home: shown.count(home) for home in set(shown)} == {"edge-0": 148, "edge-1": 3, "edge-2": 148}


def test_of_many_links_some_are_drawn() -> None:
    edges = [f"edge-{e}" for e in range(50)]
    pairs = [(a, b) for i, a in enumerate(edges) for b in edges[:i]]
    mesh = {"a": [a for a, _ in pairs], "b": [b for _, b in pairs], "bandwidth": ["1 Mbit/s"] * len(pairs)}
    whole = fleet(50, 50)
    layout = lay_out(FleetTables(whole.clients, whole.servers, mesh))
    assert len(layout.arcs) == MOST_LINKS
    assert layout.left_out == "Not drawn: 925 of 1,225 links beside the tree"


def test_tables_name_everybody_where_there_are_few_and_kinds_where_there_are_many() -> None:
    few = {table.title: table for table in tables_of(fleet(2, 4, ring=True, up=["1 Mbit/s"] * 4))}
    assert list(few) == ["Servers", "Links beside the tree", "Kinds of clients", "Clients"]
    assert few["Servers"].rows[1] == ("edge-1", "cloud", "edge", "edge-server", "2")
    assert few["Kinds of clients"].header == ("number", "names", "device", "up")
    assert few["Kinds of clients"].rows == (("4", "client-0 \u2013 client-3", "laptop", "1 Mbit/s"),)
    names = [f"pi-{n}" for n in range(1500)] + [f"phone-{n}" for n in range(1500)]
    ups = ["2 Mbit/s"] * 1500 + [f"{n + 1} kbit/s" for n in range(1500)]
    many = {table.title: table for table in tables_of(fleet(30, 3000, ring=True, name=names, up=ups), "a, b")}
    assert list(many) == [
        "Kinds of servers, a, b", "Kinds of links beside the tree, a, b", "Kinds of clients, a, b"
    ]  # fmt: skip
    assert many["Kinds of servers, a, b"].rows == (("30", "edge-0 \u2013 edge-29", "edge", "edge-server", "100"),)
    assert many["Kinds of links beside the tree, a, b"].rows == (("30", "5 Mbit/s", "edge"),)
    assert many["Kinds of clients, a, b"].rows == (
        ("1,500", "pi-0 \u2013 pi-1499", "laptop", "2 Mbit/s"),
        ("1,500", "phone-0 \u2013 phone-1499", "laptop", "1 kbit/s \u2013 1500 kbit/s"),
    )


def test_kinds_of_clients_whose_names_all_differ_go_by_device_and_a_table_ends() -> None:
    names = [f"{'abcdefghij'[n % 10]}{'klmnopqrst'[n // 10]}" for n in range(100)]
    ups = [f"{n + 1} kbit/s" for n in range(100)]
    (table,) = (t for t in tables_of(fleet(1, 100, name=names, up=ups)) if "clients" in t.title)
    assert table.rows == (("100", "ak \u2013 jt", "laptop", "1 kbit/s \u2013 100 kbit/s"),)
    devices = [f"board {n}" for n in range(100)]
    (table,) = (t for t in tables_of(fleet(1, 100, device=devices)) if "clients" in t.title)
    assert table.title == "Kinds of clients, the first 20 of 100"
    assert len(table.rows) == 20


def test_more_bandwidth_makes_a_wider_line() -> None:
    rates = ["", "10 kbit/s", "1 Mbit/s", "5 Mbit/s", "20 Mbit/s", "1 Gbit/s", "900 Gbit/s"]
    widths = [line_width(rate) for rate in rates]
    assert widths == sorted(widths)
    assert widths[0] == widths[2] == 0.6
    assert len(set(widths)) == 5
    assert max(widths) <= 3.6


def test_what_takes_the_place_of_bandwidths_and_latencies_is_said() -> None:
    assert replaced({"access": {"trace": None}, "backhaul": {"up": 1.0}}) == ""
    assert "(eight-sites) are in place" in replaced({"latencies": {"file": "eight-sites"}})
    assert "clients' links: lte-like" in replaced({"access": {"trace": {"file": "lte-like"}}})


def test_runs_without_a_fleet_or_with_a_damaged_one_are_refused(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run"))
    with pytest.raises(InputError, match=r"has no fleet.json: it has not ended yet, or is of an older version"):
        fleet_of(run)
    write_json(run.folder / "fleet.json", {"clients": {"name": ["a"]}})
    with pytest.raises(InputError, match="was written by another version"):
        fleet_of(run)
    text = (run.folder / "fleet.json").read_text().replace('"a"', '"b"')
    (run.folder / "fleet.json").write_text(text)
    with pytest.raises(InputError, match="it was changed after it was written"):
        fleet_of(run)


def test_handovers_are_counted_between_pairs_of_servers() -> None:
    plain = fleet(3, 3)
    rows = [
        ("client-0", "0 s", "edge-1"),  # where it begins
        ("client-0", "1 s", ""),
        ("client-0", "2 s", "edge-1"),  # back from out of reach: no other server
        ("client-0", "3 s", "edge-2"),
        ("client-2", "4 s", "edge-1"),
        ("client-1", "5 s", "edge-0"),
    ]
    moves = dict(zip(("client", "time", "parent"), map(list, zip(*rows, strict=True)), strict=True))
    moving = FleetTables(plain.clients, plain.servers, plain.links, moves)
    assert moving.handovers() == {("edge-1", "edge-2"): 2, ("edge-1", "edge-0"): 1}
    assert len(lay_out(moving).handovers) == 2
    (table,) = (table for table in tables_of(moving) if table.title == "Handovers")
    assert table.rows[0] == ("edge-1", "edge-2", "2")
    assert plain.handovers() == {}
