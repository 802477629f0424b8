"""The look of every plot, and how a plot becomes a file.

Figures are drawn with matplotlib's objects (no pyplot, no global figure list, no window). Colours are the
palette of Okabe and Ito (*Color Universal Design*, 2008) without its yellow, which is too pale for lines on
white; line styles and markers tell the runs apart a second time, for readers without colours and for
printers. Sizes are those of print: one column or the full width of a two-column page, with text of 8 points
or more. Nothing here depends on the user's matplotlib settings or on the time of day, so the same data gives
the same bytes.

Plots are found by importing every file here, so none imports matplotlib at its top: checking a study would take twice as long.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.quantities import Axis, Unit
from emulator.errors import InputError, quote_all

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

COLUMN_INCHES = 3.5  # one column of a two-column paper
PAGE_INCHES = 7.16  # its full text width
PANEL_INCHES = 2.35  # height of a panel with its labels
FONT_POINTS = 8
DPI = 200

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.2, 1.2)),
    (0, (6, 1.5, 1.2, 1.5)),
    (0, (3, 1.2, 1.2, 1.2, 1.2, 1.2)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
# What a client does, in the same palette; waiting is pale because nothing happens.
PART_COLOURS = {
    "compute": "#0072B2", "group operation": "#E69F00", "client to client": "#CC79A7",
    "up": "#D55E00", "down": "#56B4E9", "waiting": "#E2E2E2",
}  # fmt: skip
MANY_POINTS = 15  # a line with more has markers only here and there

_SETTINGS: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, so that every machine has it
    "font.size": FONT_POINTS,
    "axes.labelsize": FONT_POINTS,
    "axes.titlesize": FONT_POINTS + 1,
    "figure.titlesize": FONT_POINTS + 1,
    "xtick.labelsize": FONT_POINTS,
    "ytick.labelsize": FONT_POINTS,
    "legend.fontsize": FONT_POINTS,
    "legend.title_fontsize": FONT_POINTS,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.8,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "svg.fonttype": "none",  # text stays text: it can be searched, and read aloud
    "svg.hashsalt": "hfl-emulator",
    "pdf.fonttype": 42,  # publishers refuse Type 3 fonts
}

_METADATA: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The settings of all plots, from matplotlib's own defaults, for as long as the block lasts."""
    import matplotlib.style

    with matplotlib.style.context(_SETTINGS, after_reset=True):
        yield


@dataclass(frozen=True)
class Look:
    """How the line of one run is drawn."""

    colour: str
    dash: Any
    marker: str


def look(index: int) -> Look:
    """The look of the run at ``index``; no look returns before 315 others, as the lists share no divisor."""
    return Look(COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)], MARKERS[index % len(MARKERS)])


