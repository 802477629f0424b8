"""Accuracy over time, data or cost of each method, with the band that the worlds of a certificate span."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from analysis.certainty.certificate import Certificate
from analysis.certainty.figures import CertificateFigure
from analysis.plots.style import legend_below, look, measure_x, panels, round_ticks, settle, style, title_above
from analysis.quantities import axis_named
from emulator.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BAND = (0.05, 0.5, 0.95)


class WorldCurves(CertificateFigure):
    """Options of ``world-curves``."""

    x: Literal["time", "bytes", "cost"] = Field("time", description="what accuracy is set against")


def world_curves(certificate: Certificate, params: WorldCurves) -> Figure:
    """Accuracy by method, the median world, and a band over nine worlds of ten.

    A replay learns what the run learned, whatever the world: what varies is when. So the band lies sideways, from the 5 % of
    the worlds that get to a round's accuracy first to the 5 % that get there last; accuracies and what they took are means
    over seeds.
    """
    from matplotlib.lines import Line2D

    if certificate.curves is None:
        raise InputError(f"'{certificate.folder}' holds no curves")
    axis = axis_named(params.x)
    if axis.column not in certificate.curves:
        raise InputError(f"the curves of '{certificate.folder}' have no column '{axis.column}'", "x")
    judged = params.measured(certificate).judged
    lines = {}
    for method in certificate.methods:
        rows = certificate.curves[certificate.curves["method"] == method]
        # Rounds that every seed has in a world: a mean over fewer would be one of others.
        each = rows.groupby(["world", "round"], as_index=False).agg(
            x=(axis.column, "mean"), y=("accuracy", "mean"), seeds=("seed", "nunique")
        )
        each = each[each["seeds"] == rows["seed"].nunique()]
        rounds = each["round"].value_counts()
        every = each[each["round"].isin(rounds.index[rounds == each["world"].nunique()])]
        if not every.empty:
            over = every.groupby("round")
            spans = [over["x"].quantile(at).to_numpy(dtype=float) for at in BAND]
            lines[method] = (np.stack(spans, axis=1), over["y"].mean().to_numpy(dtype=float))
    if not lines:
        raise InputError(f"the curves of '{certificate.folder}' are empty")
    largest = max(float(x.max()) for x, _ in lines.values())
    unit = axis.unit(largest)
    with style():
        figure, [box] = panels(1)
        for i, (x, y) in enumerate(lines.values()):
            chosen = look(i)
            box.fill_betweenx(
                y * judged.factor, x[:, 0] / unit.size, x[:, 2] / unit.size, color=chosen.colour, alpha=0.2, linewidth=0
            )
            box.plot(x[:, 1] / unit.size, y * judged.factor, color=chosen.colour, linestyle=chosen.dash)
        measure_x(box, axis, unit, largest / unit.size)
        box.set_ylabel(judged.axis())
        box.yaxis.set_major_locator(round_ticks())
        handles = [Line2D([], [], color=look(i).colour, linestyle=look(i).dash) for i in range(len(lines))]
        count = int(np.unique(certificate.curves["world"]).size)
        legend_below(figure, handles, list(lines), f"Median of {count} worlds; bands: nine worlds of ten.")
        title_above(figure, params.title or "Curves over worlds")
        settle(figure)
    return figure
