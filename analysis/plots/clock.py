"""Two clocks: a round's time lines one under the other, how long each round lasted, and how far each phase is off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from analysis import activity
from analysis.clock_errors import ClockErrors
from analysis.clock_table import of_two
from analysis.figures import SeriesFigure, save_all, series_of
from analysis.plots import timeline
from analysis.plots.style import (
    PAGE_INCHES,
    PANEL_INCHES,
    PART_COLOURS,
    blank,
    check_path,
    curve,
    round_ticks,
    save,
    settle,
    style,
    title_above,
)
from analysis.quantities import AXES
from analysis.series import Series
from analysis.studies import StudyResults
from emulator.contracts.files import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CLIENTS = 20  # in each of the two time lines
OTHER_PHASES = "#666666"


class Clock(SeriesFigure):
    """Options of ``clock``."""

    round: int = Field(1, ge=0, description="the round whose time lines are shown; 0 is what comes before the first")
    clients: int = Field(MOST_CLIENTS, ge=1, le=500, description="the most clients to show in a time line")


@figures.register("clock", Clock)
def clock(results: StudyResults, paths: Sequence[Path], params: Clock) -> None:
    """The clocks of an emulated and a measured run (or of two worlds): time lines, lengths of rounds, errors of phases."""
    errors = of_two(series_of(results, params))
    save_all(plot(errors, params.round, params.clients, title=params.title or None), paths)


def plot(
    errors: ClockErrors,
    round: int = 1,  # noqa: A002
    clients: int = MOST_CLIENTS,
    path: Path | str | None = None,
    title: str | None = None,
) -> Figure:
    """Draws two clocks; the lanes of both time lines are the same clients, over one scale of time.

    With a ``path`` the figure is also written there. Raises `InputError` where a run has no such round, or the path is no good.
    """
    if path is not None:
        check_path(path)
    runs = (errors.first, errors.second)
    shown = timeline.look_at(errors.second, round, clients).clients
    rounds = [timeline.look_at(run, round, clients, only=shown) for run in runs]
    series = [Series(name, (run,)) for name, run in zip(errors.names, runs, strict=True)]
    longest = max(each.end_s - each.start_s for each in rounds)
    unit = AXES["time"].unit(longest)
    with style():
        heights = [timeline.LANE_INCHES * (len(each.links) + len(each.clients) + 1) + 0.2 for each in rounds]
        figure = blank(PAGE_INCHES, sum(heights) + PANEL_INCHES + 0.6)
        parts = figure.subfigures(2, 1, squeeze=False, height_ratios=[sum(heights) + 0.3, PANEL_INCHES + 0.3])
        above, below = parts[:, 0]
        lines = above.subplots(2, 1, sharex=True, height_ratios=heights)
        for each, drawn, box in zip(series, rounds, lines, strict=True):
            timeline.fill(box, drawn, unit.size)
            box.set_title(each.label, fontsize="medium")
        lines[-1].set_xlim(0, longest / unit.size or 1.0)
        lines[-1].set_xlabel(f"Time since round {round} began ({unit.name})")
        lines[-1].xaxis.set_major_locator(round_ticks())
        lengths, phases = below.subplots(1, 2)
        _lengths(lengths, errors)
        _phases(phases, errors)
        if title:
            title_above(figure, title)
        timeline.legend(figure, rounds, series)
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _lengths(box: Axes, errors: ClockErrors) -> None:
    """How long each round lasted in either run."""
    table = errors.rounds
    unit = AXES["time"].unit(float(table[["first_s", "second_s"]].max().max()))
    for index, (name, column) in enumerate(zip(errors.names, ("first_s", "second_s"), strict=True)):
        known = table.dropna(subset=[column])
        line = curve(box, known["round"].tolist(), (known[column] / unit.size).tolist(), index)
        line.set_label(name)
    box.set_ylim(bottom=0)
    box.set_xlabel("Global round")
    box.set_ylabel(f"Length of the round ({unit.name})")
    box.xaxis.set_major_locator(round_ticks(whole=True))
    box.legend()


def _phases(box: Axes, errors: ClockErrors) -> None:
    """The error of each phase with its interval; what has none is left out, and said by its name alone."""
    rows = errors.phases.to_dict("records")
    places = range(len(rows))
    shares = [0.0 if math.isnan(row["error"]) else 100 * row["error"] for row in rows]
    halves = [0.0 if math.isnan(row["ci95"]) or math.isnan(row["error"]) else 100 * row["ci95"] for row in rows]
    colours = [PART_COLOURS.get(row["phase"], OTHER_PHASES) for row in rows]
    edges = [
        "#777777" if row["phase"] == activity.WAITING else colour for row, colour in zip(rows, colours, strict=True)
    ]
    box.barh(list(places), shares, color=colours, edgecolor=edges, linewidth=0.6, height=0.65)
    box.errorbar(shares, list(places), xerr=halves, fmt="none", ecolor="black", elinewidth=0.8, capsize=2)
    box.axvline(0, color="black", linewidth=0.7)
    box.set_yticks(list(places), [row["phase"] for row in rows])
    box.invert_yaxis()
    box.grid(visible=False, axis="y")
    box.set_xlabel("Error in per cent, with its 95 % interval")
    box.xaxis.set_major_locator(round_ticks())
