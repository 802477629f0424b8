"""Draws the seconds of the first flow to end, the second, and so on: packets and the emulator. For ``benchmarks/fidelity.py``."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Repeats = Sequence[Sequence[float]]  # the seconds of every flow, by repeat
LABELS = {"kernel": "the kernel's TCP", "ns3": "ns-3", "tcp": "emulator, tcp", "fluid": "emulator, fluid"}
COLUMNS, TITLE_LETTERS = 4, 26
TENTHS = (0.1, 0.5, 0.9)


def by_place(repeats: Repeats) -> list[list[float]]:
    """A tenth, the median and nine tenths over repeats: of the first flow's seconds, of the second's, and so on."""
    low, middle, high = np.quantile(np.sort(np.array(repeats), axis=1), TENTHS, axis=0).tolist()
    return [low, middle, high]


def plot(cases: Mapping[str, Mapping[str, Repeats]], path: Path | str) -> Figure:
    """Draws a panel for each case, with a line for each of who answered it (see `LABELS`), and writes the picture.

    Every flow's seconds are divided by those that the fluid has in its place. Raises `InputError` where the path is no good.
    """
    rows = -(-len(cases) // COLUMNS)
    with style.style():
        figure = style.blank(style.PAGE_INCHES, rows * style.PANEL_INCHES * 0.9)
        grid = figure.subplots(rows, COLUMNS, squeeze=False, sharey=True)
        lines = {}
        for axes, (name, answers) in zip(grid.flat, cases.items(), strict=False):
            (fluid,) = map(sorted, answers["fluid"])
            for who, repeats in answers.items():
                low, middle, high = (np.divide(some, fluid).tolist() for some in by_place(repeats))
                number, places = list(LABELS).index(who), range(1, len(middle) + 1)
                lines[who] = style.curve(axes, places, middle, number)
                style.band(axes, places, low, high, number)
            whole = re.sub(r"(\d) (?=[A-Za-z])", "\\1\N{NO-BREAK SPACE}", name)
            axes.set_title(textwrap.fill(whole, TITLE_LETTERS), fontsize=style.FONT_POINTS)
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.set_xlabel("Place")
        for unused in grid.flat[len(cases) :]:
            unused.remove()
        for first in grid[:, 0]:
            first.set_ylabel("Time / that of the fluid")
        shown = [who for who in LABELS if who in lines]
        note = "Lines: medians over repeats or seeds. Bands: from one tenth to nine tenths of them."
        style.legend_below(figure, [lines[who] for who in shown], [LABELS[who] for who in shown], note)
        style.settle(figure)
    style.save(figure, path)
    return figure
