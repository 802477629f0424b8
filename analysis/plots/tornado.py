"""What decides between two methods: how far each unknown moves their ratio, and its Sobol indices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.certainty.certificate import WRITTEN, Certificate, Quantity
from analysis.certainty.deciding import Deciding, deciding, parts_of
from analysis.certainty.figures import CertificateFigure
from analysis.certainty.measured import Measured
from analysis.certainty.regions import QUARTERS
from analysis.certainty.worldwise import Worldwise
from analysis.plots.style import COLOURS, PAGE_INCHES, blank, legend_below, round_ticks, settle, style, title_above
from emulator.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW_INCHES = 0.42
LOW, HIGH, OTHER = COLOURS[5], COLOURS[0], "#777777"
FIRST, TOTAL = COLOURS[6], COLOURS[1]


def tornado(certificate: Certificate, params: CertificateFigure) -> Figure:
    """The median ratio at low and at high values of each unknown, and which share of its variance each explains."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    measure, (a, b) = params.measured(certificate), params.pair(certificate)
    side, decides = certificate.against(a, b, measure), deciding(certificate, a, b, measure)
    if not decides.influences:
        raise InputError(f"nothing decides between '{a}' and '{b}': {decides.why}")
    names = [each.quantity for each in decides.influences]
    with style():
        figure = blank(PAGE_INCHES, 0.75 + ROW_INCHES * len(names))
        left, right = figure.subplots(1, 2, sharey=True, gridspec_kw={"width_ratios": [3, 2]})
        for place, name in enumerate(names):
            _bar(left, certificate, certificate.quantity(name), side, measure, place)
        _left_axis(left, side, measure, a, b)
        written = certificate.against(a, b, measure, WRITTEN).ratio()[1]
        if math.isfinite(written):
            at = written if measure.ratios else written * measure.judged.factor
            left.axvline(at, color=OTHER, linewidth=0.9, linestyle=(0, (3, 2)), zorder=1)
        _indices(right, decides)
        left.set_ylim(len(names) - 0.5, -0.5)
        left.set_yticks(range(len(names)), [certificate.quantity(name).title for name in names])
        for box in (left, right):
            box.grid(visible=False, axis="y")
        handles: list[Any] = [
            Patch(color=LOW),
            Patch(color=HIGH),
            Line2D([], [], marker="o", linestyle="", color=FIRST),
        ]
        if not all(math.isnan(each.total) for each in decides.influences):
            handles.append(Line2D([], [], marker="s", linestyle="", color=TOTAL))
        labels = ["lowest quarter of its values", "highest quarter", "first-order index", "total index"]
        note = (
            "Bars: median over worlds; dashed: the world as it is written. "
            f"Indices: share of the variance of the {decides.of}, with 95 % intervals."
        )
        legend_below(figure, handles, labels[: len(handles)], note)
        title_above(figure, params.title or f"What decides between {a} and {b}: {measure.title}")
        settle(figure)
    return figure


def _bar(
    box: Axes, certificate: Certificate, quantity: Quantity, side: Worldwise, measure: Measured, place: int
) -> None:
    """From the median of all known worlds to that of each end; of a choice, a dot for each of its values."""
    usable = side.known & np.isfinite(side.advantage)
    if not usable.any():
        return
    values = _shown(side, measure, usable)
    column = certificate.drawn[quantity.name][usable]
    parts, bounds = parts_of(column, QUARTERS)
    middle = float(np.median(values))
    if column.dtype.kind not in "fiu":
        medians = [float(np.median(values[parts == part])) for part in range(len(bounds))]
        box.hlines(place, min(medians), max(medians), color=OTHER, linewidth=5, alpha=0.4)
        order = sorted(range(len(medians)), key=medians.__getitem__)
        for rank, part in enumerate(order):  # texts above and below in turn, and none beyond the bar
            box.plot([medians[part]], [place], marker="|", color=OTHER, markersize=11)
            where, aligned = (medians[part], place), "left" if 2 * rank < len(order) else "right"
            shift = (0, -14 if rank % 2 else 7)
            box.annotate(str(bounds[part]), where, shift, textcoords="offset points", ha=aligned)
        return
    for part, colour, beside in ((0, LOW, -0.14), (len(bounds) - 2, HIGH, 0.14)):
        end = float(np.median(values[parts == part]))
        box.barh([place + beside], [end - middle], left=[middle], height=0.28, color=colour)


def _shown(side: Worldwise, measure: Measured, usable: np.ndarray) -> np.ndarray:
    if side.ratios:
        return np.asarray(np.exp(-side.advantage[usable]))
    return np.asarray(side.advantage[usable] * measure.judged.factor)


def _left_axis(box: Axes, side: Worldwise, measure: Measured, a: str, b: str) -> None:
    box.axvline(1.0 if side.ratios else 0.0, color="black", linewidth=0.9, zorder=1)
    box.margins(x=0.08)
    box.xaxis.set_major_locator(round_ticks())
    unit = " (per cent points)" if measure.judged.share else ""
    box.set_xlabel(f"{a} : {b}; {a} is better below 1" if side.ratios else f"{a} better than {b} by{unit}")


def _indices(box: Axes, decides: Deciding) -> None:
    for place, each in enumerate(decides.influences):
        for value, half, colour, marker, shift in (
            (each.first, each.first_half, FIRST, "o", -0.14), (each.total, each.total_half, TOTAL, "s", 0.14),
        ):  # fmt: skip
            if not math.isnan(value):
                box.errorbar(
                    [value], [place + shift], xerr=[half], color=colour, marker=marker, capsize=2, linestyle=""
                )
    box.axvline(0, color="black", linewidth=0.9, zorder=1)
    low, high = box.get_xlim()
    box.set_xlim(min(low, -0.05), max(high, 1.05))
    box.xaxis.set_major_locator(round_ticks())
    box.set_xlabel("Sobol index")
