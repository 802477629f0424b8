"""Where it goes, by method: the clients' time (compute, transfers, group operations, waiting), the bytes, or the energy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from analysis import activity
from analysis.figures import SeriesFigure, save_all, series_of
from analysis.plots.style import (
    COLUMN_INCHES,
    PAGE_INCHES,
    PART_COLOURS,
    blank,
    check_path,
    legend_below,
    round_ticks,
    save,
    settle,
    style,
    title_above,
)
from analysis.quantities import AXES, Axis
from analysis.runs import Run
from analysis.series import Given, Series, as_series
from analysis.studies import StudyResults
from emulator.accounting import STATES
from emulator.contracts.files import figures
from emulator.errors import InputError, suggestion
from emulator.ledger import HOPS, bytes_column

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAR_INCHES = 0.34
DARK = ("#0072B2", "#D55E00")  # on which text is white
OTHER_SERVERS = "other-servers"  # hops that only some topologies have
_PARTS = (*HOPS, OTHER_SERVERS)
NAMED_FROM = 6.0  # per cent; a narrower piece has no number in it


@dataclass(frozen=True)
class Quantity:
    """What is divided: its parts with their colours and names, and how much of each a run took."""

    axis: Axis
    colours: Mapping[str, str]
    names: Mapping[str, str]
    amounts: Callable[[Run], Mapping[str, float]]


def _bytes(run: Run) -> Mapping[str, float]:
    last = run.metrics.iloc[-1]
    usual = {hop: float(last[bytes_column(hop)]) for hop in HOPS}
    return usual | {OTHER_SERVERS: float(last["bytes_total"]) - sum(usual.values())}


def _energy(run: Run) -> Mapping[str, float]:
    return {state: float(run.energy[f"{state}_j"].sum()) for state in STATES}


QUANTITIES = {
    "time": Quantity(
        Axis("time", "", "Time of the clients", AXES["cost"].units), PART_COLOURS, activity.TITLES, activity.totals
    ),
    "bytes": Quantity(
        AXES["bytes"],
        dict(zip(_PARTS, ("#56B4E9", "#D55E00", "#CC79A7", "#009E73", "#0072B2", "#E69F00"), strict=True)),
        dict(zip(_PARTS, (*(hop.replace("-", " to ") for hop in HOPS), "between other servers"), strict=True)),
        _bytes,
    ),
    "energy": Quantity(
        AXES["energy"],
        {"idle": "#E2E2E2", "compute": "#0072B2", "send": "#D55E00", "receive": "#56B4E9"},
        {"idle": "idle power", "compute": "compute, above idle", "send": "send, above idle", "receive": "receive, above idle"},
        _energy,
    ),
}  # fmt: skip


class Breakdown(SeriesFigure):
    """Options of ``breakdown``."""

    of: Literal["time", "bytes", "energy"] = Field("time", description="what is divided")


@figures.register("breakdown", Breakdown)
def breakdown(results: StudyResults, paths: Sequence[Path], params: Breakdown) -> None:
    """Where clients' time goes by method: compute, up, down, client to client, group operation, waiting; or bytes, or energy."""
    save_all(plot(series_of(results, params), params.of, title=params.title or None), paths)


def amounts(given: Sequence[Given], of: str = "time") -> dict[str, dict[str, float]]:
    """What is drawn, in SI units: by label, the mean over the seeds of each part.

    Raises `InputError` as `plot`.
    """
    if of not in QUANTITIES:
        raise InputError(f"unknown quantity '{of[:60]}'; {suggestion(of, QUANTITIES)}")
    found = {}
    for series in as_series(given):
        each = [QUANTITIES[of].amounts(run) for run in series.runs]
        found[series.label] = {part: float(np.mean([a[part] for a in each])) for part in QUANTITIES[of].names}
    return found


def plot(
    given: Sequence[Given],
    of: str = "time",
    path: Path | str | None = None,
    title: str | None = None,
    narrow: bool = False,
) -> Figure:
    """Draws a bar for each series of run folders (or runs): on the left what it took, on the right the shares of its parts.

    ``of`` is ``time`` (in client-seconds, see `analysis.activity`), ``bytes`` (by hop) or ``energy`` (by state). Bars are means
    over seeds. Parts that are nothing anywhere are left out. ``narrow`` puts the shares under the amounts, for one column. With a
    ``path`` the figure is also written there (PNG, SVG or PDF). Raises `InputError` as `analysis.series.as_series`, and where a
    run has no ledger, the quantity is not known or the path is no good.
    """
    if path is not None:
        check_path(path)
    series = as_series(given)
    values = amounts(series, of)
    quantity = QUANTITIES[of]
    parts = [part for part in quantity.names if any(each[part] > 0 for each in values.values())]
    if not parts:
        raise InputError(f"there is nothing to divide: these runs took no {of}")
    with style():
        height = 0.75 + BAR_INCHES * len(values)
        figure = blank(COLUMN_INCHES, 2 * height) if narrow else blank(PAGE_INCHES, height)
        left, right = figure.subplots(2, 1) if narrow else figure.subplots(1, 2, sharey=True)
        largest = max(sum(each.values()) for each in values.values())
        unit = quantity.axis.unit(largest)
        _bars(left, values, parts, quantity, [unit.size] * len(values))
        left.set_xlabel(quantity.axis.label(unit))
        left.set_xlim(0, 1.02 * largest / unit.size)
        _bars(right, values, parts, quantity, [sum(each.values()) / 100 or 1.0 for each in values.values()], named=True)
        right.set_xlabel("Share (%)")
        right.set_xlim(0, 100)
        for box in (left, right):
            box.set_yticks(range(len(values)), list(values))
            box.set_ylim(len(values) - 0.5, -0.5)
            box.grid(visible=False, axis="y")
            box.tick_params(axis="y", length=0)
            box.xaxis.set_major_locator(round_ticks())
        if title:
            title_above(figure, title)
        legend_below(figure, left.containers, [quantity.names[part] for part in parts], _note(series))
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _bars(
    box: Axes,
    values: Mapping[str, Mapping[str, float]],
    parts: Sequence[str],
    quantity: Quantity,
    sizes: Sequence[float],
    named: bool = False,
) -> None:
    ends = np.zeros(len(values))
    for part in parts:
        widths = np.array([each[part] / size for each, size in zip(values.values(), sizes, strict=True)])
        colour = quantity.colours[part]
        box.barh(range(len(values)), widths, 0.72, ends, color=colour, edgecolor="white", linewidth=0.4)
        for row, (width, end) in enumerate(zip(widths, ends, strict=True)):
            if named and width >= NAMED_FROM:
                ink = "white" if colour in DARK else "black"
                box.text(end + width / 2, row, f"{width:.0f}", ha="center", va="center", color=ink)
        ends += widths


def _note(series: Sequence[Series]) -> str:
    counts = sorted({len(each.runs) for each in series})
    if counts[-1] == 1:
        return ""
    return f"Mean of {counts[0]} seeds." if len(counts) == 1 else f"Mean of {counts[0]} to {counts[-1]} seeds."
