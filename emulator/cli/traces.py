"""``hfl traces``: look at trace files, turn them into CSV, draw them, and make synthetic ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from pydantic import ValidationError
from rich.markup import escape

from emulator.cli.app import PluginOption, app, import_plugins, out
from emulator.conformance import Facts
from emulator.contracts.files import TraceGeneratorChoice, trace_formats, trace_generators
from emulator.errors import InputError, ScenarioError, suggestion
from emulator.explain import explain
from emulator.files import write_text
from emulator.registry import Params, Plugin
from emulator.rng import stream
from emulator.scenario.load import override
from emulator.units import TIME
from emulator.yamlfile import Document
from traces.content import Content, DeviceMix, LatencyMatrix, Quantity, Series, Trace, label
from traces.formats.own_csv import as_csv, column, table
from traces.reading import detect, find, read
from traces.step import Floats, StepFunction
from traces.summary import GAP, from_afar, mean_of, summarise

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

commands = typer.Typer(no_args_is_help=True, help="Look at trace files, convert, draw and generate them.")
app.add_typer(commands, name="traces")

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A trace file, or the name of a bundled sample.")]
FormatOption = Annotated[
    str | None, typer.Option("--format", metavar="FORMAT", help="Its format. (default: told by its content)")
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A parameter, for example bin='50 ms'. Repeatable."),
]
SeriesOption = Annotated[
    list[str] | None,
    typer.Option("--series", metavar="NAME", help="Only this series, for example 'bandwidth up'. Repeatable."),
]

MANY_SERIES = 4  # more are drawn as their mean
MANY_STEPS = 1500  # more are drawn as means with a band around them
BINS = 400  # about as many as a panel has room for


@commands.command()
def inspect(
    file: FileArgument, kind: FormatOption = None, changes: SettingOption = None, plugin: PluginOption = None
) -> None:
    """Say what a trace file holds: format, duration, values, gaps, and what comes after its end."""
    path, name, content = _read(file, kind, changes, plugin)
    out.print(f"{escape(str(path))}: {name}, {_what(content)}")
    for line in _description(content):
        out.print(escape(line))


@commands.command()
def convert(
    file: FileArgument,
    to: Annotated[Path, typer.Argument(metavar="OUT.csv", help="The CSV file to write.")],
    kind: FormatOption = None,
    series: SeriesOption = None,
    changes: SettingOption = None,
    plugin: PluginOption = None,
) -> None:
    """Write a trace as CSV with units in the header, exact to the last bit."""
    path, name, content = _read(file, kind, changes, plugin)
    _check_target(to, path)
    if not isinstance(content, Trace):
        raise InputError(f"{path}: {name} is {_what(content)}, no series over time; it cannot become CSV")
    write_text(to, as_csv(_chosen(content, series), (f"Converted from {path.name} ({name}).",)))
    out.print(f"wrote {escape(str(to))}")


@commands.command()
def plot(
    file: FileArgument,
    to: Annotated[Path, typer.Argument(metavar="OUT.png", help="The picture to write: PNG, SVG or PDF.")],
    kind: FormatOption = None,
    series: SeriesOption = None,
    changes: SettingOption = None,
    plugin: PluginOption = None,
) -> None:
    """Draw what a trace file holds."""
    from analysis.plots.style import check_path

    check_path(to)
    path, _, content = _read(file, kind, changes, plugin)
    _draw(_chosen(content, series) if isinstance(content, Trace) else content, to, path.name)
    out.print(f"wrote {escape(str(to))}")


@commands.command()
def generate(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The generator, for example markov or random-walk.")],
    to: Annotated[Path, typer.Argument(metavar="OUT.csv", help="The CSV file to write.")],
    duration: Annotated[str, typer.Option(metavar="TIME", help="How long the trace is, for example '1 h'.")],
    seed: Annotated[int, typer.Option(min=0, help="Another seed gives another trace.")] = 0,
    header: Annotated[
        str | None,
        typer.Option("--column", metavar="HEADER", help="Quantity and unit of its levels, for example 'latency [ms]'."),
    ] = None,
    changes: SettingOption = None,
    plugin: PluginOption = None,
) -> None:
    """Make a synthetic trace."""
    import_plugins(plugin)
    generator = trace_generators[kind]
    params = _params(generator, changes)
    try:
        duration_s = TIME.parse(duration)
    except ValueError as error:
        raise InputError(f"--duration: {error}") from None
    if duration_s <= 0:
        raise InputError(f"--duration must be greater than zero, not '{duration}'")
    _check_target(to)
    header = header or generator.facts.column
    series, _ = column(header)
    function = TraceGeneratorChoice(kind, params)(duration_s, stream(seed, "trace", kind))
    if series[0] == "availability" and function.values.max() > 1:
        raise InputError(f"'{header}' cannot be above 1; choose lower levels or another --column")
    settings = "".join(f" --set '{key}={value}'" for key, value in _plain(params).items())
    text = f"hfl traces generate {kind} {to.name} --duration '{duration}' --seed {seed} --column '{header}'{settings}"
    write_text(to, table({header: function}, ("Synthetic; not measured. Made by:", text)))
    out.print(f"wrote {escape(str(to))}: {_steps(len(function.times_s))}")


# Reading and choosing.


def _read(
    file: str, kind: str | None, changes: list[str] | None, plugin: list[str] | None
) -> tuple[Path, str, Content]:
    import_plugins(plugin)
    path = find(file)
    name = kind or detect(path)
    return path, name, read(path, name, _params(trace_formats[name], changes))


def _params(plugin: Plugin[Any, Facts], changes: list[str] | None) -> Params:
    """The parameters of a plug-in from ``--set key=value``; raises `ScenarioError` with all that is wrong with them."""
    document = Document(plugin.name, {})
    for text in changes or ():
        override(document, text)
    try:
        return plugin.params.model_validate(document.data)
    except ValidationError as error:
        raise ScenarioError(tuple(explain(document, error.errors(include_url=False), plugin.params))) from None


def _plain(params: Params) -> dict[str, Any]:
    return {key: value for key, value in params.model_dump().items() if value is not None}


def _check_target(to: Path, source: Path | None = None) -> None:
    if to.suffix.lower() != ".csv":
        raise InputError(f"{to}: the name must end in .csv")
    if source is not None and to.exists() and to.samefile(source):
        raise InputError(f"{to}: this is the file that is read; write another one")


def _chosen(trace: Trace, names: Sequence[str] | None) -> Trace:
    if not names:
        return trace
    known = {label(series): series for series in trace.series}
    for name in names:
        if name not in known:
            raise InputError(f"unknown series '{name[:60]}'; {suggestion(name, list(known)[:20])}")
    return Trace({known[name]: trace.series[known[name]] for name in names}, trace.end_stated)


# Describing.


def _what(content: Content) -> str:
    if isinstance(content, DeviceMix):
        return f"a mix of {len(content.names):,} devices"
    if isinstance(content, LatencyMatrix):
        return f"the latencies between {len(content.latency_s):,} sites"
    return f"{len(content.series):,} series"


def _description(content: Content) -> Iterator[str]:
    if isinstance(content, DeviceMix):
        speeds = content.relative_speeds
        yield f"  speed      {_text('speed', speeds.min())} to {_text('speed', speeds.max())} times the median"
        if content.bandwidth_bps is not None:
            yield f"  bandwidth  {_spread('bandwidth', content.bandwidth_bps)}"
        if content.sample_s is not None:
            yield f"  inference  {_spread('latency', content.sample_s)} a sample"
    elif isinstance(content, LatencyMatrix):
        between = content.latency_s[~np.eye(len(content.latency_s), dtype=bool)]
        yield f"  latency    {_spread('latency', between if len(between) else content.latency_s.ravel())}"
        filled = f"{content.filled:,} of {content.latency_s.size:,} entries, filled in"
        yield f"  missing    {filled if content.filled else 'none'}"
    else:
        for series, function in list(content.series.items())[:10]:
            yield label(series)
            yield from _series(series[0], function, content.end_stated)
        if len(content.series) > 10:
            yield f"and {len(content.series) - 10:,} more series"


def _series(quantity: Quantity, function: StepFunction, end_stated: bool) -> Iterator[str]:
    from analysis.quantities import time_text

    s = summarise(function)
    yield f"  values     {_text(quantity, s.low)} to {_text(quantity, s.high)}, mean {_text(quantity, s.mean)}"
    after = "then the last value holds" if function.period_s is None else "then it starts over"
    if not end_stated and s.steps:
        after = "and no word about what comes then"
    if s.steps < 2:
        yield f"  time       {time_text(s.span_s)} without a step, {after}"
        return
    steps = f"{_steps(s.steps)} of {time_text(s.median_step_s)} (median)"
    yield f"  time       {time_text(s.span_s)} in {steps}, {after}"
    gaps = f"{_steps(s.gaps)} longer than {GAP} times the median, the longest {time_text(s.longest_step_s)}"
    yield f"  gaps       {gaps if s.gaps else 'none'}"
    if s.zero_share:
        yield f"  at zero    {100 * s.zero_share:.3g} % of the time, at longest {time_text(s.longest_zero_s)}"


def _steps(count: int) -> str:
    return f"{count:,} step" if count == 1 else f"{count:,} steps"


def _spread(quantity: Quantity, values: Floats) -> str:
    low, middle, high = (_text(quantity, float(v)) for v in (values.min(), np.median(values), values.max()))
    return f"{low} to {high}, median {middle}"


def _text(quantity: Quantity, value: float) -> str:
    unit, size = _unit(quantity, value)
    return f"{value / size:.3g} {unit}".strip()


def _unit(quantity: Quantity, largest: float) -> tuple[str, float]:
    """The unit in which values up to ``largest`` read best, and its size."""
    if quantity == "bandwidth":
        rates = (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3))
        return next((rate for rate in rates if largest >= 0.9995 * rate[1]), ("bit/s", 1.0))
    return {"latency": ("ms", 1e-3), "availability": ("%", 0.01), "speed": ("", 1.0), "carbon": ("g/kWh", 1.0)}[
        quantity
    ]


# Drawing.


def _draw(content: Content, to: Path, title: str) -> None:
    """A panel for each series, or for each quantity where there are many; of other contents, how values are distributed."""
    from analysis.plots.style import legend_below, panels, save, settle, style, title_above

    with style():
        if isinstance(content, Trace):
            groups: dict[object, list[Series]] = {}
            for series in content.series:
                groups.setdefault(series if len(content.series) <= MANY_SERIES else series[0], []).append(series)
            figure, boxes = panels(len(groups))
            handles = [_panel(box, content, group) for box, group in zip(boxes, groups.values(), strict=True)]
            banded = next((pair for pair in handles if len(pair) > 1), ())
            if banded:
                legend_below(figure, banded, ("mean of many steps", "their range"))
        else:
            figure, boxes = panels(1)
            _distribution(boxes[0], content)
        title_above(figure, title)
        settle(figure)
    save(figure, to)


def _panel(box: Axes, trace: Trace, group: Sequence[Series]) -> list[Artist]:
    """One series over time, as steps or, of many steps, as means with a band around them; of many series, their mean.

    Returns the line and the band.
    """
    from analysis.plots.style import look, measure_x, round_ticks
    from analysis.quantities import Axis, Unit

    functions = [trace.series[series] for series in group]
    first, low, high = functions[0], None, None
    if len(functions) > 1:
        edges, values = mean_of(functions, BINS)
    elif len(first.times_s) > MANY_STEPS:
        edges, values, low, high = from_afar(first, BINS)
    else:
        end = first.period_s or first.span_s * 1.1 or 1.0  # what holds is shown to hold
        edges, values = np.append(first.times_s, end), first.values
    time = Axis("time", "", "Time", (Unit("s", 1.0), Unit("min", 60.0), Unit("h", 3600.0), Unit("d", 86400.0)))
    unit = time.unit(float(edges[-1]))
    name, size = _unit(group[0][0], float((values if high is None else high).max()))
    x, colour = edges / unit.size, look(0).colour
    if group[0][0] == "availability" and len(group) == 1:  # on and off many times: an area is easier to read
        box.stairs(values / size, x, fill=True, color=colour, alpha=0.4, linewidth=0)
    drawn: list[Artist] = [box.stairs(values / size, x, baseline=None, color=colour, linewidth=0.9)]
    if low is not None and high is not None:
        drawn.append(box.stairs(high / size, x, baseline=low / size, fill=True, color=colour, alpha=0.25, linewidth=0))
    measure_x(box, time, unit, float(edges[-1] / unit.size))
    what = f"mean {group[0][0]} of {len(group):,} series" if len(group) > 1 else label(group[0])
    box.set_ylabel(f"{what[0].upper()}{what[1:]}" + (f" ({name})" if name else " (multiple of its own)"))
    box.set_ylim(bottom=0)
    box.yaxis.set_major_locator(round_ticks())
    return drawn


def _distribution(box: Axes, content: DeviceMix | LatencyMatrix) -> None:
    """The share of devices, or of pairs of sites, up to each speed or latency."""
    from analysis.plots.style import look

    if isinstance(content, DeviceMix):
        values, weights = content.relative_speeds, content.shares
        box.set(xlabel="Speed (multiple of the median)", ylabel="Devices up to this speed (%)")
    else:
        values = content.latency_s.ravel() * 1e3
        weights = np.ones_like(values)
        box.set(xlabel="Latency (ms)", ylabel="Pairs of sites up to this latency (%)")
    order = np.argsort(values)
    box.step(values[order], 100 * np.cumsum(weights[order]) / weights.sum(), where="post", color=look(0).colour)
    box.set_xlim(left=0)
    box.set_ylim(0, 100)
