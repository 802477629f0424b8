"""How far images that attackers recover are from private ones, by the accuracy of the model that they attack (S4 Fig. 11a)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.figures import SeriesFigure, save_all, series_of
from analysis.plots.style import band, check_path, curve, legend_below, panels, save, settle, style, title_above
from analysis.seeds import BANDS, mean_and_interval
from analysis.series import Given, as_series
from analysis.studies import StudyResults
from emulator.contracts.files import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLOOR = "two halves of the private images"


@figures.register("recovery", SeriesFigure)
def recovery(results: StudyResults, paths: Sequence[Path], params: SeriesFigure) -> None:
    """Fréchet distance between recovered and private images, by the accuracy of the model that is attacked."""
    save_all(plot(series_of(results, params), title=params.title or None), paths)


def plot(given: Sequence[Given], path: Path | str | None = None, title: str | None = None) -> Figure:
    """Draws the distances of run folders (or runs, or series), a line for each; high is good for those who are attacked.

    Seeds are averaged for each accuracy that the scenario names, over those that reached it; a point stands at the mean accuracy
    of their models. With a ``path`` the figure is also written there (PNG, SVG or PDF). Raises `InputError` as
    `analysis.series.as_series`, where a run has recovered nothing, and where the path is no good.
    """
    import pandas as pd

    if path is not None:
        check_path(path)
    series = as_series(given)
    tables = [pd.concat([run.recovered for run in each.runs]) for each in series]
    with style():
        figure, (box,) = panels(1)
        lines = []
        for number, table in enumerate(tables):
            points = [rows for _, rows in table.groupby("at")]
            x = [100 * float(rows["accuracy"].mean()) for rows in points]
            means, halves = zip(*(mean_and_interval(rows["distance"].to_list()) for rows in points), strict=True)
            lines.append(curve(box, x, means, number))
            low, high = ([m + sign * h for m, h in zip(means, halves, strict=True)] for sign in (-1, 1))
            band(box, x, low, high, number)
        floor = box.axhline(float(pd.concat(tables)["floor"].mean()), color="#666666", linewidth=0.9, linestyle=":")
        box.set_xlabel("Accuracy of the attacked model (%)")
        box.set_ylabel("Fréchet distance")
        box.set_ylim(bottom=0)
        if title:
            title_above(figure, title)
        several = any(len(each.runs) > 1 for each in series)
        note = f"Lines: mean over seeds. Bands: {BANDS['interval']}." if several else ""
        legend_below(figure, [*lines, floor], [*(each.label for each in series), FLOOR], note)
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure
