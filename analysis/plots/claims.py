"""A forest plot of a study's claims: by how much each first method is better, with the interval, coloured by verdict."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.claims import CONTRADICTED, LEVEL, NOT_MEASURED, SHOWN, TOO_FEW, UNDECIDED, judge_all
from analysis.figures import save_all, selected
from analysis.plots.style import (
    PAGE_INCHES,
    blank,
    check_path,
    legend_below,
    round_ticks,
    save,
    settle,
    style,
    title_above,
)
from analysis.quantities import AXES, Unit
from analysis.studies import StudyResults
from emulator.contracts.files import figures
from emulator.errors import InputError
from emulator.measures import ACCURACY, Measure
from emulator.study.quantities import COUNT, QUANTITIES, SHARE
from emulator.study.schema import FigureParams
from emulator.units import CLIENT_TIME, ENERGY, MASS, SIZE, TIME

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    SHOWN: "#009E73", CONTRADICTED: "#D55E00", LEVEL: "#0072B2", UNDECIDED: "#777777",
    TOO_FEW: "#BBBBBB", NOT_MEASURED: "#BBBBBB",
}  # fmt: skip
MARKERS = {SHOWN: "o", CONTRADICTED: "X", LEVEL: "s", UNDECIDED: "D", TOO_FEW: "|", NOT_MEASURED: "|"}
ROW_INCHES = 0.34  # two lines of text
PANEL_INCHES = 0.62  # what a panel takes beside its rows
LABEL = 44  # letters of a line
UNITS: dict[Any, tuple[Unit, ...]] = {
    SHARE: (Unit("per cent points", 0.01),), COUNT: (Unit("", 1.0),), TIME: AXES["time"].units,
    SIZE: AXES["bytes"].units, CLIENT_TIME: AXES["cost"].units, ENERGY: AXES["energy"].units,
    MASS: AXES["carbon"].units,
}  # fmt: skip


@figures.register("claims", FigureParams)
def claims(results: StudyResults, paths: Sequence[Path], params: FigureParams) -> None:
    """What became of a study's claims: the mean advantage of each with its 95 % interval, coloured by verdict."""
    from dataclasses import replace

    if not results.stated:
        raise InputError("there are no 'claims' in the study to draw")
    judged = results.claims
    if params.where:
        judged = judge_all(replace(results, table=selected(results, params)), results.stated)
        judged = judged[judged["pairs"] > 0]
        if judged.empty:
            raise InputError("no claim is about these runs alone", "where")
    save_all(plot(judged, None, params.title or None, results.measure), paths)


def plot(
    judged: pd.DataFrame, path: Path | str | None = None, title: str | None = None, measure: Measure = ACCURACY
) -> Figure:
    """Draws a table of `analysis.claims.judge_all`: a panel for each quantity, a line for each claim.

    To the right of zero a claim holds, whatever the quantity. Claims without an interval say why. With a ``path`` the figure is
    also written there (PNG, SVG or PDF). Raises `InputError` where there are no claims, or the path is no good.
    """
    from matplotlib.lines import Line2D

    if judged.empty:
        raise InputError("there are no claims to draw")
    if path is not None:
        check_path(path)
    panels = [(str(name), rows.to_dict("records")) for name, rows in judged.groupby("quantity", sort=False)]
    heights = [PANEL_INCHES + ROW_INCHES * len(rows) for _, rows in panels]
    with style():
        figure = blank(PAGE_INCHES, sum(heights))
        boxes = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
        for box, (quantity, rows) in zip(boxes, panels, strict=True):
            _fill(box, quantity, rows, measure)
        if title:
            title_above(figure, title)
        verdicts = [verdict for verdict in COLOURS if verdict in set(judged["verdict"])]
        handles = [Line2D([], [], linestyle="", marker=MARKERS[v], color=COLOURS[v], markersize=6) for v in verdicts]
        note = "Right of zero: as claimed. Mean over pairs of runs with the same seed; bars: its 95 % interval (Student's t)."
        legend_below(figure, handles, verdicts, note)
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _fill(box: Axes, quantity: str, rows: Sequence[dict[Any, Any]], measure: Measure) -> None:
    ends = [abs(row[end]) for row in rows for end in ("low", "high") if math.isfinite(row[end])]
    largest = max([*ends, *(row["by"] for row in rows)], default=0.0)
    judged = QUANTITIES[quantity].judged
    units = UNITS[QUANTITIES[quantity].unit] if measure.share or not judged else (Unit("", 1.0),)
    unit = next((u for u in reversed(units) if largest >= 2 * u.size), units[0])
    box.axvline(0, color="black", linewidth=0.9, zorder=1)
    for place, row in enumerate(rows):
        look: dict[str, Any] = {"color": COLOURS[row["verdict"]], "marker": MARKERS[row["verdict"]]}
        if row["by"]:
            for side in (-1, 1):
                at = side * row["by"] / unit.size
                box.vlines([at], place - 0.4, place + 0.4, color="#999999", linewidth=0.9, linestyle=(0, (3, 2)))
        if row["test"] == "t":
            halves = (row["high"] - row["low"]) / 2 / unit.size
            box.errorbar(
                [row["advantage"] / unit.size], [place], xerr=halves, markersize=6, capsize=2.5, elinewidth=1.3, **look
            )
        else:
            box.text(0, place, f" {_said(row)}", va="center", ha="left", color="#444444")
    reach = 1.08 * largest / unit.size or 1.0
    box.set_xlim(-reach, reach)
    if ends:
        box.xaxis.set_major_locator(round_ticks())
    else:
        box.set_xticks([])
    box.set_ylim(len(rows) - 0.5, -0.5)
    box.set_yticks(range(len(rows)), [_label(row) for row in rows])
    box.grid(visible=False, axis="y")
    called = quantity.replace(ACCURACY.name, measure.called) if judged else quantity
    what = f"advantage in {called.replace('-', ' ')}"
    box.set_xlabel(f"{what} ({unit.name})" if unit.name else what)


def _said(row: dict[Any, Any]) -> str:
    """Why there is no interval."""
    if row["test"] == "sign":
        return f"reached by {row['better_reached']} and {row['than_reached']} of {row['pairs']}: {row['verdict']}"
    return str(row["verdict"])


def _label(row: dict[Any, Any]) -> str:
    said = row["text"].partition(" in ")[0].replace(" better than ", " over ")
    text = f"{row['claim']}: {said}, {row['at']}" if row["at"] else f"{row['claim']}: {said}"
    return textwrap.fill(text, LABEL, max_lines=2, placeholder=" ...")
