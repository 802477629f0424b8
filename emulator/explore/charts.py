"""Curves and totals of runs, as they were and as they would have been."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from bokeh.models.annotations import Legend, LegendItem
from bokeh.models.formatters import NumeralTickFormatter
from bokeh.models.sources import ColumnDataSource
from bokeh.models.tools import HoverTool
from bokeh.palettes import Colorblind8
from bokeh.plotting import figure

from analysis.quantities import AXES, Unit, bytes_text, cost_text, energy_text, time_text
from analysis.worlds import change_text
from emulator.measures import ACCURACY, Measure
from emulator.methods.session import Metrics

DRAWN = ("time", "bytes", "cost")
GREY = "#777777"
TEXTS = {"time": time_text, "bytes": bytes_text, "cost": cost_text}
TOTALS = (
    ("Time", "time_s", time_text), ("Data", "bytes_total", bytes_text), ("Cost", "cost_s", cost_text),
    ("Energy", "energy_j", energy_text),
)  # fmt: skip

Rows = Sequence[Metrics]


class Charts:
    """Accuracy against time, bytes and cost: of each run a dashed line as it was, and a solid one in the world that is asked for.

    Runs without training have no accuracy; their rounds are drawn in its place.
    """

    def __init__(self, labels: Sequence[str], training: bool, measure: Measure = ACCURACY) -> None:
        self._labels = labels
        self._measure = measure
        self._training = training

        def source(name: str) -> ColumnDataSource:
            return ColumnDataSource(self._columns([], {}), name=name)

        self._sources = [(source(f"original-{i}"), source(f"curve-{i}")) for i in range(len(labels))]
        self.plots = [self._plot(name) for name in DRAWN]

    def show(self, befores: Sequence[Rows], afters: Sequence[Rows | None]) -> None:
        """Draws runs as they were, and those that were replayed."""
        every = [rows for rows in (*befores, *afters) if rows]
        units = {name: AXES[name].unit(max(rows[-1][AXES[name].column] for rows in every)) for name in DRAWN}
        for plot, name in zip(self.plots, DRAWN, strict=True):
            plot.xaxis.axis_label = AXES[name].label(units[name])
        for (original, curve), before, after in zip(self._sources, befores, afters, strict=True):
            original.data = self._columns(before, units)
            curve.data = self._columns(after or [], units)

    def _columns(self, rows: Rows, units: dict[str, Unit]) -> dict[str, Any]:
        data: dict[str, Any] = {"round": [int(r["round"]) for r in rows]}
        data["y"] = [r[self._measure.name if self._training else "round"] for r in rows]
        for name in DRAWN:
            column = AXES[name].column
            data[name] = [r[column] / units[name].size for r in rows]
            data[f"{name}_text"] = [TEXTS[name](r[column]) for r in rows]
        return data

    def _plot(self, name: str) -> Any:
        plot = figure(
            height=350, min_width=260, sizing_mode="stretch_width", toolbar_location="above", name=f"plot-{name}",
            tools="pan,box_zoom,wheel_zoom,reset,save", y_axis_label=self._measure.heading if self._training else "Global round",
        )  # fmt: skip
        plot.toolbar.logo = None
        plot.min_border_right = 15
        tips = [("round", "@round"), (AXES[name].title, f"@{name}_text")]
        if self._training:
            if self._measure.share:
                plot.yaxis.formatter = NumeralTickFormatter(format="0 %")
            tips.insert(1, (self._measure.called, "@y{0.0 %}" if self._measure.share else "@y{0.000}"))
        plot.add_tools(HoverTool(tooltips=tips))
        items: list[LegendItem] = []
        one = len(self._labels) == 1
        for i, (original, curve) in enumerate(self._sources):
            colour = Colorblind8[i % len(Colorblind8)]
            # The original goes on top: where both are the same, its dashes show.
            after: Any = plot.line(name, "y", source=curve, color=colour, line_width=3)
            before: Any = plot.line(
                name, "y", source=original, color=GREY if one else colour, line_dash="dashed", line_width=2,
                line_alpha=1.0 if one else 0.6,
            )  # fmt: skip
            label = "" if one else f"{self._labels[i]}, "
            items.append(LegendItem(label=f"{label}as it was run", renderers=[before]))
            items.append(LegendItem(label=f"{label}what if", renderers=[after]))
        plot.add_layout(
            Legend(items=items, location="bottom_right", label_text_font_size="11px", background_fill_alpha=0.7)
        )
        return plot


def totals(
    labels: Sequence[str], befores: Sequence[Rows], afters: Sequence[Rows | None], measure: Measure = ACCURACY
) -> str:
    """What runs took in all, before and after, as HTML."""
    parts = []
    heads = ("", "as it was run", "what if", "change")
    for label, before, after in zip(labels, befores, afters, strict=True):
        lines = [heads, *_lines(before[-1], after[-1] if after else None, measure)]
        tags = ["th", *["td"] * (len(lines) - 1)]
        rows = [f"<tr>{_cells(line, tag)}</tr>" for line, tag in zip(lines, tags, strict=True)]
        title = label if len(labels) > 1 else "Totals"
        parts.append(f"<div><h2>{html.escape(title)}</h2><table>{''.join(rows)}</table></div>")
    return f"<div class='beside'>{''.join(parts)}</div>"


def _lines(old: Metrics, new: Metrics | None, measure: Measure) -> list[tuple[str, str, str, str]]:
    lines = []
    for title, name, text in TOTALS:
        after = change = ""
        if new is not None:
            after, change = text(new[name]), change_text(new[name] / old[name] if old[name] else math.nan)
        lines.append((title, text(old[name]), after, change))
    was = old[measure.name]
    if not math.isnan(was):
        after = change = ""
        if new is not None:
            gain = measure.factor * (new[measure.name] - was)
            known = abs(gain) >= (0.05 if measure.share else 1e-4 * abs(was))
            after = measure.text(new[measure.name])
            change = "=" if not known else f"{gain:+.1f} points" if measure.share else f"{gain:+.3g}"
        lines.append((f"{measure.heading} at the end", measure.text(was), after, change))
    lines.append(("Rounds", f"{old['round']:.0f}", "" if new is None else f"{new['round']:.0f}", ""))
    return lines


def _cells(texts: Sequence[str], tag: str) -> str:
    return "".join(f"<{tag}{' class=number' if i else ''}>{html.escape(t)}</{tag}>" for i, t in enumerate(texts))
