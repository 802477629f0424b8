"""What reaching accuracies takes, as bars on a logarithmic axis: S5 Fig. 6."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from analysis.plots.style import check_path, legend_below, look, panels, save, settle, style, title_above
from analysis.quantities import axis_named
from emulator.errors import InputError

WIDTH = 0.8  # of all bars of a target together
NOTE = "Bars: mean over the seeds that got there; lines: lowest to highest seed."

# By line, then by target: what it took each seed, nan where it never got there.
Taken = Mapping[str, Sequence[Sequence[float]]]


def plot(
    by_panel: Mapping[str, Taken],
    targets: Sequence[float],
    axis: str = "bytes",
    path: Path | str | None = None,
    title: str | None = None,
) -> Figure:
    """Draws, for each target accuracy (a share), a bar for each line: what it took on average, on a logarithmic axis.

    ``by_panel`` maps titles of panels to their lines; ``axis`` is ``bytes``, ``time``, ``cost`` or ``round``. Where no seed got
    there, the place of the bar says so; where only some did, the bar says how many. With a ``path`` the figure is also written
    there (PNG, SVG or PDF). Raises `InputError` if there is nothing to draw, or an argument makes no sense.
    """
    if not targets or not any(by_panel.values()):
        raise InputError("give at least one run and one target to draw")
    if path is not None:
        check_path(path)
    kind = axis_named(axis)
    labels = list(dict.fromkeys(label for lines in by_panel.values() for label in lines))
    values = [v for lines in by_panel.values() for each in lines.values() for seeds in each for v in seeds if v > 0]
    unit = kind.unit(max(values, default=1.0))
    low, high = _limits([v / unit.size for v in values])
    with style():
        figure, boxes = panels(len(by_panel))
        for i, ((name, lines), box) in enumerate(zip(by_panel.items(), boxes, strict=True)):
            for label, each in lines.items():
                _bars(box, [[v / unit.size for v in seeds] for seeds in each], labels.index(label), len(labels), low)
            _measure(box, targets, low, high)
            if name:
                box.set_title(name)
            if i == 0 or box.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                box.set_ylabel(kind.label(unit))
        if title:
            title_above(figure, title)
        several = any(len(seeds) > 1 for lines in by_panel.values() for each in lines.values() for seeds in each)
        patches = [Patch(color=look(i).colour) for i in range(len(labels))]
        legend_below(figure, patches, labels, NOTE if several else "")
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """The ends of the axis: whole powers of ten around all values, with room for what stands on the bars."""
    if not values:
        return 0.1, 1.0
    low, high = math.floor(math.log10(min(values)) - 0.3), math.ceil(math.log10(max(values)) + 0.2)
    return 10.0**low, 10.0 ** max(high, low + 1)


def _bars(box: Axes, taken: Sequence[Sequence[float]], number: int, lines: int, low: float) -> None:
    width = WIDTH / lines
    for place, seeds in enumerate(taken):
        x = place + (number - (lines - 1) / 2) * width
        reached = [v for v in seeds if not math.isnan(v)]
        if not reached:
            box.text(x, 1.15 * low, "not reached", rotation=90, ha="center", va="bottom", color=look(number).colour)
            continue
        mean = statistics.mean(reached)
        box.bar([x], [mean], 0.9 * width, color=look(number).colour)
        if len(reached) > 1:
            box.vlines([x], [min(reached)], [max(reached)], color="black", linewidth=0.9)
        if len(reached) < len(seeds):
            box.text(x, 1.1 * max(reached), f"{len(reached)}/{len(seeds)}", ha="center", va="bottom")


def _measure(box: Axes, targets: Sequence[float], low: float, high: float) -> None:
    box.set_yscale("log")
    box.set_ylim(low, high)
    box.yaxis.set_major_locator(LogLocator(10, numticks=12))
    box.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    box.yaxis.set_minor_formatter(NullFormatter())
    box.set_xticks(range(len(targets)), [f"{100 * target:g} %" for target in targets])
    box.set_xlim(-0.5, len(targets) - 0.5)
    box.grid(visible=False, axis="x")
    box.set_xlabel("Target accuracy")
