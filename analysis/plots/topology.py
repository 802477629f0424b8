"""Who belongs to which header, and of which kind everybody is: S5 Fig. 5."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from analysis.figures import named, save_all, selected
from analysis.plots.groups import LABEL_COLOURS
from analysis.plots.style import check_path, legend_below, panels, save, settle, style, title_above
from analysis.studies import StudyResults, each_run
from analysis.tabular import read_table
from emulator.contracts.files import figures
from emulator.errors import InputError
from emulator.study.schema import FigureParams, column_named

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

COLUMNS = ("round", "group", "client", "header", "kind", "label", "samples", "images")  # of topology.csv
LINES = "#999999"
RING = 0.4  # radius of the ring of members around a header, as a share of the arc that the cluster has
FAN = 2 * math.pi * 5 / 6  # of the members around their header: nobody stands on the way to the server
WIDE, HIGH = (-1.45, 2.05), (-1.45, 1.45)  # what a panel shows: the topology, and room beside it


class Topology(FigureParams):
    """Options of ``topology``."""

    panels: str | None = Field(None, description="something varied; a panel for each of its values")

    def named_columns(self) -> Iterator[tuple[str, str]]:
        """The names in ``panels`` and ``where``."""
        yield from (("panels", name) for name in [self.panels] if name is not None)
        yield from super().named_columns()


@figures.register("topology", Topology)
def topology(results: StudyResults, paths: Sequence[Path], params: Topology) -> None:
    """Headers and their members, of the first run of each panel that has headers (S5 Fig. 5)."""
    panel = None if params.panels is None else column_named(params.panels, results.columns)
    drawn: dict[str, pd.DataFrame] = {}
    for run in each_run(selected(results, params)):
        name = "" if panel is None else named(results, [panel], run)
        folder = results.folders[str(run["run"].iloc[0])]
        if name not in drawn and (folder / "topology.csv").is_file():
            drawn[name] = read_topology(folder)
    if not drawn:
        raise InputError("no complete run of these has headers, as those of hfldd have", "where")
    save_all(plot(drawn, None, params.title or None), paths)


def read_topology(folder: Path | str) -> pd.DataFrame:
    """The places of a run's first headers (``topology.csv``); raises `InputError` where the run has none."""
    path = Path(folder) / "topology.csv"
    if not path.is_file():
        raise InputError(f"'{folder}' has no topology.csv: only methods with headers write one, such as hfldd")
    table = read_table(path, COLUMNS)
    first: pd.DataFrame = table[table["round"] == table["round"].min()]
    return first


def plot(runs: Mapping[str, pd.DataFrame], path: Path | str | None = None, title: str | None = None) -> Figure:
    """Draws a panel for each table of `read_topology`: the server, the headers around it, and their members around them.

    Colours are the kinds of clients (homogeneous clusters), or the labels of which clients have most where no kinds were told
    apart; they come round again after ten. Beside the topology every client stands in the column of its kind. Members whose
    images did not arrive stand without a line. With a ``path`` the figure is also written there (PNG, SVG or PDF). Raises
    `InputError` if there is nothing to draw or the path is no good.
    """
    if not runs:
        raise InputError("give at least one run to draw")
    if path is not None:
        check_path(path)
    with style():
        figure, boxes = panels(len(runs))
        place = boxes[0].get_subplotspec()
        down, across = (1, 1) if place is None else place.get_gridspec().get_geometry()
        shape = (HIGH[1] - HIGH[0]) / (WIDE[1] - WIDE[0])
        figure.set_figheight(down * (0.2 + figure.get_figwidth() / across * shape))
        for (name, table), box in zip(runs.items(), boxes, strict=True):
            _draw(box, table)
            box.set_title(name)
        if title:
            title_above(figure, title)
        legend_below(figure, *_legend(all((table["kind"] >= 0).all() for table in runs.values())))
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _legend(kinds: bool) -> tuple[list[Line2D], list[str]]:
    from matplotlib.lines import Line2D

    def mark(marker: str, face: str, edge: str, size: float) -> Line2D:
        return Line2D([], [], marker=marker, linestyle="", markerfacecolor=face, markeredgecolor=edge, markersize=size)

    handles = [mark("*", "black", "black", 9), mark("s", "white", "black", 5.5), mark("o", "#777777", "none", 4.5)]
    told = "colours: homogeneous clusters (k-means)" if kinds else "colours: the label held most"
    return [*handles, Line2D([], [], linestyle="")], ["server", "header", "member", told]


def _draw(box: Axes, table: pd.DataFrame) -> None:
    groups = [rows for _, rows in table.groupby("group", sort=True)]
    colours = _colours(table)
    size = 5.5 * min(1.0, math.sqrt(60 / len(table)) if len(table) > 60 else 1.0)
    for rows, (middle, radius) in zip(groups, _places([len(rows) for rows in groups]), strict=True):
        header = int(rows["header"].iloc[0])
        box.plot([0, middle[0]], [0, middle[1]], color=LINES, linewidth=0.8, zorder=1)
        members = rows[rows["client"] != header]
        for i, (client, images) in enumerate(zip(members["client"], members["images"], strict=True)):
            angle = FAN * ((i + 0.5) / len(members) - 0.5) + math.atan2(middle[1], middle[0])
            x, y = middle[0] + radius * math.cos(angle), middle[1] + radius * math.sin(angle)
            if images:
                box.plot([middle[0], x], [middle[1], y], color=LINES, linewidth=0.5, zorder=1)
            box.plot([x], [y], "o", color=colours[client], markersize=0.8 * size, zorder=2)
        box.plot(*([v] for v in middle), "s", color=colours[header], markeredgecolor="black", markersize=size, zorder=3)
    box.plot([0], [0], "*", color="black", markersize=9, zorder=3)
    box.set_aspect("equal")
    box.set_xlim(*WIDE)
    box.set_ylim(*HIGH)
    box.set_axis_off()
    _columns(box, table, colours)


def _columns(box: Axes, table: pd.DataFrame, colours: Mapping[int, str]) -> None:
    """The clients of each kind above one another, in the corner at the bottom right."""
    inset = box.inset_axes((0.84, 0.0, 0.2, 0.3))
    kinds = [rows["client"].tolist() for _, rows in table.groupby(_by(table), sort=True)]
    for column, clients in enumerate(kinds):
        for row, client in enumerate(clients):
            inset.plot([column], [row], "o", color=colours[client], markersize=1.6)
    inset.set_xlim(-1, len(kinds))
    inset.set_ylim(-1, max(len(clients) for clients in kinds))
    inset.set_axis_off()


def _by(table: pd.DataFrame) -> str:
    return "kind" if (table["kind"] >= 0).all() else "label"


def _colours(table: pd.DataFrame) -> dict[int, str]:
    shades = (LABEL_COLOURS[int(kind) % len(LABEL_COLOURS)] for kind in table[_by(table)])
    return dict(zip((int(c) for c in table["client"]), shades, strict=True))


def _places(sizes: Sequence[int]) -> list[tuple[tuple[float, float], float]]:
    """For clusters of these sizes: where the header stands on a circle around the server, and how far its members are from it.

    A cluster has an arc that grows with the root of its size, as its ring does.
    """
    shares = [math.sqrt(size) for size in sizes]
    arcs = [2 * math.pi * share / sum(shares) for share in shares]
    places, start = [], math.pi / 2
    for arc in arcs:
        angle = start + arc / 2
        start += arc
        places.append(((math.cos(angle), math.sin(angle)), min(RING, RING * arc)))
    return places