def panels(count: int) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` panels: one in a column's width; two or three in a row; more in rows of two."""
    columns = count if count <= 3 else 2
    rows = math.ceil(count / columns)
    size = (COLUMN_INCHES if count == 1 else PAGE_INCHES, rows * PANEL_INCHES)
    figure = blank(*size)
    grid = figure.subplots(rows, columns, squeeze=False)
    axes = [axes for row in grid for axes in row]
    for unused in axes[count:]:
        unused.remove()
    return figure, axes[:count]


def blank(width: float, height: float) -> Figure:
    """An empty figure of this size in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def band(axes: Axes, x: Sequence[float], low: Sequence[float], high: Sequence[float], index: int) -> None:
    """Draws what lies around the line at ``index``, pale enough to see other lines through it."""
    axes.fill_between(x, low, high, color=look(index).colour, alpha=0.2, linewidth=0)


def curve(axes: Axes, x: Sequence[float], y: Sequence[float], index: int, alone: bool = False) -> Line2D:
    """Draws the line of the run at ``index``.

    A line of few points marks each of them. One of many has markers only to be told from other lines: some,
    or none if it is ``alone``.
    """
    chosen = look(index)
    few = len(x) <= MANY_POINTS
    # Markers at equal distances along a long line, begun elsewhere for each run so that they do not pile up.
    spacing = None if few else (0.03 + 0.025 * (index % 7), 0.2)
    (line,) = axes.plot(
        x,
        y,
        color=chosen.colour,
        linestyle=chosen.dash,
        marker=chosen.marker if few or not alone else "",
        markevery=spacing,
        clip_on=not few,  # a marker on the edge of the panel is drawn whole
    )
    return line


def measure_x(axes: Axes, axis: Axis, unit: Unit, largest: float, smallest: float | None = None) -> None:
    """Labels the x axis with quantity and unit; it runs from 0 to just beyond ``largest`` (in ``unit``).

    With ``smallest`` it is logarithmic and begins just before that.
    """
    axes.set_xlabel(axis.label(unit))
    if smallest is not None:
        log_x(axes, smallest, largest)
        return
    axes.set_xlim(0, largest * 1.02 if largest > 0 else 1)
    axes.xaxis.set_major_locator(round_ticks(whole=not axis.units))


def log_x(axes: Axes, smallest: float, largest: float) -> None:
    """Makes the x axis logarithmic, from just before ``smallest`` to just beyond ``largest``, with plain numbers at its ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    margin = (largest / smallest) ** 0.03 if largest > smallest else 2.0
    axes.set_xscale("log")
    axes.set_xlim(smallest / margin, largest * margin)
    # Over many powers of ten only these are named; over one or two also some numbers between.
    subs = (1.0,) if largest > 300 * smallest else (1.0, 3.0) if largest > 10 * smallest else (1.0, 2.0, 5.0)
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value < 1e4 else f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def round_ticks(whole: bool = False) -> MaxNLocator:
    """Some six ticks at steps of 1, 2, 2.5 or 5 times a power of ten, only at ``whole`` numbers if asked."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10], integer=whole)


def title_above(figure: Figure, title: str) -> None:
    """Writes a title over the whole figure and makes room for it."""
    text = figure.suptitle(_wrapped(figure, title))
    _grow(figure, text.get_window_extent().height)


def legend_below(figure: Figure, handles: Sequence[Artist], labels: Sequence[str], note: str = "") -> None:
    """Puts the legend under the panels, in as many columns as fit, and makes the figure higher for it.

    A ``note`` stands above its entries.
    """
    available = figure.get_figwidth() * figure.dpi * 0.98
    shown = [_wrapped(figure, label) for label in labels]
    for columns in range(min(len(shown), 6), 0, -1):
        if columns > 1 and math.ceil(len(shown) / math.ceil(len(shown) / columns)) < columns:
            continue  # fewer columns need no more rows, and fill them more evenly
        legend = figure.legend(handles, shown, loc="outside lower center", ncols=columns, columnspacing=1.4)
        if note:
            legend.set_title(_wrapped(figure, note))
            legend.get_title().set_multialignment("center")
        extent = legend.get_window_extent()
        if extent.width <= available or columns == 1:
            _grow(figure, extent.height)
            return
        legend.remove()


def note_below(figure: Figure, note: str) -> None:
    """Writes a note under the panels of a figure without a legend, and makes room for it."""
    text = figure.supxlabel(_wrapped(figure, note), fontsize=FONT_POINTS)
    _grow(figure, text.get_window_extent().height)


def settle(figure: Figure) -> None:
    """Places everything in a figure for good. To be called last.

    The ticks depend on the sizes of the panels and these on the ticks, so the layout takes two passes; if it
    were left to go on, a figure that is saved twice would differ.
    """
    figure.draw_without_rendering()
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def _wrapped(figure: Figure, text: str) -> str:
    """``text`` in lines that fit the width of a figure, beside the line of a legend."""
    characters = int((figure.get_figwidth() - 0.6) * 72 / (0.62 * FONT_POINTS))  # 0.62 em: a wide average letter
    return textwrap.fill(text, characters, break_on_hyphens=False)


def _grow(figure: Figure, pixels: float) -> None:
    figure.set_figheight(figure.get_figheight() + pixels / figure.dpi)


def check_path(path: Path | str) -> Path:
    """``path``, if a picture can go there; raises `InputError` for its extension or a missing folder."""
    path = Path(path)
    if path.suffix.lower() not in _METADATA:
        raise InputError(f"cannot draw '{path}': the name must end in one of {quote_all(_METADATA)}")
    if not path.parent.is_dir():
        raise InputError(f"cannot draw '{path}': there is no folder '{path.parent}'")
    return path


def save(figure: Figure, path: Path | str) -> Path:
    """Writes a figure as PNG, SVG or PDF, by the extension of ``path``, whole or not at all.

    Returns the path. Raises `InputError` as `check_path`.
    """
    path = check_path(path)
    kind = path.suffix.lower()
    drawn = io.BytesIO()
    with style():
        figure.savefig(drawn, format=kind[1:], dpi=DPI, metadata=_METADATA[kind])
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with aside.open("wb") as file:
            file.write(drawn.getvalue())
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return path
