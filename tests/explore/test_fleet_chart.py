"""The fleet on the page of ``hfl explore``: what is drawn in which world, and what its tips and its legend say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emulator.errors import InputError
from emulator.explore.fleet_chart import FleetChart, view_of
from emulator.scenario import Loaded

Small = Callable[..., Loaded]


def test_everybody_is_drawn_with_device_and_bandwidth(small: Small) -> None:
    view = view_of(small("topology.links.direct=[{shape: line, bandwidth: 5 Mbit/s}]").scenario)
    servers, clients, arcs = view.data["servers"], view.data["clients"], view.data["arcs"]
    assert servers["name"] == ["cloud", "edge-0", "edge-1"]
    assert servers["about"][0] == "8 clients below"
    assert servers["about"][1] == "4 clients below, edge, edge-server, up 80 Mbit/s, down 160 Mbit/s, latency 5 ms"
    assert len(clients["x"]) == len(set(clients["x"])) == 8
    assert clients["about"][7] == "behind edge-1, raspberry-pi-4b, up 8 Mbit/s, down 16 Mbit/s, latency 20 ms"
    assert (arcs["name"], arcs["about"]) == (["edge-0 – edge-1"], ["5 Mbit/s, latency 0 s"])
    assert len(view.data["lines"]["xs"]) == 2 + 8
    assert "raspberry-pi-4b (8)" in view.legend
    assert "links beside the tree (1)" in view.legend


def test_more_bandwidth_is_wider_and_another_device_has_another_colour(small: Small) -> None:
    mixed = "topology.devices={raspberry-pi-4b: 0.5, laptop: 0.5}"
    plain, other = view_of(small().scenario), view_of(small("topology.links.access.up=1 Gbit/s", mixed).scenario)
    wider = [b > a for a, b in zip(plain.data["lines"]["width"], other.data["lines"]["width"], strict=True)]
    assert wider == [False, False, *[True] * 8]
    assert (len(set(plain.data["clients"]["colour"])), len(set(other.data["clients"]["colour"]))) == (1, 2)
    assert "laptop (4)" in other.legend


def test_of_a_large_fleet_the_legend_says_what_is_not_drawn(small: Small) -> None:
    view = view_of(small("topology.edges=2", "topology.clients=1000", "data.partition=iid").scenario)
    assert len(view.data["clients"]["x"]) == 300
    assert "Not drawn: 700 of 1,000 clients" in view.legend
    assert "raspberry-pi-4b (1,000)" in view.legend


def test_a_world_without_a_fleet_is_refused(small: Small) -> None:
    scenario = small().scenario
    topology = scenario.topology.model_copy(update={"fleet": "no-such-file.csv", "clients": None})
    with pytest.raises(InputError, match=r"no-such-file\.csv"):
        view_of(scenario.model_copy(update={"topology": topology}))


def test_what_a_visitor_zoomed_into_stays_while_the_tree_does(small: Small) -> None:
    chart = FleetChart()
    chart.show(view_of(small().scenario))
    assert (chart.plot.x_range.end, chart.plot.yaxis[0].major_label_overrides[-1]) == (8 * 1.02, "edge")
    chart.plot.x_range.end = 3.0
    chart.show(view_of(small("topology.devices=laptop").scenario))
    assert chart.plot.x_range.end == 3.0
    chart.show(view_of(small("topology.clients=6").scenario))
    assert chart.plot.x_range.end == 6 * 1.02


def test_handovers_are_drawn_between_servers(small: Small) -> None:
    moving = "topology.movement={path: {kind: markov, stay: 10 min, neighbours: line, clients: [0, 1]}}"
    view = view_of(small("topology.edges=3", moving).scenario)
    drawn = view.data["handovers"]
    assert set(drawn["name"]) <= {"edge-0 – edge-1", "edge-1 – edge-2", "edge-1 – edge-0", "edge-2 – edge-1"}
    counted = sum(int(text.removesuffix(" handovers")) for text in drawn["about"])
    assert f"handovers until 1 h ({counted:,})" in view.legend
    assert counted > 2
