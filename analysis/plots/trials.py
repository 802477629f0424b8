"""How well clients would be split in every round, before and after their updates are stable (S3 Table IV)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.figures import SeriesFigure, save_all, series_of
from analysis.plots.style import (
    COLOURS,
    check_path,
    curve,
    legend_below,
    measure_x,
    panels,
    round_ticks,
    save,
    settle,
    style,
    title_above,
)
from analysis.quantities import accuracy_text, axis_named
from analysis.runs import Run
from analysis.seeds import mean_and_interval
from analysis.series import Given, Series, as_series
from analysis.studies import StudyResults
from emulator.contracts.files import figures
from emulator.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEANS = "#D55E00"
SEED = "#BBBBBB"


@dataclass(frozen=True, eq=False)
class Trial:
    """The splits that one run would have made of its first cluster: shares by round, and the first round when it was time.

    ``before`` and ``after`` are the means over the rounds before that one, and from it on; nan where there are none.
    """

    rounds: np.ndarray
    purity: np.ndarray
    ripe: int | None

    @property
    def before(self) -> float:
        """Mean purity until it was time, or of all rounds if it never was."""
        return _mean(self.purity if self.ripe is None else self.purity[self.rounds < self.ripe])

    @property
    def after(self) -> float:
        """Mean purity from when it was time."""
        return math.nan if self.ripe is None else _mean(self.purity[self.rounds >= self.ripe])


@figures.register("trials", SeriesFigure)
def trials(results: StudyResults, paths: Sequence[Path], params: SeriesFigure) -> None:
    """Purity of the split that each round would have made, before and after updates are stable."""
    save_all(plot(series_of(results, params), title=params.title or None), paths)


def trial(run: Run) -> Trial:
    """What a run tried; raises `InputError` where it has tried nothing, or its clients have no true clusters."""
    rows = run.trials[run.trials["cluster"] == 0].sort_values("round")
    if rows["purity"].isna().any():
        raise InputError(
            f"the run in '{run.folder}' has no true clusters with which its splits could be compared; "
            "take a partition that makes clusters, such as 'label-blocks'"
        )
    ripe = rows.loc[rows["ripe"] == 1, "round"]
    at, purity = rows["round"].to_numpy(dtype=int), rows["purity"].to_numpy(dtype=float)
    return Trial(at, purity, int(ripe.iloc[0]) if len(ripe) else None)


def plot(given: Sequence[Given], path: Path | str | None = None, title: str | None = None) -> Figure:
    """Draws how pure the split of each round would have been, for run folders (or runs, or series), a panel for each.

    Purity is the share of clients on a side where most are of their own true cluster. A vertical line marks the first round when
    it was time to split, of each seed; horizontal ones the mean before it and from it on, over rounds and then over the seeds.
    With a ``path`` the figure is also written there (PNG, SVG or PDF).

    Raises `InputError` as `analysis.series.as_series` and `trial`, and where the path is no good.
    """
    if path is not None:
        check_path(path)
    series = as_series(given)
    found = [[trial(run) for run in each.runs] for each in series]
    lowest = min(float(each.purity.min()) for seeds in found for each in seeds)
    last = max(int(each.rounds.max()) for seeds in found for each in seeds)
    with style():
        figure, boxes = panels(len(series))
        for i, (each, seeds, box) in enumerate(zip(series, found, boxes, strict=True)):
            _fill(box, seeds, last)
            box.set_ylim(math.floor(10 * lowest) * 10 - 2, 102)
            box.yaxis.set_major_locator(round_ticks(whole=True))
            box.set_title(_heading(each, seeds, len(series) > 1), fontsize="medium")
            if i == 0 or box.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                box.set_ylabel("Purity of the split (%)")
        if title:
            title_above(figure, title)
        _explain(figure, found)
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _fill(box: Axes, seeds: Sequence[Trial], last: int) -> None:
    measure_x(box, axis_named("round"), axis_named("round").unit(0), last)
    common = sorted(set.intersection(*({*each.rounds.tolist()} for each in seeds)))
    values = np.array([[each.purity[each.rounds == at][0] for at in common] for each in seeds])
    if len(seeds) > 1:
        for each in seeds:
            box.plot(each.rounds, 100 * each.purity, color=SEED, linewidth=0.8, zorder=1.5)
    curve(box, [float(at) for at in common], (100 * values.mean(axis=0)).tolist(), 0, alone=True)
    for at in [each.ripe for each in seeds if each.ripe is not None]:
        box.axvline(at, color=COLOURS[2], linewidth=1.1, linestyle=(0, (1.2, 1.2)), zorder=1.6)
    before, after = _over_seeds(seeds)
    ripe = [each.ripe for each in seeds if each.ripe is not None]
    middle = float(np.mean(ripe)) if ripe else float(common[-1])
    for level, (start, end) in ((before, (common[0], middle)), (after, (middle, common[-1]))):
        if not math.isnan(level) and end > start:
            box.plot([start, end], [100 * level] * 2, color=MEANS, linewidth=1.3, linestyle=(0, (5, 1.5)), zorder=2.5)


def _over_seeds(seeds: Sequence[Trial]) -> tuple[float, float]:
    """The means before and after of each seed, averaged over the seeds that have one."""
    return mean_and_interval([s.before for s in seeds])[0], mean_and_interval([s.after for s in seeds])[0]


def _heading(each: Series, seeds: Sequence[Trial], named: bool) -> str:
    """The label, and the means in figures (the rows of S3 Table IV)."""
    before, after = _over_seeds(seeds)
    never = sum(s.ripe is None for s in seeds)
    text = f"before {accuracy_text(before)}" if not math.isnan(before) else ""
    if not math.isnan(after):
        text += f"{', ' if text else ''}after {accuracy_text(after)}"
    if never:
        text += "; never stable" if never == len(seeds) else f"; {never} of {len(seeds)} seeds never stable"
    return f"{each.label}\n{text}" if named else text


def _explain(figure: Figure, found: Sequence[Sequence[Trial]]) -> None:
    from matplotlib.lines import Line2D

    several = max(len(seeds) for seeds in found) > 1
    entries = {
        "purity" + (", mean of the seeds" if several else ""): Line2D([], [], color=COLOURS[0], marker="o"),
        **({"a seed": Line2D([], [], color=SEED, linewidth=0.8)} if several else {}),
        "first stable round" + (" of a seed" if several else ""): Line2D(
            [], [], color=COLOURS[2], linewidth=1.1, linestyle=(0, (1.2, 1.2))
        ),
        "mean before and after": Line2D([], [], color=MEANS, linewidth=1.3, linestyle=(0, (5, 1.5))),
    }
    legend_below(figure, list(entries.values()), list(entries))


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan
