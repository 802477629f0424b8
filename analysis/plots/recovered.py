"""Images that an attacker recovered at several accuracies of the model, and the private ones that they are like (S4 Fig. 11b)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.figures import SeriesFigure, save_all, series_of
from analysis.plots import images
from analysis.quantities import accuracy_text
from analysis.runs import Run
from analysis.series import Given, as_series
from analysis.studies import StudyResults
from emulator.contracts.files import figures
from emulator.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGES = "recovered.npy"


@figures.register("recovered", SeriesFigure)
def recovered(results: StudyResults, paths: Sequence[Path], params: SeriesFigure) -> None:
    """Images that an attacker recovered, by the accuracy of the model that it attacked, and private ones like them."""
    save_all(plot(series_of(results, params), title=params.title or None), paths)


def plot(given: Sequence[Given], path: Path | str | None = None, title: str | None = None) -> Figure:
    """Draws what attackers recovered in run folders (or runs, or series), a row for each attack; of several seeds, the first.

    Above the rows of a series stand the private images that are nearest to those of its last attack. With a ``path`` the figure
    is also written there (PNG, SVG or PDF). Raises `InputError` as `analysis.series.as_series`, where a run has recovered
    nothing, and where the path is no good.
    """
    rows: dict[str, np.ndarray] = {}
    series = as_series(given)
    for each in series:
        run = each.runs[0]
        label = f"{each.label}\n" if len(series) > 1 else ""
        found_in = images_of(run)
        rows[f"{label}private"] = found_in[-1, 1]
        for accuracy, found in zip(run.recovered["accuracy"], found_in[:, 0], strict=True):
            rows[f"{label}{accuracy_text(float(accuracy))}"] = found
    return images.plot(rows, None, path, title)


def images_of(run: Run) -> np.ndarray:
    """The images of each row of `Run.recovered`, and the private ones nearest to them [rows, 2, n, channels, height, width].

    Raises `InputError` where the run has none, or its file is damaged.
    """
    rows, path = len(run.recovered), run.folder / IMAGES
    try:
        found: np.ndarray = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"'{path}' is damaged: {error}") from None
    if found.ndim != 6 or found.shape[:2] != (rows, 2):
        raise InputError(f"'{path}' is damaged: it does not fit recovered.csv")
    return found
