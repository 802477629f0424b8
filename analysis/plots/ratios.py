"""How the ratio of two methods is distributed over worlds, cumulated, so that P(A beats B) can be read off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from analysis.certainty.certificate import Certificate
from analysis.certainty.figures import CertificateFigure
from analysis.certainty.measured import Measured
from analysis.certainty.verdict import percent_with_interval
from analysis.plots.style import legend_below, log_x, look, panels, round_ticks, settle, style, title_above
from emulator.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

FAR_APART = 4.0  # ratios of which the largest is so many times the smallest stand on a logarithmic axis
NOTE = "Left of the black line A is better: where a curve crosses it is P(A beats B). In brackets: its 95 % interval."


def ratios(certificate: Certificate, params: CertificateFigure) -> Figure:
    """In which share of the worlds A takes at most so many times what B takes (by how much its accuracy is higher)."""
    measure, pairs = params.measured(certificate), params.pairs(certificate)
    with style():
        figure, [axes] = panels(1)
        lines, labels = [], []
        for i, (a, b) in enumerate(pairs):
            line = _line(axes, certificate, measure, a, b, i)
            if line is not None:
                better = certificate.against(a, b, measure).better
                lines.append(line)
                labels.append(f"{a} : {b}, {percent_with_interval(better)}")
        if not lines:
            raise InputError(f"in no world is the {measure.title} of two methods known")
        _scale(axes, measure, lines)
        axes.axvline(1.0 if measure.ratios else 0.0, color="black", linewidth=0.9, zorder=1)
        axes.set_ylim(0, 1)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100"])
        axes.set_ylabel("worlds (%)")
        legend_below(
            figure,
            lines,
            labels,
            NOTE if measure.ratios else NOTE.replace("Left", "Right").replace("is P(", "is 1 - P("),
        )
        title_above(figure, params.title or f"{measure.title[:1].upper()}{measure.title[1:]}")
        settle(figure)
    return figure


def _line(axes: Axes, certificate: Certificate, measure: Measured, a: str, b: str, index: int) -> Line2D | None:
    """The cumulated share of all worlds that are known; it ends below 100 % where A never got there."""
    side = certificate.against(a, b, measure)
    values = np.sort(side.values) * (1.0 if measure.ratios else measure.judged.factor)
    finite = np.isfinite(values) & ((values > 0) | (not measure.ratios))
    if not finite.any():
        return None
    shares = np.arange(1, len(values) + 1) / side.known.sum()
    before = shares[finite][0] - 1 / side.known.sum()
    x, y = np.concatenate([values[finite][:1], values[finite]]), np.concatenate([[before], shares[finite]])
    chosen = look(index)
    (line,) = axes.step(x, y, where="post", color=chosen.colour, linestyle=chosen.dash)
    return line


def _scale(axes: Axes, measure: Measured, lines: Sequence[Line2D]) -> None:
    ends = [float(v) for line in lines for v in (np.min(line.get_xdata()), np.max(line.get_xdata()))]
    low, high = min(ends), max(ends)
    middle = 1.0 if measure.ratios else 0.0
    low, high = min(low, middle), max(high, middle)
    if measure.ratios:
        axes.set_xlabel("what A takes as a multiple of B (A : B)")
    if measure.ratios and high > FAR_APART * low:
        log_x(axes, low * 0.95, high * 1.05)
        return
    margin = 0.05 * (high - low) or 0.05
    axes.set_xlim(low - margin, high + margin)
    axes.xaxis.set_major_locator(round_ticks())
    if measure.ratios:
        return
    axes.set_xlabel(f"A better than B by ({'per cent points' if measure.judged.share else measure.judged.called})")
