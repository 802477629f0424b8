"""A map of the winner over two unknowns, with the line on which it tips."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from analysis.certainty.certificate import Certificate, Quantity
from analysis.certainty.deciding import deciding
from analysis.certainty.figures import CertificateFigure
from analysis.certainty.measured import Measured
from analysis.certainty.worldwise import Worldwise
from analysis.plots.style import COLOURS, COLUMN_INCHES, blank, legend_below, settle, style, title_above
from emulator.errors import InputError, quote_all
from emulator.study.schema import Texts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

A, B, NOBODY = COLOURS[0], COLOURS[1], "#777777"
GRID = 120
LEAST = 30  # worlds with a ratio, for a line
DEGREE = 3


class Winners(CertificateFigure):
    """Options of ``winners``."""

    over: Texts = Field((), description="two unknowns with numbers; by default the two that decide most")


def winners(certificate: Certificate, params: Winners) -> Figure:
    """Who is better in each world over two unknowns, and the line on which the ratio is 1."""
    from matplotlib.lines import Line2D

    measure, (a, b) = params.measured(certificate), params.pair(certificate)
    x, y = _two(certificate, params, a, b, measure)
    side = certificate.against(a, b, measure)
    if not side.known.any():
        raise InputError(f"in no world are '{a}' and '{b}' both known")
    with style():
        figure = blank(COLUMN_INCHES, 2.9)
        box = figure.subplots()
        points = certificate.drawn[[x.name, y.name]].to_numpy(dtype=float)
        for sign, colour, marker, _ in _looks(a, b):
            for decided, face in ((True, colour), (False, "none")):
                these = side.known & (side.sign == sign) & (side.decided == decided)
                box.scatter(
                    points[these, 0],
                    points[these, 1],
                    11,
                    marker=marker,
                    facecolors=face,
                    edgecolors=colour,
                    linewidths=0.7,
                    zorder=2,
                )
        handles: list[Any] = [
            Line2D([], [], linestyle="", marker=m, color=c, markersize=4)
            for s, c, m, _ in _looks(a, b)
            if _any(side, s)
        ]
        labels = [text for s, _, _, text in _looks(a, b) if _any(side, s)]
        if (side.known & ~side.decided).any():
            handles.append(Line2D([], [], linestyle="", marker="o", markerfacecolor="none", color=NOBODY, markersize=4))
            labels.append("open: not decided by the seeds")
        _axes(box, x, y)
        fit = _line(box, points, side, x, y)
        if fit is not None:
            handles.append(Line2D([], [], color="black", linewidth=1.4))
            labels.append("where it tips")
        tipped = _tips(box, certificate, a, b, measure, x, y)
        if tipped:
            handles.append(Line2D([], [], linestyle="", marker="*", color="black", markersize=8))
            labels.append("tipping point, all else at its middle")
        note = (
            ""
            if fit is None
            else f"The line is a fit over both ({percent_text(fit)} of the variance); other unknowns vary."
        )
        legend_below(figure, handles, labels, note)
        title_above(figure, params.title or f"{measure.title[:1].upper()}{measure.title[1:]}")
        settle(figure)
    return figure


def percent_text(share: float) -> str:
    """A share in whole per cent."""
    return f"{100 * share:.0f} %"


def _looks(a: str, b: str) -> tuple[tuple[int, str, str, str], ...]:
    return ((1, A, "o", f"{a} better"), (-1, B, "s", f"{b} better"), (0, NOBODY, "X", "neither"))


def _any(side: Worldwise, sign: int) -> bool:
    return bool((side.known & (side.sign == sign)).any())


def _two(certificate: Certificate, params: Winners, a: str, b: str, measure: Measured) -> tuple[Quantity, Quantity]:
    numbers = [q.name for q in certificate.quantities if certificate.worlds[q.name].dtype.kind in "fiu"]
    if params.over:
        for name in params.over:
            certificate.quantity(name)
        if len(set(params.over)) != 2 or not set(params.over) <= set(numbers):
            raise InputError(f"a map is over two different unknowns with numbers, of {quote_all(numbers)}", "over")
        first, second = params.over
        return certificate.quantity(first), certificate.quantity(second)
    order = [each.quantity for each in deciding(certificate, a, b, measure).influences if each.quantity in numbers]
    order += [name for name in numbers if name not in order]
    if len(order) < 2:
        raise InputError("a map takes two unknowns with numbers, and the certificate has fewer")
    return certificate.quantity(order[0]), certificate.quantity(order[1])


def _axes(box: Axes, x: Quantity, y: Quantity) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis, quantity, log in ((box.xaxis, x, box.set_xscale), (box.yaxis, y, box.set_yscale)):
        if quantity.scale == "log":
            log("log")
            axis.set_minor_formatter(NullFormatter())
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=6))
        largest = float(axis.get_data_interval()[1])
        label, size = quantity.axis(largest)
        axis.set_major_formatter(FuncFormatter(lambda value, _, size=size: f"{value / size:.4g}"))
        axis.set_label_text(label)


def _line(box: Axes, points: np.ndarray, side: Worldwise, x: Quantity, y: Quantity) -> float | None:
    """Draws where a cubic least-squares fit of the advantage is zero; gives the share of the variance it explains, or None."""
    usable = side.known & np.isfinite(side.advantage)
    if usable.sum() < LEAST:
        return None
    scaled = np.stack([np.log(c) if q.scale == "log" else c for c, q in zip(points.T, (x, y), strict=True)])
    low, span = scaled.min(axis=1, keepdims=True), np.ptp(scaled, axis=1, keepdims=True)
    if not span.all():
        return None
    unit = (scaled - low) / span
    values = side.advantage[usable]
    weights, *_ = np.linalg.lstsq(_terms(unit[:, usable]), values, rcond=None)
    left = values - _terms(unit[:, usable]) @ weights
    explained = 1 - float(left @ left) / float(np.sum((values - values.mean()) ** 2) or math.inf)
    ticks = np.linspace(0, 1, GRID)
    u, v = np.meshgrid(ticks, ticks)
    height = (_terms(np.stack([u.ravel(), v.ravel()])) @ weights).reshape(u.shape)
    if height.min() >= 0 or height.max() <= 0:
        return None
    place = [
        np.exp(low[i] + span[i] * ticks) if q.scale == "log" else low[i] + span[i] * ticks for i, q in enumerate((x, y))
    ]
    box.contour(place[0], place[1], height, levels=[0.0], colors="black", linewidths=1.4, zorder=3)
    return explained


def _terms(unit: np.ndarray) -> np.ndarray:
    u, v = unit
    return np.stack([u**i * v**j for i in range(DEGREE + 1) for j in range(DEGREE + 1 - i)], axis=1)


def _tips(box: Axes, certificate: Certificate, a: str, b: str, measure: Measured, x: Quantity, y: Quantity) -> bool:
    """Marks the tipping points on the lines on which all else is at its middle."""
    found = False
    for row in certificate.tips(a, b, measure).to_dict("records"):
        if math.isnan(row["at"]):
            continue
        place = {x.name: (row["at"], y.middle), y.name: (x.middle, row["at"])}.get(row["quantity"])
        if place is not None and all(map(math.isfinite, place)):
            box.plot(*place, marker="*", color="black", markersize=9, markeredgecolor="white", zorder=4)
            found = True
    return found
