"""Pictures and tables of certificates by name, for ``hfl plot`` and ``hfl table``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from analysis.certainty.certificate import Certificate
from analysis.certainty.measured import Measured
from emulator.errors import InputError, ScenarioError, suggestion
from emulator.explain import explain
from emulator.registry import Params
from emulator.study.schema import Texts
from emulator.yamlfile import Document

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class CertificateFigure(Params):
    """What every picture of a certificate has."""

    title: str = Field("", description="what stands above the picture")
    measure: str = Field("", description="a column of outcomes.parquet; by default the first measure")
    methods: Texts = Field((), description="the methods that are compared; by default all, or the first two")

    def measured(self, certificate: Certificate) -> Measured:
        """The measure; raises `InputError` where there is none of this name."""
        try:
            return certificate.measure(self.measure)
        except InputError as error:
            raise InputError(error.message, "measure") from None

    def pairs(self, certificate: Certificate) -> tuple[tuple[str, str], ...]:
        """All pairs of the methods, in the order in which they are named; raises `InputError` where there is none."""
        named = self.methods or certificate.methods
        try:
            for name in named:
                certificate.method(name)
        except InputError as error:
            raise InputError(error.message, "methods") from None
        if len(set(named)) < 2 or len(set(named)) < len(named):
            raise InputError("name at least two different methods", "methods")
        return tuple((a, b) for i, a in enumerate(named) for b in named[i + 1 :])

    def pair(self, certificate: Certificate) -> tuple[str, str]:
        """The first two of the methods."""
        return self.pairs(certificate)[0]


@dataclass(frozen=True)
class Kind:
    """A kind of picture: what it is called with, and its options."""

    draw: Callable[[Certificate, Any], Figure]
    params: type[CertificateFigure]

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.draw) or "").partition("\n")[0]


def kinds() -> dict[str, Kind]:
    """The kinds of pictures by name."""
    from analysis.plots.ratios import ratios
    from analysis.plots.tornado import tornado
    from analysis.plots.winners import Winners, winners
    from analysis.plots.world_curves import WorldCurves, world_curves

    return {
        "ratios": Kind(ratios, CertificateFigure),
        "tornado": Kind(tornado, CertificateFigure),
        "winners": Kind(winners, Winners),
        "world-curves": Kind(world_curves, WorldCurves),
    }


def figure_of(kind: str, certificate: Certificate, options: Document) -> Figure:
    """Draws a kind of picture; raises `InputError` for an unknown kind, a wrong option, or where there is nothing to draw."""
    found = kinds()
    if kind not in found:
        raise InputError(f"unknown picture of a certificate '{kind[:60]}'; {suggestion(kind, found)}")
    try:
        given = found[kind].params.model_validate(options.data or {})
    except ValidationError as error:
        raise ScenarioError(tuple(explain(options, error.errors(include_url=False), found[kind].params))) from None
    return found[kind].draw(certificate, given)


def draw(kind: str, certificate: Certificate, options: Document, paths: Sequence[Path]) -> None:
    """Draws a kind of picture to each of these paths; raises `InputError` as `figure_of`, and where a path is no good."""
    from analysis.plots import style

    for path in paths:
        style.check_path(path)
    figure = figure_of(kind, certificate, options)
    for path in paths:
        style.save(figure, path)
