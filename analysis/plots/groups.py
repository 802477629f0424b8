"""Which labels groups hold, and what balance costs: S2 Figs. 7 and 6 for any formation rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pydantic import Field

from analysis.activity import client_spans
from analysis.figures import SeriesFigure, save_all, series_of
from analysis.plots.style import (
    check_path,
    legend_below,
    look,
    note_below,
    panels,
    round_ticks,
    save,
    settle,
    style,
    title_above,
)
from analysis.runs import Run
from analysis.series import Given, as_series
from analysis.studies import StudyResults
from emulator.contracts.files import figures
from emulator.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The "muted" scheme of P. Tol (Colour Schemes, SRON/EPS/TN/09-002, 2021), made to be told apart by everybody, with
# a darker grey; ordered so that neighbours in a bar differ in lightness.
LABEL_COLOURS = (
    "#332288", "#44AA99", "#882255", "#999933", "#117733",
    "#88CCEE", "#AA4499", "#BBBBBB", "#CC6677", "#DDCC77",
)  # fmt: skip
MANY_GROUPS = 120  # more stand without gaps between them
LINE = 0.085  # height of a line of text, as a share of a panel's


@dataclass(frozen=True, eq=False)
class RuleGroups:
    """The groups that one formation rule made."""

    label: str
    label_counts: npt.NDArray[np.int64]  # [groups, labels]
    mean_size: float  # clients
    mean_cov: float
    overhead_s: float  # of a client in a group round, on average


class Groups(SeriesFigure):
    """Options of ``groups``."""

    round: int | None = Field(
        None, ge=1, description="the groups of this round; by default those that were formed last"
    )


@figures.register("groups", Groups)
def groups(results: StudyResults, paths: Sequence[Path], params: Groups) -> None:
    """Which labels the groups of each method hold, a bar for each group, and what their balance costs."""
    save_all(plot_series(series_of(results, params), params.round, title=params.title or None), paths)


def plot_series(
    given: Sequence[Given],
    round: int | None = None,  # noqa: A002
    path: Path | str | None = None,
    title: str | None = None,
) -> Figure:
    """Draws the groups of run folders (or runs, or series) as `plot` draws those of rules; of several seeds the first.

    Raises `InputError` as `plot` and `analysis.series.as_series`, and where a run has formed no groups by that round.
    """
    series = as_series(given)
    seeds = sorted({int(each.note.removeprefix("seed ")) for each in series if each.note})
    note = f"Groups of seed {', '.join(str(s) for s in seeds)}." if seeds else ""
    return plot([rule_groups(each.first, each.label, round) for each in series], path, title, note)


def rule_groups(run: Run, label: str, round: int | None = None) -> RuleGroups:  # noqa: A002
    """The groups that a run used in a round, by default those that it formed last.

    Raises `InputError` where it has formed none by then.
    """
    table = run.groups
    formed = table["round"] if round is None else table["round"][table["round"] <= round]
    if formed.empty:
        raise InputError(f"the run in '{run.folder}' has formed no groups by round {round}")
    table = table[table["round"] == formed.max()]
    counts = table[[c for c in table.columns if str(c).startswith("label_")]].to_numpy(dtype=np.int64)
    spans = client_spans(run)
    operations = spans[spans["kind"] == "group operation"]
    turns = len(operations.drop_duplicates(["client", "round", "group", "group_round"]))
    overhead_s = float((operations["end_s"] - operations["start_s"]).sum()) / turns if turns else 0.0
    return RuleGroups(label, counts, float(table["size"].mean()), float(table["cov"].mean()), overhead_s)


def plot(
    rules: Sequence[RuleGroups], path: Path | str | None = None, title: str | None = None, note: str = ""
) -> Figure:
    """Draws a panel of bars for each rule, a bar for each group, and where there are several, mean CoV against overhead.

    Where groups have no overhead, their mean size takes its place. Of more than ten labels, the colours come round again
    and there is no legend. A ``note`` stands below. With a ``path`` the figure is also written there (PNG, SVG or PDF). Raises
    `InputError` if there are no rules or the path is no good.
    """
    if not rules:
        raise InputError("give at least one formation rule to draw")
    if path is not None:
        check_path(path)
    labels = rules[0].label_counts.shape[1]
    tallest = max(int(rule.label_counts.sum(axis=1).max()) for rule in rules)
    with style():
        figure, boxes = panels(len(rules) + (len(rules) > 1))
        for i, (rule, box) in enumerate(zip(rules, boxes, strict=False)):
            _bars(box, rule)
            box.set_ylim(0, max(1, tallest) * 1.02)
            if i == 0 or box.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                box.set_ylabel("Samples")
        if len(rules) > 1:
            _points(boxes[-1], rules)
        if title:
            title_above(figure, title)
        if labels <= len(LABEL_COLOURS):
            from matplotlib.patches import Patch

            handles = [Patch(color=LABEL_COLOURS[j]) for j in range(labels)]
            legend_below(figure, handles, [f"label {j}" for j in range(labels)], note)
        elif note:
            note_below(figure, note)
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _bars(box: Axes, rule: RuleGroups) -> None:
    groups, labels = rule.label_counts.shape
    edges = np.arange(groups + 1) - 0.5
    tops = np.zeros(groups)
    for j in range(labels):
        below, tops = tops, tops + rule.label_counts[:, j]
        colour = LABEL_COLOURS[j % len(LABEL_COLOURS)]
        box.stairs(tops, edges, baseline=below, fill=True, facecolor=colour, edgecolor="white", linewidth=0.2)
    if groups <= MANY_GROUPS:
        box.vlines(edges[1:-1], 0, 1, transform=box.get_xaxis_transform(), color="white", linewidth=40 / (groups + 20))
    box.set_xlim(-0.5, groups - 0.5)
    box.grid(visible=False)
    box.set_xticks([])
    plural = "s" if groups > 1 else ""
    box.set_title(f"{rule.label}: mean CoV {rule.mean_cov:.2f}", fontsize="medium")
    box.set_xlabel(f"{groups} group{plural} of {rule.mean_size:.1f} clients on average")


def _points(box: Axes, rules: Sequence[RuleGroups]) -> None:
    costly = any(rule.overhead_s > 0 for rule in rules)
    at = [(rule.overhead_s if costly else rule.mean_size, rule.mean_cov) for rule in rules]
    right = 1.15 * max(x for x, _ in at)
    top = 1.25 * max((y for _, y in at if math.isfinite(y)), default=1) or 1.0
    for i, (x, y) in enumerate(at):
        box.plot([x], [y], look(i).marker, color=look(i).colour, markersize=6, clip_on=False)
    _name_points(box, rules, at, right, LINE * top)
    box.set_xlim(0, right)
    box.set_ylim(0, top)
    box.set_xlabel("Overhead of a client\nin a group round (s)" if costly else "Mean group size (clients)")
    box.set_ylabel("Mean CoV")
    box.xaxis.set_major_locator(round_ticks())
    box.yaxis.set_major_locator(round_ticks())


def _name_points(
    box: Axes, rules: Sequence[RuleGroups], at: Sequence[tuple[float, float]], right: float, line: float
) -> None:
    """Names beside their points, on the side that has more room, clear of points and names close by."""
    lowest = {False: -math.inf, True: -math.inf}  # where the next name may stand, by side
    for i in sorted(range(len(rules)), key=lambda i: at[i][1]):
        x, y = at[i]
        if not math.isfinite(y):
            continue
        leftwards = x > right / 2
        height = max(y, lowest[leftwards])
        lowest[leftwards] = height + line
        beside = [other for other, _ in at if abs(other - x) < 0.06 * right]
        place = (min(beside) if leftwards else max(beside), height)
        side = "right" if leftwards else "left"
        shift = (-7 if leftwards else 7, 0)
        box.annotate(
            rules[i].label, place, shift, textcoords="offset points", ha=side, va="center", annotation_clip=False
        )
