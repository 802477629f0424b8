"""The fleet on the page: a tree of servers and clients with their devices and bandwidths, in the world as the controls stand."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.models.ranges import Range1d
from bokeh.models.sources import ColumnDataSource
from bokeh.models.tickers import FixedTicker
from bokeh.models.tools import HoverTool
from bokeh.plotting import figure

from analysis.fleet_layout import Layout, Spot, lay_out
from analysis.fleets import Columns, FleetTables, replaced
from analysis.plots.fleet import (
    BESIDE,
    HANDOVERS,
    LINES,
    MANY_SERVERS,
    SERVERS,
    colours_of,
    devices_of,
    line_width,
    names_fit,
)
from emulator.scenario import Scenario
from emulator.units import TIME
from emulator.world.fleet import Fleet
from emulator.world.fleet_columns import SHOWN_S, tables
from emulator.world.movements import movements

WIDTH_INCHES = 10.0  # about what a page gives it
TIER_PIXELS = 85
OWN = ("name", "parent", "a", "b", "x", "y")  # columns that a tip shows in another place, or not at all


@dataclass(frozen=True)
class FleetView:
    """A fleet, ready to be drawn: data of each kind of glyph, and what stands above the picture, as HTML."""

    layout: Layout
    data: Mapping[str, dict[str, Any]]
    legend: str


def view_of(scenario: Scenario) -> FleetView:
    """The fleet of a scenario. Raises `InputError` where it has none."""
    topology = scenario.topology
    fleet = FleetTables(**tables(Fleet(topology, scenario.seed), movements(topology, scenario.seed)))
    layout, colours, below = lay_out(fleet), colours_of(fleet), fleet.below()
    servers, clients = list(layout.servers.values()), layout.clients
    handovers = fleet.handovers()
    pairs = list(handovers)
    thin = min(1.0, MANY_SERVERS / len(servers))
    linked = [(s, fleet.servers, 1.5 * thin) for s in servers if s.above] + [(c, fleet.clients, 0.8) for c in clients]
    shown = [s for level in range(layout.deepest) for s in _named(layout, level)]
    data: dict[str, dict[str, Any]] = {
        "lines": {
            "xs": [[s.x, layout.servers[s.above].x] for s, _, _ in linked],
            "ys": [[-s.level, -layout.servers[s.above].level] for s, _, _ in linked],
            "width": [line_width(_cell(table, "up", s.row)) * thin for s, table, thin in linked],
        },
        "arcs": {
            "xs": [list(arc.x) for arc in layout.arcs],
            "ys": [list(arc.y) for arc in layout.arcs],
            "width": [1.5 * line_width(fleet.links["bandwidth"][arc.row]) for arc in layout.arcs],
            "name": [f"{_cell(fleet.links, 'a', arc.row)} – {_cell(fleet.links, 'b', arc.row)}" for arc in layout.arcs],
            "about": [_about(fleet.links, arc.row) for arc in layout.arcs],
        },
        "handovers": {
            "xs": [list(arc.x) for arc in layout.handovers],
            "ys": [list(arc.y) for arc in layout.handovers],
            "name": [" – ".join(pairs[arc.row]) for arc in layout.handovers],
            "about": [f"{handovers[pairs[arc.row]]:,} handovers" for arc in layout.handovers],
        },
        "servers": _spots(servers)
        | {"about": [f"{below[s.name]:,} clients below, {_about(fleet.servers, s.row)}".rstrip(", ") for s in servers]},
        "clients": _spots(clients)
        | {
            "about": [f"behind {c.above}, {_about(fleet.clients, c.row)}" for c in clients],
            "colour": [colours[fleet.clients["device"][c.row]] for c in clients],
        },
        "names": _spots(shown),
    }
    counts, more = devices_of(fleet)
    entries = [(colours[device], "●", f"{device} ({count:,})") for device, count in counts.items()]
    if layout.arcs:
        entries.append((BESIDE, "━", f"links beside the tree ({len(fleet.links['a']):,})"))
    if layout.handovers:
        entries.append((HANDOVERS, "┅", f"handovers until {TIME.format(SHOWN_S)} ({sum(handovers.values()):,})"))
    marks = "".join(f"<span class='mark'><i style='color:{c}'>{m}</i> {html.escape(t)}</span>" for c, m, t in entries)
    notes = (layout.left_out, more, replaced(topology.links.model_dump(mode="json")))
    said = "".join(f"<p class='quiet'>{html.escape(note)}</p>" for note in notes if note)
    return FleetView(layout, data, f"<p>{marks}</p>{said}")


class FleetChart:
    """The picture, which can be drawn anew. While the tree stays as it is, so does what a visitor zoomed into."""

    def __init__(self) -> None:
        kinds: dict[str, tuple[str, ...]] = {
            "lines": ("xs", "ys", "width"), "arcs": ("xs", "ys", "width", "name", "about"),
            "handovers": ("xs", "ys", "name", "about"), "names": ("x", "y", "name"),
            "servers": ("x", "y", "name", "about"), "clients": ("x", "y", "name", "about", "colour"),
        }  # fmt: skip
        self._sources = {
            kind: ColumnDataSource({c: [] for c in columns}, name=f"fleet-{kind}") for kind, columns in kinds.items()
        }
        self._shape: tuple[float, list[str]] | None = None
        self.plot: Any = figure(
            height=4 * TIER_PIXELS, sizing_mode="stretch_width", toolbar_location="above", name="plot-fleet", min_border_right=15,
            tools="pan,box_zoom,wheel_zoom,reset,save", x_range=Range1d(start=0, end=1), y_range=Range1d(start=-3, end=1),
        )  # fmt: skip
        self.plot.toolbar.logo = None
        self.plot.xaxis.visible = False
        self.plot.grid.visible = False
        self.plot.outline_line_color = self.plot.yaxis.axis_line_color = self.plot.yaxis.major_tick_line_color = None
        self._draw_glyphs()

    def _draw_glyphs(self) -> None:
        of, plot = self._sources, self.plot
        plot.multi_line("xs", "ys", source=of["lines"], line_width="width", color=LINES)
        arcs = plot.multi_line("xs", "ys", source=of["arcs"], line_width="width", color=BESIDE, alpha=0.8)
        moves = plot.multi_line("xs", "ys", source=of["handovers"], line_width=1.5, line_dash="dashed", color=HANDOVERS)
        dots = plot.scatter("x", "y", source=of["clients"], size=7, color="colour", line_color=None)
        squares = plot.scatter("x", "y", source=of["servers"], size=9, marker="square", color=SERVERS)
        plot.text("x", "y", text="name", source=of["names"], text_align="center", y_offset=-6, text_font_size="11px",
                  background_fill_color="white", background_fill_alpha=0.8)  # fmt: skip
        renderers: list[Any] = [arcs, moves, dots, squares]
        plot.add_tools(HoverTool(renderers=renderers, tooltips=[("", "@name"), ("", "@about")]))

    def show(self, view: FleetView) -> None:
        """Draws a fleet in place of the last one."""
        layout, plot = view.layout, self.plot
        shape = layout.width, layout.levels
        if shape != self._shape:
            self._shape = shape
            levels = [-level for level in range(len(layout.levels))]
            plot.yaxis.ticker = FixedTicker(ticks=levels)
            plot.yaxis.major_label_overrides = dict(zip(levels, layout.levels, strict=True))
            low = min([-layout.deepest, *(min(arc.y) for arc in (*layout.arcs, *layout.handovers))]) - 0.2
            for given, (start, end) in ((plot.x_range, (-0.02, 1.02)), (plot.y_range, (low, 0.4))):
                scale = layout.width if given is plot.x_range else 1.0
                given.update(start=start * scale, end=end * scale, reset_start=start * scale, reset_end=end * scale)
            plot.height = TIER_PIXELS * (len(layout.levels) + 1)
        for kind, columns in view.data.items():
            self._sources[kind].data = columns


def _named(layout: Layout, level: int) -> Sequence[Spot]:
    here = [spot for spot in layout.servers.values() if spot.level == level]
    return here if names_fit(here, layout.width, WIDTH_INCHES) else ()


def _spots(spots: Sequence[Spot]) -> dict[str, Any]:
    return {"x": [s.x for s in spots], "y": [-s.level for s in spots], "name": [s.name for s in spots]}


def _cell(columns: Columns, name: str, row: int) -> str:
    return columns[name][row] if row >= 0 and name in columns else ""


def _about(columns: Columns, row: int) -> str:
    """``raspberry-pi-4b, up 10 Mbit/s, down 50 Mbit/s, latency 15 ms``: what a row says, but for names."""
    said = [(name, _cell(columns, name, row)) for name in columns if name not in OWN]
    return ", ".join(
        cell if name in ("device", "tier", "bandwidth") else f"{name} {cell}" for name, cell in said if cell
    )
