"""The page about a certificate: verdicts, how sure they are, what decides, who is best where, and what was uncertain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analysis.certainty import tables
from analysis.certainty.certificate import Certificate
from analysis.certainty.figures import figure_of
from analysis.certainty.measured import Measured
from analysis.certainty.summary import left_out
from analysis.certainty.verdict import UNKNOWN, verdicts
from analysis.report_parts import Picture, Section, svg
from analysis.texttable import TextTable
from emulator.errors import InputError
from emulator.yamlfile import from_data

PAIRS = 6  # of more, pictures show the first ones
MEASURES = 4


def sections(certificate: Certificate) -> Iterator[Section]:
    """The parts of the page."""
    yield _summary(certificate)
    if not certificate.pairs:
        return
    yield _certainty(certificate)
    yield _deciding(certificate)
    yield Section("Who is best where", tables=tables.regions_table(certificate).sections)
    yield _tipping(certificate)
    yield _curves(certificate)
    yield Section("What is uncertain", texts=_idle(certificate), tables=tables.unknowns(certificate).sections)
    yield _runs(certificate)


def _summary(certificate: Certificate) -> Section:
    said = [left_out(certificate)]
    if not certificate.pairs:
        return Section("Verdicts", texts=(*said, "There is one method alone: nothing is compared."))
    found = verdicts(certificate)
    return Section(
        "Verdicts",
        texts=(*said, *(each.sentence for each in found if each.conclusion != UNKNOWN)),
        warnings=tuple(each.sentence for each in found if each.conclusion == UNKNOWN),
    )


def _certainty(certificate: Certificate) -> Section:
    found = _Drawn(certificate)
    for measure in certificate.measures[:MEASURES]:
        found.draw("ratios", f"{measure.title}: all pairs of methods over the worlds.", measure=measure.column)
    text = (
        "A world is won by the method that is better on the mean over the seeds; the interval counts worlds and seeds."
    )
    return Section(
        "How sure",
        texts=(text, *found.said),
        pictures=tuple(found.pictures),
        tables=tables.certainty(certificate).sections,
    )


def _deciding(certificate: Certificate) -> Section:
    found = _Drawn(certificate)
    for measure, pair in _shown(certificate):
        called = f"{pair[0]} against {pair[1]}, {measure.title}"
        found.draw("tornado", f"{called}: how far each unknown moves it.", True, measure=measure.column, methods=pair)
    return Section(
        "What decides",
        texts=tuple(found.said),
        pictures=tuple(found.pictures),
        tables=tables.deciding_table(certificate).sections,
    )


def _tipping(certificate: Certificate) -> Section:
    found = _Drawn(certificate)
    for measure, pair in _shown(certificate):
        caption = f"{pair[0]} against {pair[1]}, {measure.title}: who is better over the two unknowns that decide most."
        found.draw("winners", caption, measure=measure.column, methods=pair)
    return Section(
        "Where it tips",
        texts=tuple(found.said),
        pictures=tuple(found.pictures),
        tables=tables.tipping_table(certificate).sections,
    )


def _curves(certificate: Certificate) -> Section:
    found = _Drawn(certificate)
    for axis in ("time", "bytes", "cost"):
        found.draw("world-curves", f"Curves over worlds, against {axis}.", x=axis)
    return Section("Curves over worlds", texts=tuple(found.said), pictures=tuple(found.pictures))


def _shown(certificate: Certificate) -> list[tuple[Measured, list[str]]]:
    """The pairs and measures that pictures are drawn of: all pairs by the first measure."""
    return [(certificate.measures[0], list(pair)) for pair in certificate.pairs[:PAIRS]]


def _idle(certificate: Certificate) -> tuple[str, ...]:
    idle = ", ".join(certificate.without_effect)
    said = (f"Without effect on any of these runs, and so not drawn: {idle}.",) if idle else ()
    correlated = (
        f"Correlated: {', '.join(sorted(certificate.correlated))}; of these only first-order indices are given.",
    )
    return (*said, *(correlated if certificate.correlated else ()))


def _runs(certificate: Certificate) -> Section:
    rows = tuple((str(run["method"]), str(run["seed"]), str(run.get("folder", ""))) for run in certificate.listed)
    return Section("Runs", tables=(TextTable("Runs", ("method", "seed", "folder"), rows, (False, True, False)),))


class _Drawn:
    """Pictures of a section; where one cannot be drawn, ``said`` says why, once."""

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate
        self.said: list[str] = []
        self.pictures: list[Picture] = []

    def draw(self, kind: str, caption: str, wide: bool = False, **options: Any) -> None:
        """Adds a picture."""
        try:
            figure = figure_of(kind, self._certificate, from_data(options, kind))
        except InputError as error:
            if error.message not in self.said:
                self.said.append(error.message)
            return
        self.pictures.append(Picture(svg(figure), caption[:1].upper() + caption[1:], wide))
