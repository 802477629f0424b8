"""How stale updates are when they come to an asynchronous server: of every run, and over time by device or group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from analysis.figures import SeriesFigure, save_all, series_of
from analysis.plots.style import (
    check_path,
    curve,
    legend_below,
    look,
    measure_x,
    panels,
    round_ticks,
    save,
    settle,
    style,
    title_above,
)
from analysis.quantities import AXES
from analysis.runs import Run
from analysis.series import Given, Series, as_series
from analysis.studies import StudyResults
from emulator.contracts.files import figures

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = 24  # of the time of a run, a mean each
MOST = 8  # owners with a line of their own
OTHERS = "others"


class Staleness(SeriesFigure):
    """Options of ``staleness``."""

    over_time: Literal["device", "group"] = Field(
        "device", description="whose updates are told apart over time; units of several clients always by their group"
    )


@figures.register("staleness", Staleness)
def staleness(results: StudyResults, paths: Sequence[Path], params: Staleness) -> None:
    """How stale updates of asynchronous methods are: share of updates by staleness, and means over time by device or group."""
    save_all(plot(series_of(results, params), params.over_time, title=params.title or None), paths)


def plot(
    given: Sequence[Given], over_time: str = "device", path: Path | str | None = None, title: str | None = None
) -> Figure:
    """Draws how stale updates were, in versions of the model that were made since their senders got one.

    The first panel has a line for each series of run folders (or runs), all seeds together: the share of the updates with at
    most that staleness, those that were dropped included. Series whose servers wait for all whom they ask have none.
    A panel for each series (of several seeds the first) has the
    mean staleness of what arrived in each of `BINS` equal parts of its time, by kind of device or by group. With a ``path`` the
    figure is also written there (PNG, SVG or PDF). Raises `InputError` as `analysis.series.as_series`, where a run has no
    arrivals, and where the path is no good.
    """
    import pandas as pd

    if path is not None:
        check_path(path)
    everybody = as_series(given)
    series = [each for each in everybody if each.first.has_arrivals] or everybody[
        :1
    ]  # of which it is said why it has none
    every = [pd.concat([run.arrivals for run in each.runs], ignore_index=True) for each in series]
    owned = [_owned(each.first, over_time) for each in series]
    owners = pd.concat([table["owner"] for table in owned]).value_counts().index.tolist()
    shown = owners if len(owners) <= MOST else owners[: MOST - 1]
    with style():
        figure, (first, *others) = panels(1 + len(series))
        shares = _shares(first, series, every)
        lines: dict[str, Artist] = {}
        for each, table, box in zip(series, owned, others, strict=True):
            lines |= _over_time(box, table, shown, len(series))
            if len(series) > 1 or each.note:
                box.set_title(each.title, fontsize="medium")
        shares |= {f"{each.label}: waits for all it asks": blank() for each in everybody if each not in series}
        highest = max(box.get_ylim()[1] for box in others)
        for box in others:
            box.set_ylim(0, highest)
            box.set_ylabel("Mean staleness (versions)")
        if title:
            title_above(figure, title)
        names = sorted(lines, key=_place)
        legend_below(figure, [*shares.values(), *(lines[name] for name in names)], [*shares, *names])
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _owned(run: Run, over_time: str) -> pd.DataFrame:
    """The arrivals of a run with whose each is: a kind of device, or a group."""
    table = run.arrivals
    groups = "group " + table["group"].astype(str)
    if over_time == "group":
        return table.assign(owner=groups)
    devices = run.energy["device"]
    return table.assign(owner=table["client"].map(devices).fillna(groups))


def blank() -> Artist:
    """What stands in a legend before a line of text alone."""
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="none")


def _place(owner: str) -> tuple[bool, bool, str, int]:
    """Devices stand in the order of their names and of the numbers behind them, then groups, and last the others."""
    name, _, number = owner.rpartition(" ")
    place = (name, int(number)) if number.isdigit() else (owner, 0)
    return owner == OTHERS, owner.startswith("group "), *place


def _shares(box: Axes, series: Sequence[Series], every: Sequence[pd.DataFrame]) -> dict[str, Artist]:
    """A line for each series; returns them by what the legend says."""
    handles: dict[str, Artist] = {}
    largest = max(int(table["staleness"].max()) for table in every)
    for i, (each, table) in enumerate(zip(series, every, strict=True)):
        shares = 100 * np.bincount(table["staleness"], minlength=largest + 1).cumsum() / len(table)
        dropped = float((table["used"] == 0).mean())
        said = f"mean {table['staleness'].mean():.3g}" + (f", {100 * dropped:.2g} % dropped" if dropped else "")
        edges = np.arange(largest + 2) - 0.5
        stairs = box.stairs(shares, edges, baseline=None, color=look(i).colour, linestyle=look(i).dash)
        handles[f"{each.label}: {said}"] = stairs
    box.set_xlim(-0.5, largest + 0.5)
    box.set_ylim(0, 102)
    box.set_xlabel("Staleness of an update (versions)")
    box.set_ylabel("Updates with at most that (%)")
    box.xaxis.set_major_locator(round_ticks(whole=True))
    box.yaxis.set_major_locator(round_ticks())
    return handles


def _over_time(box: Axes, table: pd.DataFrame, shown: Sequence[str], first: int) -> dict[str, Artist]:
    """Lines over the time of a run; returns them by owner. Their looks begin with that number ``first``."""
    import pandas as pd

    end_s = float(table["time_s"].max())
    unit = AXES["time"].unit(end_s)
    owner = table["owner"].where(table["owner"].isin(shown), OTHERS)
    part = np.minimum((table["time_s"] / (end_s or 1.0) * BINS).astype(int), BINS - 1)
    means = pd.DataFrame({"time_s": table["time_s"], "staleness": table["staleness"]}).groupby([owner, part]).mean()
    lines: dict[str, Artist] = {}
    for i, name in enumerate([*shown, OTHERS]):
        if name in means.index.get_level_values(0):
            own = means.loc[name]
            lines[name] = curve(box, (own["time_s"] / unit.size).tolist(), own["staleness"].tolist(), first + i)
    measure_x(box, AXES["time"], unit, end_s / unit.size)
    box.set_ylim(bottom=0)
    box.yaxis.set_major_locator(round_ticks())
    return lines
