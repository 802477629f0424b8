"""What is read and drawn: formats and generators of traces, figures, tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np

from emulator.conformance import Facts
from emulator.contracts.values import short
from emulator.registry import Choice, Chosen, Params, Registry

if TYPE_CHECKING:
    from analysis.printed import Printed
    from analysis.series import Given
    from analysis.studies import StudyResults
    from emulator.study.schema import FigureParams  # noqa: F401 (the base of the parameters of figures)
    from traces.content import Content
    from traces.source import Head
    from traces.step import StepFunction


@dataclass(frozen=True, kw_only=True)
class TraceFormatFacts(Facts):
    """What is true of a trace format.

    ``gives``: the class of what its files hold: `Trace`, `DeviceMix` or `LatencyMatrix` (`traces.content`). ``fits``: a
    function that tells from the head of a file whether it is in this format; without it, the user must say so.
    """

    gives: type[Content]
    fits: Callable[[Head], bool] | None = None


class TraceFormatReader(Protocol):
    """Reads a file."""

    def __call__(self, path: Path, params: Any, /) -> Content: ...


class TraceFormatChoice(Chosen[Params, TraceFormatReader, TraceFormatFacts]):
    """A trace format."""

    slot = "trace format"

    def __call__(self, path: Path) -> Content:
        """What a file holds."""
        content, gives = self.plugin.function(path, self.params), self.plugin.facts.gives
        if not isinstance(content, gives):
            raise self.broken(f"it must give a {gives.__name__}, as its facts say, and gives {short(content)}")
        return content


@dataclass(frozen=True, kw_only=True)
class TraceGeneratorFacts(Facts):
    """What is true of a trace generator. ``column``: quantity and unit of its levels, where the user does not say."""

    column: str = "bandwidth [Mbit/s]"


class TraceGeneratorRule(Protocol):
    """Makes a function of time that lasts so many seconds."""

    def __call__(self, duration_s: float, rng: np.random.Generator, params: Any, /) -> StepFunction: ...


class TraceGeneratorChoice(Chosen[Params, TraceGeneratorRule, TraceGeneratorFacts]):
    """A trace generator."""

    slot = "trace generator"

    def __call__(self, duration_s: float, rng: np.random.Generator) -> StepFunction:
        """The function of time; a `StepFunction` has only times in order, and values that are finite and not negative."""
        made = self.plugin.function(duration_s, rng, self.params)
        if not all(hasattr(made, name) for name in ("at", "next_change", "times_s", "values")):
            raise self.broken(f"it must give a StepFunction, and gives {short(made)}")
        return made


class FigureRule(Protocol):
    """Draws a figure of results to each of these paths."""

    def __call__(self, results: StudyResults, paths: Sequence[Path], params: Any, /) -> None: ...


class FigureChoice(Chosen["FigureParams", FigureRule, Facts]):
    """A figure."""

    slot = "figure"

    def __call__(self, results: StudyResults, paths: Sequence[Path]) -> None:
        """Draws the figure to each of these paths."""
        self.plugin.function(results, paths, self.params)


class PrintedTableRule(Protocol):
    """Makes a table of runs; ``target`` is an accuracy as a share, where one is asked for."""

    def __call__(self, given: Sequence[Given], target: float | None, params: Any, /) -> Printed: ...


class PrintedTableChoice(Chosen[Params, PrintedTableRule, Facts]):
    """A table that ``hfl tables`` prints."""

    slot = "table"

    def __call__(self, given: Sequence[Given], target: float | None) -> Printed:
        """The table."""
        made = self.plugin.function(given, target, self.params)
        if not all(hasattr(made, name) for name in ("data", "sections")):
            raise self.broken(f"it must give a Printed, and gives {short(made)}")
        return made


trace_formats: Registry[TraceFormatReader, TraceFormatFacts] = Registry(TraceFormatChoice, "traces.formats")
trace_generators: Registry[TraceGeneratorRule, TraceGeneratorFacts] = Registry(
    TraceGeneratorChoice, "traces.generators"
)
figures: Registry[FigureRule, Facts] = Registry(FigureChoice, "analysis.figures", "analysis.plots")
printed_tables: Registry[PrintedTableRule, Facts] = Registry(
    PrintedTableChoice, "analysis.printed", "analysis.clock_table"
)

TraceFormat = Annotated[TraceFormatChoice, Choice("trace format")]
TraceGenerator = Annotated[TraceGeneratorChoice, Choice("trace generator")]
Figure = Annotated[FigureChoice, Choice("figure")]
